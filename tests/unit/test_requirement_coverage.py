"""Every requirement has a test, or says why it has none (waiting_requirements)."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from kit.cases import for_each
from kit.waiting_requirements import LISTED, WAITING

TESTS = Path(__file__).resolve().parents[1]
FAMILIES = {
    "SETUP": 42, "SCH": 43, "SNAP": 58, "INC": 47, "STRM": 40, "TOPIC": 12, "TXN": 12, "EVT": 41, "TYPE": 72,
    "COL": 18, "AVRO": 61, "DB2": 17, "CFG": 132, "MET": 61, "FAULT": 32, "EX": 54, "DIS": 41,
}  # fmt: skip
"""Number of requirements by prefix; ids run from 01 without a gap."""


def ids(family: str) -> list[str]:
    """Return all ids of a family."""
    return [f"{family}-{number:02d}" for number in range(1, FAMILIES[family] + 1)]


def marks(source: str) -> list[ast.expr]:
    """Return the arguments of all ``pytest.mark.req(...)`` in a module's text."""
    return [
        argument
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.req"
        for argument in node.args
    ]


@cache
def tagged() -> dict[str, list[str]]:
    """Return the files in which each id is a mark."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        for argument in marks(source) if "mark.req" in source else ():
            assert isinstance(argument, ast.Constant) and isinstance(argument.value, str), f"{path}: {argument}"
            found.setdefault(argument.value, []).append(str(path.relative_to(TESTS)))
    return found


def test_marks_are_found_wherever_they_stand() -> None:
    source = (
        '@pytest.mark.req("A-01", "A-02")\n@pytest.mark.other("A-03")\ndef test() -> None: ...\n'
        'CASES = [pytest.param(1, marks=pytest.mark.req("A-04"))]\n# pytest.mark.req("A-05")\n'
    )
    assert sorted(ast.literal_eval(a) for a in marks(source)) == ["A-01", "A-02", "A-04"]
    assert sum(FAMILIES.values()) == 783


@for_each("family", FAMILIES)
def test_every_requirement_is_tested_or_waits(family: str) -> None:
    assert [i for i in ids(family) if i not in tagged() and i not in WAITING] == []


def test_what_is_tested_does_not_wait_any_more() -> None:
    assert {i: tagged()[i] for i in WAITING if i in tagged()} == {}


def test_a_requirement_waits_for_one_reason() -> None:
    assert len(LISTED) == len(WAITING)


def test_every_id_exists() -> None:
    known = {i for family in FAMILIES for i in ids(family)}
    assert {i: files for i, files in tagged().items() if i not in known} == {}
    assert set(WAITING) <= known
