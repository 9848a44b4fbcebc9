"""snapshot.locking.mode=none: what is waited for, when the tasks open again, and what is said of the view."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.binlog import position
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError
from airflow_provider_mysql_cdc.cdc.job.stage_runner import StageLeader
from airflow_provider_mysql_cdc.cdc.job.task_barrier import BarrierPoint
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.snapshot import consistent_view as view_module
from airflow_provider_mysql_cdc.cdc.snapshot import view_coordinator
from airflow_provider_mysql_cdc.cdc.snapshot.consistent_view import ConsistentView
from airflow_provider_mysql_cdc.cdc.snapshot.view_coordinator import ViewCallbacks, ViewOpener


def place(pos: int, gtids: str | None = "") -> BinlogOffset:
    return BinlogOffset("binlog.000001", pos, gtids, "s")


class Meeting:
    """The meeting of the tasks: what the driver said, and what was to be waited for."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def release(self, point: BarrierPoint[Any], reply: Any) -> None:
        self.said.append(f"release {point}")

    def wait(self, point: BarrierPoint[Any]) -> None:
        self.said.append(f"wait {point}")

    def last_reached(self, point: BarrierPoint[Any]) -> BarrierPoint[Any]:
        return point

    def fail(self, error: Exception) -> None:
        raise error


def opened(
    monkeypatch: pytest.MonkeyPatch, settled: list[tuple[BinlogOffset, bool]], afterwards: list[BinlogOffset]
) -> tuple[ConsistentView, list[str]]:
    """Open a view on a server that stands at these places before and after the tasks opened theirs."""
    meeting: Any = Meeting()
    gtids = settled[0][0].gtids is not None
    monkeypatch.setattr(view_module, "gtids_on", lambda conn: gtids)
    monkeypatch.setattr(view_module, "wait_for_visible_offset", lambda conn, wait_s: settled.pop(0))
    monkeypatch.setattr(view_module, "current_offset", lambda conn: afterwards.pop(0))
    monkeypatch.setattr(view_module, "_server_time_ms", lambda conn: 7)
    monkeypatch.setattr(view_module, "OPTIMISTIC_TRIES", 3)
    return view_module._open_without_lock(None, meeting, 5), meeting.said


def test_a_view_at_a_quiet_moment_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    found, said = opened(monkeypatch, [(place(100), True)], [place(100)])
    assert found.offset == place(100) and found.exact
    assert said == ["release ready", "wait opened"]


def test_the_tasks_open_again_when_something_was_committed_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    found, said = opened(monkeypatch, [(place(100), True), (place(200), True)], [place(150), place(200)])
    assert found.offset == place(200) and found.exact
    assert said == ["release ready", "wait opened", "release opened", "release again1", "wait opened1"]


def test_without_a_quiet_moment_the_earlier_place_counts_and_the_view_is_not_exact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What comes again is not lost."""
    found, _ = opened(monkeypatch, [(place(n), True) for n in (100, 200, 300)], [place(n) for n in (150, 250, 350)])
    assert found.offset == place(300) and not found.exact


def test_a_commit_in_flight_that_does_not_end_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands before the position and in no row: it would be in neither."""
    with pytest.raises(SourceConnectionError, match="without a lock"):
        opened(monkeypatch, [(place(100), False)], [place(100)])


def test_without_gtids_the_view_is_not_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = opened(monkeypatch, [(place(100, None), False)], [place(100, None)])
    assert not found.exact


@pytest.mark.parametrize(
    ("owned", "wait_s", "settled"),
    [
        ([""], 5, True),
        (["u:7#12", "u:7#12:8#13", "u:8#13"], 5, True),
        (["u:7#12"] * 3, 0, False),
    ],
    ids=["nothing is in use", "what was in use ends", "what was in use stays"],
)
def test_a_position_is_settled_when_the_gtids_in_use_have_ended(
    monkeypatch: pytest.MonkeyPatch, owned: list[str], wait_s: float, settled: bool
) -> None:
    """A GTID that came later does not count: its transaction stands behind the position."""
    monkeypatch.setattr(position, "current_offset", lambda conn: place(100))
    monkeypatch.setattr(position, "fetch_all", lambda conn, sql: [("ON" if "gtid_mode" in sql else owned.pop(0),)])
    assert position.wait_for_visible_offset(None, wait_s) == (place(100), settled)
    assert settled == (owned == [])


@pytest.mark.parametrize("mode", ["OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE"])
@pytest.mark.req("INC-36")
def test_where_transactions_may_be_anonymous_no_position_is_known_to_be_settled(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """An anonymous transaction owns no GTID while it commits."""
    monkeypatch.setattr(position, "current_offset", lambda conn: place(100))
    monkeypatch.setattr(position, "fetch_all", lambda conn, sql: [(mode if "gtid_mode" in sql else "",)])
    assert position.wait_for_visible_offset(None, 5) == (place(100), False)


@pytest.mark.req("CFG-51")
@pytest.mark.parametrize("exact", [True, False])
def test_a_view_that_is_not_exact_is_said_to_be(monkeypatch: pytest.MonkeyPatch, exact: bool) -> None:
    view, modes = ConsistentView(place(100), 7, 0.0, "none", exact), list[str]()
    monkeypatch.setattr(view_coordinator, "open_view", lambda *given: modes.append(given[3]) or (view, lambda: None))
    monkeypatch.setattr(view_coordinator, "connect", lambda _: contextlib.nullcontext())
    lines: list[str] = []
    record: Callable[[ConsistentView], None] = lambda _: pytest.fail("a view of other tables is used")  # noqa: E731
    meeting: Any = Meeting()
    guard: Any = type("Guard", (), {"rollback": lambda self: None})()
    cfg = config(snapshot__locking__mode="none")
    opener = ViewOpener(cfg, meeting, [], guard, ViewCallbacks(lambda _: ["d.born"], record, lines.append))
    leader = StageLeader(cfg, meeting, opener.lead, "opening failed", 1)
    leader.run()
    assert leader.error is None and opener.changed_tables == ["d.born"] and modes == ["none"]
    assert any("keys show older states" in line for line in lines) == (not exact)
