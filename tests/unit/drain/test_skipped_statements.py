"""Statements that were skipped: rows of their tables wait, unless the rows name their columns."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.decode_builder import column, table
from kit.drain_rig import END, GIVEN, START, routes_of
from kit.memory_job import config
from kit.memory_kafka import MemoryKafka, MemoryWriter
from kit.store_contract import plan

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import UncheckedTable
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain.drain_writer_factory import create_writer
from airflow_provider_mysql_cdc.cdc.drain.statement_reports import TouchedTables, skipped_before
from airflow_provider_mysql_cdc.cdc.drain.writer_context import WriterContext
from airflow_provider_mysql_cdc.cdc.errors import SchemaMismatchError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId

T = table(column("id", "INT", nullable=False), key=("id",))
BATCH = plan(writers=1, partitions={"p.db.t": 1}, assignment={"p.db.t": (0,)})
BEFORE = UncheckedTable(T.id, "b.000001:120", skipped=True)


def rows_event() -> Any:
    names = b"".join(bytes([len(part)]) + part.encode() + b"\x00" for part in (T.id.db, T.id.table))
    buf = b"\x01\x00\x00\x00\x00\x00" + b"\x01\x00" + names + b"\x01\x03" + b"\x00" + b"\x00"
    return SimpleNamespace(buf=buf, body=0, end=len(buf), file="b.000001", start_pos=400, where=lambda: "b.000001:400")


def of(routes: Any) -> Any:
    state = SchemaState().with_table(T)
    return routes.of_table_map(rows_event(), state, lambda *_: pytest.fail("no correction"))


def test_rows_behind_it_are_refused_even_if_the_table_was_met_before() -> None:
    routes = routes_of(config(), BATCH)
    assert of(routes).decoder is not None
    routes.on_skipped_statement([T.id], "b.000001:300")
    with pytest.raises(SchemaMismatchError, match="behind a statement that was skipped") as caught:
        of(routes)
    assert caught.value.where == "b.000001:400" and "b.000001:300" in caught.value.why and caught.value.can_retry


def test_other_tables_go_on() -> None:
    routes = routes_of(config(), BATCH)
    routes.on_skipped_statement([TableId("db", "other")], "b.000001:300")
    assert of(routes).decoder is not None


@pytest.mark.parametrize(("unchecked", "refused"), [(BEFORE, True), (UncheckedTable(T.id, "b.000001:120"), False)])
def test_a_writer_begins_with_those_of_earlier_batches(unchecked: UncheckedTable, refused: bool) -> None:
    sink = MemoryWriter(MemoryKafka(), "p.0")
    sink.init()
    start = BinlogOffset(START.file, 200)
    batch = BatchPlan(1, "drain", start, END, 1, partitions={"p.db.t": 1}, assignment={"p.db.t": (0,)})
    context = WriterContext(
        ConnectorConfig.from_properties(GIVEN),
        batch,
        0,
        SchemaState(),
        sink,
        {},
        unchecked={T.id: unchecked},  # type: ignore[arg-type]
    )
    routes = create_writer(context).routes
    if refused:
        with pytest.raises(SchemaMismatchError, match="behind a statement that was skipped"):
            of(routes)
    else:
        assert of(routes).decoder is not None


def test_a_statement_inside_the_batch_is_read_again() -> None:
    """Rows before it are as they were; an earlier try of the batch has noted the table."""
    unchecked = {T.id: BEFORE}
    assert skipped_before(unchecked, BinlogOffset("b.000001", 120)) == {}
    assert skipped_before(unchecked, BinlogOffset("b.000001", 121)) == {T.id: "b.000001:120"}
    assert skipped_before(unchecked, BinlogOffset("b.000002", 4)) == {T.id: "b.000001:120"}


def test_the_note_in_the_ledger_is_that_of_the_skipped_statement() -> None:
    records = list[SideRecord]()
    touched = TouchedTables("ledger.p", {}, records)
    touched.on_statement([T.id], "b.000001:50")
    touched.on_statement([T.id], "b.000001:120", skipped=True)
    touched.on_statement([T.id], "b.000001:150")
    touched.on_statement([T.id], "b.000001:170", skipped=True)
    assert len(records) == 2 and touched._tables[T.id] == BEFORE


def test_a_statement_that_was_drained_on_another_server_is_before_every_batch_here() -> None:
    """Positions begin anew there: the rows behind it wait all the same."""
    later = UncheckedTable(T.id, "b.000009:120", skipped=True, server_uuid="uuid-a")
    start = BinlogOffset("b.000001", 200, None, "uuid-b")
    assert skipped_before({T.id: later}, start) == {T.id: "b.000009:120"}
    assert skipped_before({T.id: later}, replace(start, server_uuid="UUID-A")) == {}
    records = list[SideRecord]()
    TouchedTables("ledger.p", {}, records, "uuid-a").on_statement([T.id], "b.000009:120", skipped=True)
    assert UncheckedTable.from_json(json.loads(records[0].value or b"")) == later
