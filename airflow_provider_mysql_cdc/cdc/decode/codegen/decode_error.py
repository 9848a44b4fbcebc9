"""Rare paths of a decoder: find the value that failed, and write the headers of a key change."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ColumnCode, Emitter
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import decimal_text
from airflow_provider_mysql_cdc.cdc.decode.values.temporal import date_text
from airflow_provider_mysql_cdc.cdc.errors import CdcError, ValueDecodeError
from airflow_provider_mysql_cdc.cdc.model.avro_names import field_name
from airflow_provider_mysql_cdc.cdc.model.column_rule import CONVERTER_REMEDY, ConverterError
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table

_REMEDY = (
    "compare the row with SELECT on the server; if the table had another structure at this position than in the schema "
    "history, rebuild the history with snapshot.mode=recovery; otherwise exclude the column (column.exclude.list)"
)


class RowPosition(NamedTuple):
    """Say where a decoder was when it failed: at this row or a later one.

    Args:
        pos: Offset of a row's first image.
        row: Number of the row.
        images: Images a row: 2 for UPDATE.
    """

    pos: int
    row: int
    images: int


class FailureLocator:
    """Find the row and column at which a decoder failed, by decoding again column by column.

    Args:
        table: The table.
        columns: Code of its columns.
        keys: Indexes of the key columns.
        size: Bytes of the bitmap of NULL columns.
        images: Decoders of one row image by bitmap.
    """

    def __init__(
        self,
        table: Table,
        columns: tuple[ColumnCode, ...],
        keys: tuple[int, ...],
        size: int,
        images: Mapping[bytes, Callable[[bytes, str, int], tuple[int, str, str]]],
    ) -> None:
        self._table, self._columns, self._keys, self._size, self._images = table, columns, keys, size, images

    def explain(self, error: Exception, data: bytes, position: RowPosition, ctx: EventContext) -> CdcError:
        """Return the error that names place, table, column and row.

        Args:
            error: What the generated code raised.
            data: Bytes of the rows.
            position: The first image to look at.
            ctx: Names the event.
        """
        pos, row, per_row = position
        if isinstance(error, CdcError):
            return error
        text = data.decode("latin-1")
        decoded_images = 0
        while pos < len(data):
            try:
                after, _, _ = self._images[data[pos : pos + self._size]](data, text, pos)
            except Exception as cause:
                error = cause
                break
            if after > len(data):
                break
            pos, decoded_images = after, decoded_images + 1
        else:
            return self._error("The rows of an event", error, row + decoded_images // per_row, "", ctx)
        column, key = self._failed_column(data, text, pos)
        what = f"A value of column {column}" if column else "A row"
        return self._error(what, error, row + decoded_images // per_row, key, ctx)

    def _error(self, what: str, error: Exception, row: int, key: str, ctx: EventContext) -> ValueDecodeError:
        location = f"{ctx.where}, table {self._table.id}, row {row}"
        return ValueDecodeError(
            f"{what} of table {self._table.id} cannot be decoded",
            where=location + (f", key {key}" if key else ""),
            why=f"{type(error).__name__}: {error}",
            remedy=CONVERTER_REMEDY if isinstance(error, ConverterError) else _REMEDY,
        )

    def _failed_column(self, data: bytes, text: str, pos: int) -> tuple[str, str]:
        """Return the first column that fails, and the key as far as it was read."""
        nulls = int.from_bytes(data[pos : pos + self._size], "little")
        pos += self._size
        key_values: dict[int, str] = {}
        for index, code in enumerate(self._columns):
            if nulls >> index & 1:
                if code.refuse_null is not None and (code.in_key or (code.in_value and code.constant is None)):
                    return code.name, self._key(key_values)
                key_values[index] = code.null
                continue
            try:
                pos, key_values[index] = self._read(code, data, text, pos)
                if pos > len(data):
                    raise IndexError("the value extends past the end of the event")
            except Exception:
                return code.name, self._key(key_values)
        return "", self._key(key_values)

    def _read(self, code: ColumnCode, data: bytes, text: str, pos: int) -> tuple[int, str]:
        emitter = Emitter({})
        bodies: list[str] = []
        emitter.column(code, bodies.append)
        emitter.finish()
        source = "\n ".join(["def run(b, t, p):", *emitter.lines, f"return p, f'{(bodies or ['?'])[0]}'"])
        exec(source, emitter.namespace)
        result: tuple[int, str] = emitter.namespace["run"](data, text, pos)
        return result

    def _key(self, key_values: Mapping[int, str]) -> str:
        parts = [f"{self._columns[i].name}={key_values[i]}" for i in self._keys if i in key_values]
        return ", ".join(parts).encode("latin-1", "replace").decode("utf-8", "replace")


def header_text(key: str, columns: list[Column], options: DecoderOptions) -> bytes:
    """Return a key as Connect's SimpleHeaderConverter prints a struct.

    Strings escape only quote and backslash; a Decimal, and a date or time of ``time.precision.mode=connect``, have
    no quotes.

    Args:
        key: The key's JSON, byte text.
        columns: Key columns in key order.
        options: Modes.

    Source: captured/dml, headers ``__debezium.newkey`` and ``__debezium.oldkey``.
    """
    values = parse_key(key)
    named = [(field_name(c.name, options.field_names), c) for c in columns]
    parts = [f"{quoted_header(name)}:{header_value(values[name], c, options)}" for name, c in named]
    return ("{" + ",".join(parts) + "}").encode("utf-8", "surrogatepass")


def parse_key(text: str) -> Any:
    """Return JSON of a key, or of a value in it, as ``header_value`` takes it.

    Args:
        text: The JSON, byte text.
    """
    return json.loads(text.encode("latin-1"), parse_float=_Number, parse_int=_Number)


class _Number(str):
    """A JSON number's text."""

    __slots__ = ()


def quoted_header(text: str) -> str:
    """Return a text as headers have it, between quotes."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def header_value(value: Any, column: Column, options: DecoderOptions) -> str:
    """Return a value of a key as headers have it.

    Args:
        value: Its JSON, parsed.
        column: Its column.
        options: Modes.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, _Number):
        unit = connect_date_unit(column, options)
        return value if unit is None else _java_date(int(value) * unit)
    if isinstance(value, str):
        if is_precise(column, options):
            return decimal_text(int.from_bytes(base64.b64decode(value), "big", signed=True), column.scale or 0)
        return quoted_header(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# Milliseconds of a unit of the types that Connect holds as java.util.Date.
_CONNECT_DATES = {"DATE": 86_400_000, "TIME": 1, "DATETIME": 1}


def connect_date_unit(column: Column, options: DecoderOptions) -> int | None:
    """Return the milliseconds of a unit of a column that Connect holds as java.util.Date; None for another column.

    Args:
        column: The column.
        options: Modes.
    """
    dates = options.time_mode == "connect" and options.custom(column) is None
    return _CONNECT_DATES.get(column.type_name) if dates else None


def _java_date(millis: int) -> str:
    """Return a java.util.Date as ``org.apache.kafka.connect.data.Values`` prints it in UTC.

    A time before the second day of the epoch is printed as a time of day.
    """
    days, day_millis = divmod(millis, 86_400_000)
    seconds, fraction = divmod(day_millis, 1000)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:03d}Z"
    if days < 1:
        return clock
    return f"{date_text(days)}T{clock}" if day_millis else date_text(days)


def is_precise(column: Column, options: DecoderOptions) -> bool:
    """Return whether Connect holds a column's values as java.math.BigDecimal.

    Args:
        column: The column.
        options: Modes.
    """
    if options.custom(column) is not None:
        return False
    if column.type_name == "DECIMAL":
        return options.decimal_mode == "precise"
    return column.type_name == "BIGINT" and column.unsigned and options.bigint_unsigned_mode == "precise"
