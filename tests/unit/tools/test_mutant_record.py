"""Verdicts of earlier runs hold until what they rest on has changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from mutatelib import record as records
from mutatelib.mutant import Mutant
from mutatelib.record import VerdictFile, verdict_key
from mutatelib.verdicts import Result, Verdict

MUTANT = Mutant("n", "some.py", "if careful:", "if False:", "x", tests=("unit/test_x.py", "unit/test_z.py::test_z"))
NODE = "unit/test_x.py::test_y[1]"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / MUTANT.path).parent.mkdir()
    (tmp_path / MUTANT.path).write_text("if careful:\n    pass\n")
    for name in ("test_x", "test_z", "test_other"):
        (tmp_path / f"tests/unit/{name}.py").write_text(f"def {name}(): ...\n")
    monkeypatch.setattr(records.verdict_key, "__defaults__", (tmp_path,))
    return tmp_path


@pytest.mark.parametrize("file", ["airflow_provider_mysql_cdc/some.py", "tests/unit/test_x.py", "tests/unit/test_z.py"])
def test_a_kill_holds_until_the_mutated_file_or_a_test_of_its_changes(checkout: Path, file: str) -> None:
    path = checkout / "deep" / "record"
    VerdictFile(path).add(Result(MUTANT, "killed", 9.0, 2.5, NODE, "why", verdict_key(MUTANT), controlled=True))
    found = VerdictFile(path).valid_result(MUTANT)
    assert found == Result(MUTANT, "killed", 0.0, 2.5, NODE, "why", "", controlled=True, recorded=True)
    (checkout / "tests/unit/test_other.py").write_text("changed = 1\n")
    assert VerdictFile(path).valid_result(MUTANT) is not None
    with (checkout / file).open("a") as changed:
        changed.write("more = 1\n")
    assert VerdictFile(path).valid_result(MUTANT) is None and VerdictFile(path).killer(MUTANT) == NODE


@pytest.mark.parametrize(
    "change", [{"put": "if 0:"}, {"tests": ("unit/test_x.py",)}, {"expects": "errored"}], ids=lambda c: next(iter(c))
)
def test_a_kill_is_not_that_of_another_row(checkout: Path, change: dict[str, object]) -> None:
    record = VerdictFile(checkout / "record")
    record.add(Result(MUTANT, "killed", key=verdict_key(MUTANT)))
    assert record.valid_result(MUTANT) is not None
    other: Mutant = replace(MUTANT, **change)  # type: ignore[arg-type]
    assert record.valid_result(other) is None and record.valid_result(replace(MUTANT, name="other")) is None


@pytest.mark.parametrize("verdict", ["survived", "took too long", "errored", "not testable", "red without it"])
def test_whatever_is_no_kill_is_tried_again(checkout: Path, verdict: Verdict) -> None:
    record = VerdictFile(checkout / "record")
    record.add(Result(MUTANT, "killed", killer=NODE, key=verdict_key(MUTANT)))
    record.add(Result(MUTANT, verdict, key=verdict_key(MUTANT)))
    assert record.valid_result(MUTANT) is None and VerdictFile(checkout / "record").valid_result(MUTANT) is None


def test_a_killer_that_the_row_no_longer_names_does_not_come_first(checkout: Path) -> None:
    record = VerdictFile(checkout / "record")
    assert record.killer(MUTANT) == ""
    record.add(Result(MUTANT, "killed", killer=NODE, key=verdict_key(MUTANT)))
    assert record.killer(MUTANT) == NODE
    assert record.killer(replace(MUTANT, tests=("unit/test_other.py",))) == ""
    assert record.killer(replace(MUTANT, tests=(NODE,))) == "", "it is all there is"


def test_a_line_that_was_not_written_to_its_end_is_passed_over(checkout: Path) -> None:
    path = checkout / "record"
    VerdictFile(path).add(Result(MUTANT, "killed", key=verdict_key(MUTANT)))
    with path.open("a") as file:
        file.write('{"name": "n", "key": "x", "verd')
    assert VerdictFile(path).valid_result(MUTANT) is not None
    path.write_text('{"name": "n", "of": "another version"}\n')
    assert VerdictFile(path).valid_result(MUTANT) is None
