"""The list of mutants fits the product as it stands; ``scripts/mutate`` makes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mutatelib import cli
from mutatelib.mutant import REPOSITORY, ListError, Mutant, _read, load
from mutatelib.run import Result, try_mutant

MUTANTS = load()
HOLES = range(1, 23)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_a_mutant_applies_and_its_tests_are_there(mutant: Mutant) -> None:
    """After a change of the product: adapt the text in tests/mutants, or take the mutant out with its protection."""
    text = (REPOSITORY / mutant.path).read_text(encoding="utf-8")
    assert text.count(mutant.out) == 1, f"{mutant.path} holds {mutant.out!r} {text.count(mutant.out)} times"
    changed = mutant.applied(text)
    assert changed is not None and changed != text
    compile(changed, str(mutant.path), "exec")
    for test in mutant.tests:
        file, _, name = test.partition("::")
        path = REPOSITORY / "tests" / file
        assert path.is_file() and (not name or f"def {name}(" in path.read_text(encoding="utf-8")), test


def test_each_of_the_twenty_two_holes_has_a_mutant() -> None:
    assert {row for m in MUTANTS for row in m.rows if not m.explained} == set(HOLES)


def test_an_entry_that_does_not_fit_is_named() -> None:
    whole = {"name": "n", "file": "f", "out": "a", "in": "b", "breaks": "x", "tests": ["unit/test_x.py"]}
    assert _read(whole, "list").quick
    for change in ({"tests": []}, {"explained": "why"}, {"rows": 3}, {"unknown": "x"}):
        with pytest.raises(ListError, match="list: n"):
            _read(whole | change, "list")
    with pytest.raises(ListError, match="file, out is missing"):
        _read({k: v for k, v in whole.items() if k not in ("file", "out")}, "list")


@dataclass
class FakeCopy:
    """A copy whose tests end as a test says."""

    root: Path
    code: int
    output: str = ""
    seen: list[str] = field(default_factory=list)

    def test(self, tests: tuple[str, ...], *options: str, limit_s: float) -> tuple[int, str]:
        self.seen.append((self.root / MUTANT.path).read_text())
        return self.code, self.output


MUTANT = Mutant("n", "some.py", "if careful:", "if False:", "x", tests=("unit/test_x.py",))
TEXT = "if careful:\n    pass\n"


@pytest.mark.parametrize(
    ("code", "output", "verdict", "why"),
    [
        (0, "9 passed", "survived", ""),
        (1, "F\nFAILED tests/unit/test_x.py::test_y - AssertionError", "killed", "unit/test_x.py::test_y"),
        (1, "E\nERROR tests/unit/test_x.py::test_z - OSError", "killed", "unit/test_x.py::test_z"),
        (124, "", "killed", "took too long"),
        # The tests were not run: a mutant that cannot be imported, a test that is not there.
        (2, "ERROR tests/unit/test_x.py", "not testable", "pytest ended with 2"),
        (4, "file not found", "not testable", "pytest ended with 4"),
        (5, "no tests ran", "not testable", "pytest ended with 5"),
    ],
)
def test_a_mutant_is_made_judged_and_taken_back(tmp_path: Path, code: int, output: str, verdict: str, why: str) -> None:
    path = tmp_path / MUTANT.path
    path.parent.mkdir()
    path.write_text(TEXT)
    copy: Any = FakeCopy(tmp_path, code, output)
    found = try_mutant(copy, MUTANT)
    assert found.verdict == verdict and found.why.startswith(why)
    assert copy.seen == ["if False:\n    pass\n"] and path.read_text() == TEXT


@pytest.mark.parametrize("text", [TEXT * 2, "if careless:", None], ids=["twice", "not there", "no file"])
def test_a_mutant_whose_text_is_not_there_once_no_longer_applies(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / MUTANT.path
    path.parent.mkdir()
    if text is not None:
        path.write_text(text)
    copy: Any = FakeCopy(tmp_path, 0)
    assert try_mutant(copy, MUTANT).verdict == "no longer applies" and copy.seen == []


@pytest.mark.parametrize(("verdicts", "code"), [("killed killed", 0), ("killed survived", 1), ("no longer applies", 1)])
def test_the_command_fails_when_a_mutant_is_not_killed(
    capsys: pytest.CaptureFixture[str], verdicts: str, code: int
) -> None:
    all_of: Any = [verdicts] if verdicts.startswith("no") else verdicts.split()
    assert cli._report([Result(MUTANT, verdict, 1.0) for verdict in all_of], 3, 60) == code
    said = capsys.readouterr().out
    assert (
        f"mutants: {0 if verdicts.startswith('no') else len(all_of)} made" in said
        and "3 explained" in said
        and ("if careful:" in said) == bool(code)
    )
