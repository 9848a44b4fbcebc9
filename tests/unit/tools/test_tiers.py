"""What the fast tier leaves out is what ``scripts/test --all`` runs beside it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit import tiers

ROOT = Path(__file__).resolve().parents[3]
MARK = "exhaustive(but="


class FakeItem:
    """A collected test with its markers."""

    def __init__(self, nodeid: str, *markers: str) -> None:
        self.nodeid, self.markers = nodeid, markers

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        for marker in self.markers:
            if marker.startswith(name):
                _, _, rest = marker.partition(" ")
                mark = getattr(pytest.mark, name)
                return (mark(but=rest.removeprefix("but ")) if "but" in rest else mark(*rest.split())).mark
        return None


def _out(items: list[FakeItem], day: int) -> list[str]:
    out = tiers.left_out(items, day)  # type: ignore[arg-type]
    return [item.nodeid for item in items if item in out]


def test_what_is_exhaustive_is_left_out_and_nothing_else() -> None:
    items = [FakeItem("a::x"), FakeItem("a::y[1]", "exhaustive", "halves"), FakeItem("a::y[2]", "native")]
    assert _out(items, 0) == ["a::y[1]"]


def test_cases_that_the_marker_names_stay() -> None:
    items = [FakeItem(f"a::y{case}", "exhaustive but 2|3") for case in ("", "[1]", "[x2]", "[3-1]")]
    assert _out(items, 0) == ["a::y", "a::y[1]"]


@pytest.mark.parametrize("cases", [2, 3, 7])
def test_two_days_have_all_cases_of_each_function(cases: int) -> None:
    items = [FakeItem(f"{name}[{n}]", "halves") for name in ("a::x", "a::y") for n in range(cases)]
    first, second = _out(items, 10), _out(items, 11)
    assert not set(first) & set(second)
    assert sorted(first + second) == sorted(item.nodeid for item in items)
    for name in ("a::x", "a::y"):
        for out in (first, second):
            assert 0 < sum(node.startswith(name) for node in out) < cases


def test_a_single_case_is_tried_each_day() -> None:
    items = [FakeItem("a::x", "halves")]
    assert _out(items, 0) == _out(items, 1) == []


def test_what_has_a_day_is_tried_on_these_days_only() -> None:
    items = [FakeItem("a::x", "days even"), FakeItem("a::y", "days odd"), FakeItem("a::z", "days odd", "exhaustive")]
    assert (_out(items, 4), _out(items, 5), _out(items, -1)) == (["a::y", "a::z"], ["a::x", "a::z"], ["a::z"])


def test_a_case_of_each_function_stays_in_the_fast_tier_where_its_mark_says_so() -> None:
    """A regular expression that no id has any more would leave a mechanism to the whole run without a word."""
    named = [
        f"{path.relative_to(ROOT)}::{function.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        # Without a kernel the tests about it are not collected.
        if MARK in (text := path.read_text(encoding="utf-8")) and "mark.native" not in text and path != Path(__file__)
        for function in ast.walk(ast.parse(text))
        if isinstance(function, ast.FunctionDef) and MARK in "".join(map(ast.unparse, function.decorator_list))
    ]
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
    environment = {name: value for name, value in os.environ.items() if name != "MYSQL_CDC_ALL" and "XDIST" not in name}
    environment["MYSQL_CDC_SUITE_DAY"] = "-1"
    files = sorted({node.partition("::")[0] for node in named})
    done = subprocess.run([*command, *files], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    stay = {line.partition("[")[0].partition("@")[0] for line in done.stdout.splitlines()}
    assert len(named) > 100, "the marks are looked for in another form"
    assert [node for node in named if node not in stay] == [], done.stdout[-500:] + done.stderr[-500:]
