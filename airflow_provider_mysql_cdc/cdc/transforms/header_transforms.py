"""Transforms of headers, and the literals of ``InsertHeader``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, ClassVar

from airflow_provider_mysql_cdc.cdc.transforms.record_schema import (
    CONNECT_DATE,
    CONNECT_TIME,
    CONNECT_TIMESTAMP,
    DECIMAL,
    INTEGER_BITS,
    OPTIONAL_STRING,
    STRING,
    RecordSchema,
    SchemaField,
    TransformFault,
    java_map,
    require_map,
    require_struct,
    struct_of,
)
from airflow_provider_mysql_cdc.cdc.transforms.transform import (
    NULL_DEFAULT,
    ChainHeader,
    ChainRecord,
    Option,
    OptionError,
    PartTransform,
    SchemaCache,
    Transform,
    one_of,
    required_names,
    required_text,
)
from airflow_provider_mysql_cdc.cdc.transforms.value_text import (
    NUMBER,
    JavaDateFormat,
    decimal_bytes,
    float32,
    unscaled_of,
)

_STRUCT_HEADERS = frozenset({"__debezium.newkey", "__debezium.oldkey"})
NewField = tuple[tuple[str, ...], RecordSchema, Any]
"""Path, schema and value of a field that is added."""


class HeaderToValue(Transform):
    """Copy or move headers to fields of the value, nested ones by their path."""

    DOC = "copies or moves headers to fields of the value"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "headers": Option(required_names, "names of the headers", required=True),
        "fields": Option(required_names, "names of the fields, in the same order; dots nest", required=True),
        "operation": Option(one_of("move", "copy", any_case=True), "`move` or `copy`", required=True),
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        headers, fields = options["headers"], options["fields"]
        if len(headers) != len(fields):
            raise OptionError("fields", "must have as many entries as headers")
        if structs := _STRUCT_HEADERS.intersection(headers):
            what = f"names {', '.join(sorted(structs))}, whose struct is text here"
            raise OptionError("headers", what, "Remove it; the other event of a key change has that key as its key")
        self._fields = dict(zip(reversed(headers), reversed(fields), strict=True))
        self._moves = options["operation"] == "move"

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        if record.value is None:
            return record
        schema, value = require_struct(record.value_schema, record.value, "Header field insertion")
        added: list[NewField] = []
        for header in record.headers:
            if (name := self._fields.get(header.name)) is not None:
                added.append((tuple(name.split(".")), header.schema or OPTIONAL_STRING, header.value))
        if added:
            record.set_value(*_extended(schema, value, added))
            if self._moves:
                record.headers = [header for header in record.headers if header.name not in self._fields]
        return record


def _extended(
    schema: RecordSchema, value: Mapping[str, Any], added: list[NewField]
) -> tuple[RecordSchema, dict[str, Any]]:
    """Return schema and value of a struct with further fields; null becomes a field's default on the way."""
    fields = {member.name: member.schema for member in schema.fields}
    values = {member.name: member.read(value) for member in schema.fields}
    nested: dict[str, list[NewField]] = {}
    for path, field_schema, field_value in added:
        if len(path) > 1:
            nested.setdefault(path[0], []).append((path[1:], field_schema, field_value))
        else:
            kept = fields.setdefault(path[0], field_schema)
            if field_value is not None and kept.type != field_schema.type:
                raise TransformFault(f"Invalid Java object for schema with type {kept.type} for field: '{path[0]}'")
            values[path[0]] = field_value
    for name, members in nested.items():
        inner = fields.get(name)
        if inner is None:
            fields[name] = struct_of(*((path[0], field_schema) for path, field_schema, _ in members), optional=True)
            values[name] = {path[0]: field_value for path, _, field_value in members}
        elif inner.type != "struct":
            raise TransformFault(f"Field '{name}' is a primitive type, not a struct. Cannot add nested fields.")
        elif values[name] is None:
            fields[name] = _extended(inner, {}, members)[0]
        else:
            fields[name], values[name] = _extended(inner, values[name], members)
    return schema.basics(SchemaField(name, field_schema) for name, field_schema in fields.items()), values


_DAY_MS = 86_400_000
_TIMES = {
    10: (CONNECT_DATE, "int32", JavaDateFormat("yyyy-MM-dd"), _DAY_MS),
    13: (CONNECT_TIME, "int32", JavaDateFormat("HH:mm:ss.SSS'Z'"), 1),
    24: (CONNECT_TIMESTAMP, "int64", JavaDateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"), 1),
}
"""Times by the length of their text."""
_TOKEN = re.compile(r'(?:\\.|[^\\:,{}\[\]"]|\\\Z)+|[:,{}\[\]"]', re.DOTALL)
_WIDTHS = (*INTEGER_BITS, "float", "double")
_WORDS: tuple[tuple[str, Any], ...] = (("null", None), ("true", True), ("false", False))
Literal = tuple[RecordSchema | None, Any]


def parse_literal(text: str) -> Literal:
    """Return schema and value of a literal: a number, boolean, time, array or map, otherwise text; None for ``null``.

    Args:
        text: The literal.

    Raises:
        ValueError: It has numbers with fractions beside other things in an array or map.
    """
    return (STRING, "") if not text else _Parser(text).parse(embedded=False)


class _NoLiteral(Exception):
    """A text looks like an array or map and is none."""


class _Parser:
    """Read a literal token by token.

    Args:
        text: The literal.
    """

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def _token(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        return "" if match is None else match[0]

    def _next(self) -> str:
        token = self._token()
        self._at += len(token)
        return token

    def _consume(self, expected: str) -> bool:
        while not (token := self._token()).strip() and self._at + len(token) < len(self._text):
            self._at += len(token)
        if token.strip() != expected:
            return False
        self._at += len(token)
        return True

    def parse(self, *, embedded: bool) -> Literal:
        """Return schema and value.

        Args:
            embedded: Whether it is a member of an array or map.
        """
        if embedded and self._consume('"'):
            return self._quoted()
        start = self._at
        for word, value in _WORDS:
            if self._consume(word) and (embedded or self._at == len(self._text)):
                return None if value is None else RecordSchema("boolean"), value
            self._at = start
        try:
            if self._consume("["):
                return self._array()
            if self._consume("{"):
                return self._map()
        except _NoLiteral:
            self._at = start
        token = self._next()
        found = self._time(token.strip()) or _number(token.strip())
        if found is not None:
            return found
        if embedded and token.strip():
            raise _NoLiteral
        return STRING, token if embedded else self._text

    def _quoted(self) -> Literal:
        parts = []
        while self._at < len(self._text) and not self._consume('"'):
            parts.append(self._next())
        text = "".join(parts)
        return _time(text) or (STRING, text)

    def _time(self, token: str) -> Literal | None:
        """Return a time, whose colons are tokens of their own."""
        if not token[:1].isdigit():
            return None
        start = self._at
        rest = [self._next() for _ in range(4)]
        if rest[-1] and (found := _time(token + "".join(rest))) is not None:
            return found
        self._at = start
        return _time(token)

    def _array(self) -> Literal:
        members: list[Literal] = []
        while self._at < len(self._text):
            if self._consume("]"):
                items = _common(members)
                return RecordSchema("array", items=items), [_widened(items, *member) for member in members]
            if self._consume(","):
                raise _NoLiteral
            members.append(self.parse(embedded=True))
            at = self._at
            if self._consume("]"):
                self._at = at
            elif not self._consume(","):
                raise _NoLiteral
        raise _NoLiteral

    def _map(self) -> Literal:
        keys: list[Literal] = []
        members: list[Literal] = []
        while self._at < len(self._text):
            if self._consume("}"):
                names, items = _common(keys), _common(members)
                texts = [_widened(names, *key) for key in keys]
                values = [_widened(items, *member) for member in members]
                return RecordSchema("map", keys=names, items=items), dict(zip(texts, values, strict=True))
            if self._consume(","):
                raise _NoLiteral
            keys.append(self.parse(embedded=True))
            if keys[-1][1] is None or isinstance(keys[-1][1], (list, dict)) or not self._consume(":"):
                raise _NoLiteral
            members.append(self.parse(embedded=True))
            self._consume(",")
        raise _NoLiteral


def _common(members: list[Literal]) -> RecordSchema | None:
    """Return the schema that all members can have: one type, or the widest of numbers; None where there is none."""
    schemas = [schema for schema, _ in members if schema is not None]
    kinds = {(schema.type, schema.name) for schema in schemas}
    if len(kinds) == 1:
        return schemas[0]
    if kinds and all(name is None and kind in _WIDTHS for kind, name in kinds):
        return RecordSchema(max((kind for kind, _ in kinds), key=_WIDTHS.index))
    if any(schema.type in ("float", "double") or schema.name for schema in schemas):
        raise ValueError("has an array or map of fractions or times and other things; write members of one type")
    return None


def _widened(common: RecordSchema | None, schema: RecordSchema | None, value: Any) -> Any:
    is_real = common is not None and common.type in ("float", "double") and value is not None
    return float(value) if is_real else value


def _time(text: str) -> Literal | None:
    text = text.replace("\\:", ":")
    if len(text) not in _TIMES:
        return None
    name, kind, form, unit = _TIMES[len(text)]
    try:
        return RecordSchema(kind, name=name, version=1), form.parse(text) // unit
    except ValueError:
        return None


def _number(token: str) -> Literal | None:
    if token.startswith(".") or NUMBER.fullmatch(token) is None:
        return None
    number = Decimal(token)
    unscaled, scale = unscaled_of(number)
    if scale <= 0 or unscaled == 0 or (scale < len(token) and unscaled % 10**scale == 0):
        for kind, bits in INTEGER_BITS.items():
            if -(1 << bits - 1) <= number < 1 << bits - 1:
                return RecordSchema(kind), int(number)
    real = float(number)
    if scale and math.isfinite(float32(real)):
        return RecordSchema("float"), float32(real)
    if scale and math.isfinite(real):
        return RecordSchema("double"), real
    schema = RecordSchema("bytes", name=DECIMAL, version=1, parameters={"scale": str(scale)})
    return schema, decimal_bytes(unscaled)


_NO_FIELD = (
    'Cannot invoke "org.apache.kafka.connect.data.Field.schema()" because the return value of '
    '"org.apache.kafka.connect.data.Schema.field(String)" is null'
)


class InsertHeader(Transform):
    """Add a header with a fixed value."""

    DOC = "adds a header with a fixed value"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "header": Option(required_text, "the header's name", required=True),
        "value.literal": Option(parse_literal, "its value", required=True),
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._header = ChainHeader(options["header"], *options["value.literal"])

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        record.headers.append(self._header)
        return record


class DropHeaders(Transform):
    """Remove headers."""

    DOC = "removes headers"
    OPTIONS: ClassVar[Mapping[str, Option]] = {"headers": Option(required_names, "their names", required=True)}

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._names = frozenset(options["headers"])

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        record.headers = [header for header in record.headers if header.name not in self._names]
        return record


class HeaderFrom(PartTransform):
    """Copy or move fields to headers."""

    DOC = "copies or moves fields to headers"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "fields": Option(required_names, "the fields", required=True),
        "headers": Option(required_names, "names of the headers, in the same order", required=True),
        "operation": Option(one_of("move", "copy"), "`move` or `copy`", required=True),
        **NULL_DEFAULT,
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        if len(options["fields"]) != len(options["headers"]):
            raise OptionError("headers", "must have as many entries as fields")
        self._fields = list(zip(options["fields"], options["headers"], strict=True))
        self._moves = options["operation"] == "move"
        self._default: bool = options["replace.null.with.default"]
        self._without = SchemaCache(self._rest)

    def _rest(self, schema: RecordSchema) -> RecordSchema:
        moved = {name for name, _ in self._fields}
        return schema.basics(member for member in schema.fields if member.name not in moved)

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        what = "move" if self._moves else "copy"
        schema, value = self.read(record)
        if (plain := require_map(schema, value, f"header {what}")) is not None:
            record.headers += [ChainHeader(header, None, plain.get(name)) for name, header in self._fields]
            moved = {name for name, _ in self._fields} if self._moves else ()
            return self.write(record, None, {n: v for n, v in java_map(plain, {}).items() if n not in moved})
        schema, value = require_struct(schema, value, f"header {what}")
        for name, header in self._fields:
            member = schema.member(name)
            if member is None:
                raise TransformFault(_NO_FIELD, f"there is no field {name}")
            record.headers.append(ChainHeader(header, member.schema, member.read(value, default=self._default)))
        if self._moves:
            kept = self._without(schema)
            self.write(record, kept, {m.name: m.read(value, default=self._default) for m in kept.fields})
        return record
