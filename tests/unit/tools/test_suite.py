"""The whole suite leaves no folder out, counts what each part costs, and is red when a part is."""

from __future__ import annotations

from pathlib import Path

import pytest
from suitelib import __main__ as suite
from suitelib.__main__ import AIRFLOW, NATIVE, QUICK, SERVERS, Part

TEST = """
import subprocess, sys
def test_good():
    # Whoever started it ends before it.
    subprocess.Popen([sys.executable, "-c",
        "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'sum(range(30_000_000))'])"])
def test_bad():
    assert not {bad}
"""


def test_the_parts_leave_no_folder_out() -> None:
    folders = {f.relative_to(suite.ROOT).parts[:2] for f in (suite.ROOT / "tests").rglob("test_*.py")}
    named = [word for part in (QUICK, SERVERS, AIRFLOW) for word in part.arguments if word.startswith("tests/")]
    assert sorted(named) == sorted("/".join(folder) for folder in folders)
    not_quick = {word for part in (SERVERS, AIRFLOW) for word in part.arguments if word.startswith("tests/")}
    assert not_quick < set(NATIVE.arguments)


@pytest.mark.parametrize("bad", [True, False])
def test_a_part_is_counted_and_its_red_tests_are_told(tmp_path: Path, bad: bool) -> None:
    (tmp_path / "test_it.py").write_text(TEST.format(bad=bad))
    outcome = suite._run(Part("some", ("-p", "no:cacheprovider", str(tmp_path))), tmp_path)
    assert (outcome.passed, outcome.tests, outcome.red) == (not bad, 2, int(bad))
    assert outcome.cpu_s > 0.1
    assert suite.table([outcome, outcome]).splitlines()[-1].split()[:2] == ["together", "4"]


def test_a_run_without_a_report_is_red(tmp_path: Path) -> None:
    outcome = suite._run(Part("some", (str(tmp_path / "missing"),)), tmp_path)
    assert (outcome.passed, outcome.tests) == (False, 0)
