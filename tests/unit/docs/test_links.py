"""Links and paths in the documentation lead to something that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kit.cases import for_each

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "airflow_provider_mysql_cdc"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BASES = (ROOT, PACKAGE, PACKAGE / "cdc", ROOT / "tools", ROOT / "docs")
PATH = re.compile(r"`([\w./-]+/[\w.-]+\.(?:py|md|toml|sql|jsonl|svg))(?:::\w+)?`|\((tests/[\w/.-]+\.py)\)")


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]+)]\([^)]*\)", r"\1", h).lower()).replace(" ", "-") for h in headings
    }


@for_each("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_of_a_page_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@for_each("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_file_that_a_page_names_exists(page: Path) -> None:
    named = {first or second for first, second in PATH.findall(page.read_text(encoding="utf-8"))}
    kept = {name for name in named if not name.startswith(".stack/")}
    missing = {name for name in kept if not any((base / name).exists() for base in BASES)}
    assert not missing
