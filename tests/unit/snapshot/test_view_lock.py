"""The lock of a snapshot's view, statement by statement, and the meeting of its tasks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pymysql
import pytest

from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError, SourcePrivilegeError, StateError
from airflow_provider_mysql_cdc.cdc.job.task_barrier import BarrierPoint
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot import consistent_view as view_module
from airflow_provider_mysql_cdc.cdc.snapshot.consistent_view import ConsistentView, open_view

TABLES = [TableId("d", "a"), TableId("d", "b`c")]
FLUSH, LOCK = "FLUSH TABLES WITH READ LOCK", "LOCK TABLES `d`.`a` READ, `d`.`b``c` READ"
WAIT, NOW = "SET SESSION lock_wait_timeout = 7", "SELECT UNIX_TIMESTAMP(NOW())"
BEFORE = BinlogOffset("binlog.000001", 100, "", "s", origin="1.a")
LATER = BinlogOffset("binlog.000001", 200, "", "s")


class Server:
    """Server and meeting in one: what was said, in order.

    Args:
        refused: Statement -> error number.
        here: The position while the lock stands.
        lost: What the wait for the tasks ends with.
    """

    def __init__(self, refused: dict[str, int], here: BinlogOffset, lost: Exception | None) -> None:
        self.refused, self.here, self.lost, self.steps = refused, here, lost, list[str]()

    @contextlib.contextmanager
    def cursor(self) -> Iterator[Server]:
        yield self

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> None:
        self.steps.append(sql % values)
        if sql in self.refused:
            raise pymysql.OperationalError(self.refused[sql], "said the server")

    def fetchone(self) -> tuple[Any, ...]:
        return (1_700_000_000,)

    def release(self, point: BarrierPoint[Any], reply: Any) -> None:
        assert reply == EMPTY
        self.steps.append(f"release {point}")

    def wait(self, point: BarrierPoint[Any]) -> None:
        self.steps.append(f"wait {point}")
        if self.lost is not None:
            raise self.lost


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Server, ConsistentView, Callable[[], None]]]:
    """Return a function that opens a view in a mode, on a server that refuses some statements."""
    clock = iter([10.0, 10.25])

    def look(conn: Server) -> BinlogOffset:
        conn.steps.append("position")
        return conn.here

    def stamp(conn: Any, settings: str, offset: BinlogOffset) -> BinlogOffset:
        assert settings == "settings"
        return replace(offset, origin="2.b")

    monkeypatch.setattr(view_module, "end_of_binlog", lambda conn, settings: conn.steps.append("end") or BEFORE)
    monkeypatch.setattr(view_module, "current_offset", look)
    monkeypatch.setattr(view_module, "wait_for_visible_offset", lambda conn, wait_s: (look(conn), True))
    monkeypatch.setattr(view_module, "with_fingerprint", stamp)
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))

    def run(
        mode: str,
        refused: dict[str, int] | None = None,
        here: BinlogOffset = LATER,
        lost: Exception | None = None,
    ) -> tuple[Server, ConsistentView, Callable[[], None]]:
        server = Server(refused or {}, here, lost)
        settings: Any = "settings"
        meeting: Any = server
        found, unlock = open_view(server, meeting, TABLES, mode, 7, settings)
        return server, found, unlock

    return run


@pytest.mark.req("SNAP-13", "CFG-51")
@pytest.mark.parametrize("mode", ["minimal", "minimal_percona", "minimal_percona_no_table_locks"])
def test_the_lock_ends_when_the_views_are_open_and_the_position_is_read(opened: Any, mode: str) -> None:
    server, view, unlock = opened(mode)
    steps = ["end", WAIT, FLUSH, "release ready", "wait opened", "position", "UNLOCK TABLES", NOW]
    assert server.steps == steps
    assert view == ConsistentView(replace(BEFORE, pos=200), 1_700_000_000_000, 250.0, "global")
    assert str(view) == f"consistent view at {view.offset}, lock=global, held 250.0 ms"
    unlock()
    assert server.steps == steps


@pytest.mark.req("CFG-51")
def test_the_lock_of_mode_extended_ends_with_the_rows(opened: Any) -> None:
    server, view, unlock = opened("extended")
    assert server.steps == ["end", WAIT, FLUSH, "release ready", "wait opened", "position", NOW]
    assert view.locked_ms is None and str(view).endswith("lock=global, held until the last row is read")
    assert view.offset.origin == "1.a" and view.ts_ms == 1_700_000_000_000
    unlock()
    assert server.steps[7:] == ["UNLOCK TABLES"]


@pytest.mark.req("CFG-51")
def test_mode_none_locks_nothing(opened: Any) -> None:
    server, view, unlock = opened("none")
    unlock()
    assert server.steps == ["end", "position", "release ready", "wait opened", "position", NOW]
    assert view == ConsistentView(replace(BEFORE, pos=200), 1_700_000_000_000, 0.0, "none")


def test_a_view_in_a_newer_file_has_the_fingerprint_of_that_file(opened: Any) -> None:
    """Nobody but the file itself tells which one it is; a file that was there before the lock was read then."""
    _, view, _ = opened("minimal", here=replace(BEFORE, file="binlog.000002", pos=4, origin=None))
    assert (view.offset.file, view.offset.pos, view.offset.origin) == ("binlog.000002", 4, "2.b")


# Database, login, table, and privilege: MySQL 9.7 error reference, ER_DBACCESS_DENIED_ERROR and its kin.
@pytest.mark.parametrize("code", [1044, 1045, 1142, 1227])
def test_tables_are_locked_where_the_global_lock_is_refused(opened: Any, code: int) -> None:
    server, view, _ = opened("minimal", {FLUSH: code})
    assert view.lock == "tables"
    assert server.steps[1:4] == [WAIT, FLUSH, LOCK] and server.steps[-2:] == ["UNLOCK TABLES", NOW]


@pytest.mark.parametrize(
    ("mode", "refused", "what", "where"),
    [
        ("minimal", {FLUSH: 1227, LOCK: 1044}, "neither a global read lock nor table locks", "snapshot.locking.mode"),
        ("extended", {FLUSH: 1227, LOCK: 1142}, "neither a global read lock nor table locks", "snapshot.locking.mode"),
        ("minimal_percona_no_table_locks", {FLUSH: 1227}, "may not take the global read lock", "no_table_locks"),
    ],
)
def test_the_error_of_an_account_that_may_not_lock_names_what_it_lacks(
    opened: Any, mode: str, refused: dict[str, int], what: str, where: str
) -> None:
    with pytest.raises(SourcePrivilegeError, match=what) as caught:
        opened(mode, refused)
    assert caught.value.where.endswith(where) and caught.value.why == "said the server"
    assert "GRANT RELOAD ON *.*" in caught.value.remedy and not caught.value.can_retry


@pytest.mark.parametrize("refused", [{FLUSH: 1205}, {FLUSH: 1227, LOCK: 1205}])
def test_a_lock_that_does_not_come_in_time_is_named(opened: Any, refused: dict[str, int]) -> None:
    with pytest.raises(SourceConnectionError, match="not obtained within 7 s") as caught:
        opened("minimal", refused)
    assert caught.value.where == "snapshot.lock.timeout.ms" and caught.value.why == "said the server"
    assert "raise snapshot.lock.timeout.ms" in caught.value.remedy and caught.value.can_retry


@pytest.mark.parametrize("refused", [{FLUSH: 2013}, {FLUSH: 1227, LOCK: 1146}])
def test_another_error_is_not_taken_for_a_missing_grant(opened: Any, refused: dict[str, int]) -> None:
    with pytest.raises(SourceConnectionError, match="taking the read lock failed") as caught:
        opened("minimal", refused)
    assert "said the server" in caught.value.why and caught.value.remedy


def test_the_lock_does_not_outlive_a_task_that_is_lost(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    unlocked: list[Any] = []
    monkeypatch.setattr(view_module, "_unlock", unlocked.append)
    with pytest.raises(StateError, match="a task was lost"):
        opened("extended", lost=StateError("a task was lost"))
    assert len(unlocked) == 1 and unlocked[0].steps[-1] == "wait opened"
