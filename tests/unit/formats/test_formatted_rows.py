"""Rows that their form cannot hold: named, or left out whole and told of by one writer, in drains and in snapshots."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import BadRow
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.formats.avro_rows import SnapshotSource
from airflow_provider_mysql_cdc.cdc.formats.dead_letter import format_rows
from airflow_provider_mysql_cdc.cdc.formats.record_format import OptionalBytes, RecordFormat
from airflow_provider_mysql_cdc.cdc.formats.record_topics import TopicShare
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.snapshot.row_emitter import EmitTarget, RowEmitter

pytestmark = pytest.mark.quick


class Picky(RecordFormat):
    """Put keys and values into parentheses, those but that are refused; a key's number is its partition."""

    def __init__(self, *refused: bytes) -> None:
        self.refused = refused

    def _checked(self, data: OptionalBytes) -> OptionalBytes:
        if any(data is not None and word in data for word in self.refused):
            raise ValueDecodeError("a record of table db.t cannot be written as Avro", why="so it is", remedy="look")
        return None if data is None else b"(%s)" % data

    key_bytes = value_bytes = _checked

    def partition(self, record_key: OptionalBytes, key: OptionalBytes, value: OptionalBytes, count: int) -> int:
        return int(json.loads(key or b"")["id"]) % count


def key(number: int) -> bytes:
    return b'{"id":%d}' % number


def value(op: str, before: int | None, after: int | None) -> bytes:
    images = [None if number is None else {"id": number, "gone": {}} for number in (before, after)]
    return json.dumps({"before": images[0], "after": images[1], "op": op}).encode()


INSERT = (key(3), value("c", None, 3), 0, 0, None, None)
KEY_CHANGE = (
    (key(1), value("d", 1, None), 1, 0, ("h", b""), None),
    (key(1), None, 1, 1, ("h", b""), None),
    (key(2), value("c", None, 2), 1, 2, None, None),
)
LAST = (key(4), value("u", 4, 4), 2, 0, None, None)
EVENT = (INSERT, *KEY_CHANGE, LAST)


def shares(count: int) -> list[TopicShare]:
    return [TopicShare("t", count, frozenset((n,)), count == 1) for n in range(count)]


def told(form: RecordFormat, records: Sequence[Any] = EVENT, count: int = 4) -> tuple[list[Any], list[Any]]:
    """Return what all writers write and leave out together."""
    written, bad = [], []
    for share in shares(count):
        found, left_out = format_rows(form, records, share, "binlog.1:4", tolerant=True)
        assert {partition for *_, partition in found} <= share.assigned
        written += [(row, number, key, value, header) for key, value, row, number, header, _ in found]
        bad += left_out
    return sorted(written, key=lambda r: r[:2]), bad


@pytest.mark.parametrize("count", [1, 2, 4])
def test_each_record_is_written_once(count: int) -> None:
    written, bad = told(Picky(), count=count)
    assert bad == []
    assert written == [(row, leg, b"(%s)" % k, v and b"(%s)" % v, h) for k, v, row, leg, h, _ in EVENT]


@for_each("count", [1, 2, 3, 4])
@for_each("refused", [b'{"id":1}', b'{"id":2}', b'"op": "d"', b'{"id": 2,'])
def test_a_changed_key_is_left_out_whole_and_reported_once(refused: bytes, count: int) -> None:
    written, (bad,) = told(Picky(refused), count=count)
    assert [record[0] for record in written] == [0, 2]
    assert (bad.row, bad.op, bad.key, bad.key_json) == (1, "u", b'{"id":1}', b'{"id":1}'.decode())
    assert (bad.before, bad.after) == ('{"id":1}', '{"id":2}')
    assert bad.error.where == "binlog.1:4, row 1, key id=1" and bad.error.why == "so it is"
    assert bad.error.remedy == "look"


@pytest.mark.parametrize("refused", [key(3), b'{"id": 3,'])
def test_a_row_of_one_record_is_left_out_and_the_others_stay(refused: bytes) -> None:
    written, (bad,) = told(Picky(refused), (INSERT, LAST))
    assert [record[0] for record in written] == [2]
    assert (bad.op, bad.before, bad.after) == ("c", None, '{"id":3}')


def test_without_leave_the_row_is_named_and_nothing_of_the_event_is_given() -> None:
    with pytest.raises(ValueDecodeError) as found:
        format_rows(Picky(b'{"id": 2,'), EVENT, shares(1)[0], "binlog.1:4", tolerant=False)
    assert found.value.where == "binlog.1:4, row 1, key id=2"
    assert "cannot be written as Avro" in found.value.what


def test_a_key_with_its_schema_is_named_without_it() -> None:
    wrapped = b'{"schema":{"type":"struct"},"payload":{"id":3}}'
    with pytest.raises(ValueDecodeError, match="row 0, key id=3]"):
        list(Picky(b"struct").records([(wrapped, INSERT[1], 0, 0, None, None)], "binlog.1:4"))


BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}


@pytest.mark.parametrize("mode", ["fail", "warn"])
def test_rows_of_a_snapshot(mode: str) -> None:
    cfg = ConnectorConfig.from_properties(BASE | {"event.processing.failure.handling.mode": mode})
    sent: list[Any] = []
    sink = SimpleNamespace(produce=lambda *record: sent.append(record))
    counts: dict[str, int] = {}
    emitter = RowEmitter(
        cfg=cfg,
        table=Table(TableId("db", "t"), ()),
        decode=lambda packet, pos, ctx, out: out.append((key(int(packet)), packet, 0, 0, None, None)),
        partial_rows=SimpleNamespace(describe=lambda row, error, *_: BadRow(row, "r", error)),  # type: ignore[arg-type]
        fill=lambda ctx, marker: None,
        source_texts=SnapshotSource(lambda *_: None, lambda ns: "}", "}"),
        where="snapshot of db.t/0",
        target=EmitTarget(sink, "topic", 3, [], 0, Picky(b"4")),  # type: ignore[arg-type]
        counts=counts,
        id_prefix="x",
        row_id_prefix="snapshot of db.t/0",
    )
    emitter.emit_row(b"5", "true")
    if mode == "fail":
        with pytest.raises(ValueDecodeError, match=r"snapshot of db\.t/0, key id=4"):
            emitter.emit_row(b"4", "true")
    else:
        emitter.emit_row(b"4", "true")
        assert emitter.left_out == 1 and counts == {"topic (rows left out)": 1}
    emitter.emit_row(b"6", "true")
    assert sent == [("topic", b'({"id":%d})' % n, b"(%d)" % n, n % 3, []) for n in (5, 6)]
