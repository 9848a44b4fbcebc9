"""Records that are no events, by their keys: which of them a later record can settle."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from kit.cases import for_each
from kit.table_records import TableRecords

from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.verify import part_readers
from airflow_provider_mysql_cdc.cdc.verify.compare.event_entries import RecordKeys, is_raw, raw_identity
from airflow_provider_mysql_cdc.cdc.verify.part_readers import LoneTombstones
from airflow_provider_mysql_cdc.cdc.verify.read.entries import EntryKind
from airflow_provider_mysql_cdc.cdc.verify.read.event_readers import event_reader
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import EventRecord, UnreadableRecord, row_values
from airflow_provider_mysql_cdc.cdc.verify.read.row_records import REPAIR_HEADER
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import (
    ComparedTable,
    TopicTables,
    compared_table,
    shared_topics,
)

pytestmark = pytest.mark.quick

PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
KEYED = "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, name VARCHAR(20))"
KEYLESS = "CREATE TABLE t (id INT, name VARCHAR(20))"
ROUTE = {
    "transforms": "r",
    "transforms.r.type": "io.debezium.transforms.ByLogicalTableRouter",
    "transforms.r.topic.regex": ".*",
    "transforms.r.topic.replacement": "all",
    "transforms.r.key.enforce.uniqueness": "false",
}
NAMED = ROUTE | {"transforms.r.key.enforce.uniqueness": "true"}
NAMED_KEY = b'{"id":5,"__dbz__physicalTableIdentifier":"p.shop.t"}'
MARK = ((REPAIR_HEADER, b"run"),)
WITH_OTHER_KEYS = {"message.key.columns": "shop.t:name"}


def keys(create: str = KEYED, properties: dict[str, str] | None = None, tables: int = 1) -> RecordKeys:
    records = TableRecords(create, PLAIN | (properties or {}))
    compared: list[ComparedTable] = [compared_table(records.cfg, number, records.table) for number in range(tables)]
    return RecordKeys(compared, event_reader(records.cfg, records.topic, records.schemas.lookup))


def entry(of: RecordKeys, key: bytes | None, value: bytes | None = b"x", headers: Any = ()) -> Any:
    return of.unreadable(TopicRecord(2, 7, key, value, 0, headers), "why")


def test_a_key_of_the_table_names_its_row() -> None:
    found = entry(keys(), b'{"id": 5}')
    assert (found.kind, found.partition, found.offset, found.key) == (EntryKind.UNREADABLE, 2, 7, b'{"id":5}')
    assert found.value == b"why"


@for_each(
    ("of", "key"),
    [
        (keys(), b"\xff"),
        (keys(), b'{"other":1}'),
        (keys(KEYLESS), b'{"id":1}'),
        (keys(tables=2), b"\xff"),
        (keys(properties=WITH_OTHER_KEYS), b"\xff"),
    ],
)
def test_a_key_that_no_row_can_have_stands_for_itself(of: RecordKeys, key: bytes) -> None:
    found = entry(of, key)
    assert found.key == raw_identity(key) and is_raw(found.key) and not is_raw(b'{"id":5}')


@for_each(
    ("of", "key"),
    [
        (keys(), None),
        (keys(), b'{"name":"an earlier primary key"}'),
        (keys(properties=WITH_OTHER_KEYS), b'{"name":"of several rows"}'),
        (keys(tables=2), b'{"id":5}'),
        (keys(properties=ROUTE), b'{"id":5}'),
        (keys(properties=NAMED), b'{"id":5,"__dbz__physicalTableIdentifier":"another"}'),
        (keys(properties=NAMED, tables=2), NAMED_KEY),
    ],
)
def test_a_key_that_other_rows_may_have_cannot_be_settled(of: RecordKeys, key: bytes | None) -> None:
    assert entry(of, key) is None


def test_a_key_that_names_its_table_names_a_row_in_a_topic_that_tables_share() -> None:
    assert row_values(entry(keys(properties=NAMED), NAMED_KEY).key) == json.loads(NAMED_KEY)


def test_a_repair_s_tombstone_settles_its_key() -> None:
    assert entry(keys(), b"\xff", None, MARK).kind is EntryKind.REPAIRED
    assert entry(keys(), b"\xff", None).kind is EntryKind.UNREADABLE
    assert entry(keys(), b"\xff", b"damaged", MARK).kind is EntryKind.UNREADABLE


def test_a_record_must_not_have_the_key_of_a_row_that_it_is_not_about() -> None:
    records = TableRecords(KEYED, PLAIN | NAMED)
    compared = compared_table(records.cfg, 0, records.table)
    topic = TopicTables({compared.table.id: 0}, "all", (compared,))
    own = {"id": 5, "__dbz__physicalTableIdentifier": "p.shop.t"}
    message, event = (EventRecord(op, own, None, None, {}) for op in ("", "c"))
    topic.require_key(event, 0)
    topic.require_key(replace(message, key={"serverName": "p"}), None)
    for wrong, number in ((message, None), (event, None), (event, 1)):
        with pytest.raises(UnreadableRecord):
            topic.require_key(wrong, number)


def test_tables_share_a_topic_whose_name_is_that_of_one_of_them() -> None:
    into_t = {
        "transforms": "r",
        "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.r.regex": "(.*)\\.u",
        "transforms.r.replacement": "$1.t",
    }
    for properties, alone in ((into_t, False), ({}, True)):
        records = TableRecords(KEYED, PLAIN | properties)
        shared = shared_topics(records.cfg, [records.table.id, TableId(records.table.id.db, "u")])
        assert compared_table(records.cfg, 0, records.table, shared=shared).alone is alone


def test_a_tombstone_behind_no_delete_of_its_key_is_of_other_hands() -> None:
    def told(*ops: str, start: int = 0, key: bytes | None = b"k", headers: Any = ()) -> list[bool]:
        tombstones, found = LoneTombstones(start), []
        for offset, op in enumerate(ops, start):
            record = TopicRecord(0, offset, key, b"x" if op else None, 0, headers)
            try:
                tombstones.require_delete(EventRecord(op, {}, None, None, {}), record)
                found.append(True)
            except UnreadableRecord:
                found.append(False)
        return found

    assert told("c", "d", "", "", "u", "") == [True, True, True, False, True, False]
    assert told("", "") == [False, False] and told("", "", start=9) == [True, False], "its delete may be before"
    assert told("", key=None) == told("", headers=MARK) == [True]


def test_few_deletes_are_remembered_where_no_tombstones_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_readers, "_MOST_DELETED", 2)
    tombstones = LoneTombstones(0)
    for key in (b"a", b"b", b"c"):
        tombstones.require_delete(EventRecord("d", {}, None, None, {}), TopicRecord(0, 0, key, b"x", 0, ()))
    assert list(tombstones._deleted) == [b"b", b"c"]


def settled(of: RecordKeys, key: bytes | None, value: bytes | None = None, number: Any = None) -> list[Any]:
    found = list(of.repaired(TopicRecord(2, 7, key, value, 0, MARK), number))
    assert all((e.kind, e.partition, e.offset) == (EntryKind.REPAIRED, 2, 7) for e in found)
    return [(e.table, e.key, *([e.value] if e.value else [])) for e in found]


def test_a_repair_settles_the_row_of_its_key() -> None:
    assert settled(keys(), b'{"id":5}') == [(0, b'{"id":5}')]
    assert settled(keys(), None) == []
    assert settled(keys(), b'{"name":"x"}') == []
    assert settled(keys(KEYLESS), b'{"id":1}') == [(0, raw_identity(b'{"id":1}'))]
    assert settled(keys(tables=2), b'{"id":5}') == [(0, b'{"id":5}', b"any"), (1, b'{"id":5}', b"any")]
    assert settled(keys(tables=2), b'{"id":5}', b"an event", 1) == [(1, b'{"id":5}')]
