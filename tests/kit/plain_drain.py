"""Draining what a server sends with the kernel, the loop over plain transactions, or the handlers of events alone."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.position import LocalGtids
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain import drain_writer as writer_module
from airflow_provider_mysql_cdc.cdc.drain.drain_writer import DrainWriter
from airflow_provider_mysql_cdc.cdc.drain.drain_writer_factory import create_writer
from airflow_provider_mysql_cdc.cdc.drain.writer_context import WriterContext
from airflow_provider_mysql_cdc.cdc.drain.writer_position import WriterPosition
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.formats.chain_writer import ChainWriter
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from kit.binlog_bytes import SERVER_ID, UUID_TEXT, Dump, stream_of
from kit.chain_rig import MemoryTopics
from kit.drain_rig import GIVEN
from kit.memory_kafka import MemoryKafka, MemoryWriter
from kit.transaction_bytes import begin_body, gtid_body, map_body, rows_body

T = Table(TableId("d", "t"), (Column("id", 1, "INT", nullable=False), Column("n", 2, "INT")), ("id",))
MAP, *OTHER_MAPS = (b"\1\0\1d\0%c%b\0\2\3\3\0\2" % (len(n), n) for n in (b"t", b"o", "ü".encode()))
START = BinlogOffset("binlog.000001", 4)
SERVER = {"lower_case_table_names": 0, "explicit_defaults_for_timestamp": 1, "default_collation_for_utf8mb4": 255}
KINDS = (c.WRITE_ROWS_EVENT_V2, c.UPDATE_ROWS_EVENT_V2, c.DELETE_ROWS_EVENT_V2)


VERBS = (
    "begin",
    "begin_statement",
    "add_statement",
    "note_query",
    "note_change",
    "note_text",
    "show",
    "add_rows",
    "end_statement",
    "end",
    "add_executed",
    "move_to",
)
"""What loops call of a writer's position."""


def position_state(at: WriterPosition) -> tuple[Any, ...]:
    """Return all that a position holds of what was read."""
    now = at.gtid, at.commit_us, at.thread, at.begun, at.query, at.statements, at.events, at.row_bytes
    return at.reached(), at.last_transaction, at.last_commit, at.is_lent, at.is_text, dict(at.signers), *now


def noted_calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[Any, ...], tuple[Any, ...]]]:
    """Return a list that gets each call that changes a writer's position: its name, arguments, and the state then."""
    calls = list[tuple[str, tuple[Any, ...], tuple[Any, ...]]]()

    def noting(name: str) -> Any:
        verb = getattr(WriterPosition, name)

        def noted(at: WriterPosition, *given: Any, **named: Any) -> None:
            verb(at, *given, **named)
            calls.append((name, (*given, *named.values()), position_state(at)))

        return noted

    for name in VERBS:
        monkeypatch.setattr(WriterPosition, name, noting(name))
    return calls


def state_of(writer: DrainWriter, *, counted: bool = True) -> tuple[Any, ...]:
    """Return all that a marker says of a writer's position, and what its next records show.

    Args:
        writer: The writer.
        counted: Whether to add what was only counted so far, and return the counts too.
    """
    at, meter = writer.position, writer.output.counts.meter
    if counted and writer.plain_transactions is not None:
        writer.plain_transactions.add_counts()
    counts = (dict(writer.output.counts.by_topic), meter.committed, meter.created, meter.updated, meter.deleted)
    return (
        *position_state(at),
        counts if counted else None,
        str(at.tracker.gtid_set()),
        meter.torn,
        meter.filtered,
        sorted(writer.routes.by_id),
        writer.handlers.xa.prepared,
        writer.handlers.xa.open,
    )


class NotingWriter(MemoryWriter):
    """Note the writer's state with each record."""

    writer: DrainWriter
    counted = True

    def produce(self, *record: Any) -> None:
        self.noted.append((record, state_of(self.writer, counted=self.counted)))
        super().produce(*record)

    def __init__(self, kafka: MemoryKafka) -> None:
        super().__init__(kafka, "p.0")
        self.noted: list[Any] = []


def drained(
    monkeypatch: pytest.MonkeyPatch,
    dump: Dump,
    pieces: list[bytes],
    *,
    plainly: bool,
    resume: ResumePosition | None = None,
    counted: bool = True,
    whole: bool = False,
    refusals: list[tuple[BinlogOffset, CdcError]] | None = None,
    **given: str,
) -> tuple[list[Any], str, DrainWriter]:
    """Drain what a server sends; return each record with the writer's state at that time, the end, and the writer."""
    sink = NotingWriter(MemoryKafka())
    sink.counted = counted
    sink.init()
    partitions = {f"p.d.{name}": 2 for name in "tox"} | {"p.d.t": 1, "p.d._": 1}
    plan = BatchPlan(1, "drain", START, dump.offset(), 1, partitions=partitions)
    marker = resume and Marker(1, 0, START, plan.end, resume)
    cfg = ConnectorConfig.from_properties(GIVEN | {"heartbeat.interval.ms": "0", "connect.max.attempts": "1"} | given)
    state = SchemaState().with_table(T, ())
    for name in "oü":
        state = state.with_table(Table(TableId("d", name), T.columns, ("id",)), ())
    target = sink if cfg.chain is None else ChainWriter(cfg, sink, topics=MemoryTopics())
    context = WriterContext(cfg, plan, 0, state, target, SERVER, marker)  # type: ignore[arg-type]
    refused = [] if refusals is None else refusals
    context = replace(context, report_refusal=lambda before, error: refused.append((before, error)))
    writer = sink.writer = create_writer(context)
    if not whole:
        writer.whole_transactions = None
    if not plainly:
        writer.plain_transactions = None
    with stream_of(pieces, START) as stream:
        stream.local_gtids = LocalGtids(SERVER_ID, UUID_TEXT)
        monkeypatch.setattr(writer_module, "open_stream", lambda *_, **__: stream)
        try:
            writer.run()
            end = str(stream.reached)
        except CdcError as error:
            end = f"{type(error).__name__}: {error}"
    return sink.noted, f"{end} {state_of(writer)}", writer


def comparable(noted: list[Any]) -> list[Any]:
    """Leave out markers, which a clock decides about, and the time of schema changes."""
    return [
        ((topic, key, len(value) if topic == "p" else value, *rest), state)
        for (topic, key, value, *rest), state in noted
        if topic != "ledger.p"
    ]


def plain_dump(transactions: int, *, crc: bool = True) -> Dump:
    dump = Dump(crc=crc).begin()
    for number in range(1, transactions + 1):
        dump.add(c.GTID_LOG_EVENT, gtid_body(number)).add(c.QUERY_EVENT, begin_body())
        dump.add(c.TABLE_MAP_EVENT, map_body(1, MAP))
        dump.add(c.WRITE_ROWS_EVENT_V2, rows_body(1, c.WRITE_ROWS_EVENT_V2, 2, b"\0" + struct.pack("<ii", number, 5)))
        dump.add(c.XID_EVENT, bytes(8))
    return dump
