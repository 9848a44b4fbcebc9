"""What the fast tier leaves out is what ``scripts/test --all`` runs beside it."""

from __future__ import annotations

import pytest
from kit import tiers


class FakeItem:
    """A collected test with its markers."""

    def __init__(self, nodeid: str, *markers: str) -> None:
        self.nodeid, self.markers = nodeid, markers

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        mark = (
            getattr(pytest.mark, name)(but="2|3") if f"{name} but 2|3" in self.markers else getattr(pytest.mark, name)
        )
        return mark.mark if any(marker.startswith(name) for marker in self.markers) else None


def _out(items: list[FakeItem], day: int) -> list[str]:
    out = tiers.left_out(items, day)  # type: ignore[arg-type]
    return [item.nodeid for item in items if item in out]


def test_what_is_exhaustive_is_left_out_and_nothing_else() -> None:
    items = [FakeItem("a::x"), FakeItem("a::y[1]", "exhaustive", "kill_points"), FakeItem("a::y[2]", "native")]
    assert _out(items, 0) == ["a::y[1]"]


def test_cases_that_the_marker_names_stay() -> None:
    items = [FakeItem(f"a::y{case}", "exhaustive but 2|3") for case in ("", "[1]", "[x2]", "[3-1]")]
    assert _out(items, 0) == ["a::y", "a::y[1]"]


@pytest.mark.parametrize("cases", [2, 3, 7])
def test_two_days_have_all_kill_points_of_each_function(cases: int) -> None:
    items = [FakeItem(f"{name}[{n}]", "kill_points") for name in ("a::x", "a::y") for n in range(cases)]
    first, second = _out(items, 10), _out(items, 11)
    assert not set(first) & set(second)
    assert sorted(first + second) == sorted(item.nodeid for item in items)
    for name in ("a::x", "a::y"):
        for out in (first, second):
            assert 0 < sum(node.startswith(name) for node in out) < cases


def test_a_single_kill_point_is_tried_each_day() -> None:
    items = [FakeItem("a::x", "kill_points")]
    assert _out(items, 0) == _out(items, 1) == []
