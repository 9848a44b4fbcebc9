"""The site: pages as MkDocs reads them, pages made of the code, figures that stand elsewhere, readable sentences.

``scripts/docs`` builds it, and fails where a link, an anchor or a page leads nowhere.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from kit.cases import for_each
from kit.sentences import sentences
from sitelib.__main__ import loaded_from_elsewhere
from sitelib.commands_page import render
from sitelib.markdown import indent_lists, on_page_markdown

pytestmark = pytest.mark.quick
ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
LONGEST = 45
"""Words of a sentence that is read once."""
LONG_SENTENCES = {
    "docs/bench/earlier.md": 12,
    "docs/debezium-differences.md": 2,
    "docs/from-debezium.md": 6,
    "docs/native.md": 6,
    "docs/performance.md": 14,
    "docs/transforms.md": 3,
}
"""Pages that may have longer ones, and how many; the numbers only fall."""


@for_each(
    "page, read",
    [
        ("text\n* a\n  b\n", "text\n\n* a\n    b\n"),
        ("1. a\n\n       code\n\n   more\n2. b\n", "1. a\n\n        code\n\n    more\n2. b\n"),
        ("* a\n  * b\n    c\n\nend\n", "* a\n    * b\n        c\n\nend\n"),
        ("1. a\n\n    ```sh\n    run\n    ```\n\nend\n", "1. a\n\n     ```sh\n     run\n     ```\n\nend\n"),
        ("```sh\n* no list\n  b\n```\n", "```sh\n* no list\n  b\n```\n"),
    ],
)
def test_items_go_on_with_four_spaces(page: str, read: str) -> None:
    assert indent_lists(page) == read


def test_a_link_that_leaves_the_folder_leads_to_the_repository_and_comments_are_left_out() -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="guides/upgrade.md"))
    config = SimpleNamespace(repo_url="https://example/owner/name/")
    text = "<!-- not run: why -->\n[a](../../CHANGELOG.md) [b](../spark.md#python)\n"
    read = on_page_markdown(text, page, config)
    assert read.split() == ["[a](https://example/owner/name/blob/main/CHANGELOG.md)", "[b](../spark.md#python)"]


def test_pages_that_load_from_elsewhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="https://a"></a><link rel="stylesheet" href="x.css"><script src="y.js"></script>'
    )
    assert loaded_from_elsewhere(tmp_path) == []
    (tmp_path / "b.html").write_text(
        '<link rel="stylesheet" href="https://c/x.css"><script src="https://c/y.js"></script>'
    )
    assert loaded_from_elsewhere(tmp_path) == ["https://c/x.css", "https://c/y.js"]


def test_the_page_of_commands_is_current() -> None:
    page = DOCS / "reference" / "commands.md"
    assert page.read_text() == render(), (
        f"run: PYTHONPATH=tools python -m sitelib.commands_page {page.relative_to(ROOT)}"
    )


def rows(page: str) -> list[list[str]]:
    lines = (DOCS / page).read_text().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]


def test_the_comparison_has_the_measured_figures() -> None:
    measured = {(row[0], row[1].split(" ")[0]): row for row in rows("performance.md") if len(row) > 8}
    compared = 0
    for workload, *cells in rows("comparison.md"):
        if (workload, "with") not in measured:
            continue
        if workload.startswith(("lag", "connect")):
            debezium, ours = measured[workload, "Debezium"], measured[workload, "with"]
            assert cells == [debezium[2], ours[2], debezium[3], ours[3]]
        else:
            other, without = cells[0].rsplit(" ", 1)
            expected = [
                measured[workload, who][5] if (workload, who) in measured else "not measured"
                for who in ("this", "with")
            ]
            assert [without, *cells[1:]] == [measured[workload, other.split(" ")[0]][5], *expected]
        compared += 1
    assert compared == 11


def test_sentences_are_short_enough_to_be_read_once() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")):
        name = str(page.relative_to(ROOT))
        if not name.startswith("docs/adr/"):
            long = [text for text in sentences(page.read_text()) if len(text.split()) > LONGEST]
            assert len(long) <= LONG_SENTENCES.get(name, 0), "\n".join([name, *long])


def test_readme_fits_two_screens() -> None:
    text = re.sub(r"^\[.*?\]: .*\n", "", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    assert len(text.splitlines()) <= 90
