"""The Avro schema of a Connect schema, member by member, and Avro's binary forms."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.avro import avro_binary as binary
from airflow_provider_mysql_cdc.cdc.avro import avro_payload
from airflow_provider_mysql_cdc.cdc.avro.avro_payload import compiled_encoder, encoder, lazy_encoder
from airflow_provider_mysql_cdc.cdc.avro.connect_avro import avro_schema, null_index
from airflow_provider_mysql_cdc.cdc.errors import SchemaError

pytestmark = pytest.mark.quick

DECIMAL = "org.apache.kafka.connect.data.Decimal"
POINT: dict[str, Any] = {
    "type": "struct", "name": "io.debezium.data.geometry.Point", "version": 1, "doc": "Geometry (POINT)",
    "optional": True, "fields": [{"type": "double", "optional": False, "field": "x"}],
}  # fmt: skip


def of(**schema: Any) -> Any:
    return avro_schema({"optional": False, **schema})


@for_each(
    ("schema", "avro"),
    [
        ({"type": "int64"}, "long"),
        ({"type": "int16"}, {"type": "int", "connect.type": "int16"}),
        ({"type": "int32", "optional": True}, ["null", "int"]),
        # Avro takes a default from the first branch.
        ({"type": "int32", "optional": True, "default": 7}, [{"type": "int", "connect.default": 7}, "null"]),
        (
            {"type": "string", "name": "io.debezium.data.Enum", "version": 1, "parameters": {"allowed": "a,b"}},
            {
                "type": "string",
                "connect.version": 1,
                "connect.parameters": {"allowed": "a,b"},
                "connect.name": "io.debezium.data.Enum",
            },
        ),
        (
            {"type": "int32", "name": "org.apache.kafka.connect.data.Date", "version": 1},
            {
                "type": "int",
                "connect.version": 1,
                "connect.name": "org.apache.kafka.connect.data.Date",
                "logicalType": "date",
            },
        ),
        (
            {"type": "bytes", "name": DECIMAL, "version": 1, "parameters": {"scale": "0"}},
            {
                "type": "bytes",
                "scale": 0,
                "precision": 64,
                "connect.version": 1,
                "connect.parameters": {"scale": "0"},
                "connect.name": DECIMAL,
                "logicalType": "decimal",
            },
        ),
        ({"type": "array", "items": {"type": "float", "optional": False}}, {"type": "array", "items": "float"}),
        (
            {"type": "map", "values": {"type": "string", "optional": True}},
            {"type": "map", "values": ["null", "string"]},
        ),
    ],
)  # fmt: skip
def test_schema(schema, avro):
    found = of(**schema)
    assert found == avro
    assert list(found) == list(avro)  # the order in which Java prints them


def test_a_struct_is_printed_once_and_named_then_with_its_namespace_where_that_differs():
    images = [
        {"type": "struct", "name": "p.t.Value", "optional": True, "field": f, "fields": [{**POINT, "field": "a"}]}
        for f in ("before", "after")
    ]
    again = {**POINT, "optional": False, "field": "b"}
    found = of(type="struct", name="p.t.Envelope", version=2, fields=[*images, again])
    assert found["name"], found["namespace"] == ("Envelope", "p.t")
    before, after, point = found["fields"]
    assert before["type"][1]["name"] == "Value"
    assert "namespace" not in before["type"][1]
    assert before["type"][1]["fields"][0]["type"][1]["namespace"] == "io.debezium.data.geometry"
    assert after == {"name": "after", "type": ["null", "Value"], "default": None}
    assert point["type"] == "io.debezium.data.geometry.Point"
    fastavro.parse_schema(found)


def test_a_struct_without_a_name_has_connects():
    found = of(type="struct", fields=[])
    assert (found["name"], found["namespace"]) == ("ConnectDefault", "io.confluent.connect.avro")
    assert "connect.name" not in found


@for_each("name", ["1st", "a b", "ünï", "", "a-b"])
def test_a_name_that_avro_does_not_allow_is_refused_with_the_way_out(name):
    field = {"type": "int32", "optional": False, "field": name}
    with pytest.raises(SchemaError, match=r"adjustment\.mode"):
        of(type="struct", name="p.t", fields=[field])
    with pytest.raises(SchemaError, match=r"adjustment\.mode"):
        of(type="struct", name=f"p.{name}.t", fields=[])


def test_what_has_no_form_in_avro_is_refused():
    for convert in (of, lambda **schema: encoder(schema), lambda **schema: lazy_encoder(schema)):
        with pytest.raises(SchemaError, match="cannot be written as Avro"):
            convert(type="int128")


def test_null_where_the_schema_is_not_optional_is_an_error_that_names_the_field():
    for kind in ("int32", "string", "bytes", "double", "struct"):
        field = {"type": kind, "optional": False, "field": "id", "fields": []}
        for make in (encoder, compiled_encoder):
            with pytest.raises(ValueError, match="id is null"):
                make({"type": "struct", "fields": [field]})({})


def test_generated_code_holds_no_text_of_a_schema():
    name = "a'b\"c\\d{e}\n"
    schema = {"type": "struct", "fields": [{"type": "string", "optional": True, "field": name, "default": "x"}]}
    assert compiled_encoder(schema)({name: "é"}) == encoder(schema)({name: "é"}) == "\x00\x04Ã©"


def test_an_encoder_is_compiled_when_it_has_been_used(monkeypatch):
    schema, made = {"type": "string", "optional": False}, []
    monkeypatch.setattr(avro_payload, "compiled_encoder", lambda s: made.append(s) or compiled_encoder(s))
    encode = lazy_encoder(schema)
    assert [encode("é") for _ in range(100)] == ["\x04Ã©"] * 100
    assert made == [schema]
    few = lazy_encoder(schema)
    assert [few("é") for _ in range(9)] == ["\x04Ã©"] * 9
    assert len(made) == 1


def test_a_number_of_more_than_64_bits_is_refused():
    for number in (2**63, -(2**63) - 1):
        with pytest.raises(OverflowError):
            binary.varint(number)


def test_the_branch_of_null():
    assert null_index({"optional": False}) is None
    assert null_index({"optional": True}) == 0
    assert null_index({"optional": True, "default": 0}) == 1
    assert encoder({"type": "int32", "optional": True, "default": 0})(None) == "\x02"
    assert encoder({"type": "int32", "optional": True, "default": 0})(0) == "\x00\x00"


def read(kind: Any, text: str) -> Any:
    stream = io.BytesIO(text.encode("latin-1"))
    found = fastavro.schemaless_reader(stream, fastavro.parse_schema(kind))
    assert stream.read() == b""
    return found


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers(number):
    assert read("long", binary.varint(number)) == number


@given(st.text(st.characters(exclude_categories=["Cs"])), st.binary(max_size=200), st.booleans(), st.floats(width=32))
def test_other_forms(text, data, flag, number):
    assert read("string", binary.text(text)) == text
    assert read("string", binary.byte_text(text.encode().decode("latin-1"))) == text
    assert read("bytes", binary.data(data)) == data
    assert read("boolean", binary.boolean(flag)) is flag
    for kind, form in (("float", binary.single), ("double", binary.double)):
        assert repr(read(kind, form(number))) == repr(number)


@given(st.integers())
def test_unscaled_numbers_have_the_shortest_form(number):
    found = read("bytes", binary.unscaled(number))
    assert int.from_bytes(found, "big", signed=True) == number
    assert len(found) == 1 or int.from_bytes(found[1:], "big", signed=True) != number


def test_a_number_beyond_a_float_and_half_a_surrogate():
    assert read("float", binary.single(1e300)) == float("inf")
    assert read("float", binary.single(-1e300)) == float("-inf")
    assert read("string", binary.text("a\ud800b")) == "a?b"
