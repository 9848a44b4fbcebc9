"""Literals of ``InsertHeader``: text as a value of Connect, as ``Values.parseString`` of Kafka 4.3 reads it."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

from airflow_provider_mysql_cdc.cdc.transforms.date_format import JavaDateFormat
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import (
    CONNECT_DATE,
    CONNECT_TIME,
    CONNECT_TIMESTAMP,
    DECIMAL,
    INTEGER_BITS,
    STRING,
    RecordSchema,
)
from airflow_provider_mysql_cdc.cdc.transforms.value_text import NUMBER, decimal_bytes, float32, unscaled_of

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
