"""A snapshot task's Kafka transactions, over the in-memory twins."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from kit.decode_builder import column, packet, table
from kit.memory_job import config, transactions
from kit.memory_kafka import MemoryKafka, MemoryWriter
from kit.row_blocks import block_of
from kit.store_contract import END, plan

from airflow_provider_mysql_cdc.cdc.errors import SinkError
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY
from airflow_provider_mysql_cdc.cdc.snapshot import range_writer
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.rows import RowBlock
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_operations import (
    CHUNK_DONE,
    NEXT_CHUNK,
    AssignedChunk,
    NextChunk,
    OpenedView,
)
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_task import SnapshotTask

CFG = config(transaction__timeout__ms="10000", commit__interval__ms="5000")
TABLE = table(column("id", "INT", nullable=False), key=("id",))
TOPIC = "p.db.t"
WHOLE, CUT = SnapshotChunk(TABLE.id, 0), SnapshotChunk(TABLE.id, 0, ("id",), kinds=("SIGNED",))


class Sink(MemoryWriter):
    """A writer whose transaction is as old as a test says."""

    open_s = 0.0


class Channel:
    """A driver with one chunk."""

    def __init__(self, chunk: SnapshotChunk) -> None:
        self._waiting = [AssignedChunk(chunk, False, False, {"list": "x", "order": 0})]
        self.done: list[str] = []

    def call(self, operation: Any, request: Any) -> Any:
        if operation is CHUNK_DONE:
            self.done.append(request.chunk)
        if operation is NEXT_CHUNK:
            return NextChunk(self._waiting.pop() if self._waiting else None)
        return EMPTY


class Rig:
    """A task that reads one chunk."""

    def __init__(self, chunk: SnapshotChunk) -> None:
        self.kafka, self.channel = MemoryKafka(), Channel(chunk)
        self.sink: Any = Sink(self.kafka, "p.0")
        self.sink.init()
        channel: Any = self.channel
        batch = replace(plan(writers=1), kind="snapshot", attempt="a1")
        view = OpenedView(END, 7)
        self.task = SnapshotTask(CFG, batch, 0, None, self.sink, channel, {TABLE.id: TABLE}, {TOPIC: 1}, view, [])

    def is_open(self) -> bool:
        return self.kafka.producers["p.0"].current is not None


def rows(monkeypatch: pytest.MonkeyPatch, rig: Rig, count: int) -> list[bool]:
    """Let the source give rows; return for each whether a Kafka transaction was open when it came."""
    was_open: list[bool] = []

    def stream_blocks(*_: Any) -> Iterator[RowBlock]:
        for n in range(count):
            was_open.append(rig.is_open())
            yield block_of([packet(str(n).encode())])

    monkeypatch.setattr(range_writer, "stream_blocks", stream_blocks)
    return was_open


@pytest.mark.req("SNAP-26")
@pytest.mark.parametrize("chunk", [WHOLE, CUT], ids=["whole", "cut"])
def test_a_transaction_begins_when_the_last_row_is_there_and_holds_the_chunks_record(
    monkeypatch: pytest.MonkeyPatch, chunk: SnapshotChunk
) -> None:
    """How long a source takes for its rows is not in the task's hands; transaction.timeout.ms would end it."""
    rig = Rig(chunk)
    was_open = rows(monkeypatch, rig, 5)
    assert rig.task.run() == {TOPIC: 5}
    assert was_open == [False] * 5
    written = [json.loads(r.value or b"")["after"]["id"] for r in rig.kafka.committed(TOPIC)]
    assert written == [0, 1, 2, 3, 4] and rig.channel.done == [chunk.id]
    (record,) = [json.loads(r.value or b"") for r in rig.kafka.committed(CFG.ledger_topic)]
    assert (record["offset"], record["rows"], record["attempt"], record["list"]) == (END.to_json(), 5, "a1", "x")
    ((rows_in, _), *_), ((marker_in, _),) = rig.kafka.logs[TOPIC, 0], rig.kafka.logs[CFG.ledger_topic, 0]
    assert rows_in is marker_in and len(transactions(rig.kafka, TOPIC)) == 1


@pytest.mark.parametrize(("chunk", "advice"), [(WHOLE, "raise transaction.timeout.ms"), (CUT, "snapshot.chunk.rows")])
def test_a_chunk_that_does_not_fit_into_a_transaction_ends_in_good_order(
    monkeypatch: pytest.MonkeyPatch, chunk: SnapshotChunk, advice: str
) -> None:
    rig = Rig(chunk)
    rows(monkeypatch, rig, 5)
    rig.sink.open_s = 8.9
    assert rig.task.run() == {TOPIC: 5}
    late = Rig(chunk)
    rows(monkeypatch, late, 5)
    late.sink.open_s = 9.1
    with pytest.raises(SinkError, match="within one Kafka transaction") as caught:
        late.task.run()
    assert advice in caught.value.remedy and caught.value.can_retry == bool(chunk.columns)
    assert not late.is_open() and late.kafka.committed(TOPIC) == []
