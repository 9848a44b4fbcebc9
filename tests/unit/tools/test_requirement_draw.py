"""A seeded draw of requirements, with the tests that carry their marks."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutatelib import cli
from mutatelib.requirement_draw import draw, marked_tests


def test_marks_are_collected_by_test(tmp_path: Path) -> None:
    (tmp_path / "unit").mkdir()
    (tmp_path / "unit" / "test_a.py").write_text(
        '@pytest.mark.req("A-01", "A-02")\ndef test() -> None: ...\n'
        '@pytest.mark.parametrize("a", [pytest.param(1, marks=pytest.mark.req("A-03"))])\ndef test_cases(a): ...\n'
    )
    (tmp_path / "test_b.py").write_text('pytestmark = pytest.mark.req("A-02")\n')
    assert marked_tests(tmp_path) == {
        "A-01": ["unit/test_a.py::test"],
        "A-02": ["test_b.py", "unit/test_a.py::test"],
        "A-03": ["unit/test_a.py::test_cases"],
    }


def test_one_seed_draws_the_same_requirements() -> None:
    marked = {f"A-{n:02}": ["unit/test_a.py"] for n in range(1, 41)}
    drawn = draw(marked, 10, seed=7)
    assert drawn == draw(marked, 10, seed=7) != draw(marked, 10, seed=8)
    assert len(dict(drawn)) == 10 and draw(marked, 99, seed=1) == list(marked.items())


def test_the_command_names_requirements_with_their_tests(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "marked_tests", lambda tests: {"A-01": ["unit/a.py::test", "unit/b.py"]})
    assert cli.main(["--draw", "3", "--seed", "7"]) == 0
    assert capsys.readouterr().out == "A-01: unit/a.py::test unit/b.py\n"
