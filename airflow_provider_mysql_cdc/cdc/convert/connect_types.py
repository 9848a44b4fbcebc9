"""Types of columns in events: Kafka Connect's literal and semantic types, and the names in schema changes.

Kafka Connect types of columns: literal type, semantic type, parameters.

What Debezium 3.6.1 writes is the reference (requirements TYPE-01 to TYPE-72 as settled in section 18); for contract 1.9
the tables of the seeds, and Debezium 1.9.7 where they say nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol

from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model.column_rule import CustomColumn
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family, type_words
from airflow_provider_mysql_cdc.cdc.model.table import Column


class TypeModes(Protocol):
    """The settings that decide how a column is represented (values as the properties take them)."""

    @property
    def decimal_mode(self) -> str:
        """``decimal.handling.mode``: precise, double or string."""

    @property
    def bigint_unsigned_mode(self) -> str:
        """``bigint.unsigned.handling.mode``: long or precise."""

    @property
    def binary_mode(self) -> str:
        """``binary.handling.mode``: bytes, base64, base64-url-safe or hex."""

    @property
    def time_mode(self) -> str:
        """``time.precision.mode``."""

    @property
    def time_adjuster(self) -> bool:
        """``enable.time.adjuster``: years 1 to 99 count as 1970 to 2069."""

    def boolean_test(self, column: Column) -> str | None:
        """Return how a TINYINT value becomes a boolean, or None when the column is a number."""

    def custom(self, column: Column) -> CustomColumn | None:
        """Return a custom converter's description of a column, or None."""

    def single_float(self, column: Column) -> bool:
        """Return whether a FLOAT or DOUBLE column has Connect's 4-byte type."""

    @property
    def contract(self) -> str:
        """``event.contract``."""


@dataclass(frozen=True, slots=True)
class ConnectType:
    """Describe a Connect type without name-independent members (``optional``, ``default``, ``field``).

    Args:
        type: Literal type.
        name: Semantic type or None.
        version: Version of the semantic type or None.
        parameters: Schema parameters in order.
        fields: Fields of a struct.
        items: Item schema of an array.
        doc: Fixed documentation text.
        optional: Whether a NOT NULL column is optional too.
    """

    type: str
    name: str | None = None
    version: int | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    fields: tuple[MappingProxyType[str, Any], ...] = ()
    items: MappingProxyType[str, Any] | None = None
    doc: str | None = None
    optional: bool = False


def semantic_type(literal: str, name: str, *parameters: tuple[str, str]) -> ConnectType:
    """Return a version 1 semantic type."""
    return ConnectType(literal, name, 1, parameters)


def _struct_field(field: str, type_: str, *, optional: bool) -> MappingProxyType[str, Any]:
    return MappingProxyType({"type": type_, "optional": optional, "field": field})


_STRING = ConnectType("string")
_BOOLEAN = ConnectType("boolean")
_WKB_FIELDS = (_struct_field("wkb", "bytes", optional=False), _struct_field("srid", "int32", optional=True))
_POINT_FIELDS = (
    _struct_field("x", "double", optional=False),
    _struct_field("y", "double", optional=False),
    _struct_field("wkb", "bytes", optional=True),
    _struct_field("srid", "int32", optional=True),
)
_VECTOR_ITEMS = MappingProxyType({"type": "float", "optional": False})
_MICRO_TIMESTAMP = semantic_type("int64", "io.debezium.time.MicroTimestamp")
_MILLI_TIMESTAMP = semantic_type("int64", "io.debezium.time.Timestamp")
_MICRO_TIME = semantic_type("int64", "io.debezium.time.MicroTime")
_MILLI_TIME = semantic_type("int32", "io.debezium.time.Time")
_DATE = semantic_type("int32", "io.debezium.time.Date")

_DATE_MODES = {
    "connect": semantic_type("int32", "org.apache.kafka.connect.data.Date"),
    "isostring": semantic_type("string", "io.debezium.time.IsoDate"),
}
# Types for up to 3 and for more fraction digits.
_TIME_MODES = {
    "adaptive": (_MILLI_TIME, _MICRO_TIME),
    "adaptive_time_microseconds": (_MICRO_TIME, _MICRO_TIME),
    "microseconds": (_MICRO_TIME, _MICRO_TIME),
    "nanoseconds": (semantic_type("int64", "io.debezium.time.NanoTime"),) * 2,
    "connect": (semantic_type("int32", "org.apache.kafka.connect.data.Time"),) * 2,
    "isostring": (semantic_type("string", "io.debezium.time.IsoTime"),) * 2,
}
_DATETIME_MODES = {
    "adaptive": (_MILLI_TIMESTAMP, _MICRO_TIMESTAMP),
    "adaptive_time_microseconds": (_MILLI_TIMESTAMP, _MICRO_TIMESTAMP),
    "microseconds": (_MICRO_TIMESTAMP, _MICRO_TIMESTAMP),
    "nanoseconds": (semantic_type("int64", "io.debezium.time.NanoTimestamp"),) * 2,
    "connect": (semantic_type("int64", "org.apache.kafka.connect.data.Timestamp"),) * 2,
    "isostring": (semantic_type("string", "io.debezium.time.IsoTimestamp"),) * 2,
}

DECIMAL_NAME = "org.apache.kafka.connect.data.Decimal"


def decimal_precision(column: Column) -> tuple[int, int]:
    """Return precision and scale of a DECIMAL column; MySQL's defaults are 10 and 0."""
    return (10 if column.length is None else column.length), column.scale or 0


def _decimal_type(precision: int, scale: int) -> ConnectType:
    parameters = (("scale", str(scale)), ("connect.decimal.precision", str(precision)))
    return semantic_type("bytes", DECIMAL_NAME, *parameters)


def _integer(column: Column, modes: TypeModes) -> ConnectType:
    row = column.mysql_type
    if row.width == 8 and column.unsigned and modes.bigint_unsigned_mode == "precise":
        # Debezium 1.9 gave this number a scale only.
        return semantic_type("bytes", DECIMAL_NAME, ("scale", "0")) if modes.contract == "1.9" else _decimal_type(20, 0)
    if modes.boolean_test(column):
        return _BOOLEAN
    return ConnectType((row.unsigned_connect_type if column.unsigned else "") or row.connect_type)


def _decimal(column: Column, modes: TypeModes) -> ConnectType:
    if modes.decimal_mode != "precise":
        return ConnectType(modes.decimal_mode)
    return _decimal_type(*decimal_precision(column))


def _float(column: Column, modes: TypeModes) -> ConnectType:
    return ConnectType("float" if modes.single_float(column) else "double")


def bit_length(column: Column) -> int:
    """Return the number of bits of a BIT column."""
    return column.length or 1


def _bit(column: Column, modes: TypeModes) -> ConnectType:
    if bit_length(column) == 1:
        return _BOOLEAN
    return semantic_type("bytes", "io.debezium.data.Bits", ("length", str(bit_length(column))))


def _binary(column: Column, modes: TypeModes) -> ConnectType:
    return ConnectType("bytes" if modes.binary_mode == "bytes" else "string")


def _character(column: Column, modes: TypeModes) -> ConnectType:
    return _binary(column, modes) if column.charset == "binary" else _STRING


def _members(column: Column, modes: TypeModes) -> ConnectType:
    # A comma inside a member is escaped, so that the list can be split again.
    allowed = ",".join(v.replace(",", "\\,") for v in column.enum_values)
    return semantic_type(column.mysql_type.connect_type, column.mysql_type.semantic_type, ("allowed", allowed))


def fraction_digits(column: Column) -> int:
    """Return the fraction digits of a temporal column."""
    return column.length or 0


def _date(column: Column, modes: TypeModes) -> ConnectType:
    return _DATE_MODES.get(modes.time_mode, _DATE)


def _by_fraction(table: dict[str, tuple[ConnectType, ConnectType]]) -> Callable[[Column, TypeModes], ConnectType]:
    def build(column: Column, modes: TypeModes) -> ConnectType:
        return table[modes.time_mode][fraction_digits(column) > 3]

    return build


def _semantic(column: Column, modes: TypeModes) -> ConnectType:
    return semantic_type(column.mysql_type.connect_type, column.mysql_type.semantic_type)


def _geometry(column: Column, modes: TypeModes) -> ConnectType:
    return replace(_semantic(column, modes), fields=_WKB_FIELDS, doc="Geometry", optional=True)


def _point(column: Column, modes: TypeModes) -> ConnectType:
    return replace(_semantic(column, modes), fields=_POINT_FIELDS, doc="Geometry (POINT)")


def _vector(column: Column, modes: TypeModes) -> ConnectType:
    return replace(_semantic(column, modes), items=_VECTOR_ITEMS)


BUILDERS: dict[Family, Callable[[Column, TypeModes], ConnectType]] = {
    Family.INTEGER: _integer,
    Family.DECIMAL: _decimal,
    Family.FLOAT: _float,
    Family.DOUBLE: _float,
    Family.BIT: _bit,
    Family.TEXT: _character,
    Family.BYTES: _binary,
    Family.ENUM: _members,
    Family.SET: _members,
    Family.JSON: _semantic,
    Family.DATE: _date,
    Family.TIME: _by_fraction(_TIME_MODES),
    Family.DATETIME: _by_fraction(_DATETIME_MODES),
    Family.TIMESTAMP: _semantic,
    Family.YEAR: _semantic,
    Family.GEOMETRY: _geometry,
    Family.POINT: _point,
    Family.VECTOR: _vector,
}


def connect_type(column: Column, modes: TypeModes) -> ConnectType:
    """Return the Connect type of a column.

    Args:
        column: The column.
        modes: The type settings.

    Raises:
        SchemaError: No Connect type is known for the column's type.
    """
    custom = modes.custom(column)
    if custom is not None:
        return ConnectType(
            custom.type, custom.name, custom.version, custom.parameters, doc=custom.doc, optional=custom.optional
        )
    builder = BUILDERS.get(column.family)
    if builder is None:
        raise SchemaError(
            f"column {column.name} has type {column.type_name}, which has no event type",
            remedy="exclude the column or the table, or report the type",
        )
    return builder(column, modes)


_WITHOUT_LENGTH = frozenset(("BOOL", "BOOLEAN"))


def type_word(column: Column) -> str:
    """Return the type word as the DDL wrote it."""
    return column.declared_type or column.type_name


def type_expression(column: Column) -> str:
    """Return the type word followed by UNSIGNED and ZEROFILL where set; INT SIGNED UNSIGNED is unsigned."""
    word = type_word(column).removesuffix(" SIGNED") + " UNSIGNED" if column.unsigned else type_word(column)
    zerofill = " ZEROFILL" if column.zerofill else ""
    return f"{word}{zerofill}"


def jdbc_type(column: Column) -> int:
    """Return the number of java.sql.Types."""
    words = type_words(type_word(column))
    return column.mysql_type.jdbc_type if words is None else words.jdbc_type


def declared_length(column: Column) -> int | None:
    """Return the length that schema changes show; a SET shows the width of all its members' commas and names as 1.

    Debezium writes 1 for NCHAR without a length, and none for CHAR.
    """
    if column.type_name == "SET":
        return max(0, 2 * len(column.enum_values) - 1)
    if column.length is not None and type_word(column) not in _WITHOUT_LENGTH:
        return column.length
    if column.type_name == "CHAR" and _is_national(column):
        return column.mysql_type.default_length
    return column.mysql_type.schema_change_length


def declared_scale(column: Column) -> int | None:
    """Return the scale that schema changes show."""
    return 0 if column.type_name == "DECIMAL" and column.scale is None else column.scale


def charset_name(column: Column) -> str | None:
    """Return the character set that schema changes show: as written, and ``utf8`` for NATIONAL types."""
    if column.charset == "binary":
        return None
    if column.charset == "utf8mb3" and _is_national(column):
        return "utf8"
    return column.declared_charset or column.charset


def _is_national(column: Column) -> bool:
    words = type_words(type_word(column))
    return words is not None and words.national
