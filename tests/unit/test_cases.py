"""A test that tries its cases itself tries each of them, and says which failed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kit.cases import for_each


def test_each_case_is_tried_and_those_that_fail_are_named() -> None:
    tried = []

    @for_each("a", [1, 2, 3])
    @for_each(("b", "c"), [(1, "x"), pytest.param(2, "y", id="two")], ids=["one", "two"])
    def test(a: int, b: int, c: str) -> None:
        tried.append((a, b, c))
        assert b == 1 or a == 2

    with pytest.raises(ExceptionGroup, match="2 of 3 cases failed") as caught:
        test()
    assert tried == [(a, b, c) for a in (1, 2, 3) for b, c in ((1, "x"), (2, "y"))]
    assert [error.__notes__ for error in caught.value.exceptions] == [
        ["in the case 1, two", "in the case 0, a=1"],
        ["in the case 1, two", "in the case 2, a=3"],
    ]


@for_each("case", ["first", "second"])
def test_a_case_does_not_see_what_others_have_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: str
) -> None:
    assert "SEEN_BY_A_CASE" not in os.environ and not list(tmp_path.iterdir())
    monkeypatch.setenv("SEEN_BY_A_CASE", case)
    (tmp_path / "file").touch()


def test_a_list_without_cases_and_a_name_that_the_test_does_not_take_are_refused() -> None:
    with pytest.raises(AssertionError, match="no cases"):
        for_each("a", [])
    with pytest.raises(AssertionError, match="does not take"):
        for_each("other", [1])(lambda a: None)
