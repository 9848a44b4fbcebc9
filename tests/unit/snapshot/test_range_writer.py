"""A key range that is written again with smaller batches: what is counted and committed, over the in-memory twins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.decode_builder import column, packet, table
from kit.memory_job import config
from kit.memory_kafka import MemoryKafka, RefusingWriter
from kit.row_blocks import each_alone
from kit.store_contract import END, plan

from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.snapshot import range_writer
from airflow_provider_mysql_cdc.cdc.snapshot.range_writer import (
    RangeFaultPoints,
    RangeWriter,
    RowCounts,
    RowRange,
    TableSelect,
    ViewPosition,
)
from airflow_provider_mysql_cdc.cdc.snapshot.row_emitter import make_snapshot_route

CFG = config(event__processing__failure__handling__mode="skip")
TABLE = table(column("id", "INT", nullable=False), column("at", "TIME"), key=("id",))
TOPIC = "p.db.t"


def test_a_range_that_is_written_again_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    packets = [packet(str(n).encode(), b"unreadable" if n == 3 else b"12:00:00") for n in range(5)]
    monkeypatch.setattr(range_writer, "stream_blocks", lambda *_: each_alone(packets))
    monkeypatch.setattr(range_writer, "reduce_and_rejoin", lambda *given: str(given[-1]))
    kafka, reports = MemoryKafka(), list[str]()
    sink: Any = RefusingWriter(kafka, "p.0")
    sink.refusals = 2
    sink.init()
    points = RangeFaultPoints("snapshot.chunk_read", "writer.before_commit", "snapshot.after_chunk")
    writer = RangeWriter(
        CFG, replace(plan(writers=1), attempt="a1"), 0, None, sink, [], points, reports.append, reports.append
    )
    written = writer.write(
        RowRange(
            where="snapshot of db.t/0",
            select=TableSelect(TABLE, "SELECT ...", lambda: make_snapshot_route(CFG, None, TABLE, 1)),
            key_kinds=("SIGNED",),
            position=lambda: ViewPosition(END, 7),
            id_prefix="snapshot/1",
            row_id_prefix="snapshot of db.t/0",
            ledger_record=lambda written: ("chunk/db.t/0", {"rows": written.written}),
            timeout_error=lambda *_: AssertionError("the transaction has just begun"),
            report_progress=lambda _: None,
        )
    )
    assert written == RowCounts(written=4, unreadable=1) and written.read == 5
    assert writer.counts == {TOPIC: 4, f"{TOPIC} (rows left out)": 1}
    assert len(reports) == 2 and all("larger than Kafka takes" in line for line in reports)
    assert len(kafka.committed(TOPIC)) == 4
    assert [record.value for record in kafka.committed(CFG.ledger_topic)] == [encode({"rows": 4})]
