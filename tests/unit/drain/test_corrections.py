"""A writer gives a table the structure that its TABLE_MAP event has, and records it once."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from kit.decode_builder import column, table
from kit.drain_rig import START, Rig

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.stream import Event
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain import event_handlers
from airflow_provider_mysql_cdc.cdc.drain.drain_writer import DrainWriter
from airflow_provider_mysql_cdc.cdc.drain.table_route import NO_SHARE
from airflow_provider_mysql_cdc.cdc.drain.window_keys import WindowKeys
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, PreparedXa, ResumePosition
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord

T = table(column("id", "INT", nullable=False), column("n", "INT", has_default=True), key=("id",))
OTHER = T.with_id(TableId("db", "u"))


def table_map(name: str, *names: str, table_id: int = 1, pos: int = 500) -> Event:
    """Return a TABLE_MAP event of two INT columns, the first of them the primary key, with their names."""
    texts = [b"db", name.encode()]
    body = table_id.to_bytes(6, "little") + b"\x01\x00" + b"".join(bytes([len(t)]) + t + b"\x00" for t in texts)
    column_names = b"".join(bytes([len(n)]) + n.encode() for n in names)
    optional = b"\x04" + bytes([len(column_names)]) + column_names + b"\x08\x01\x00" if names else b""
    buf = body + b"\x02\x03\x03" + b"\x00" + b"\x02" + optional
    return Event(c.TABLE_MAP_EVENT, 7, 1, 0, "b.000001", pos, pos + len(buf), buf, 0, len(buf))


def writer_of(monkeypatch: pytest.MonkeyPatch, resume: ResumePosition | None = None) -> tuple[Rig, DrainWriter]:
    """Return a writer within a transaction, of which it produces nothing but what writer 0 does."""
    rig = Rig(monkeypatch, resume, **{"heartbeat.interval.ms": "0"})
    monkeypatch.setattr(rig.writer.ddl.shares, "ensure_share", lambda table_id: NO_SHARE)
    rig.writer.ddl.state = SchemaState({T.id: T, OTHER.id: OTHER})
    rig.writer.position.begin_statement(0)
    return rig, rig.writer


def names(structure: Table) -> list[str]:
    return [each.name for each in structure.columns]


def history(rig: Rig) -> list[HistoryRecord]:
    rig.writer.committer.finish()
    return [HistoryRecord.from_bytes(r.value or b"") for r in rig.kafka.committed(rig.writer.context.cfg.history_topic)]


def test_a_corrected_structure_is_used_and_recorded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, writer = writer_of(monkeypatch)
    for _ in range(2):
        writer.handlers._table_map(table_map("t", "id", "m"))
    assert names(writer.ddl.state.tables[T.id]) == ["id", "m"] and writer.ddl.state.tables[OTHER.id] is OTHER
    (record,) = history(rig)
    assert record.structure == writer.ddl.state.tables[T.id] and record.epoch == 1
    assert (record.position.file, record.position.pos) == ("b.000001", table_map("t", "id", "m").end_pos)
    (change,) = [json.loads(r.value or b"")["payload"] for r in rig.kafka.committed("p")]
    assert (change["ddl"], [each["type"] for each in change["tableChanges"]]) == (None, ["ALTER"])


@pytest.mark.parametrize(("statements", "count"), [(1, 1), (2, 0)])
def test_a_correction_that_an_earlier_attempt_committed_is_not_written_again(
    monkeypatch: pytest.MonkeyPatch, statements: int, count: int
) -> None:
    """The marker is in the transaction, before the correction or after it."""
    rig, writer = writer_of(monkeypatch, ResumePosition(START, 0, statements))
    writer.handlers._table_map(table_map("t", "id", "m"))
    assert names(writer.ddl.state.tables[T.id]) == ["id", "m"]
    assert len(history(rig)) == count


def test_other_tables_of_a_statement_stay_known(monkeypatch: pytest.MonkeyPatch) -> None:
    _, writer = writer_of(monkeypatch)
    writer.handlers._table_map(table_map("u", "id", "n", table_id=1))
    writer.handlers._table_map(table_map("t", "id", "m", table_id=2))
    assert set(writer.routes.by_id) == {1, 2}


def test_a_window_does_not_use_a_table_that_was_corrected_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _, writer = writer_of(monkeypatch)
    window_keys = WindowKeys({T.id, OTHER.id})
    context: Any = SimpleNamespace(**{n: getattr(writer.context, n) for n in type(writer.context).__slots__})
    context.window_keys = window_keys
    writer.ddl.context = context
    for name in ("t", "u"):
        writer.handlers._table_map(table_map(name, "id", "m" if name == "t" else "n"))
    assert set(window_keys.unreadable) == {T.id}


def test_rows_of_an_xa_transaction_are_corrected_at_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their own position may be before the batch."""
    rig, writer = writer_of(monkeypatch)
    writer.handlers._table_map(table_map("t", "id", "m"), table_map("t", pos=900))
    (record,) = history(rig)
    assert record.position == BinlogOffset("b.000001", table_map("t", pos=900).end_pos)


def test_a_retry_corrects_with_the_rows_of_a_committed_xa_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the next rows of the table would correct it again, with a second schema change."""
    rig, writer = writer_of(monkeypatch, ResumePosition(BinlogOffset("b.000001", 2_000), 0))
    writer.handlers.xa._prepared["x"] = PreparedXa("x", "b.000001", 300, 400)
    monkeypatch.setattr(event_handlers, "read_rows", lambda *_: iter([table_map("t", "id", "m", pos=350)]))
    writer.handlers._xa_statement(table_map("t", pos=1_000), "XA COMMIT x")
    assert names(writer.ddl.state.tables[T.id]) == ["id", "m"]
    writer.position.move_to("b.000001", 2_000)
    writer.handlers._table_map(table_map("t", "id", "m", table_id=2, pos=2_100))
    assert history(rig) == []


def unchecked(writer: DrainWriter) -> list[tuple[str, bool]]:
    values = [json.loads(r.value or b"") for r in writer.committer.side_records]
    return [(value["table"]["table"], value["has_rows"]) for value in values]


def test_rows_without_names_after_a_statement_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the statement was found to change nothing, and the table's rows came before it."""
    _, writer = writer_of(monkeypatch)
    writer.handlers._table_map(table_map("t"))
    assert unchecked(writer) == []
    writer.ddl._note_touched([T.id], "b.000001:600")
    for _ in range(2):
        writer.handlers._table_map(table_map("t"))
    assert unchecked(writer) == [("t", False), ("t", True)]


def test_rows_with_names_are_right_whatever_the_statement_did(monkeypatch: pytest.MonkeyPatch) -> None:
    _, writer = writer_of(monkeypatch)
    writer.ddl._note_touched([T.id], "b.000001:600")
    for _ in range(2):
        writer.handlers._table_map(table_map("t", "id", "n"))
    assert unchecked(writer) == [("t", False)]


def test_a_corrected_table_is_compared_with_the_server_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its unique indexes are not in the event."""
    _, writer = writer_of(monkeypatch)
    writer.handlers._table_map(table_map("t", "id", "m"))
    assert unchecked(writer) == [("t", False)]
