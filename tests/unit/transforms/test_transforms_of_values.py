"""Transforms of single values: casts, masks, times, headers, partitions, geometries."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kit.cases import for_each
from kit.chain_records import event, made, record

from airflow_provider_mysql_cdc.cdc.formats.chain_converter import write_binary, write_text
from airflow_provider_mysql_cdc.cdc.transforms.header_transforms import parse_literal
from airflow_provider_mysql_cdc.cdc.transforms.known_transforms import CONNECT, DEBEZIUM
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import (
    CONNECT_DATE,
    CONNECT_TIMESTAMP,
    DECIMAL,
    OPTIONAL_INT32,
    OPTIONAL_STRING,
    STRING,
    RecordSchema,
    TransformFault,
    struct_of,
)
from airflow_provider_mysql_cdc.cdc.transforms.transform import ChainHeader, ChainRecord, OptionError
from airflow_provider_mysql_cdc.cdc.transforms.value_text import value_text
from airflow_provider_mysql_cdc.cdc.transforms.value_transforms import cast_value

pytestmark = pytest.mark.quick
CENTS = RecordSchema("bytes", True, name=DECIMAL, version=1, parameters={"scale": "2"})
DATE, TIMESTAMP = RecordSchema("int32", name=CONNECT_DATE), RecordSchema("int64", name=CONNECT_TIMESTAMP)
LIST_HASH = 961 + 31 * 0x3FC00000 + 0x40000000
FLOATS = RecordSchema("array", items=RecordSchema("float"))
POINT = struct_of(("wkb", RecordSchema("bytes")), ("srid", OPTIONAL_INT32), optional=True).renamed(
    "io.debezium.data.geometry.Geometry", 1
)


@for_each(
    ("schema", "value", "target", "expected"),
    [
        (RecordSchema("double"), 1e15, "int32", 2**31 - 1),
        (RecordSchema("double"), -1e30, "int64", -(2**63)),
        (RecordSchema("double"), 300.9, "int8", 44),
        (RecordSchema("int64"), 2**31 + 5, "int32", -(2**31) + 5),
        (RecordSchema("float"), 0.1, "double", 0.10000000149011612),
        (RecordSchema("float"), 0.1, "string", "0.1"),
        (RecordSchema("double"), 1e15, "string", "1.0E15"),
        (RecordSchema("boolean"), True, "string", "true"),
        (CENTS, b"\x04\xd2", "string", "12.34"),
        (CENTS, b"\xff", "string", "-0.01"),
        (CENTS, b"\x04\xd2", "int32", 12),
        (CENTS, b"\x32", "boolean", False),
        (CENTS, (10**40 + 1).to_bytes(17, "big"), "string", "1" + "0" * 37 + "0.01"),
        (RecordSchema("bytes"), b"\x01\x02", "string", "AQI="),
        (STRING, "-12", "int8", -12),
        (STRING, "\u0663", "int8", 3),
        (STRING, "1e2", "double", 100.0),
        (STRING, "TRUE", "boolean", True),
        (STRING, "yes", "boolean", False),
        (DATE, 19782, "string", "2024-02-29"),
        (TIMESTAMP, 1709210096789, "string", "2024-02-29T12:34:56.789Z"),
        (TIMESTAMP, 61_001, "string", "00:01:01.001Z"),
        (DATE, 19782, "int64", 19782),
        (OPTIONAL_INT32, None, "string", None),
    ],
    ids=lambda value: str(value) if not isinstance(value, RecordSchema) else value.type,
)
def test_values_are_cast_as_connect_does(schema: RecordSchema, value: Any, target: str, expected: Any) -> None:
    assert cast_value(schema, value, target) == expected


@for_each(("schema", "value", "target"), [(STRING, "300", "int8"), (STRING, " 1", "int32"), (STRING, "x", "double"),
    (RecordSchema("bytes"), b"1", "int32"), (struct_of(("a", STRING)), {"a": "1"}, "string")], ids=str)  # fmt: skip
def test_what_cannot_be_cast_stops(schema: RecordSchema, value: Any, target: str) -> None:
    with pytest.raises(TransformFault):
        cast_value(schema, value, target)


@for_each(
    ("text", "kind", "again"),
    [
        ("42", "int8", "42"),
        ("300", "int16", "300"),
        ("70000", "int32", "70000"),
        ("9999999999", "int64", "9999999999"),
        ("12.5", "float", "12.5"),
        ("1.50", "float", "1.5"),
        ("1e3", "int16", "1000"),
        ("0.1", "float", "0.1"),
        ("1.10", "float", "1.1"),
        (".5", "string", ".5"),
        ("0.1234567890123456789", "float", "0.12345679"),
        ("1e39", "double", "1.0E39"),
        ("1e-400", "float", "0.0"),
        ("9223372036854775808", "bytes", "9223372036854775808"),
        ("123456789012345678901234567890", "bytes", "123456789012345678901234567890"),
        ("1,2", "int8", "1"),
        ("12:00", "int8", "12"),
        ("", "string", ""),
        ("[1, 300]", "array", "[1,300]"),
        ("[1.5,2,null]", "array", "[1.5,2.0,null]"),
        ('[1,"a"]', "array", '[1,"a"]'),
        ("[1,]", "array", "[1]"),
        ("[a]", "string", "[a]"),
        ("[1,2", "string", "[1,2"),
        ('{"a":[1,2],"b":null}', "map", '{"a":[1,2],"b":null}'),
        ("{1:2}", "map", "{1:2}"),
        ("{a:1}", "string", "{a:1}"),
        ("true", "boolean", "true"),
        ("prod", "string", "prod"),
        (" x ", "string", " x "),
        ("2024-01-02", "int32", "2024-01-02"),
        ("2024-01-02T00:00:00.000Z", "int64", "2024-01-02"),
        ("12:00:01.000Z", "int32", "12:00:01.000Z"),
    ],
)
def test_literals_of_headers_get_the_type_that_connect_finds(text: str, kind: str, again: str) -> None:
    schema, value = parse_literal(text)
    assert schema is not None and (schema.type, value_text(schema, value)) == (kind, again)


def test_structs_in_headers_are_like_json() -> None:
    schema = struct_of(("a", STRING), ("b", RecordSchema("array", items=OPTIONAL_INT32)), ("c", CENTS))
    assert value_text(schema, {"a": 'x"y', "b": [1, None], "c": b"\x01"}) == '{"a":"x\\"y","b":[1,null],"c":0.01}'


@for_each(
    ("options", "value", "expected"),
    [
        ({}, {"s": "secret", "n": 5, "d": b"\x05", "f": True}, {"s": "", "n": 0, "d": b"\x05", "f": False}),
        (
            {"replacement": "7"},
            {"s": "x", "n": 5, "d": b"\x05", "f": None},
            {"s": "7", "n": 7, "d": b"\x05", "f": None},
        ),
    ],
    ids=["empty", "replaced"],
)
def test_fields_are_masked(options: dict[str, str], value: Any, expected: Any) -> None:
    schema = struct_of(("s", STRING), ("n", OPTIONAL_INT32), ("d", CENTS), ("f", RecordSchema("boolean", True)))
    transform = made(f"{CONNECT}MaskField$Value", fields="s,n,f", **options)
    made_of = transform.apply(record(schema, value))
    assert made_of is not None and made_of.value == expected and made_of.value_schema is schema
    for wrong in ("x", "NaN", "1_0", "Infinity"):
        with pytest.raises(TransformFault, match="Unable to convert"):
            made(f"{CONNECT}MaskField$Value", fields="n", replacement=wrong).apply(record(schema, value | {"n": 1}))
    with pytest.raises(TransformFault, match="mismatching scale"):
        made(f"{CONNECT}MaskField$Value", fields="d").apply(record(schema, value))


@for_each(
    ("function", "row", "values", "partition"),
    [
        # String.hashCode of "t" is 116, Integer.hashCode its value: 116 + 5.
        ("java", struct_of(("id", OPTIONAL_INT32)), {"id": 5}, 121 % 7),
        ("java", struct_of(("id", RecordSchema("int64"))), {"id": 2**33 + 1}, (116 + 3) % 7),
        ("java", struct_of(("id", CENTS)), {"id": b"\x05"}, (116 + 31 * 5 + 2) % 7),
        ("java", struct_of(("id", RecordSchema("bytes"))), {"id": b"\x01"}, (116 + 31 + 1) % 7),
        # List.hashCode of a vector; the bits of 1.5 are 0x3FC00000, those of 2.0 0x40000000.
        ("java", struct_of(("id", FLOATS)), {"id": [1.5, 2.0]}, (116 + LIST_HASH & 2**31 - 1) % 7),
    ],
    ids=str,
)
def test_partitions_follow_the_hash_of_java(function: str, row: RecordSchema, values: Any, partition: int) -> None:
    kind = f"{DEBEZIUM}partitions.PartitionRouting"
    options = {"partition__payload__fields": "source.table, change.id, nothing.x", "partition__topic__num": "7"}
    transform = made(kind, **options, partition__hash__function=function)
    for op, images in (("c", {"after": values}), ("d", {"before": values})):
        routed = transform.apply(event(row, op, **images))
        assert routed is not None and routed.partition == partition
    truncated = transform.apply(event(row, "t"))
    assert truncated is not None and truncated.partition is None


def point(x: float, y: float, order: str = "<") -> bytes:
    return (b"\x01" if order == "<" else b"\x00") + struct.pack(f"{order}Idd", 1, x, y)


def test_geometries_are_swapped_and_extended() -> None:
    line = b"\x01" + struct.pack("<II4d", 2, 2, 1, 2, 3, 4)
    both = b"\x01" + struct.pack("<II", 7, 2) + point(1, 2) + point(5, 6, ">")
    schema = struct_of(("g", POINT), ("nested", struct_of(("p", POINT))))
    for wkb, swapped in (
        (point(1, 2), point(2, 1)),
        (line, b"\x01" + struct.pack("<II4d", 2, 2, 2, 1, 4, 3)),
        (both, b"\x01" + struct.pack("<II", 7, 2) + point(2, 1) + point(6, 5, ">")),
    ):
        value = {"g": {"wkb": wkb, "srid": 4326}, "nested": {"p": {"wkb": wkb, "srid": 1}}}
        out = made(f"{DEBEZIUM}SwapGeometryCoordinates").apply(record(schema, value))
        assert out is not None and out.value["g"]["wkb"] == swapped and out.value["nested"]["p"]["wkb"] == wkb
    with pytest.raises(TransformFault, match="swap"):
        made(f"{DEBEZIUM}SwapGeometryCoordinates").apply(record(schema, {"g": {"wkb": b"\x01\x01", "srid": 4326}}))
    extended = b"\x01" + struct.pack("<II", 0x20000001, 4326) + point(1, 2)[5:]
    out = made(f"{DEBEZIUM}GeometryFormatTransformer").apply(record(schema, {"g": {"wkb": point(1, 2), "srid": 4326}}))
    assert out is not None and out.value["g"]["wkb"] == extended
    out = made(f"{DEBEZIUM}GeometryFormatTransformer", format="ewkb").apply(out)
    assert out is not None and out.value["g"]["wkb"] == point(1, 2)


def test_vectors_become_json() -> None:
    vector = RecordSchema("array", True, name="io.debezium.data.FloatVector", version=1, items=RecordSchema("float"))
    row = struct_of(("v", vector), ("n", OPTIONAL_INT32), optional=True)
    out = made(f"{DEBEZIUM}VectorToJsonConverter").apply(event(row, after={"v": [1.0, 2.5, 1e10], "n": 1}))
    assert out is not None and out.value_schema is not None
    assert out.value["after"] == {"v": '{ "values": [1.0, 2.5, 1.0E10] }', "n": 1}
    after = out.value_schema.by_name["after"].schema
    assert (after.optional, after.by_name["v"].schema.name) == (True, "io.debezium.data.Json")


def test_headers_become_fields_and_nested_ones() -> None:
    kind = f"{DEBEZIUM}HeaderToValue"
    headers = [ChainHeader("a", STRING, "1"), ChainHeader("b", STRING, "2"), ChainHeader("kept", STRING, "3")]
    row = struct_of(("n", OPTIONAL_INT32), optional=True)
    before = event(row, after={"n": 1})
    before.headers = headers
    out = made(kind, headers="a,b", fields="source.a,b", operation="move").apply(before)
    assert out is not None and (out.value["source"], out.value["b"]) == ({"table": "t", "a": "1"}, "2")
    assert [header.name for header in out.headers] == ["kept"]
    with pytest.raises(OptionError, match="as many"):
        made(kind, headers="a,b", fields="x", operation="copy")
    with pytest.raises(OptionError, match="newkey"):
        made(kind, headers="__debezium.newkey", fields="x", operation="copy")


def test_source_types_are_added_from_the_parameters_of_the_columns() -> None:
    parameters = {"type": "VARCHAR", "name": "n", "length": "20"}
    named = {f"__debezium.source.column.{name}": text for name, text in parameters.items()}
    row = struct_of(("n", RecordSchema("string", True, parameters=named)), optional=True)
    out = made(f"{DEBEZIUM}ExtractSchemaToNewRecord").apply(event(row, after={"n": "x"}))
    assert out is not None
    (column,) = out.value["sourceSchema"]["table"]["columns"]
    assert (out.value["sourceSchema"]["id"], column) == (
        "t",
        {"name": "n", "typeName": "VARCHAR", "length": 20, "scale": None, "comment": None},
    )
    with pytest.raises(TransformFault, match="propagate"):
        made(f"{DEBEZIUM}ExtractSchemaToNewRecord").apply(event(struct_of(("n", STRING)), after={"n": "x"}))


VALUE = "$Value"
TOMB = record(None, None)
NUMBERED = struct_of(("n", OPTIONAL_INT32), ("s", OPTIONAL_STRING))


@for_each(
    ("kind", "options", "before", "text"),
    [
        ("MaskField", {"fields": "n"}, TOMB,
         "Only Map objects supported in absence of schema for [mask fields], found: null"),
        ("HeaderFrom", {"fields": "x", "headers": "h", "operation": "move"}, record(NUMBERED, {"n": 1}),
         'Cannot invoke "org.apache.kafka.connect.data.Field.schema()" because the return value of '
         '"org.apache.kafka.connect.data.Schema.field(String)" is null'),
        ("TimestampConverter", {"field": "s", "target__type": "unix"}, record(NUMBERED, {"s": "1"}),
         'Cannot invoke "java.text.SimpleDateFormat.parse(String)" because "config.format" is null'),
        ("Cast", {"spec": "string"}, record(None, {"m": None}),
         "Cast transformation does not support casting from MAP; "
         "supported types are [INT8, INT16, INT32, INT64, FLOAT32, FLOAT64, BOOLEAN, STRING, BYTES]"),
        ("TimestampConverter", {"target__type": "unix"}, record(None, {"m": None}),
         "TimestampConverter does not support class java.util.HashMap objects as timestamps"),
        ("HeaderFrom", {"fields": "n", "headers": "h", "operation": "move"}, record(OPTIONAL_INT32, 1),
         "Only Struct objects supported for [header move], found: java.lang.Integer"),
        ("Cast", {"spec": "int8"}, record(NUMBERED, {"n": 1}),
         "Cast transformation does not support casting from STRUCT; "
         "supported types are [INT8, INT16, INT32, INT64, FLOAT32, FLOAT64, BOOLEAN, STRING, BYTES]"),
        ("Cast", {"spec": "int8"}, record(RecordSchema("bytes"), b"1"),
         "Unexpected type in Cast transformation: class java.nio.HeapByteBuffer"),
        ("Cast", {"spec": "int64"}, record(TIMESTAMP, 1),
         "Invalid type for Timestamp, expected Date but was class java.lang.Long"),
        ("Cast", {"spec": "string"}, record(RecordSchema("int32", default=1, name=CONNECT_DATE), 1),
         "Invalid default value"),
        ("Cast", {"spec": "s:int8"}, record(struct_of(("s", RecordSchema("string", default="d"))), {"s": "1"}),
         "Value (d) was out of range for requested data type"),
        ("MaskField", {"fields": "n", "replacement": "x"}, record(NUMBERED, {"n": 1}),
         "Unable to convert x (class java.lang.String) to a number"),
        ("TimestampConverter", {"field": "n", "target__type": "unix"}, record(NUMBERED, {"n": 1}),
         "Schema Schema{INT32} does not correspond to a known timestamp type format"),
        ("SetSchemaMetadata", {"schema__name": "x"}, record(OPTIONAL_INT32, 1),
         "Cannot list fields on non-struct type"),
        ("ReplaceField", {"renames": "gone:n"}, record(NUMBERED, {"n": 1}), "gone is not a valid field name"),
        ("ReplaceField", {"renames": "s:n", "exclude": "s"}, record(NUMBERED, {"n": 1, "s": "x"}),
         'Invalid Java object for schema with type INT32: class java.lang.String for field: "n"'),
        ("ExtractField", {"field": "n.x", "field__syntax__version": "v2"}, record(NUMBERED, {"n": 1}),
         "Cannot look up fields on non-struct type"),
    ],
    ids=str,
)  # fmt: skip
def test_errors_are_those_of_connect(kind: str, options: dict[str, str], before: ChainRecord, text: str) -> None:
    given = ChainRecord("t", None, None, None, before.value_schema, before.value)
    with pytest.raises(TransformFault) as raised:
        made(f"{CONNECT}{kind}{VALUE}", **options).apply(given)
    assert str(raised.value) == text


@for_each(
    ("precision", "target", "value", "expected"),
    [
        ("seconds", "Timestamp", 2**62, 2**63 - 1),
        ("nanoseconds", "unix", -(2**63), -9223372036854000000),
        ("milliseconds", "Date", 2**63 - 1, -622191233),
        ("microseconds", "string", 2**63 - 1, "294247-01-10"),
    ],
)
def test_times_beyond_the_range_of_a_type_are_those_of_java(
    precision: str, target: str, value: int, expected: Any
) -> None:
    options = {"field": "t", "target__type": target, "unix__precision": precision, "format": "yyyy-MM-dd"}
    schema = struct_of(("t", RecordSchema("int64")))
    out = made(f"{CONNECT}TimestampConverter{VALUE}", **options).apply(record(schema, {"t": value}))
    assert out is not None and out.value["t"] == expected


def test_a_key_of_the_same_field_twice_has_it_once() -> None:
    out = made(f"{CONNECT}ValueToKey", fields="n,n").apply(record(NUMBERED, {"n": 1, "s": None}))
    assert out is not None and out.key == {"n": 1}


@for_each(
    ("kind", "options", "members"),
    [
        ("InsertField", {"static__field": "s", "static__value": "v", "topic__field": "t"},
         {"t": "t", "m": {"n": "1"}, "s": "v"}),
        ("InsertField", {"partition__field": "p", "static__field": "s", "static__value": "v"},
         {"m": {"n": "1"}, "s": "v"}),
        ("Cast", {"spec": "x:int8"}, {"x": None, "m": {"n": "1"}}),
        ("ExtractField", {"field": "m"}, {"n": "1"}),
        ("ExtractField", {"field": "m.n", "field__syntax__version": "V2"}, "1"),
        ("ExtractField", {"field": "x"}, None),
        ("Flatten", {}, {"m.n": "1"}),
        ("HeaderFrom", {"fields": "m,x", "headers": "h,g", "operation": "move"}, {}),
        ("MaskField", {"fields": "m"}, {"m": {}}),
        ("ReplaceField", {"exclude": "m"}, {}),
        ("ReplaceField", {"renames": "m:r"}, {"r": {"n": "1"}}),
        ("TimestampConverter", {"field": "x", "target__type": "unix"}, {"x": None, "m": {"n": "1"}}),
    ],
    ids=str,
)  # fmt: skip
def test_maps_without_a_schema_stay_maps(kind: str, options: dict[str, str], members: Any) -> None:
    """HoistField makes them of tombstones, and of keys that are null."""
    out = made(f"{CONNECT}{kind}{VALUE}", **options).apply(record(None, {"m": {"n": "1"}}))
    assert out is not None and out.value_schema is None and out.value == members
    assert not isinstance(members, dict) or list(out.value) == list(members)


@for_each(
    ("schema", "value", "text"),
    [
        (None, {"w": None, "t": "x"}, "{w=null, t=x}"),
        (TIMESTAMP, 1709210096789, "Thu Feb 29 12:34:56 UTC 2024"),
        (struct_of(("d", DATE), ("a", RecordSchema("array", items=CENTS))), {"d": -1, "a": [b"\x01", None]},
         "Struct{d=Wed Dec 31 00:00:00 UTC 1969,a=[0.01, null]}"),
    ],
    ids=str,
)  # fmt: skip
def test_texts_of_values_are_those_of_java(schema: RecordSchema | None, value: Any, text: str) -> None:
    assert write_text("t", schema, value) == text.encode()


@for_each(
    ("schema", "value", "text"),
    [
        (CENTS, b"\x01", "ByteArrayConverter is not compatible with objects of type class java.math.BigDecimal"),
        (STRING, "x", "Invalid schema type for ByteArrayConverter: STRING"),
        (None, {"w": None}, "ByteArrayConverter is not compatible with objects of type class java.util.HashMap"),
    ],
    ids=str,
)
def test_only_bytes_are_written_as_bytes(schema: RecordSchema | None, value: Any, text: str) -> None:
    assert write_binary("t", RecordSchema("bytes"), b"\x01") == b"\x01"
    with pytest.raises(TransformFault) as raised:
        write_binary("t", schema, value)
    assert str(raised.value) == text


def test_a_key_of_a_map_has_no_schema() -> None:
    out = made(f"{CONNECT}ValueToKey", fields="m,x").apply(record(None, {"m": "1"}))
    assert out is not None and (out.key_schema, out.key) == (None, {"x": None, "m": "1"})
