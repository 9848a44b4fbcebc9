"""Which windows open their views under a read lock, and what happens while it is held."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pymysql
import pytest
from kit.cases import for_each
from kit.decode_builder import column, table
from kit.memory_job import config
from kit.store_contract import END

from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError, SourceError, SourcePrivilegeError
from airflow_provider_mysql_cdc.cdc.incremental import watermarks
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import TableScan
from airflow_provider_mysql_cdc.cdc.incremental.watermarks import LowWatermark, WatermarkUnavailable, needs_lock
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot import consistent_view

KEYED = table(column("id", "INT", nullable=False), key=("id",))
KEYLESS = replace(table(column("id", "INT")), id=TableId("db", "keyless"))
STATE = SchemaState(tables={KEYED.id: KEYED, KEYLESS.id: KEYLESS})
BLOCKING = TableScan(KEYED.id, "s", 0, "blocking")
WITHOUT_KEY = TableScan(KEYLESS.id, "s", 1, "blocking")
UNKNOWN = TableScan(TableId("d", "gone"), "s", 2, "blocking")
INCREMENTAL = TableScan(KEYED.id, "s", 3)
SIGNAL_TABLE = {"signal__data__collection": "d.signals"}


@for_each(
    ("scans", "properties", "gtids", "locks"),
    [
        ([BLOCKING], {}, False, True),
        ([BLOCKING], {}, True, False),
        ([BLOCKING], SIGNAL_TABLE, False, False),
        ([BLOCKING], {**SIGNAL_TABLE, "read__only": "true"}, False, True),
        ([BLOCKING], {"snapshot__locking__mode": "none"}, False, False),
        ([BLOCKING], {"snapshot__locking__mode": "extended"}, False, True),
        ([INCREMENTAL], {}, False, False),
        ([WITHOUT_KEY], {}, True, True),
        ([WITHOUT_KEY], SIGNAL_TABLE, True, True),
        ([BLOCKING, WITHOUT_KEY], SIGNAL_TABLE, True, True),
        ([WITHOUT_KEY], {**SIGNAL_TABLE, "snapshot__locking__mode": "none"}, True, False),
        ([WITHOUT_KEY, INCREMENTAL], {}, False, False),
        ([UNKNOWN], {}, True, False),
        ([UNKNOWN], {}, False, True),
    ],
)
def test_a_window_locks_where_no_other_watermark_is_possible(
    monkeypatch: pytest.MonkeyPatch, scans: list[TableScan], properties: dict[str, str], gtids: bool, locks: bool
) -> None:
    monkeypatch.setattr(watermarks, "gtids_on", lambda conn: gtids)
    assert needs_lock(config(**properties), None, scans, STATE) is locks


# -- the lock ----------------------------------------------------------------------------------------------------------


class Connection:
    """A connection that notes its statements; one of them may be refused."""

    def __init__(self, refused: str = "", number: int = 1227) -> None:
        self.statements, self._refused, self._number = list[str](), refused, number
        self.closed = False

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def cursor(self) -> Any:
        connection = self

        class Cursor:
            def __enter__(self) -> Cursor:
                return self

            def __exit__(self, *_: object) -> None:
                return None

            def execute(self, sql: str, given: Any = ()) -> None:
                connection.statements.append(sql % given if given else sql)
                if connection._refused and sql.startswith(connection._refused):
                    raise pymysql.err.OperationalError(connection._number, "refused")

        return Cursor()


def taken(monkeypatch: pytest.MonkeyPatch, lock_conn: Connection, **properties: str) -> Iterator[LowWatermark]:
    monkeypatch.setattr(watermarks, "connect", lambda settings: lock_conn)
    monkeypatch.setattr(consistent_view, "current_offset", lambda conn: END)
    monkeypatch.setattr(consistent_view, "table_exists", lambda conn, table_id: table_id == KEYED.id)
    with watermarks.low_watermark(config(**properties), None, [KEYED.id, UNKNOWN.table], lock=True) as low:
        yield low


def test_the_lock_is_held_until_the_views_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    conn = Connection()
    window = taken(monkeypatch, conn, snapshot__lock__timeout__ms="7000")
    assert next(window) == LowWatermark(END, None, locked=True)
    assert conn.statements == ["SET SESSION lock_wait_timeout = 7", "FLUSH TABLES WITH READ LOCK"]
    assert next(window, None) is None
    assert conn.statements[2:] == ["UNLOCK TABLES"] and conn.closed


def test_the_lock_is_released_when_a_view_cannot_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    conn = Connection()
    window = taken(monkeypatch, conn)
    next(window)
    with pytest.raises(RuntimeError):
        window.throw(RuntimeError("a task has died"))  # type: ignore[attr-defined]
    assert conn.statements[-1] == "UNLOCK TABLES" and conn.closed


def test_the_tables_are_locked_where_the_account_may_not_lock_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    conn = Connection("FLUSH")
    window = taken(monkeypatch, conn)
    assert next(window).locked
    assert conn.statements[-1] == "LOCK TABLES `db`.`t` READ"


def test_a_mode_without_table_locks_does_not_fall_back_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    mode = {"snapshot__locking__mode": "minimal_percona_no_table_locks"}
    with pytest.raises(WatermarkUnavailable, match="may not take the global read lock"):
        next(taken(monkeypatch, Connection("FLUSH"), **mode))


@pytest.mark.parametrize(("number", "reason"), [(1205, "was not obtained within"), (2013, "taking the read lock")])
def test_a_lock_that_is_not_obtained_leaves_the_window_for_later(
    monkeypatch: pytest.MonkeyPatch, number: int, reason: str
) -> None:
    """The stream goes on, and a later window tries again."""
    conn = Connection("FLUSH", number)
    with pytest.raises(WatermarkUnavailable, match=reason):
        next(taken(monkeypatch, conn))
    assert conn.closed


@pytest.mark.parametrize(
    ("error", "unavailable"),
    [(SourcePrivilegeError("no"), True), (SourceConnectionError("no"), True), (SourceError("no"), False)],
)
def test_only_what_the_lock_says_is_an_answer(
    monkeypatch: pytest.MonkeyPatch, error: SourceError, unavailable: bool
) -> None:
    @contextmanager
    def locked(*_: Any) -> Iterator[Any]:
        raise error
        yield

    monkeypatch.setattr(watermarks, "read_locked", locked)
    with pytest.raises(WatermarkUnavailable if unavailable else SourceError):
        next(taken(monkeypatch, Connection()))


def test_without_the_lock_the_window_is_closed_when_the_views_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    low, closed = LowWatermark(None, "r"), list[LowWatermark]()
    monkeypatch.setattr(watermarks, "take_low_watermark", lambda cfg, conn: low)
    monkeypatch.setattr(watermarks, "close_window", lambda cfg, conn, low: closed.append(low))
    with watermarks.low_watermark(config(), None, [KEYED.id], lock=False) as found:
        assert found is low and closed == []
    assert closed == [low]
