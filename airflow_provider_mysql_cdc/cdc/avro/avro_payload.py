"""Encoders from payloads to Avro bytes, one for each Connect schema: called member by member, or compiled as one
function.

Encoders from JSON payloads to Avro bytes, one for each Connect schema.

Records that are not rows (schema changes, transactions, heartbeats, notifications) and values whose decoder writes JSON
text are payloads as JsonConverter writes them: Base64 for bytes, members by name, absent members are null.

Encoders from payloads to Avro as generated code: one function a schema, without a call for each member.

The closures of ``avro_payload`` say what the code means; they take over when it fails, so that errors name the member.
"""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import a2b_base64
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


_FILE = "<avro encoder>"
_CALLS_BEFORE_COMPILE = 32
"""Payloads of a schema that are encoded without code of its own."""
_INTEGERS = ("int8", "int16", "int32", "int64")
# Type to the expression of its bytes; {} is replaced by the value's name.
_SCALAR_CODES = {
    **dict.fromkeys(_INTEGERS, "(S[{0}] if -8192 <= {0} < 8192 else varint({0}))"),
    "float": "single(float({}))",
    "double": "double(float({}))",
    "boolean": "boolean({})",
    "string": "(V[len({0})] + {0} if {0}.isascii() else text({0}))",
    "bytes": "data(a2b_base64({}))",
}
_NAMES = {
    "V": avro_binary.VARINTS,
    "S": avro_binary.SMALL,
    "varint": avro_binary.varint,
    "single": avro_binary.single,
    "double": avro_binary.double,
    "boolean": avro_binary.boolean,
    "text": avro_binary.text,
    "data": avro_binary.data,
    "a2b_base64": a2b_base64,
}


def compiled_encoder(schema: ConnectSchema) -> Encode:
    """Return the function that encodes payloads of a schema, as ``avro_payload.encoder`` does.

    Args:
        schema: The Connect schema as JsonConverter writes it.

    Raises:
        SchemaError: A type is not known.
    """
    code = _EncoderSource()
    interpreted = encoder(schema)
    result = code.value(schema, "payload", 1)
    source = "\n".join(["def run(payload):", *code.lines, f" return f'{{{result}}}'"])
    exec(compile(source, _FILE, "exec"), code.namespace)  # source generated here; names of columns are values in it
    compiled: Encode = code.namespace["run"]

    def encode(payload: Any) -> str:
        try:
            return compiled(payload)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            return interpreted(payload)

    return encode


def lazy_encoder(schema: ConnectSchema) -> Encode:
    """Return the function that encodes payloads of a schema, and is compiled when it has been called a few times.

    Compiling takes as long as hundreds of payloads, and most schemas have few: rows mostly take another way, and beside
    them there is a record now and then.

    Args:
        schema: As for ``compiled_encoder``.

    Raises:
        SchemaError: A type is not known.
    """
    return _LazyEncoder(schema, encoder(schema))


class _LazyEncoder:
    """Count the payloads of a schema until its encoder is worth compiling."""

    __slots__ = ("_encode", "_left", "_schema")

    def __init__(self, schema: ConnectSchema, interpreted: Encode) -> None:
        self._schema, self._encode, self._left = schema, interpreted, _CALLS_BEFORE_COMPILE

    def __call__(self, payload: Any) -> str:
        if self._left:
            self._left -= 1
            if not self._left:
                self._encode = compiled_encoder(self._schema)
        return self._encode(payload)


class _EncoderSource:
    """Collect the lines of one function."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = dict(_NAMES)
        self._count = 0

    def _fresh_name(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def _add_line(self, depth: int, text: str) -> None:
        self.lines.append(" " * depth + text)

    def value(self, schema: ConnectSchema, name: str, depth: int) -> str:
        """Add what encodes a value; return the name of its bytes.

        Args:
            schema: Its schema.
            name: The name that holds it.
            depth: Blanks before each line.
        """
        out = self._fresh_name("t")
        null_branch = null_index(schema)
        if null_branch is None:
            self._add_line(depth, f"{out} = {self._non_null(schema, name, depth)}")
            return out
        null, value_branch = (r"\x00", r"\x02") if null_branch == 0 else (r"\x02", r"\x00")
        self._add_line(depth, f"if {name} is None: {out} = '{null}'")
        self._add_line(depth, "else:")
        self._add_line(depth + 1, f"{out} = '{value_branch}' + {self._non_null(schema, name, depth + 1)}")
        return out

    def _non_null(self, schema: ConnectSchema, name: str, depth: int) -> str:
        kind = schema["type"]
        if kind == "struct":
            return self._struct(schema, name, depth)
        if kind in _SCALAR_CODES:
            return _SCALAR_CODES[kind].format(name)
        encode_name = self._fresh_name("other")
        self.namespace[encode_name] = encoder({**schema, "optional": False})
        return f"{encode_name}({name})"

    def _struct(self, schema: ConnectSchema, name: str, depth: int) -> str:
        get = self._fresh_name("get")
        self._add_line(depth, f"{get} = {name}.get")
        parts = []
        for field in schema["fields"]:
            member = self._fresh_name("v")
            self._add_line(depth, f"{member} = {get}({field['field']!r})")
            parts.append(self.value(field, member, depth))
        return "f'" + "".join(f"{{{part}}}" for part in parts) + "'"
