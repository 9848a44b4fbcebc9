"""The last record of a partition that says its place in the binlog."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.cases import for_each
from kit.drain_rig import GIVEN

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.debezium import topic_ends
from airflow_provider_mysql_cdc.cdc.debezium.connect_offsets import DebeziumOffset
from airflow_provider_mysql_cdc.cdc.debezium.topic_ends import LastRecord, require_partition
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, StateError
from airflow_provider_mysql_cdc.cdc.formats.record_topics import partition_of
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import UnreadableRecord
from airflow_provider_mysql_cdc.cdc.verify.read.json_events import PlainJson

VALUES = PlainJson("value")
TOMBSTONE = None
OFFSET = DebeziumOffset("b.000001", 500)


def event(op: str = "c", pos: int = 100, row: int = 0, snapshot: str = "false", **more: Any) -> dict[str, Any]:
    source = {"file": "b.000001", "pos": pos, "row": row, "snapshot": snapshot, "gtid": None}
    return {"op": op, "source": source} | more


def records(*values: Any) -> list[TopicRecord]:
    return [
        TopicRecord(0, n, b"k", None if value is None else json.dumps(value).encode()) for n, value in enumerate(values)
    ]


@for_each(
    ("values", "found"),
    [
        ([event(pos=90), event(row=4)], (100, 5, 0)),
        ([event("u", row=4)], (100, 5, 0)),
        ([event("d", row=4)], (100, 4, 1)),
        ([event("d", row=4), TOMBSTONE], (100, 4, 2)),
        ([event("t")], (100, 0, 1)),
        ([event(row=1), event("r", pos=700, snapshot="incremental"), event("r", snapshot="incremental")], (100, 2, 0)),
        ([event(pos=5), event("r", snapshot="last")], True),
        ([event(pos=5), event("r", pos=500, snapshot="true")], True),
        (
            [event(pos=700, row=2), event("r", pos=501, snapshot="true"), event("r", pos=501, snapshot="last")],
            (700, 3, 0),
        ),
        ([event("d"), TOMBSTONE, event("r", snapshot="incremental")], (100, 0, 2)),
        ([event("r", snapshot="incremental")], False),
        ([], False),
    ],
)
def test_the_last_change_of_the_stream_counts(values: list[Any], found: Any) -> None:
    last = topic_ends._last_change(OFFSET, VALUES, "t", records(*values), whole=False)
    assert (last if isinstance(last, bool) else (last.pos, last.row, last.record)) == found


def test_a_statement_has_as_many_records_as_tables() -> None:
    def statement(pos: int, snapshot: str = "false") -> dict[str, Any]:
        return event(pos=pos, snapshot=snapshot) | {"ddl": "DROP TABLE a, b"}

    def last(*values: Any, whole: bool = False) -> Any:
        found = topic_ends._last_statement(VALUES, "t", records(*values), whole=whole)
        return found if isinstance(found, bool) else (found.pos, found.record)

    assert last(statement(5), statement(9), statement(9)) == (9, 2)
    assert last(statement(9, "true"), statement(9)) == (9, 1)
    assert last(statement(9, "true")) is True
    assert last() is False
    assert last(statement(9), statement(9)) is False, "there may be more of it before"
    assert last(statement(9), statement(9), whole=True) == (9, 2)


def test_the_last_boundary_names_its_transaction() -> None:
    values = {"status": "BEGIN", "id": "u:1"}, {"status": "END", "id": "u:1"}
    ends = [topic_ends._last_boundary(VALUES, "x", records(*values[: n + 1]), whole=True) for n in range(2)]
    assert [(e.transaction_id, e.ended) for e in ends if isinstance(e, LastRecord)] == [("u:1", False), ("u:1", True)]


@for_each("value", [{"id": 1, "__deleted": "false"}, {"source": {"pos": 4}}, [1]])
def test_records_without_a_place_are_named(value: Any) -> None:
    with pytest.raises(UnreadableRecord, match="no source block"):
        topic_ends._last_change(OFFSET, VALUES, "t", records(value), whole=True)


@for_each(
    ("has", "wanted", "fix"),
    [(True, "false", "schemas.enable=true"), (False, "true", "schemas.enable=false")],
)
def test_records_in_another_format_than_the_stream_s_are_named(has: bool, wanted: str, fix: str) -> None:
    cfg = ConnectorConfig.from_properties(GIVEN | {"value.converter.schemas.enable": wanted})
    value = {"schema": {}, "payload": event()} if has else event()
    with pytest.raises(ConfigError, match=fix):
        topic_ends._require_format(cfg, "t", records(value))
    topic_ends._require_format(cfg, "t", records(event() if has else {"schema": {}, "payload": event()}))


def test_a_record_in_a_partition_that_the_stream_would_not_choose_stops_the_take_over() -> None:
    own = partition_of(b"k", 3)
    require_partition(LastRecord("t", own, key=b"k"), 3)
    require_partition(LastRecord("t", 0, key=None), 1)
    for other in (LastRecord("t", (own + 1) % 3, key=b"k"), LastRecord("t", 0)):
        with pytest.raises(StateError, match="partitions are chosen in another way"):
            require_partition(other, 3)
