"""A seeded draw of requirements, and the edits that take their features out."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
from mutatelib.mutant import REPOSITORY, Mutant, load
from mutatelib.requirement_draw import describe, draw, marked_requirements

TESTS = REPOSITORY / "tests"
OF_REQUIREMENTS = [m for m in load() if m.requirements]


@cache
def marks_of(file: str) -> dict[str, set[str]]:
    """Return the requirement ids that each test function of a file carries, those of its parameters included."""
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    # A mark of several tests may have a name of its own.
    named = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
    return {
        node.name: {
            str(argument.value)
            for decorator in node.decorator_list
            for call in ast.walk(named.get(ast.unparse(decorator), decorator))
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.req"
            for argument in call.args
            if isinstance(argument, ast.Constant)
        }
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize("mutant", OF_REQUIREMENTS, ids=lambda m: m.name)
def test_what_goes_red_without_a_feature_carries_its_requirement(mutant: Mutant) -> None:
    for test in mutant.tests:
        file, _, name = test.partition("::")
        function = name.partition("[")[0].rpartition("::")[2]
        marks = marks_of(file)
        carried = marks[function] if function else set().union(*marks.values())
        assert set(mutant.requirements) <= carried, test


def test_marks_are_collected_by_file(tmp_path: Path) -> None:
    (tmp_path / "unit").mkdir()
    (tmp_path / "unit" / "test_a.py").write_text('@pytest.mark.req("A-01", "A-02")\ndef test() -> None: ...\n')
    (tmp_path / "test_b.py").write_text('CASES = [pytest.param(1, marks=pytest.mark.req("A-02"))]\n')
    assert marked_requirements(tmp_path) == {"A-01": ("unit/test_a.py",), "A-02": ("test_b.py", "unit/test_a.py")}


def test_one_seed_draws_the_same_requirements_and_names_those_without_an_edit() -> None:
    marked = {f"A-{n:02}": ("unit/test_a.py",) for n in range(1, 41)}
    edit = Mutant("n", "f", "a", "b", "x", tests=("unit/test_a.py",), requirements=("A-03",))
    drawn = draw(marked, [edit], 10, seed=7)
    assert drawn == draw(marked, [edit], 10, seed=7) != draw(marked, [edit], 10, seed=8)
    assert len({d.id for d in drawn}) == 10
    everything = draw(marked, [edit], 99, seed=1)
    assert [d.id for d in everything] == sorted(marked)
    assert [d.mutants for d in everything if d.id == "A-03"] == [(edit,)]
    lines = describe(everything)
    assert len(lines) == 39 and lines[0] == "A-01: no edit is written down; its marks: unit/test_a.py"
