"""The list of mutants fits the product as it stands; ``scripts/mutate`` makes them."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from mutatelib import cli, run
from mutatelib.mutant import REPOSITORY, ListError, Mutant, _read, load
from mutatelib.run import check_controls, try_mutant
from mutatelib.runs import FailedTest, RunOutcome
from mutatelib.verdicts import Result, Verdict, judge

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
        function = name.partition("[")[0].rpartition("::")[2]
        assert path.is_file() and (not name or f"def {function}(" in path.read_text(encoding="utf-8")), test


def test_each_of_the_twenty_two_holes_has_a_mutant() -> None:
    assert {row for m in MUTANTS for row in m.rows if not m.explained} == set(HOLES)


def test_an_entry_that_does_not_fit_is_named() -> None:
    whole = {"name": "n", "file": "f", "out": "a", "in": "b", "breaks": "x", "tests": ["unit/test_x.py"]}
    assert _read(whole, "list").quick
    for change in ({"tests": []}, {"explained": "why"}, {"rows": 3}, {"unknown": "x"}, {"expects": "luck"}):
        with pytest.raises(ListError, match="list: n"):
            _read(whole | change, "list")
    with pytest.raises(ListError, match="file, out is missing"):
        _read({k: v for k, v in whole.items() if k not in ("file", "out")}, "list")


@dataclass
class FakeCopy:
    """A copy whose tests end as a test says."""

    root: Path
    ends: list[RunOutcome]
    seen: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    def test(self, tests: tuple[str, ...], *options: str, limit_s: float) -> RunOutcome:
        file = self.root / MUTANT.path
        self.seen.append((file.read_text() if file.exists() else "", tests))
        return self.ends.pop(0)


MUTANT = Mutant("n", "some.py", "if careful:", "if False:", "x", tests=("unit/test_x.py",))
TEXT, CHANGED = "if careful:\n    pass\n", "if False:\n    pass\n"
NODE = "unit/test_x.py::test_y"


def red(phase: str = "call", error: str = "AssertionError", text: str = "", line: str = "assert x") -> RunOutcome:
    return RunOutcome(1, 2.0, "F", (FailedTest(f"tests/{NODE}", phase, error, text, line),))


GREEN = RunOutcome(0, 1.0, "9 passed")
BY_PLUGIN = "Timeout (>150.0s) from pytest-timeout."


@pytest.mark.parametrize(
    ("ended", "verdict", "killer"),
    [
        (GREEN, "survived", ""),
        (red(), "killed", NODE),
        (red(error="ZeroDivisionError"), "killed", NODE),
        # What load brings about as well.
        (red(error="TimeoutError"), "took too long", NODE),
        (red(error="TimeoutExpired"), "took too long", NODE),
        (red(error="Failed", text=BY_PLUGIN), "took too long", NODE),
        (red(line="assert time.monotonic() < deadline, 'nobody came'"), "took too long", NODE),
        (red("setup", "Failed", BY_PLUGIN), "took too long", NODE),
        (RunOutcome(None, 9.0, ""), "took too long", ""),
        (replace(red("setup", "StackError"), code=None), "took too long", ""),
        (replace(red(error="TimeoutError"), code=None), "took too long", NODE),
        # It was red before what cleans up behind it hung.
        (replace(red(), code=None), "killed", NODE),
        (red("setup", "StackError"), "errored", NODE),
        (red("teardown", "OperationalError"), "errored", NODE),
        # The tests were not run: a mutant that cannot be imported, a test that is not there, a crash.
        (
            RunOutcome(2, 1.0, "ERROR", (FailedTest("tests/unit/test_x.py", "collect", "", "SyntaxError", ""),)),
            "not testable",
            "",
        ),
        (RunOutcome(4, 1.0, "file not found"), "not testable", ""),
        (RunOutcome(5, 1.0, "no tests ran"), "not testable", ""),
        (RunOutcome(-11, 1.0, ""), "not testable", ""),
    ],
)
def test_a_mutant_is_made_judged_and_taken_back(tmp_path: Path, ended: RunOutcome, verdict: str, killer: str) -> None:
    path = tmp_path / MUTANT.path
    path.parent.mkdir()
    path.write_text(TEXT)
    copy: Any = FakeCopy(tmp_path, [ended])
    found = try_mutant(copy, MUTANT)
    assert (found.verdict, found.killer) == (verdict, killer)
    assert copy.seen == [(CHANGED, MUTANT.tests)] and path.read_text() == TEXT


def test_what_a_row_expects_is_a_kill_and_nothing_else_is() -> None:
    hangs, stops = replace(MUTANT, expects="took too long"), replace(MUTANT, expects="errored")
    assert judge(hangs, RunOutcome(None, 9.0, ""))[0] == "killed" == judge(stops, red("setup", "OSError"))[0]
    assert judge(hangs, red("setup", "OSError"))[0] == "errored"
    assert judge(stops, red(error="TimeoutError"))[0] == "took too long"
    assert judge(hangs, red())[0] == "killed" and judge(hangs, GREEN)[0] == "survived"


@pytest.mark.parametrize(
    ("ends", "verdict", "cpu_s"),
    [([red()], "killed", 2.0), ([GREEN, red()], "killed", 3.0), ([RunOutcome(4, 1.0, ""), GREEN], "survived", 2.0)],
    ids=["it does again", "it does not", "it is no longer there"],
)
def test_the_test_that_killed_it_comes_first_and_all_follow(
    tmp_path: Path, ends: list[RunOutcome], verdict: str, cpu_s: float
) -> None:
    path = tmp_path / MUTANT.path
    path.parent.mkdir()
    path.write_text(TEXT)
    copy: Any = FakeCopy(tmp_path, list(ends))
    found = try_mutant(copy, MUTANT, NODE)
    assert (found.verdict, found.cpu_s) == (verdict, cpu_s)
    assert copy.seen == [(CHANGED, (NODE,)), (CHANGED, MUTANT.tests)][: len(ends)] and path.read_text() == TEXT


def test_a_test_that_is_red_without_the_mutant_kills_nothing(tmp_path: Path) -> None:
    other = replace(MUTANT, name="other")
    hung = replace(MUTANT, name="hung", expects="took too long")
    results = [
        Result(MUTANT, "killed", killer=NODE),
        Result(other, "killed", killer=f"{NODE}z"),
        Result(hung, "killed"),
    ]
    copy: Any = FakeCopy(tmp_path, [red()])
    found = {r.mutant.name: r for r in check_controls(copy, results)}
    assert copy.seen == [("", (NODE, f"{NODE}z", "unit/test_x.py"))]
    assert {name: r.verdict for name, r in found.items()} == {
        "n": "red without it",
        "other": "killed",
        "hung": "red without it",
    }
    assert found["other"].controlled and not found["n"].controlled
    copy = FakeCopy(tmp_path, [RunOutcome(4, 1.0, "not found")])
    assert [r.verdict for r in check_controls(copy, results[:1])] == ["red without it"]


@dataclass
class HeldCopy:
    """A copy whose tests go on until they are ended."""

    stack_dir: Path
    airflow: bool
    ended: threading.Event = field(default_factory=threading.Event)
    removed: bool = False

    def end(self) -> None:
        self.ended.set()

    def remove(self) -> None:
        time.sleep(0.3)
        self.removed = True


def test_an_interrupt_ends_what_runs_and_removes_all_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[HeldCopy] = []

    def make(stack_dir: Path, airflow: bool) -> HeldCopy:
        copies.append(HeldCopy(stack_dir, airflow))
        return copies[-1]

    def attempt(copy: Any, mutant: Mutant) -> Result:
        assert copy.ended.wait(60)
        raise RuntimeError("the run was ended")

    def interrupted(workers: Any) -> None:
        while len(copies) < 2:
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "Copy", make)
    monkeypatch.setattr(run, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.run_all([MUTANT] * 5, 2, tmp_path, lambda result: None, attempt)
    assert [(c.removed, c.airflow) for c in copies] == [(True, False)] * 2


@pytest.mark.parametrize("text", [TEXT * 2, "if careless:", None], ids=["twice", "not there", "no file"])
def test_a_mutant_whose_text_is_not_there_once_no_longer_applies(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / MUTANT.path
    path.parent.mkdir()
    if text is not None:
        path.write_text(text)
    copy: Any = FakeCopy(tmp_path, [])
    assert try_mutant(copy, MUTANT).verdict == "no longer applies" and copy.seen == []


@pytest.mark.parametrize(
    ("verdicts", "code", "said"),
    [
        (["killed", "killed"], 0, "2 made, 2 killed, 0 survived, 0 no longer apply; 3 explained; 1 verdicts from the"),
        (["killed", "survived"], 1, "2 made, 1 killed, 1 survived"),
        (["no longer applies"], 1, "0 made, 0 killed, 0 survived, 1 no longer apply"),
        (["killed", "errored", "took too long"], 1, "0 no longer apply, 1 took too long, 1 errored; 3"),
    ],
)
def test_the_command_fails_when_a_mutant_is_not_killed(
    capsys: pytest.CaptureFixture[str], verdicts: list[Verdict], code: int, said: str
) -> None:
    results = [Result(MUTANT, verdict, cpu_s=7.0, recorded=n == 1) for n, verdict in enumerate(verdicts)]
    assert cli._report(results, 3, 60) == code
    out = capsys.readouterr().out
    assert (
        said in out
        and ("if careful:" in out) == bool(code)
        and f"CPU {7 * sum(not r.recorded for r in results)} s" in out
    )
