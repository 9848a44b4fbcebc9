"""What a writer counts of its rows and transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kit.cases import for_each
from kit.drain_rig import START, Rig

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog import event_parsers as ev
from airflow_provider_mysql_cdc.cdc.commit.plan import Marker
from airflow_provider_mysql_cdc.cdc.drain import row_events
from airflow_provider_mysql_cdc.cdc.drain.writer_meter import WriterCounts, WriterMeter
from airflow_provider_mysql_cdc.cdc.drain.writer_position import WriterPosition
from airflow_provider_mysql_cdc.cdc.formats.record_topics import TopicShare, partition_of
from airflow_provider_mysql_cdc.cdc.metrics.stream_metrics import StreamCounts
from airflow_provider_mysql_cdc.cdc.metrics.writer_metrics import WriterMetrics
from airflow_provider_mysql_cdc.cdc.model.offset import ResumePosition
from airflow_provider_mysql_cdc.cdc.model.records import CHANGE, NEW_KEY, TOMBSTONE, RowRecord

pytestmark = pytest.mark.quick
ALL = TopicShare("t", 1, frozenset({0}), True)
WRITE, UPDATE, DELETE = 0, 1, 2


def record(row: int, number: int = CHANGE, value: bytes | None = b"v", header: Any = None) -> RowRecord:
    return (b"%d" % row, value, row, number, header, None)


KEY_CHANGED = [
    record(1, CHANGE, header=("__debezium.newkey", b"2")),
    record(1, TOMBSTONE, None),
    record(1, NEW_KEY, header=("__debezium.oldkey", b"1")),
]


@pytest.mark.req("MET-26", "MET-27", "MET-28")
@for_each(
    ("operation", "records", "expected"),
    [
        (WRITE, [record(0), record(1)], StreamCounts(created=2)),
        (UPDATE, [record(0), record(1)], StreamCounts(updated=2)),
        (DELETE, [record(0), record(1)], StreamCounts(deleted=2)),
        (DELETE, [record(0), record(0, TOMBSTONE, None)], StreamCounts(deleted=1)),
        (UPDATE, [record(0), *KEY_CHANGED], StreamCounts(updated=1, deleted=1, created=1)),
        # TiCDC: the old key's record has no value.
        (UPDATE, [record(0, CHANGE, None), record(0, NEW_KEY)], StreamCounts(deleted=1, created=1)),
        (UPDATE, [], StreamCounts()),
        # Rows of other writers have no records here, so there may be as many records as the event has rows.
        (DELETE, [record(1), record(1, TOMBSTONE, None)], StreamCounts(deleted=1)),
        (UPDATE, [(*each[:2], 2, *each[3:]) for each in KEY_CHANGED], StreamCounts(deleted=1, created=1)),
        (UPDATE, [record(3)], StreamCounts(updated=1)),
    ],
)
def test_rows_are_counted_by_what_happened_to_them(
    operation: int, records: list[RowRecord], expected: StreamCounts
) -> None:
    meter = WriterMeter()
    meter.add_rows(operation, records, len(records), ALL)
    assert meter.metrics(WriterPosition(START), None, {}, (0, 0)).counts == expected


def test_writers_count_the_records_of_their_partitions_only() -> None:
    records = [record(row) if row % 3 else record(row, header=("h", b"")) for row in range(40)]
    records += [
        record(40, CHANGE, header=("h", b"")),
        record(40, TOMBSTONE, None),
        (b"new", b"v", 40, NEW_KEY, None, None),
    ]
    total = StreamCounts()
    for partition in range(3):
        share = TopicShare("t", 3, frozenset({partition}), False)
        own = sum(partition_of(each[0], 3) == partition for each in records)
        meter = WriterMeter()
        meter.add_rows(UPDATE, records, own, share)
        total = total.add(meter.metrics(WriterPosition(START), None, {}, (0, 0)).counts)
    assert total == StreamCounts(created=1, updated=26, deleted=15)


@pytest.mark.req("MET-29")
def test_what_all_writers_read_counts_the_first_one_alone() -> None:
    for first in (True, False):
        meter = WriterMeter(first)
        meter.add_filtered()
        meter.add_torn()
        meter.end_transaction(committed=True)
        meter.end_transaction(committed=False)
        expected = StreamCounts(filtered=1, torn=1, committed=1, rolled_back=1) if first else StreamCounts()
        assert meter.metrics(WriterPosition(START), None, {}, (0, 0)).counts == expected


def test_an_attempt_that_goes_on_adds_to_what_is_committed() -> None:
    earlier = StreamCounts(created=5, skipped=2)
    committed = Marker(
        1, 0, START, START, ResumePosition(START), counts={"t (rows left out)": 2}, metrics=WriterMetrics(earlier)
    )
    counts = WriterCounts.resume(committed, None)
    counts.meter.add_rows(WRITE, [record(0)], 1, ALL)
    counts.by_topic["t (rows left out)"] += 1
    found = counts.meter.metrics(WriterPosition(START), None, counts.by_topic, (0, 0)).counts
    assert found == StreamCounts(created=6, skipped=3)


@pytest.mark.req("MET-47")
def test_a_transaction_without_its_end_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    monkeypatch.setattr(ev, "parse_gtid", lambda event: ev.GtidEvent(None))
    monkeypatch.setattr(ev, "parse_rotate", lambda event: SimpleNamespace(file="b.000002", position=4))
    monkeypatch.setattr(row_events.RowEventHandler, "handle", lambda rows, event: rows.position.add_rows(7))

    def event(kind: int) -> Any:
        places = {"file": "b.000001", "start_pos": 10, "end_pos": 40, "inner": False, "body": 0, "end": 7}
        return SimpleNamespace(type=kind, server_id=1, timestamp=1, **places)

    def events(_: Callable[[], None]) -> Iterator[Any]:
        gtid, row, xid = (event(kind) for kind in (c.GTID_LOG_EVENT, c.WRITE_ROWS_EVENT_V2, c.XID_EVENT))
        yield from (gtid, row, xid, gtid, row, gtid, row, row, event(c.ROTATE_EVENT))

    rig.run(events)
    counts = rig.writer.output.counts.meter.metrics(rig.writer.position, None, {}, (0, 0)).counts
    assert counts == StreamCounts(committed=1, torn=2)
