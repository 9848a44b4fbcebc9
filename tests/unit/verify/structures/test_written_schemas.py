"""Schemas of records: those that the stream may have written under any properties, and those that it never writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kit.avro_rig import avro
from kit.cases import for_each
from kit.table_records import TICDC, SchemaTexts, TableRecords

from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.verify.read.event_readers import event_reader
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import EventRecord, UnreadableRecord
from airflow_provider_mysql_cdc.cdc.verify.structures.structure_versions import StructureVersion, TableVersions
from airflow_provider_mysql_cdc.cdc.verify.structures.written_structures import WrittenStructures

pytestmark = pytest.mark.quick

SCHEMAS = {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"}
AVRO = avro("http://registry:1")
NO_METADATA = AVRO | {f"{part}.converter.connect.meta.data": "false" for part in ("key", "value")}
COLUMNS = {
    "u BIGINT UNSIGNED": "7", "p DECIMAL(10,2)": "1.50", "f FLOAT": "1.5", "g DOUBLE": "1.5", "s VARCHAR(9)": "a",
    "b VARBINARY(9)": b"a", "k BIT(9)": b"\x01\x02", "j JSON": "{}", "e ENUM('a')": "a", "m SET('a')": "a",
    "d DATE": "2024-02-29", "t TIME(3)": "12:34:56.789", "a DATETIME(6)": "2024-02-29 12:34:56.000001",
    "z TIMESTAMP": "2024-02-29 12:34:56", "y YEAR": "2024", "x TINYINT(1)": "1", "q POINT": None, "r REAL": "1.5",
}  # fmt: skip
CREATE = f"CREATE TABLE t (n INT, i BIGINT UNSIGNED, {', '.join(COLUMNS)}, PRIMARY KEY (n, i)) COMMENT 'of all'"
ROW = {"n": "5", "i": "6", **{column.split()[0]: value for column, value in COLUMNS.items()}}
OTHER_PROPERTIES: dict[str, dict[str, str]] = {
    **{f"{mode}": {"time.precision.mode": mode} for mode in ("adaptive", "connect", "isostring", "microseconds",
                                                             "nanoseconds")},
    **{f"decimal {mode}": {"decimal.handling.mode": mode} for mode in ("string", "double")},
    "bigint": {"bigint.unsigned.handling.mode": "precise"},
    **{f"binary {mode}": {"binary.handling.mode": mode} for mode in ("base64", "hex", "base64-url-safe")},
    "1.9": {"event.contract": "1.9"},
    "1.9, bigint": {"event.contract": "1.9", "bigint.unsigned.handling.mode": "precise"},
    "before 0.10": {"event.contract": "1.9", "source.struct.version": "v1"},
    "transactions": {"provide.transaction.metadata": "true", "event.contract": "1.9"},
    "comments": {"include.schema.comments": "true"},
    "types": {"column.propagate.source.type": ".*"},
    "names": {"schema.name.adjustment.mode": "avro"},
    "booleans": {"converters": "b", "b.type": "io.debezium.connector.binlog.converters.TinyIntOneToBooleanConverter"},
    "truncated": {"column.truncate.to.3.chars": ".*s"},
    "excluded": {"column.exclude.list": r"shop\.t\.(p|s)"},
}  # fmt: skip
REST_OF_TICDC = {
    "decimal": {"avro-decimal-handling-mode": "string"},
    "bigint": {"avro-bigint-unsigned-handling-mode": "string"},
    "extension": {"enable-tidb-extension": "true"},
}


def read(records: TableRecords, key: bytes | None, value: bytes | None, headers: Any = ()) -> EventRecord:
    return event_reader(records.cfg, records.topic, records.schemas.lookup).read(key, value, headers)


def written(records: TableRecords, *earlier: TableRecords) -> WrittenStructures:
    tables = [each.table for each in (*earlier, records)]
    versions = [StructureVersion(BinlogOffset("binlog.000007", 4 + pos), table) for pos, table in enumerate(tables)]
    found = TableVersions(tuple(versions))
    return WrittenStructures(records.cfg, records.table, found.without_places(None) if records.cfg.is_ticdc else found)


def accepts(of: WrittenStructures, event: EventRecord) -> bool:
    try:
        of.require_own(event, has_key=True)
    except UnreadableRecord:
        return False
    return of.wrote_key(event)


def both_accept(create: str, now: dict[str, str], then: dict[str, str]) -> bool:
    """Return whether each of two configurations accepts what the other one has written."""
    schemas = SchemaTexts()
    records = [TableRecords(create, properties, schemas) for properties in (now, then)]
    rows = []
    for each in records:
        chosen = [c.name for c in each.table.columns if each.cfg.includes_column(each.table.id, c.name)]
        rows.append(each.row(*(ROW[name] for name in chosen)))
    pairs = zip(records, reversed(rows), strict=True)
    return all(accepts(written(each), read(each, *row)) for each, row in pairs)


@for_each(
    ("base", "other"),
    [
        *((SCHEMAS, other) for other in OTHER_PROPERTIES),
        *((AVRO, other) for other in ("connect", "decimal string", "bigint", "1.9")),
        (NO_METADATA, "nanoseconds"),
    ],
)
def test_what_the_stream_wrote_under_other_properties_is_its_own(base: dict[str, str], other: str) -> None:
    assert both_accept(CREATE, base, base | OTHER_PROPERTIES[other])


DEFAULTS = {
    "n INT": "n INT DEFAULT 5 COMMENT 'of the key'", "PRIMARY KEY (n, i)": "PRIMARY KEY (n, i, d, z, s, p)",
    "s VARCHAR(9)": "s VARCHAR(9) DEFAULT 'a'", "p DECIMAL(10,2)": "p DECIMAL(10,2) DEFAULT 1.5",
    "d DATE": "d DATE DEFAULT '2024-02-29'", "z TIMESTAMP": "z TIMESTAMP DEFAULT CURRENT_TIMESTAMP",
    "a DATETIME(6)": "a DATETIME(6) DEFAULT '2024-02-29 12:34:56'", "x TINYINT(1)": "x TINYINT(1) DEFAULT 1",
    "k BIT(9)": "k BIT(9) DEFAULT b'1'", "e ENUM('a')": "e ENUM('a') DEFAULT 'a'",
}  # fmt: skip


@for_each("other", set(OTHER_PROPERTIES) - {"truncated", "excluded"})
def test_defaults_and_comments_of_columns_are_its_own_too(other: str) -> None:
    create = CREATE
    for column, with_default in DEFAULTS.items():
        create = create.replace(column, with_default)
    assert both_accept(create, SCHEMAS, SCHEMAS | OTHER_PROPERTIES[other])


@for_each("other", REST_OF_TICDC)
def test_what_ticdc_s_format_was_under_other_properties_is_its_own(other: str) -> None:
    assert both_accept(CREATE.replace(", q POINT", ""), TICDC, TICDC | REST_OF_TICDC[other])


def is_read_early(records: TableRecords, key: bytes | None, text: str) -> bool:
    """Return whether a record is accepted at a place before the history."""
    try:
        event = read(records, key, text.replace('"pos":4711', '"pos":3').encode())
    except UnreadableRecord:
        return False
    return accepts(written(records), event)


SMALL = "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, v INT)"


def field(schema: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the schema of a field, by its path."""
    for name in names:
        schema = next(each for each in schema["fields"] if each["field"] == name)
    return schema


EDITS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "After": lambda schema: field(schema, "after").update(field="After"),
    "a column": lambda schema: field(schema, "after", "v").update(field="w"),
    "its type": lambda schema: field(schema, "after", "v").update(type="int64"),
    "its name": lambda schema: field(schema, "after", "v").update(name="io.debezium.time.Date"),
    "null": lambda schema: field(schema, "after", "v").update(optional=False),
    "before": lambda schema: field(schema, "before", "v").update(type="string"),
    "no before": lambda schema: schema["fields"].remove(field(schema, "before")),
    "op": lambda schema: field(schema, "op").update(type="int32"),
    "time": lambda schema: field(schema, "ts_ms").update(type="string"),
    "position": lambda schema: field(schema, "source", "pos").update(type="int32"),
    "source": lambda schema: field(schema, "source", "file").update(field="File"),
    "more": lambda schema: schema["fields"].append({"type": "string", "optional": True, "field": "more"}),
    "twice": lambda schema: schema["fields"].append({"type": "string", "optional": True, "field": "op"}),
    "a column twice": lambda schema: [
        field(schema, row)["fields"].append(field(schema, row, "v")) for row in ("before", "after")
    ],
    "a member of source twice": lambda schema: field(schema, "source")["fields"].append(field(schema, "source", "pos")),
    "the row": lambda schema: field(schema, "after").update(optional=False),
    "no source": lambda schema: field(schema, "source").update(type="string", fields=7),
    "a field without a name": lambda schema: field(schema, "source")["fields"].append({"type": "string"}),
    "no envelope": lambda schema: schema.update(name="p.shop.t.Row"),
    "another table": lambda schema: schema.update(name="p.shop.other.Envelope"),
}


@for_each("edit", EDITS)
def test_a_schema_that_the_stream_never_writes_makes_a_record_unreadable(edit: str) -> None:
    records = TableRecords(SMALL, SCHEMAS)
    of, (key, value, _) = written(records), records.row("1", "7")
    assert value is not None and accepts(of, read(records, key, value))
    document = json.loads(value)
    EDITS[edit](document["schema"])
    text = json.dumps(document, separators=(",", ":"))
    with pytest.raises(UnreadableRecord):
        of.require_own(read(records, key, text.encode()), has_key=True)
    assert not is_read_early(records, key, text)


def test_a_default_that_no_column_has_would_be_taken_for_null() -> None:
    for create, own in ((SMALL, False), (SMALL.replace("v INT", "v INT DEFAULT 5"), True)):
        key, value, _ = TableRecords(create, SCHEMAS).row("1", None)
        assert value is not None and (b'"default":5' in value) is own
        text = value.replace(b'"optional":true,"field":"v"', b'"optional":true,"default":5,"field":"v"')
        records = TableRecords(create, SCHEMAS)
        assert accepts(written(records), read(records, key, text)) is own


def test_before_the_history_it_is_known_what_an_envelope_is_and_not_which_columns_the_table_had() -> None:
    records = TableRecords(SMALL, SCHEMAS)
    key, value, _ = records.row("1", "7")
    assert value is not None
    text = value.decode().replace('"int32","optional":true,"field":"v"', '"int64","optional":true,"field":"v"')
    assert is_read_early(records, key, text) and not accepts(written(records), read(records, key, text.encode()))


@for_each("create", [SMALL.replace("v INT", "v BIGINT"), SMALL.replace("v INT", "v INT NOT NULL")])
def test_a_schema_of_an_earlier_structure_is_one_of_the_table(create: str) -> None:
    for properties in (SCHEMAS, AVRO):
        schemas = SchemaTexts()
        old, now = TableRecords(create, properties, schemas), TableRecords(SMALL, properties, schemas)
        event = read(now, *old.row("1", "7"))
        assert accepts(written(now, old), event)
        if properties is SCHEMAS or "BIGINT" in create:
            assert not accepts(written(now), event)


@for_each(
    ("old", "new"),
    [
        (b'"int32"', b'"int64"'),
        (b'"field":"id"', b'"field":"id","doc":"x"}'),
        (b'"field":"id"', b'"doc":"x","field":"id"'),
        (b'"field":"id"', b'"default":5,"field":"id"'),
        (b'"name":"p.shop.t.Key"', b'"name":"p.shop.t.Key","version":1'),
        (b'"optional":false', b'"optional": false'),
        (b'{"id":1}', b'{"id": 1}'),
        (b'"name":"p.shop.t.Key"', b'"name":"p.shop.t.Key","name":"p.shop.t.Key"'),
        (b'"name":"p.shop.t.Key"', b'"name":"p.shop.u.Key"'),
    ],
)
def test_a_key_with_another_schema_is_not_that_of_the_row(old: bytes, new: bytes) -> None:
    records = TableRecords(SMALL, SCHEMAS)
    key, value, _ = records.row("1", "7")
    assert key is not None and old in key and written(records).wrote_key(read(records, key, None))
    try:
        assert not written(records).wrote_key(read(records, key.replace(old, new), value))
    except UnreadableRecord:
        assert b'"doc"' in new, "no JSON"


def test_an_event_s_schema_may_have_a_name_that_a_former_transform_gave() -> None:
    records = TableRecords(SMALL, SCHEMAS)
    key, value, _ = records.row("1", "7")
    assert value is not None and b'"p.shop.t.Envelope"' in value
    given = value.replace(b'"p.shop.t.Envelope"', b'"com.acme.Order.Envelope"')
    assert accepts(written(records), read(records, key, given))


def test_an_avro_schema_with_another_type_is_none_of_the_table() -> None:
    schemas = SchemaTexts()
    records = TableRecords(SMALL, AVRO, schemas)
    texts = TableRecords(SMALL.replace("v INT", "v VARCHAR(9)"), AVRO, schemas)
    assert not accepts(written(records), read(records, *texts.row("1", "7")))
    others = TableRecords(SMALL.replace("TABLE t", "TABLE other"), AVRO, schemas)
    assert not accepts(written(records), read(records, *others.row("1", "7")))
    keys = TableRecords(SMALL.replace("id INT", "id BIGINT"), AVRO, schemas)
    assert not written(records).wrote_key(read(records, keys.row("1", "7")[0], None))


def test_of_ticdc_s_records_those_older_than_the_history_may_have_other_columns() -> None:
    schemas = SchemaTexts()
    now = TableRecords(SMALL, TICDC, schemas)
    old = TableRecords("CREATE TABLE t (id BIGINT NOT NULL PRIMARY KEY, gone VARCHAR(9))", TICDC, schemas)
    again = StructureVersion(BinlogOffset("binlog.000007", 4), now.table)
    of = WrittenStructures(now.cfg, now.table, TableVersions((), unplaced=(again,), began_ms=1000))
    event = read(now, *old.row("1", "7"))
    assert [accepts(of, replace(event, written_ms=ms)) for ms in (0, 1000, 999)] == [False, False, True]


# Values of key columns whose texts JSON could have otherwise.
OF_KEYS: dict[str, tuple[str, ...]] = {
    "f FLOAT": ("0.10000000149011612", "3.4028234663852886e38", "1.401298464324817e-45", "-0", "16777216", "1e10"),
    "g DOUBLE": ("4.9e-324", "1.7976931348623157e308", "1e22", "-0", "1e7", "0.001", "0.00099", "123456789.125"),
    "r REAL": ("0.5", "1e21", "-1.5e-7"),
    "p DECIMAL(30,10)": ("12345678901234567890.1000000000", "-0.0000000001", "0.0000000000"),
    "u BIGINT UNSIGNED": ("18446744073709551615", "0"),
    "s VARCHAR(300)": ("".join(map(chr, range(128))), "\u00e9\u2028\ufffd\U0001f600\U0010ffff", "", '"\\/'),
    "j JSON": ('{"\u00e9": [1, 1.0, true, null, "\U0001f600\\u0001"]}', "[1e300]"),
    "b VARBINARY(9)": ("\x00", ""),
    "e ENUM('\u00e9')": ("\u00e9",),
    "t TIME(6)": ("-838:59:59.000000",),
    "x TINYINT(1)": ("1", "0"),
}


@for_each("name", OF_KEYS)
@for_each(
    "properties",
    [
        {part: "false" for part in SCHEMAS},
        SCHEMAS,
        AVRO,
        SCHEMAS | {"decimal.handling.mode": "double", "event.contract": "1.9"},
        SCHEMAS | {"decimal.handling.mode": "string", "bigint.unsigned.handling.mode": "precise"},
    ],
)
def test_each_key_of_the_stream_is_in_its_bytes(name: str, properties: dict[str, str]) -> None:
    by_name = {"message.key.columns": f"shop.t:{name[0]},id"}
    records = TableRecords(f"CREATE TABLE t (id INT PRIMARY KEY, {name} NOT NULL)", properties | by_name)
    of = written(records)
    for value in OF_KEYS[name]:
        key, *_ = records.row("1", value)
        assert of.wrote_key(read(records, key, None)), (key, value)


@for_each("properties", [{part: "false" for part in SCHEMAS}, SCHEMAS, AVRO, TICDC])
@for_each("order", ["n, k", "k, n"])
def test_a_key_has_its_columns_in_the_order_of_its_format(order: str, properties: dict[str, str]) -> None:
    records = TableRecords(f"CREATE TABLE t (k INT NOT NULL, n DATE NOT NULL, UNIQUE KEY ({order}))", properties)
    key, *_ = records.row("1", "2020-01-01")
    assert written(records).wrote_key(read(records, key, None)), key
