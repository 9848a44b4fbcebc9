"""Structs of records whose members are kept as the bytes or text that they are, until one is set to another value.

So an event can be made out of another one without reading and writing its columns: each keeps its form, and Avro keeps
the schema that the other event was written with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol, Self

from airflow_provider_mysql_cdc.cdc.avro import avro_binary
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.verify.event_record import UnreadableRecord

Value = str | int | bool | None
_DECODER = json.JSONDecoder()
_BLANKS = re.compile(r"[ \t\r\n]*")
_FIXED_BYTES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_VARINTS = frozenset({"int", "long", "enum"})
_BLOCKS = {"array": "items", "map": "values"}


class RawStruct(Protocol):
    """Hold a struct's members by name, in order."""

    def __contains__(self, name: str) -> bool: ...

    def set(self, name: str, value: Value) -> None:
        """Give a member another value.

        Raises:
            UnreadableRecord: Its schema does not allow the value.
        """
        ...

    def copy(self, source: str, target: str) -> None:
        """Give a member the value of another one of the same schema."""
        ...

    def is_null(self, name: str) -> bool:
        """Return whether a member has no value."""
        ...

    def is_boolean(self, name: str) -> bool:
        """Return whether a member is a boolean."""
        ...

    def struct(self, name: str) -> Self:
        """Return a member that is a struct.

        Raises:
            UnreadableRecord: It is something else.
        """
        ...

    def put(self, name: str, struct: Self) -> None:
        """Give a member the value of a struct that ``struct`` returned."""
        ...


class JsonStruct:
    """Hold an object's members as JSON text.

    Args:
        text: The object.

    Raises:
        UnreadableRecord: It is something else.
    """

    def __init__(self, text: str) -> None:
        self._members: dict[str, str] = {}
        pos = _after_blanks(text, 0)
        if text[pos : pos + 1] != "{":
            raise UnreadableRecord("it is no JSON object")
        pos = _after_blanks(text, pos + 1)
        try:
            while text[pos : pos + 1] != "}":
                name, pos = _DECODER.raw_decode(text, pos)
                pos = _after_blanks(text, pos)
                start = _after_blanks(text, pos + 1)
                _, end = _DECODER.raw_decode(text, start)
                if not isinstance(name, str) or text[pos] != ":":
                    raise UnreadableRecord("it is no JSON object")
                self._members[name] = text[start:end]
                pos = _after_blanks(text, end)
                if text[pos] == ",":
                    pos = _after_blanks(text, pos + 1)
        except (ValueError, IndexError, RecursionError) as error:
            raise UnreadableRecord(f"it is not JSON: {error}") from error

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def __len__(self) -> int:
        return len(self._members)

    def text(self, name: str) -> str:
        """Return a member as it is."""
        return self._members[name]

    def set(self, name: str, value: Value) -> None:
        """Give a member another value."""
        self._members[name] = dumps(value)

    def copy(self, source: str, target: str) -> None:
        """Give a member the value of another one."""
        self._members[target] = self._members[source]

    def is_null(self, name: str) -> bool:
        """Return whether a member has no value."""
        return self._members[name] == "null"

    def is_boolean(self, name: str) -> bool:
        """Return whether a member is a boolean."""
        return self._members[name] in ("true", "false")

    def struct(self, name: str) -> Self:
        """Return a member that is an object; see ``RawStruct``."""
        return type(self)(self._members[name])

    def put(self, name: str, struct: Self) -> None:
        """Give a member the value of an object."""
        self._members[name] = str(struct)

    def __str__(self) -> str:
        return "{" + ",".join(f"{dumps(name)}:{value}" for name, value in self._members.items()) + "}"


def _after_blanks(text: str, pos: int) -> int:
    match = _BLANKS.match(text, pos)
    return pos if match is None else match.end()


class AvroTypes:
    """Know the types of a schema by their names.

    Args:
        schema: The Avro schema of a record.

    Attributes:
        root: The schema.

    Raises:
        UnreadableRecord: It is no schema of a record.
    """

    def __init__(self, schema: Any) -> None:
        self.root = schema
        self._named: dict[str, Any] = {}
        try:
            self._collect(schema, "")
        except (KeyError, TypeError, AttributeError) as error:
            raise UnreadableRecord(f"its schema is none of Avro: {error!r}") from error

    def _collect(self, schema: Any, namespace: str) -> None:
        if isinstance(schema, list):
            for branch in schema:
                self._collect(branch, namespace)
        elif isinstance(schema, dict):
            if "name" in schema and schema["type"] in ("record", "enum", "fixed"):
                full_name = schema["name"]
                if "." not in full_name and schema.get("namespace", namespace):
                    full_name = f"{schema.get('namespace', namespace)}.{full_name}"
                namespace = full_name.rpartition(".")[0]
                # Names of one schema are told apart by their last part too, as Connect's schemas have them.
                self._named[full_name] = self._named[full_name.rpartition(".")[2]] = schema
            for inner in (schema["type"], *(schema.get(name) for name in _BLOCKS.values())):
                self._collect(inner, namespace)
            for member in schema.get("fields", ()):
                self._collect(member["type"], namespace)

    def resolved(self, schema: Any) -> tuple[str, Any]:
        """Return the name of a type, ``union`` for several, and its schema."""
        while True:
            if isinstance(schema, list):
                return "union", schema
            if isinstance(schema, dict):
                if isinstance(schema["type"], str) and schema["type"] not in self._named:
                    return schema["type"], schema
                schema = schema["type"]
            elif schema in self._named:
                return self._named[schema]["type"], self._named[schema]
            else:
                return schema, {"type": schema}

    def end_of(self, schema: Any, data: bytes, pos: int) -> int:
        """Return where a value ends.

        Args:
            schema: Its schema.
            data: Bytes with it.
            pos: Where it begins.

        Raises:
            IndexError: The bytes end before.
            KeyError: The schema has a type that Avro does not have.
        """
        kind, full = self.resolved(schema)
        if kind in _VARINTS:
            return _read_varint(data, pos)[1]
        if kind in ("bytes", "string"):
            length, pos = _read_varint(data, pos)
            return pos + length
        if kind == "record":
            for member in full["fields"]:
                pos = self.end_of(member["type"], data, pos)
            return pos
        if kind == "union":
            branch, pos = _read_varint(data, pos)
            return self.end_of(full[branch], data, pos)
        if kind in _BLOCKS:
            return self._end_of_blocks(kind, full, data, pos)
        return pos + (int(full["size"]) if kind == "fixed" else _FIXED_BYTES[kind])

    def _end_of_blocks(self, kind: str, full: Any, data: bytes, pos: int) -> int:
        while True:
            count, pos = _read_varint(data, pos)
            if not count:
                return pos
            if count < 0:  # the size of the block in bytes follows
                size, pos = _read_varint(data, pos)
                pos += max(size, 0)
                continue
            for _ in range(count):
                if pos >= len(data):
                    raise IndexError("the bytes end within a block")
                if kind == "map":
                    pos = self.end_of("string", data, pos)
                pos = self.end_of(full[_BLOCKS[kind]], data, pos)

    def encode(self, schema: Any, value: Value) -> str:
        """Return a value as byte text.

        Args:
            schema: Its schema.
            value: The value.

        Raises:
            UnreadableRecord: The schema does not allow it.
        """
        kind, full = self.resolved(schema)
        if kind == "union":
            for number, branch in enumerate(full):
                if (self.resolved(branch)[0] == "null") == (value is None):
                    return avro_binary.varint(number) + self.encode(branch, value)
        encode_value = _ENCODERS.get((kind, type(value)))
        if encode_value is None:
            raise UnreadableRecord(f"its schema allows no {value!r} as {kind}")
        return encode_value(value)


_ENCODERS: Mapping[tuple[str, type], Callable[[Any], str]] = {
    ("null", type(None)): lambda value: "",
    ("string", str): avro_binary.text,
    ("int", int): avro_binary.varint,
    ("long", int): avro_binary.varint,
    ("boolean", bool): avro_binary.boolean,
}


def _read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """Return an int or long, and the position after it."""
    number, shift = 0, 0
    while True:
        byte = data[pos]
        pos += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), pos


class AvroStruct:
    """Hold a record's members as bytes.

    Args:
        types: The types of the schema.
        schema: The schema of the record.
        data: Its bytes.

    Raises:
        UnreadableRecord: They are none of that schema.
    """

    def __init__(self, types: AvroTypes, schema: Any, data: bytes) -> None:
        self._types = types
        kind, full = types.resolved(schema)
        if kind != "record":
            raise UnreadableRecord(f"it is {kind}, not a record")
        self._schemas = {member["name"]: member["type"] for member in full["fields"]}
        self._members: dict[str, bytes] = {}
        pos = 0
        try:
            for name, member in self._schemas.items():
                end = types.end_of(member, data, pos)
                self._members[name] = data[pos:end]
                pos = end
        except (IndexError, KeyError, TypeError, RecursionError) as error:
            raise UnreadableRecord(f"it is not Avro of its schema: {error!r}") from error
        if pos != len(data):
            raise UnreadableRecord("it is not Avro of its schema: its value has another length")

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def set(self, name: str, value: Value) -> None:
        """Give a member another value; see ``RawStruct``."""
        self._members[name] = self._types.encode(self._schemas[name], value).encode("latin-1")

    def copy(self, source: str, target: str) -> None:
        """Give a member the value of another one of the same schema; see ``RawStruct``."""
        branches = [
            [self._types.resolved(branch)[1] for branch in self._types.resolved(self._schemas[name])[1]]
            for name in (source, target)
        ]
        if branches[0] != branches[1]:
            raise UnreadableRecord(f"{source} and {target} have different schemas")
        self._members[target] = self._members[source]

    def is_null(self, name: str) -> bool:
        """Return whether a member has no value."""
        return self._members[name] == self._types.encode(self._schemas[name], None).encode("latin-1")

    def is_boolean(self, name: str) -> bool:
        """Return whether a member is a boolean."""
        kind, full = self._types.resolved(self._schemas[name])
        return "boolean" in ({self._types.resolved(branch)[0] for branch in full} if kind == "union" else {kind})

    def struct(self, name: str) -> Self:
        """Return a member that is a record; see ``RawStruct``."""
        return type(self)(self._types, self._schemas[name], self._members[name])

    def put(self, name: str, struct: Self) -> None:
        """Give a member the value of a record."""
        self._members[name] = bytes(struct)

    def __bytes__(self) -> bytes:
        return b"".join(self._members.values())
