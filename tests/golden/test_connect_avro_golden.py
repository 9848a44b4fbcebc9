"""Avro schemas and bytes of all that Debezium was recorded to write, read by a reader that was not written here."""

from __future__ import annotations

import gzip
import io
import json
import re
import struct
from base64 import b64encode
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import fastavro
import orjson
import pytest
from kit.cases import for_each
from kit.tiers import many
from topiclib.wire import connect_schema

from airflow_provider_mysql_cdc.cdc.avro.avro_payload import compiled_encoder, encoder
from airflow_provider_mysql_cdc.cdc.avro.connect_avro import avro_schema
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.errors import SchemaError

pytestmark = pytest.mark.quick

CAPTURED = Path(__file__).parent / "peer" / "captured"
CAPTURES = sorted(str(p.relative_to(CAPTURED)).removesuffix(".jsonl.gz") for p in CAPTURED.glob("*/*.jsonl.gz"))
# Schemas that Debezium registered through Apicurio's converter, and a capture of the same records in JSON.
REGISTERED = {
    "types/avro": "types/avro_names",
    "dml/avro_extras": "dml/extras",
    "ddl/avro": "ddl/default",
    "adhoc/avro_incremental": "adhoc/incremental",
}
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parts(capture: str) -> Iterator[dict[str, Any]]:
    """Yield the keys and values of a capture that carry their schema."""
    with gzip.open(CAPTURED / f"{capture}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            record = orjson.loads(line)
            for part in (record.get("key"), record.get("value")):
                found = orjson.loads(part) if isinstance(part, str) else part
                if isinstance(found, dict) and isinstance(found.get("schema"), dict):
                    yield found


def plain(schema: dict[str, Any], value: Any) -> Any:
    """Return what fastavro reads, in JsonConverter's form."""
    if value is None:
        return None
    if schema["type"] == "struct":
        return {f["field"]: plain(f, value[f["field"]]) for f in schema["fields"]}
    if schema["type"] == "array":
        return [plain(schema["items"], v) for v in value]
    return b64encode(value).decode() if isinstance(value, bytes) else value


def stripped(avro: Any) -> Any:
    """Return a schema without logical types, so that the reader gives the numbers and bytes as they lie."""
    if isinstance(avro, list):
        return [stripped(a) for a in avro]
    if not isinstance(avro, dict):
        return avro
    return {k: stripped(v) if k in ("type", "items", "fields") else v for k, v in avro.items() if k != "logicalType"}


def whole(schema: dict[str, Any], payload: Any) -> Any:
    """Return a payload with the members that are left out, which are null."""
    if payload is None or schema["type"] not in ("struct", "array"):
        return payload
    if schema["type"] == "array":
        return [whole(schema["items"], p) for p in payload]
    return {f["field"]: whole(f, payload.get(f["field"])) for f in schema["fields"]}


def unnameable(schema: dict[str, Any]) -> bool:
    """Return whether a schema has a name that Avro does not allow."""
    names = [*str(schema.get("name", "x") if schema["type"] == "struct" else "x").split(".")]
    fields = schema.get("fields", [])
    inner = [*fields, *([schema["items"]] if "items" in schema else [])]
    return not all(map(NAME.fullmatch, [*names, *(f["field"] for f in fields)])) or any(map(unnameable, inner))


@cache
def compiled(text: bytes) -> tuple[Any, Any, Any] | None:
    schema = json.loads(text)
    if unnameable(schema):
        with pytest.raises(SchemaError, match="is not a valid Avro name"):
            avro_schema(schema)
        return None
    return encoder(schema), compiled_encoder(schema), fastavro.parse_schema(stripped(avro_schema(schema)))


def same(left: Any, right: Any) -> bool:
    """Compare; a float is a 4-byte number in Avro, and JsonConverter writes Infinity as text."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(v, right[k]) for k, v in left.items())
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and right is not None:
        number = float(right)
        return left == number or left == struct.unpack("<f", struct.pack("<f", number))[0]
    return bool(left == right)


@for_each("capture", CAPTURES)
def test_a_reader_sees_what_debezium_wrote_as_json(capture):
    read = refused = 0
    for part in islice(parts(capture), 0, None, many(4, 1)):
        schema, payload = part["schema"], part["payload"]
        if payload is None:
            continue
        made = compiled(orjson.dumps(schema))
        if made is None:
            refused += 1
            continue
        encode, generated, parsed = made
        assert generated(payload) == encode(payload)
        stream = io.BytesIO(encode(payload).encode("latin-1"))
        seen = fastavro.schemaless_reader(stream, parsed)
        assert stream.read() == b""
        assert same(plain(schema, seen), whole(schema, payload)), payload
        read += 1
    assert read or refused


def test_the_captures_hold_every_shape_that_is_converted():
    seen: set[str] = set()

    def walk(schema: dict[str, Any]) -> None:
        seen.add(schema["type"])
        if schema.get("optional") and schema.get("default") is not None:
            seen.add("optional with default")
        if schema.get("name"):
            seen.add(schema["name"].rpartition(".")[2])
        for inner in [*schema.get("fields", []), *([schema["items"]] if "items" in schema else [])]:
            walk(inner)

    for capture in CAPTURES:
        if capture.startswith("types/"):
            for part in parts(capture):
                walk(part["schema"])
    assert seen >= {
        *("struct", "array", "int16", "int32", "int64", "float", "double", "boolean", "string", "bytes"),
        *("optional with default", "Decimal", "Bits", "Enum", "EnumSet", "Geometry", "Point", "FloatVector"),
        *("Date", "Time", "Timestamp", "MicroTime", "NanoTime", "ZonedTimestamp"),
    }


def test_a_decimal_is_read_as_its_number():
    field = {
        "type": "bytes", "optional": True, "name": "org.apache.kafka.connect.data.Decimal", "version": 1,
        "parameters": {"scale": "2", "connect.decimal.precision": "10"}, "default": "AMg=", "field": "price",
    }  # fmt: skip
    schema = {"type": "struct", "optional": False, "name": "p.shop.orders.Value", "fields": [field]}
    parsed = fastavro.parse_schema(avro_schema(schema))
    for text, number in (("AMg=", Decimal("2.00")), ("/w==", Decimal("-0.01")), (None, None)):
        data = encoder(schema)({"price": text}).encode("latin-1")
        assert fastavro.schemaless_reader(io.BytesIO(data), parsed) == {"price": number}
    # A default stands in the schema as text of one character a byte (fastavro leaves it so).
    older = fastavro.parse_schema({"type": "record", "name": "p.shop.orders.Value", "fields": []})
    assert fastavro.schemaless_reader(io.BytesIO(b""), older, parsed) == {"price": "\x00\xc8"}


@for_each("capture", REGISTERED)
def test_schemas_are_what_debeziums_converter_registered(capture):
    with gzip.open(CAPTURED / f"{capture}.schemas.json.gz") as stream:
        registered = {text for texts in json.load(stream).values() for text in texts}
    schemas = {json.dumps(part["schema"]) for part in parts(REGISTERED[capture])}
    made = {dumps(avro_schema(schema)) for schema in map(json.loads, schemas) if not unnameable(schema)}
    # Without adjustment JSON has names that Avro does not allow.
    renamed = {text for text in registered if "q_uote" in text} if capture == "ddl/avro" else set()
    assert made == registered - renamed
    assert {dumps(avro_schema(connect_schema(json.loads(text)))) for text in registered} == registered
