"""Which row a record is about: by its key, by the table's own key, or by all values; and entries made of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from kit.avro_rig import avro
from kit.cases import for_each
from kit.table_records import TICDC, TableRecords

from airflow_provider_mysql_cdc.cdc.model.records import Headers
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.verify.compare.event_entries import TableEntries, event_entries, row_entry
from airflow_provider_mysql_cdc.cdc.verify.compare.folding import BucketFold, merge_results
from airflow_provider_mysql_cdc.cdc.verify.compare.key_state import EqualRowEvent
from airflow_provider_mysql_cdc.cdc.verify.read.entries import EntryBlocks, EntryKind
from airflow_provider_mysql_cdc.cdc.verify.read.event_readers import event_reader
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import (
    DECIMAL,
    EventRecord,
    UnreadableRecord,
    ValueForm,
    row_values,
    stored_row,
)
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import VerifyRequest
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import IdentitySource, compared_table, row_identity
from airflow_provider_mysql_cdc.cdc.verify.structures.row_comparison import (
    CarriedRowComparison,
    RowDifference,
)
from airflow_provider_mysql_cdc.cdc.verify.structures.structure_versions import TableVersions
from airflow_provider_mysql_cdc.cdc.verify.structures.value_writing import FormChanges, value_in_form
from airflow_provider_mysql_cdc.cdc.verify.verdicts import TopicComparison, build_verdicts

pytestmark = pytest.mark.quick
SCHEMAS = {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"}
PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
AVRO = avro("http://registry:1")
CREATE = "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, name VARCHAR(20), n INT)"
KEYLESS = "CREATE TABLE t (id INT, name VARCHAR(20), n INT)"
BY_NAME = {"message.key.columns": "shop.t:name"}
PLACEHOLDER = "__debezium_unavailable_value"


def read(records: TableRecords, record: Any) -> EventRecord:
    return event_reader(records.cfg, records.topic, records.schemas.lookup).read(*record)


def identities(records: TableRecords, record: Any) -> tuple[Any, Any]:
    found = row_identity(records.cfg, records.table).before_and_after(read(records, record))
    return tuple(None if key is None else json.loads(key) for key in found)  # type: ignore[return-value]


ROW, OTHER = {"id": 1, "name": "a", "n": 2}, {"id": 2, "name": "a", "n": 2}


@pytest.mark.req("EVT-08", "EVT-09")
@pytest.mark.parametrize("base", [SCHEMAS, PLAIN, AVRO])
def test_the_key_of_a_record_names_the_row(base: dict[str, str]) -> None:
    records, key = TableRecords(CREATE, base), {"id": 1}
    assert identities(records, records.row("1", "a", "2")) == (None, key)
    assert identities(records, records.event(key, op="u", before=ROW, after=ROW)) == (None, key)
    assert identities(records, records.event(key, op="d", before=ROW)) == (key, None)
    record = records.event(key, op="d", before=ROW)
    assert identities(records, (record[0], None, record[2])) == (key, None)
    assert identities(records, records.event(None, op="t")) == (None, None)
    with pytest.raises(UnreadableRecord, match="the record has no key"):
        row_identity(records.cfg, records.table).record_key(read(records, records.event(None, op="c", after=ROW)))


@for_each("base", [SCHEMAS, PLAIN, AVRO])
@for_each("old_key", ["", ", PRIMARY KEY (n)", ", PRIMARY KEY (id, n)"])
def test_rows_written_under_another_primary_key_are_told_apart_by_the_present_one(
    base: dict[str, str], old_key: str
) -> None:
    new = TableRecords(CREATE, base)
    old = TableRecords(f"CREATE TABLE t (id INT NOT NULL, name VARCHAR(20), n INT NOT NULL{old_key})", base)
    key = {"": None, ", PRIMARY KEY (n)": {"n": 2}}.get(old_key, {"id": 1, "n": 2})
    compared = compared_table(new.cfg, 0, new.table)

    def entries(op: str, **images: Any) -> list[tuple[EntryKind, bytes]]:
        event = read(old, old.event(key, op=op, **images))
        return [(entry.kind, entry.key) for entry in event_entries(compared, event, (0, 7))]

    alive, dead = EntryKind.ALIVE_UNDER_OTHER_KEY, EntryKind.DEAD_UNDER_OTHER_KEY
    assert entries("c", after=ROW) == [(alive, b'{"id":1}')]
    assert entries("u", before=ROW, after=OTHER) == [(dead, b'{"id":1}'), (alive, b'{"id":2}')]
    assert entries("d", before=ROW) == [(dead, b'{"id":1}')]


def test_a_tombstone_names_a_row_in_a_topic_of_one_table() -> None:
    def entries(properties: dict[str, str], key: dict[str, Any]) -> list[tuple[EntryKind, bytes]]:
        records = TableRecords(CREATE, PLAIN | properties)
        compared = compared_table(records.cfg, 0, records.table)
        event = read(records, (records.event({"id": 1}, op="d", before=ROW)[0], None))
        return [(entry.kind, entry.key) for entry in event_entries(compared, replace(event, key=key), (0, 7))]

    route = "transforms.route."
    routed = {
        "transforms": "route",
        f"{route}type": "io.debezium.transforms.ByLogicalTableRouter",
        f"{route}topic.regex": "(.*)\\.[^.]*",
        f"{route}topic.replacement": "$1.all",
        f"{route}key.enforce.uniqueness": "false",
    }
    assert entries({}, {"id": 1}) == [(EntryKind.TOMBSTONE, b'{"id":1}')]
    assert entries({}, {"name": "a"}) == entries(routed, {"id": 1}) == entries(BY_NAME, {"name": "a"}) == []


def test_a_row_names_the_view_that_has_read_it() -> None:
    records = TableRecords(KEYLESS, PLAIN)
    compared = compared_table(records.cfg, 0, records.table)
    change, row = (read(records, records.event(None, op=op, after=ROW)) for op in "cr")
    later = replace(row, source={**row.source, "ts_ms": 1 + row.source["ts_ms"]})
    repaired = (("cdc-repair", b"run"),)

    def view(record: EventRecord, headers: Headers = ()) -> bytes:
        (entry,) = event_entries(compared, record, (0, 7), headers)
        return entry.value

    def counted(record: EventRecord, headers: Headers = ()) -> bytes:
        (entry,) = event_entries(compared, record, (0, 7), headers)
        return EqualRowEvent.of_entry(entry).view

    assert counted(change) == b"" and counted(row, repaired) == b""
    assert view(row) == view(row) != view(later) != b""


@pytest.mark.parametrize("base", [SCHEMAS, PLAIN])
def test_rows_that_do_not_have_the_present_key_are_told_apart_by_that_of_their_records(base: dict[str, str]) -> None:
    new = TableRecords("CREATE TABLE t (id INT NOT NULL, v INT AUTO_INCREMENT PRIMARY KEY)", base)
    old = TableRecords("CREATE TABLE t (id INT NOT NULL PRIMARY KEY)", base)
    identity = row_identity(new.cfg, new.table)
    event = read(old, old.event({"id": 1}, op="c", after={"id": 1}))
    assert identity.before_and_after(event) == (None, b'{"id":1}')
    keyless = TableRecords("CREATE TABLE t (id INT)", base)
    event = read(keyless, keyless.event(None, op="c", after={"id": 1}))
    assert identity.before_and_after(event) == (None, None)


@pytest.mark.req("COL-13")
@pytest.mark.parametrize("base", [SCHEMAS, PLAIN, AVRO])
def test_with_message_key_columns_the_tables_own_key_names_the_row(base: dict[str, str]) -> None:
    records, key = TableRecords(CREATE, base | BY_NAME), {"name": "a"}
    assert read(records, records.row("1", "a", "2")).key == key
    assert identities(records, records.row("1", "a", "2")) == (None, {"id": 1})
    assert identities(records, records.event(key, op="u", before=ROW, after=ROW)) == ({"id": 1}, {"id": 1})
    assert identities(records, records.event(key, op="u", before=ROW, after=OTHER)) == ({"id": 1}, {"id": 2})
    assert identities(records, records.event(key, op="d", before=ROW)) == ({"id": 1}, None)
    record = records.event(key, op="d", before=ROW)
    assert identities(records, (record[0], None, record[2])) == (None, None)
    with pytest.raises(UnreadableRecord, match="the event of op d does not say which row it is about"):
        identities(records, records.event(key, op="d"))


def test_a_column_that_one_image_does_not_say_is_the_same_in_the_other() -> None:
    create = "CREATE TABLE t (id VARCHAR(50) NOT NULL PRIMARY KEY, name VARCHAR(20))"
    records, before = TableRecords(create, SCHEMAS | BY_NAME), {"id": "x", "name": "a"}
    for after in ({"id": PLACEHOLDER, "name": "a"}, {"id": None, "name": "a"}, {"name": "a"}):
        reader = row_identity(records.cfg, records.table)
        record = EventRecord("u", {"name": "a"}, before, after, {})
        assert reader.before_and_after(record) == (b'{"id":"x"}', b'{"id":"x"}')
        with pytest.raises(UnreadableRecord, match="does not say the value of key column id"):
            reader.before_and_after(EventRecord("c", {"name": "a"}, None, after, {}))


@pytest.mark.parametrize("more", [{}, BY_NAME])
def test_without_a_key_all_values_tell_rows_apart(more: dict[str, str]) -> None:
    records, key = TableRecords(KEYLESS, SCHEMAS | more), {"name": "a"} if more else None
    assert identities(records, records.row("1", "a", "2")) == (None, ROW)
    assert identities(records, records.event(key, op="u", before=ROW, after=OTHER)) == (ROW, OTHER)
    assert identities(records, records.event(key, op="d", before=ROW)) == (ROW, None)
    assert identities(records, (None, None, [])) == (None, None)


@for_each(
    ("create", "properties", "source"),
    [
        (CREATE, {}, IdentitySource.RECORD_KEY),
        (KEYLESS, {}, IdentitySource.VALUES),
        (KEYLESS.replace("id INT", "id INT NOT NULL UNIQUE"), {}, IdentitySource.RECORD_KEY),
        (CREATE, BY_NAME, IdentitySource.OWN_KEY),
        (CREATE, {"message.key.columns": "shop.t:n,ID"}, IdentitySource.RECORD_KEY),
        (CREATE, BY_NAME | {"column.exclude.list": "shop.t.id"}, IdentitySource.VALUES),
        (CREATE.replace("id INT", "id CHAR(9)"), BY_NAME | {"column.mask.with.3.chars": "shop.t.id"},
         IdentitySource.VALUES),
        (CREATE.replace("id INT", "id CHAR(9)"), BY_NAME | {"column.truncate.to.3.chars": "shop.t.id"},
         IdentitySource.VALUES),
        (CREATE.replace("id INT", "id CHAR(9)"), BY_NAME | {"column.mask.hash.SHA-256.with.salt.x": "shop.t.id"},
         IdentitySource.OWN_KEY),
    ],
)  # fmt: skip
def test_where_the_identity_is(create: str, properties: dict[str, str], source: IdentitySource) -> None:
    records = TableRecords(create, SCHEMAS | properties)
    assert row_identity(records.cfg, records.table).source is source
    compared = compared_table(records.cfg, 3, records.table)
    assert (compared.own_key, compared.keyless) == (
        source is IdentitySource.RECORD_KEY,
        source is IdentitySource.VALUES,
    )


@for_each("properties", [SCHEMAS, AVRO])
@for_each(
    ("old", "old_value", "new", "value"),
    [
        ("INT", "5", "BIGINT", "5"),
        ("DECIMAL(10,2)", "-5.10", "DECIMAL(12,4)", "-5.1000"),
        ("DECIMAL(10,2)", "128.00", "INT", "128"),
        ("BIGINT UNSIGNED", "5", "DECIMAL(20,0)", "5"),
        ("DATETIME(3)", "2024-02-29 12:34:56.123", "DATETIME(6)", "2024-02-29 12:34:56.123000"),
        ("ENUM('a')", "a", "VARCHAR(9)", "a"),
    ],
)
@for_each("keyed", [True, False])
def test_a_changed_structure_does_not_change_the_identity(
    properties: dict[str, str], old: str, old_value: str, new: str, value: str, keyed: bool
) -> None:
    key = " NOT NULL PRIMARY KEY" if keyed else ""
    before, after = (TableRecords(f"CREATE TABLE t (id {kind}{key})", properties) for kind in (old, new))
    found = row_identity(after.cfg, after.table)
    event, row = read(before, before.row(old_value)), read(after, after.row(value))
    assert found.before_and_after(event) == found.before_and_after(row) != (None, None)


def test_a_value_that_the_new_form_cannot_hold_stays_as_it_is() -> None:
    decimal, whole = ValueForm("bytes", DECIMAL, 2), ValueForm("int32")
    assert value_in_form("AP8=", decimal, whole) == "AP8="
    assert value_in_form("AMg=", decimal, whole) == 2
    assert value_in_form(None, decimal, whole) is None
    assert value_in_form("AP8=", decimal, ValueForm("bytes", DECIMAL, 1)) == "AP8="
    assert value_in_form("x", ValueForm("string", "io.debezium.data.Json"), ValueForm("string")) == "x"
    changes = FormChanges({"a": whole, "b": whole})
    assert changes.in_forms({"a": "AMg=", "b": 1, "c": 2}, {"a": decimal, "b": whole, "c": decimal}) == {
        "a": 2, "b": 1, "c": 2,
    }  # fmt: skip
    assert changes.in_forms({"b": 1}, {"a": decimal}) == {"b": 1}
    assert changes.in_forms({"a": "AMg="}, None) == {"a": "AMg="}


def test_field_names_are_those_of_records() -> None:
    create = "CREATE TABLE t (`a-b` INT NOT NULL PRIMARY KEY, name VARCHAR(20))"
    records = TableRecords(create, SCHEMAS | BY_NAME | {"field.name.adjustment.mode": "avro"})
    assert identities(records, records.row("1", "a")) == (None, {"a_b": 1})
    ticdc = TableRecords(create, TICDC)
    assert identities(ticdc, ticdc.row("1", "a")) == (None, {"a_b": 1})
    assert identities(ticdc, (ticdc.row("1", "a")[0], None)) == ({"a_b": 1}, None)
    with pytest.raises(UnreadableRecord, match="op d does not say which row"):
        identities(TableRecords(KEYLESS, TICDC), (None, None))


@pytest.mark.parametrize("properties", [SCHEMAS, AVRO, TICDC])
def test_a_row_carries_the_forms_that_are_not_those_of_the_table(properties: dict[str, str]) -> None:
    old = TableRecords("CREATE TABLE t (id INT PRIMARY KEY, d DECIMAL(10,2), v TEXT)", properties)
    new = TableRecords("CREATE TABLE t (id INT PRIMARY KEY, d DECIMAL(10,3), v TEXT, w INT)", properties)
    compared = compared_table(new.cfg, 0, new.table)
    compare = CarriedRowComparison({0: compared.columns})
    mine = row_entry(compared, read(new, new.row("1", "1.500", "x" * 2000, None)), 0)
    assert b"forms" not in mine.value
    for text, differing in (("1.50", ()), ("1.51", ("d",))):
        (theirs,) = event_entries(compared, read(old, old.row("1", text, "x" * 2000)), (0, 7))
        assert (theirs.kind, theirs.key) == (EntryKind.ALIVE, mine.key) and b"forms" in theirs.value
        assert row_values(theirs.value).keys() == {"id", "d", "v"}
        found = compare(0, stored_row(mine.value), stored_row(theirs.value))
        assert found == RowDifference((*differing, "w"))


def test_many_forms_are_carried_whole() -> None:
    columns = ", ".join(f"c{number} DECIMAL(10,{{}})" for number in range(60))
    old, new = (TableRecords(f"CREATE TABLE t (id INT PRIMARY KEY, {columns.replace('{}', s)})", SCHEMAS) for s in "23")
    compared = compared_table(new.cfg, 0, new.table)
    (event,) = event_entries(compared, read(old, old.row("1", *["1.50"] * 60)), (0, 7))
    row = row_entry(compared, read(new, new.row("1", *["1.500"] * 60)), 0)
    found = CarriedRowComparison({0: compared.columns})(0, stored_row(row.value), stored_row(event.value))
    assert found == RowDifference()


def test_without_schemas_and_a_history_a_value_is_read_as_one_of_now() -> None:
    old = TableRecords("CREATE TABLE t (id INT PRIMARY KEY, d DECIMAL(10,2))", PLAIN)
    new = TableRecords("CREATE TABLE t (id INT PRIMARY KEY, d DECIMAL(10,3), w INT)", PLAIN)
    compared = compared_table(new.cfg, 0, new.table)
    row = row_entry(compared, read(new, new.row("1", "1.500", None)), 0)
    (event,) = event_entries(compared, read(old, old.row("1", "1.50")), (0, 7))
    found = CarriedRowComparison({0: compared.columns})(0, stored_row(row.value), stored_row(event.value))
    assert found == RowDifference(("d", "w"))


@pytest.mark.parametrize("own", [True, False])
def test_an_update_that_changes_the_identity_ends_one_row_and_begins_another(own: bool) -> None:
    records = TableRecords(CREATE, SCHEMAS | ({} if own else BY_NAME))
    compared = compared_table(records.cfg, 0, records.table)
    event = read(records, records.event({"id": 2} if own else {"name": "a"}, op="u", before=ROW, after=OTHER))
    found = [(entry.kind, entry.key) for entry in event_entries(compared, event, (0, 7))]
    one, two = b'{"id":1}', b'{"id":2}'
    of_one = [] if own else [(EntryKind.KEPT, one), (EntryKind.KEPT, two), (EntryKind.DEAD, one)]
    assert found == [*of_one, (EntryKind.ALIVE, two)]


def test_a_long_text_is_compared_by_its_digest() -> None:
    new = TableRecords("CREATE TABLE t (id INT PRIMARY KEY, v TEXT, w INT)", SCHEMAS)
    old = TableRecords("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", SCHEMAS)
    compared = compared_table(new.cfg, 0, new.table)
    entries = TableEntries(compared, event_reader(new.cfg, new.topic, new.schemas.lookup))
    compare = CarriedRowComparison({0: compared.columns})
    for text, differing in (("x" * 2000, ()), ("y" + "x" * 1999, ("v",))):
        row = entries.of_row((*new.row("1", "x" * 2000, None)[:2], 0, ()))
        (event,) = event_entries(compared, read(old, old.row("1", text)), (0, 7))
        assert b"blake2b" in event.value and b"blake2b" in row.value
        assert compare(0, stored_row(row.value), stored_row(event.value)) == RowDifference((*differing, "w"))


@for_each("properties", [SCHEMAS, PLAIN, AVRO, TICDC])
def test_rows_without_a_key_are_not_judged_where_events_have_other_columns(properties: dict[str, str]) -> None:
    old, new = TableRecords(KEYLESS, properties), TableRecords(KEYLESS.replace("n INT", "n INT, more INT"), properties)
    compared = compared_table(new.cfg, 0, new.table)
    entries = TableEntries(compared, event_reader(new.cfg, new.topic, new.schemas.lookup))
    rows = [entries.of_row((*new.row("1", "a", "2", None)[:2], 0, ()))]
    events = [
        entry
        for _ in range(2)
        for entry in entries.of_event(read(old, old.row("1", "a", "2")), TopicRecord(0, 7, None, None))
    ]
    assert [entry.kind for entry in events] == [EntryKind.ADDED, EntryKind.UNDECIDABLE, EntryKind.ADDED]
    present = list(entries.of_event(read(new, new.row("1", "a", "2", None)), TopicRecord(0, 8, None, None)))
    assert [entry.kind for entry in present] == [EntryKind.ADDED]
    again = compared_table(new.cfg, 0, new.table, TableVersions((), moved_back=True))
    of_again = TableEntries(again, event_reader(new.cfg, new.topic, new.schemas.lookup))
    *_, reason = of_again.of_event(read(new, new.row("1", "a", "2", None)), TopicRecord(0, 8, None, None))
    assert reason.kind is EntryKind.UNDECIDABLE and b"that a snapshot contains" in reason.value
    results = []
    for found in ([*rows, *events], [*rows, *present]):
        fold = BucketFold(CarriedRowComparison({0: compared.columns}), 10)
        fold.add(found)
        results.append(merge_results([fold.result()], 10))
    assert ([*results[0].undecidable], results[0].found) == ([0], [])
    assert (results[1].undecidable, results[1].found) == ({}, [])
    verdicts = build_verdicts(TopicComparison((compared,), results[0], {}, {}, []), VerifyRequest())
    assert "events of an earlier structure" in verdicts[0].unknown[0]
    blocks = EntryBlocks(3)
    blocks.add(events[1])
    assert len(blocks.take_rest()) == 3
