"""What a value stands for, whatever form it is written in, so that values of an earlier structure can be compared."""

from __future__ import annotations

import json
import re
import struct
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Context, Decimal
from enum import Enum
from typing import Any, Literal, NamedTuple

from airflow_provider_mysql_cdc.cdc.model.mysql_types import MYSQL_TYPES, Family
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import DECIMAL, DIGEST_MARK, NUMBER_TEXT, TIDB, ValueForm


class Kind(Enum):
    """Name what values are. Only values of one kind are comparable, and numbers and documents with their texts."""

    EXACT = "number"
    DOUBLE = "double"
    SINGLE = "float"
    TEXT = "text"
    BYTES = "bytes"
    DOCUMENT = "document"
    DATETIME = "date or time of a clock without a zone"
    INSTANT = "point in time"
    TIME = "time of day or duration"
    GEOMETRY = "geometry"
    VECTOR = "vector"


NUMBERS = frozenset({Kind.EXACT, Kind.DOUBLE, Kind.SINGLE})


class Meaning(NamedTuple):
    """Hold what a value stands for.

    Args:
        kind: What it is.
        value: Numbers as ``Decimal``, dates and times in nanoseconds, documents as their text.
    """

    kind: Kind
    value: Any


Read = Callable[[Any, ValueForm], Meaning]
_SECOND = 10**9
_DAY = 86_400 * _SECOND
_EPOCH = datetime(1970, 1, 1)
_SINGLE = struct.Struct("<f")
_POINT = struct.Struct("<5xdd")
"""Little-endian WKB of a point, as MySQL stores it: order, type, x, y."""
_DATE = r"[0-9]{4,}-[0-9]{2}-[0-9]{2}"
_OF_DAY = r"[0-9]{2}:[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?"
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:E[+-]?[0-9]+)?").fullmatch
_SHORTEST = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]*[1-9])?(?:e-?[1-9][0-9]*)?").fullmatch
# DECIMAL has 65 digits at most.
_WIDE = Context(prec=100)
_NUMBER_MEMBER = "\0number"
_BAD_VALUES = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, struct.error, RecursionError)


def meaning(value: Any, form: ValueForm) -> Meaning | None:
    """Return what a value stands for; None where the form or the value is not known well enough."""
    read = _BY_TIDB_TYPE.get(form.name.removesuffix(" UNSIGNED")) if form.type == TIDB else _connect_reader(form)
    if read is None or (isinstance(value, str) and value.startswith(DIGEST_MARK)):
        return None
    try:
        return read(value, form)
    except _BAD_VALUES:
        return None


def equal_meanings(table: Meaning, event: Meaning) -> bool | None:
    """Return whether a value of the table equals one of an event; None where they are not comparable.

    ALTER TABLE converts values to the new type, so a value of another type is converted as the server does it. One that
    is as large but is not what the server makes of the event's, such as the text ``1e3`` of 1000, is not comparable.
    """
    try:
        equal = _equal_values(table, event)
        return None if equal and not _is_conversion(table, event) else equal
    except _BAD_VALUES:
        return None


def _is_conversion(table: Meaning, event: Meaning) -> bool:
    """Return whether the server makes a value of the table of one of an event, given that both are as large."""
    if table.kind is Kind.TEXT and event.kind is Kind.EXACT:
        return bool(table.value == f"{event.value:f}")
    if table.kind is Kind.TEXT and event.kind in NUMBERS:
        return _SHORTEST(table.value) is not None
    if table.kind is Kind.TEXT and event.kind is Kind.DOCUMENT:
        return _same_documents(table.value, event.value)
    if table.kind is Kind.EXACT and event.kind in NUMBERS:
        number = float(event.value)
        # Of a DECIMAL the shortest text is taken, of a whole number all digits; then it is rounded.
        texts = (number, repr(number), f"{number:.6g}") if event.kind is Kind.SINGLE else (number, repr(number))
        last = Decimal((0, (1,), table.value.as_tuple().exponent))
        return any(Decimal(text).quantize(last, context=_WIDE) == table.value for text in texts)
    return True


def _equal_values(table: Meaning, event: Meaning) -> bool | None:
    if table.kind is event.kind:
        return _SAME_VALUES.get(table.kind, _equal)(table.value, event.value)
    kinds = {table.kind, event.kind}
    if kinds <= NUMBERS:
        return _equal_numbers(table, event)
    if Kind.TEXT not in kinds:
        return None
    text, other = (table, event) if table.kind is Kind.TEXT else (event, table)
    parse = _PARSED_TEXTS.get(other.kind)
    if other.kind is Kind.DOCUMENT:
        # ALTER TABLE writes the numbers of a text as MySQL does.
        return _document_text(text.value, _as_stored_in_json) == _document_text(other.value, _as_stored_in_json)
    return None if parse is None else bool(parse(text.value) == other.value)


def _document_text(text: str, number_text: Callable[[str], str]) -> str:
    """Return canonical text of a JSON document, in which numbers are objects, and so equal no text and no boolean."""

    def number(text: str) -> dict[str, str]:
        return {_NUMBER_MEMBER: number_text(text)}

    return json.dumps(json.loads(text, parse_int=number, parse_float=number), sort_keys=True)


def _as_stored_in_json(text: str) -> str:
    """Return a number of a text as MySQL stores it when ALTER TABLE makes a document of the text."""
    value = int(text) if text.lstrip("-").isdigit() else float(text)
    return f"{Decimal(value).normalize(_WIDE):f}"


def _same_documents(table: str, event: str) -> bool:
    """Return whether two documents are equal; 1 and 1.0 are two values of MySQL's JSON."""
    return _document_text(table, str) == _document_text(event, str)


def _equal(table: Any, event: Any) -> bool:
    return bool(table == event)


def _same_float(table: Decimal, event: Decimal) -> bool:
    return table == event and table.is_signed() == event.is_signed()


def _same_vector(table: Sequence[Decimal], event: Sequence[Decimal]) -> bool:
    return len(table) == len(event) and all(map(_same_float, table, event))


def _equal_numbers(table: Meaning, event: Meaning) -> bool:
    kinds = {table.kind, event.kind}
    if kinds == {Kind.SINGLE, Kind.EXACT}:
        return single(table.value) == single(event.value)
    if kinds == {Kind.SINGLE, Kind.DOUBLE}:
        return _same_float(table.value, single(event.value) if table.kind is Kind.SINGLE else event.value)
    return float(table.value) == float(event.value)


def single(value: Any) -> Decimal:
    """Return a number as a 4-byte float holds it."""
    return Decimal(_SINGLE.unpack(_SINGLE.pack(float(value)))[0])


def _unscaled(value: Any, form: ValueForm) -> Meaning:
    number = int.from_bytes(b64decode(value, validate=True), "big", signed=True)
    return Meaning(Kind.EXACT, _WIDE.scaleb(Decimal(number), -form.scale))


def _number_text(value: Any, form: ValueForm) -> Meaning:
    return Meaning(Kind.EXACT, Decimal(_matched(_NUMBER, value)))


def _exact(value: Any, form: ValueForm) -> Meaning:
    if form.scale >= 0:
        return _unscaled(value, form)
    return _whole(value, form) if type(value) is int else _number_text(value, form)


def _whole(value: Any, form: ValueForm) -> Meaning:
    if type(value) is not int:
        raise TypeError("it is no whole number")
    return Meaning(Kind.EXACT, Decimal(value))


def _boolean(value: Any, form: ValueForm) -> Meaning:
    if type(value) is not bool:
        raise TypeError("it is neither true nor false")
    return Meaning(Kind.EXACT, Decimal(int(value)))


def _float(kind: Kind, read: Callable[[Any], Decimal]) -> Read:
    def read_number(value: Any, form: ValueForm) -> Meaning:
        if type(value) not in (int, float):
            raise TypeError("it is no number")
        return Meaning(kind, read(value))

    return read_number


def _bits(order: Literal["little", "big"]) -> Read:
    def read(value: Any, form: ValueForm) -> Meaning:
        return Meaning(Kind.EXACT, Decimal(int.from_bytes(b64decode(value, validate=True), order)))

    return read


def _text(value: Any, form: ValueForm) -> Meaning:
    if not isinstance(value, str):
        raise TypeError("it is no text")
    return Meaning(Kind.TEXT, value)


def _units(kind: Kind, nanoseconds: int) -> Read:
    return lambda value, form: Meaning(kind, int(_whole(value, form).value) * nanoseconds)


def _matched(matches: Callable[[str], object], value: Any) -> str:
    """Return a text that is written as the stream writes values of its form: by that, consumers read it."""
    if not isinstance(value, str) or not matches(value):
        raise ValueError(f"{value!r} is not written so")
    return value


def _clock(kind: Kind, pattern: str) -> Read:
    matches = re.compile(pattern).fullmatch

    def read(value: Any, form: ValueForm) -> Meaning:
        passed = datetime.fromisoformat(_matched(matches, value).removesuffix("Z")) - _EPOCH
        return Meaning(kind, (passed.days * 86_400 + passed.seconds) * _SECOND + passed.microseconds * 1000)

    return read


def _time_text(end: str) -> Read:
    """Return a reader of ``[-]HHH:MM:SS[.ffffff]`` with an end."""
    matches = re.compile(f"-?[1-9]?{_OF_DAY}{end}").fullmatch

    def read(value: Any, form: ValueForm) -> Meaning:
        hours, minutes, seconds = _matched(matches, value).removesuffix("Z").removeprefix("-").split(":")
        total = int((Decimal(seconds) + 60 * (int(minutes) + 60 * int(hours))) * _SECOND)
        return Meaning(Kind.TIME, -total if value.startswith("-") else total)

    return read


def _geometry(value: Any, form: ValueForm) -> Meaning:
    return Meaning(Kind.GEOMETRY, (b64decode(value["wkb"], validate=True), value["srid"] or 0))


def _point(value: Any, form: ValueForm) -> Meaning:
    found = _geometry(value, form)
    if (value["x"], value["y"]) != _POINT.unpack(found.value[0]):
        raise ValueError("its coordinates are not those of its WKB")
    return found


def _document(value: Any, form: ValueForm) -> Meaning:
    json.loads(value)
    return Meaning(Kind.DOCUMENT, str(value))


def _vector(value: Any, form: ValueForm) -> Meaning:
    return Meaning(Kind.VECTOR, [_BY_TYPE["float"](number, form).value for number in value])


def _connect_reader(form: ValueForm) -> Read | None:
    return _BY_NAME.get(form.name) if form.name else _BY_TYPE.get(form.type)


_PARSED_TEXTS: Mapping[Kind, Callable[[str], Any]] = {
    Kind.EXACT: Decimal,
    Kind.DOUBLE: lambda text: Decimal(float(text)),
    Kind.SINGLE: single,
}
_SAME_VALUES: Mapping[Kind, Callable[[Any, Any], bool]] = {
    Kind.DOUBLE: _same_float,
    Kind.SINGLE: _same_float,
    Kind.VECTOR: _same_vector,
    Kind.DOCUMENT: _same_documents,
}
_BY_TYPE: Mapping[str, Read] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), _whole),
    "boolean": _boolean,
    "float": _float(Kind.SINGLE, single),
    "double": _float(Kind.DOUBLE, lambda value: Decimal(float(value))),
    "string": _text,
    "bytes": lambda value, form: Meaning(Kind.BYTES, b64decode(value, validate=True)),
}
_DEBEZIUM, _CONNECT = "io.debezium", "org.apache.kafka.connect.data"
_BY_NAME: Mapping[str, Read] = {
    DECIMAL: _unscaled,
    NUMBER_TEXT: _number_text,
    f"{_DEBEZIUM}.time.Year": _whole,
    f"{_DEBEZIUM}.data.Bits": _bits("little"),
    f"{_DEBEZIUM}.data.Enum": _text,
    f"{_DEBEZIUM}.data.EnumSet": _text,
    f"{_DEBEZIUM}.data.Json": _document,
    f"{_DEBEZIUM}.time.Date": _units(Kind.DATETIME, _DAY),
    f"{_CONNECT}.Date": _units(Kind.DATETIME, _DAY),
    f"{_DEBEZIUM}.time.IsoDate": _clock(Kind.DATETIME, f"{_DATE}Z"),
    f"{_DEBEZIUM}.time.Timestamp": _units(Kind.DATETIME, 10**6),
    f"{_DEBEZIUM}.time.MicroTimestamp": _units(Kind.DATETIME, 1000),
    f"{_DEBEZIUM}.time.NanoTimestamp": _units(Kind.DATETIME, 1),
    f"{_CONNECT}.Timestamp": _units(Kind.DATETIME, 10**6),
    f"{_DEBEZIUM}.time.IsoTimestamp": _clock(Kind.DATETIME, f"{_DATE}T{_OF_DAY}Z"),
    f"{_DEBEZIUM}.time.ZonedTimestamp": _clock(Kind.INSTANT, f"{_DATE}T{_OF_DAY}Z"),
    f"{_DEBEZIUM}.time.Time": _units(Kind.TIME, 10**6),
    f"{_DEBEZIUM}.time.MicroTime": _units(Kind.TIME, 1000),
    f"{_DEBEZIUM}.time.NanoTime": _units(Kind.TIME, 1),
    f"{_CONNECT}.Time": _units(Kind.TIME, 10**6),
    f"{_DEBEZIUM}.time.IsoTime": _time_text("Z"),
    f"{_DEBEZIUM}.data.geometry.Geometry": _geometry,
    f"{_DEBEZIUM}.data.geometry.Point": _point,
    f"{_DEBEZIUM}.data.FloatVector": _vector,
}
_BY_FAMILY: Mapping[Family, Read] = {
    **dict.fromkeys((Family.INTEGER, Family.DECIMAL, Family.YEAR), _exact),
    Family.FLOAT: _BY_TYPE["float"],
    Family.DOUBLE: _BY_TYPE["double"],
    Family.BIT: _bits("big"),
    **dict.fromkeys((Family.TEXT, Family.ENUM, Family.SET), _text),
    Family.BYTES: _BY_TYPE["bytes"],
    Family.JSON: _BY_NAME[f"{_DEBEZIUM}.data.Json"],
    **dict.fromkeys((Family.DATE, Family.DATETIME), _clock(Kind.DATETIME, f"{_DATE}(?: {_OF_DAY})?")),
    Family.TIMESTAMP: _clock(Kind.INSTANT, f"{_DATE} {_OF_DAY}"),
    Family.TIME: _time_text(""),
    Family.VECTOR: lambda value, form: _vector(json.loads(value), form),
}
_BY_TIDB_TYPE: Mapping[str, Read] = {
    row.tidb_type: _BY_FAMILY[row.family] for row in MYSQL_TYPES.values() if row.tidb_type
}
