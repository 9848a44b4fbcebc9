"""The list of mutants fits the product as it stands; ``scripts/mutate`` makes them."""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from mutatelib import cli
from mutatelib.mutant import LIST, PACKAGE, REPOSITORY, Mutant, load
from mutatelib.run import try_mutant

TESTS = """import product, pytest, subprocess, time
def test_limit():
    left = subprocess.Popen(["sleep", "600"])
    open("left", "w").write(str(left.pid))
    assert product.LIMIT < 3
@pytest.mark.timeout(3)
def test_hang():
    time.sleep(600 * (product.LIMIT == 2))
"""
MUTANT = Mutant("product.py", (1,), "x", "unit/test_it.py", "LIMIT = 1", "LIMIT = 4")


def test_the_list_fits_the_product() -> None:
    """After a change of the product: adapt the text in tests/mutants.toml, or remove the entry with its protection."""
    misfits = []
    for mutant in load():
        try:
            mutant.changed()
        except ValueError as error:
            misfits.append(f"{mutant.file}: {mutant.breaks}: {error}")
    assert misfits == [], "\n".join(misfits)


def test_each_fixed_fault_has_a_mutant() -> None:
    faults = (REPOSITORY / "docs" / "fixed-faults.md").read_text(encoding="utf-8")
    rows = {int(row) for row in re.findall(r"^\| (\d+) \|", faults, re.MULTILINE)}
    assert {row for mutant in load() for row in mutant.rows} == rows >= set(range(1, 23))


def test_an_entry_that_is_not_of_the_form_is_named(tmp_path: Path) -> None:
    (tmp_path / LIST).parent.mkdir()
    (tmp_path / LIST).write_text('"a.py" = [[[1], "x", "unit/test_x.py", "a", "b"]]\n"b.py" = [[[1], "x", "a", "b"]]\n')
    with pytest.raises(ValueError, match=r"b\.py: not \[rows"):
        load(tmp_path)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout of one module and one test."""
    for file, text in ((f"{PACKAGE}/product.py", "LIMIT = 1\n"), ("tests/unit/test_it.py", TESTS)):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text(text)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {PACKAGE}\n")
    return tmp_path


def test_a_mutant_is_made_judged_and_taken_back(checkout: Path) -> None:
    product, left = checkout / PACKAGE / "product.py", checkout / "left"
    for put, limit_s, verdict, why in (
        ("LIMIT = 4", 300, "killed", "FAILED tests/unit/test_it.py::test_limit"),
        # Of one length and second: what is compiled is not taken for fresh.
        ("LIMIT = 0", 300, "survived", "2 passed"),
        ("LIMIT = 2", 300, "not judged", "pytest ended with 1"),
        ("LIMIT = 4", 0.01, "not judged", "pytest ended with None"),
        ("raise X", 300, "not judged", "pytest ended with 2"),
        ("LIMIT =", 300, "does not apply", "no Python"),
        ("LIMIT = 1", 300, "does not apply", "1 times"),
    ):
        left.unlink(missing_ok=True)
        found = try_mutant(checkout, replace(MUTANT, put=put), limit_s)
        assert found[0] == verdict and why in found[1], (put, found)
        assert product.read_text() == "LIMIT = 1\n", put
        # What a test has started ends with it.
        process = Path("/proc", left.read_text(), "stat") if left.exists() else left
        while process.exists() and ") Z " not in process.read_text():
            time.sleep(0.05)


@pytest.mark.parametrize(
    "change", [{"out": "LIMIT = 7"}, {"file": "x.py"}, {"test": "unit/test_x.py"}, {"test": "unit/test_it.py::test_x"}]
)
def test_a_mutant_without_its_text_or_its_test_does_not_apply(checkout: Path, change: dict[str, str]) -> None:
    assert try_mutant(checkout, replace(MUTANT, **change))[0] == "does not apply"  # type: ignore[arg-type]


def test_the_command_names_what_is_not_killed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mutants = [MUTANT, replace(MUTANT, put="LIMIT = 2", rows=(2,), file="other.py")]
    monkeypatch.setattr(cli, "load", lambda: mutants)
    monkeypatch.setattr(cli, "copied_checkout", lambda: contextlib.nullcontext(Path("copy")))
    monkeypatch.setattr(cli, "run_tests", lambda *arguments: (0, ""))
    monkeypatch.setattr(cli, "try_mutant", lambda root, m: ("killed" if m == MUTANT else "survived", "why"))
    for options in (["--row", "1"], ["--only", "product"]):
        assert cli.main(["--quick", *options]) == 0, options
        assert "1/1 killed: product.py: x (why)\n1 killed; CPU" in capsys.readouterr().out, options
    assert cli.main([]) == 1
    assert "row (2,), unit/test_it.py: 'LIMIT = 1' -> 'LIMIT = 2'\n1 killed, 1 survived" in capsys.readouterr().out
    assert cli.main(["--servers"]) == 2 and "no mutant is chosen" in capsys.readouterr().err
    # A test that fails without a mutant kills nothing.
    monkeypatch.setattr(cli, "run_tests", lambda *arguments: (1, "FAILED"))
    assert cli.main([]) == 2 and "without a mutant, pytest ends with 1:\nFAILED" in capsys.readouterr().err
