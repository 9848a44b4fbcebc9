"""Encoders from JSON payloads to Avro bytes, one for each Connect schema.

Records that are not rows (schema changes, transactions, heartbeats, notifications) and values whose decoder writes JSON
text are payloads as JsonConverter writes them: Base64 for bytes, members by name, absent members are null.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import orjson

from airflow_provider_mysql_cdc.cdc.avro import avro_binary
from airflow_provider_mysql_cdc.cdc.avro.connect_avro import null_index
from airflow_provider_mysql_cdc.cdc.convert.connect_schema import ConnectSchema
from airflow_provider_mysql_cdc.cdc.errors import SchemaError

# From a payload to byte text.
Encode = Callable[[Any], str]

_VARINTS = avro_binary.VARINTS
_SCALARS: dict[str, Encode] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), lambda value: avro_binary.varint(int(value))),
    "float": lambda value: avro_binary.single(float(value)),
    "double": lambda value: avro_binary.double(float(value)),
    "boolean": avro_binary.boolean,
    "string": avro_binary.text,
    "bytes": lambda value: avro_binary.data(b64decode(value)),
}


def parse_payload(data: bytes) -> Any:
    """Return what JSON text holds."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:  # half a surrogate pair
        return json.loads(data)


def encoder(schema: ConnectSchema) -> Encode:
    """Return the function that encodes payloads of a schema.

    Args:
        schema: The Connect schema as JsonConverter writes it.

    Raises:
        SchemaError: A type is not known.
    """
    build = _NESTED.get(schema["type"])
    encode = build(schema) if build is not None else _SCALARS.get(schema["type"])
    if encode is None:
        raise SchemaError(
            f"Connect type {schema['type']} cannot be written as Avro",
            remedy="use the JSON converter, exclude the column (column.exclude.list), or report the type",
        )
    null_branch = null_index(schema)
    return _required(schema, encode) if null_branch is None else _optional(encode, null_branch)


def _required(schema: ConnectSchema, encode: Encode) -> Encode:
    where = schema.get("field") or schema.get("name") or schema["type"]

    def required(value: Any) -> str:
        if value is None:
            raise ValueError(f"{where} is null, and its schema is not optional")
        return encode(value)

    return required


def _optional(encode: Encode, null_branch: int) -> Encode:
    null, value_branch = ("\x00", "\x02") if null_branch == 0 else ("\x02", "\x00")

    def optional(value: Any) -> str:
        return null if value is None else value_branch + encode(value)

    return optional


def _struct(schema: ConnectSchema) -> Encode:
    members = [(field["field"], encoder(field)) for field in schema["fields"]]

    def struct(value: Any) -> str:
        return "".join(encode(value.get(name)) for name, encode in members)

    return struct


def _blocks(count: int, body: str) -> str:
    return f"{_VARINTS[count]}{body}\x00" if count else "\x00"


def _array(schema: ConnectSchema) -> Encode:
    item = encoder(schema["items"])
    return lambda value: _blocks(len(value), "".join(map(item, value)))


def _map(schema: ConnectSchema) -> Encode:
    item = encoder(schema["values"])
    return lambda value: _blocks(len(value), "".join(avro_binary.text(k) + item(v) for k, v in value.items()))


_NESTED: dict[str, Callable[[ConnectSchema], Encode]] = {"struct": _struct, "array": _array, "map": _map}
