"""Settings that a decoder is compiled for, and what it shares with the records of one event.

Values that events show as null because a type of the contract cannot hold them, until they are reported.

As Debezium does, ``time.precision.mode`` ``connect`` and ``isostring`` write null for a TIME outside of a day, and
``nanoseconds`` for a DATETIME beyond 64 bits, if the column may be NULL. The event is kept, but its value is lost, so
it is counted, and the first one of a column is logged. Where the column's default stands for NULL, which would be
another value, the row fails.

Generated code has no way to return them: it notes them here, each thread its own, and who decodes takes them after
each event, or after each row of a snapshot. Who decodes rows again drops what was noted before.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc.model.column_rule import ColumnTreatment, CustomColumn
from airflow_provider_mysql_cdc.cdc.model.table import Column, TableId

TIME_MODES = (
    "adaptive_time_microseconds",
    "adaptive",
    "connect",
    "isostring",
    "microseconds",
    "nanoseconds",
)
DECIMAL_MODES = ("precise", "string", "double")
BIGINT_UNSIGNED_MODES = ("long", "precise")
BINARY_MODES = ("bytes", "base64", "base64-url-safe", "hex")

_NO_TREATMENT = ColumnTreatment()
_NO_TEXT: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class DecoderOptions:
    """Say how rows become events. Hashable, so that compiled decoders can be cached by it.

    Args:
        contract: Event contract, ``"3.x"`` or ``"1.9"``.
        source_struct: ``source.struct.version``.
        transaction: ``provide.transaction.metadata``; contract 1.9 has the member ``transaction`` only then (TXN-09).
        prefix: ``topic.prefix``; only carried for error texts.
        decimal_mode: ``decimal.handling.mode`` (TYPE-55 to TYPE-57).
        bigint_unsigned_mode: ``bigint.unsigned.handling.mode`` (TYPE-58, TYPE-59).
        binary_mode: ``binary.handling.mode`` (TYPE-33 to TYPE-35).
        time_mode: ``time.precision.mode`` (TYPE-36 to TYPE-46).
        tombstones: ``tombstones.on.delete``.
        skipped_ops: Operation letters of ``skipped.operations``; a row event of that kind yields nothing.
        key_columns: Column names of the event key in key order; None means the table's own key, empty means no key.
        included: Column names that go into the value; None means all.
        replace_null_with_default: ``value.converter.replace.null.with.default``: SQL NULL is written as the
            schema's default, where the column has one.
        time_adjuster: ``enable.time.adjuster``: years 0001 to 0099 of DATE and DATETIME count as 1970 to 2069
            (TYPE-70, STRM-39).
        field_names: ``field.name.adjustment.mode``.
        schema_names: ``schema.name.adjustment.mode``.
        treatments: Masks, hashes, lengths and parameters of columns in the value, by column name.
        booleans: Names of the TINYINT columns that a converter makes booleans.
        conversions: Columns that custom converters handle, by column name (TYPE-65).
        unavailable: ``unavailable.value.placeholder``, written for a value that the row image leaves out.
        schema_titles: Names of the table's schemas by part, where a transform changed them.
        key_fields: Names and values of the fields that a transform adds to every key.
        read_op: Operation letter of snapshot rows.
        unavailable_as_null: ``unavailable.value.as.null``: write null for a type that cannot hold the placeholder.
        flat: Rows become flat records of another protocol: dates and times are MySQL's own text, BOOL is a number,
            a column that the image leaves out has no value, and a changed key has no headers.
    """

    contract: str = "3.x"
    prefix: str = ""
    decimal_mode: str = "precise"
    bigint_unsigned_mode: str = "long"
    binary_mode: str = "bytes"
    time_mode: str = "adaptive_time_microseconds"
    tombstones: bool = True
    skipped_ops: frozenset[str] = frozenset({"t"})
    key_columns: tuple[str, ...] | None = None
    included: tuple[str, ...] | None = None
    replace_null_with_default: bool = False
    time_adjuster: bool = True
    field_names: str = "none"
    schema_names: str = "none"
    treatments: tuple[tuple[str, ColumnTreatment], ...] = ()
    booleans: frozenset[str] = frozenset()
    conversions: tuple[tuple[str, CustomColumn], ...] = ()
    unavailable: str = "__debezium_unavailable_value"
    unavailable_as_null: bool = False
    source_struct: str = "v2"
    transaction: bool = False
    schema_titles: tuple[tuple[str, str], ...] = ()
    key_fields: tuple[tuple[str, str], ...] = ()
    read_op: str = "r"
    flat: bool = False

    def treatment(self, column: Column) -> ColumnTreatment:
        """Return how a column is masked, hashed or cut in the value."""
        return next((t for name, t in self.treatments if name == column.name), _NO_TREATMENT)

    def custom(self, column: Column) -> CustomColumn | None:
        """Return a custom converter's description of a column, or None (TYPE-65)."""
        return next((c for name, c in self.conversions if name == column.name), None)

    def boolean_test(self, column: Column) -> str | None:
        """Return the comparison that makes a TINYINT value a boolean, or None when the column is a number.

        For a converter numbers above zero are true; BOOL in the statement itself makes negative numbers true too
        (TYPE-60; in a snapshot the column is a TINYINT(1), TYPE-61).
        """
        if column.type_name != "TINYINT" or self.flat:
            return None
        if column.name in self.booleans:
            return "> 0"
        return "!= 0" if column.declared_type in ("BOOL", "BOOLEAN") else None

    @property
    def trims_timestamps(self) -> bool:
        """Whether the text of a TIMESTAMP has no zeros at the end of its fraction: in contract 1.9."""
        return self.contract == "1.9"

    def single_float(self, column: Column) -> bool:
        """Return whether a FLOAT or DOUBLE column has Connect's 4-byte type.

        In contract 3.x it is FLOAT without a scale and of at most 24 bits (TYPE-69). In 1.9 only the word REAL in the
        statement makes it so (TYPE-11 to TYPE-13); SHOW CREATE TABLE, and so a snapshot, says double instead.
        """
        if self.contract == "1.9":
            return column.declared_type == "REAL"
        return column.type_name == "FLOAT" and column.scale is None and (column.length or 0) <= 24


@dataclass(frozen=True, slots=True)
class EnvelopeText:
    """Carry the constant JSON text around a table's rows.

    Args:
        key_schema: JSON text of the key's ``schema`` member, or None when keys have no schema.
        value_schema: JSON text of the value's ``schema`` member, or None when values have no schema.
        null_text: Column name to JSON text of its schema default; only read when
            ``DecoderOptions.replace_null_with_default`` is set.
    """

    key_schema: str | None = None
    value_schema: str | None = None
    null_text: Mapping[str, str] = field(default_factory=lambda: _NO_TEXT, hash=False)


NULLED_SUFFIX = " (values written as null)"
"""Follows the topic in the name under which they are counted."""


class NulledValue(NamedTuple):
    """Describe a value.

    Args:
        column: Its column.
        value: The value as MySQL shows it; empty where the configuration changes what events show of the column.
        mode: ``time.precision.mode``.
    """

    column: str
    value: str
    mode: str


class NulledValues(threading.local):
    """Hold the values that this thread has written as null.

    Attributes:
        values: They, in order.
    """

    def __init__(self) -> None:
        self.values: list[NulledValue] = []

    def note(self, column: Column, options: DecoderOptions, value: str) -> None:
        """Note a value.

        Args:
            column: Its column.
            options: Modes.
            value: The value as MySQL shows it.
        """
        hidden = options.treatment(column).change is not None
        self.values.append(NulledValue(column.name, "" if hidden else value, options.time_mode))

    def take(self) -> list[NulledValue]:
        """Return the values and forget them."""
        values, self.values = self.values, []
        return values


NULLED = NulledValues()


def nulled_warning(table: TableId, value: NulledValue, where: str) -> str:
    """Return the line of the log.

    Args:
        table: The table.
        value: The first such value of its column.
        where: The event, or the key range of a snapshot.
    """
    shown = f" {value.value}" if value.value else ""
    return (
        f"WARNING: the value{shown} of column {value.column} of table {table} is null in its event ({where}): "
        f"time.precision.mode={value.mode} cannot represent it. Others of the column are counted and not logged. "
        "Another time.precision.mode, such as microseconds, can represent it"
    )


class UnnumberedRow(int):
    """Count rows for a contract whose source block does not number them: an int whose text is empty."""

    __slots__ = ()

    def __add__(self, rows: int) -> UnnumberedRow:
        return UnnumberedRow(int(self) + rows)

    def __format__(self, spec: str) -> str:
        return ""


class EventContext:
    """Carry the text around a row's images; the caller fills it once per event.

    A value's payload is ``{"before":B,"after":A,"source":`` + src_head + row number + src_tail +
    ``,"transaction":`` + transaction + ``,"op":"c"`` + tail. The decoder closes the ``payload`` member itself.

    Args:
        src_head: The source block from its ``{`` up to and including ``"row":``.
        src_tail: The source block after the row number, with its closing ``}``; without ``row`` only that.
        tail: What follows the op, for example ``,"ts_ms":1,"ts_us":1000,"ts_ns":1000000}``, with the closing ``}``.
        first_row: Number of the event's first row in the source block, a ``UnnumberedRow`` where that has no ``row``.
        transaction: JSON text of the transaction block.
        where: Position of the event for error texts, ``binlog.000003:4711``.

    Texts that are not JSON have ``plain``: a function that fills a context with JSON, and its other arguments.
    Flat rows have the transaction's timestamp in ``stamp``, unwrapped ones what their ``headers`` are made of.
    """

    __slots__ = ("first_row", "headers", "plain", "src_head", "src_tail", "stamp", "tail", "transaction", "where")

    def __init__(
        self,
        src_head: str = '{"row":',
        src_tail: str = "}",
        tail: str = "}",
        *,
        first_row: int = 0,
        transaction: str = "null",
        where: str = "",
    ) -> None:
        self.src_head = src_head
        self.src_tail = src_tail
        self.tail = tail
        self.first_row = first_row
        self.transaction = transaction
        self.where = where
        self.plain: tuple[Any, ...] | None = None
        self.stamp = 0
        self.headers: tuple[Any, ...] = ()

    def as_json(self) -> EventContext:
        """Return a context of the same event whose texts are JSON."""
        if self.plain is None:
            return self
        context = EventContext(first_row=self.first_row, transaction=self.transaction)
        fill, *arguments = self.plain
        fill(context, *arguments)
        context.where = self.where
        return context
