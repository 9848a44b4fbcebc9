"""Read a row value by value: find the readable values of a failed row, and where the next row begins.

Nothing here is on the path of rows that can be decoded, so one function serves every layout: full, MINIMAL and NOBLOB
images and partial JSON updates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from struct import calcsize
from typing import NamedTuple

from airflow_provider_mysql_cdc.cdc.binlog.rows_header import lenenc
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ColumnCode, Emitter, WireLayout
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.model.table import Table

PARTIAL_JSON = 1  # value option: the row may hold changes in place of JSON documents
_ReadValue = Callable[[bytes, str, int], tuple[int, str]]


class RowLayout(NamedTuple):
    """Describe the rows of one event.

    Args:
        images: Indexes of the columns present, for each image of a row.
        partial: Whether value options and bits precede after images (PARTIAL_UPDATE_ROWS).
    """

    images: tuple[tuple[int, ...], ...]
    partial: bool = False


def present_columns(bitmap: bytes, width: int) -> tuple[int, ...]:
    """Return the indexes of the columns present.

    Args:
        bitmap: Bitmap of present columns, column 0 in bit 0 of byte 0.
        width: Number of columns.
    """
    bits = int.from_bytes(bitmap, "little")
    return tuple(i for i in range(width) if bits >> i & 1)


def row_layout(bitmaps: bytes, width: int, images: int, *, partial: bool = False) -> RowLayout:
    """Return the shape that the bitmaps before the first row announce."""
    size = (width + 7) >> 3
    return RowLayout(
        tuple(present_columns(bitmaps[at : at + size], width) for at in range(0, size * images, size)), partial
    )


@dataclass(slots=True)
class PartialRow:
    """Hold what could be read of a row.

    Args:
        end: Offset after the row.
        images: For each image column name to JSON text (byte text) of the values that can be decoded.
        failed: Column name and cause of the values that cannot.
        key: JSON text of the key object (byte text), or None when a key column is absent or cannot be decoded.
    """

    end: int
    images: list[dict[str, str]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    key: str | None = None


def partial_json_columns(data: bytes, pos: int, columns: tuple[int, ...]) -> tuple[frozenset[int], int]:
    """Return the JSON columns that hold changes only, and the offset after value options and bits.

    Args:
        data: Bytes of the rows.
        pos: Offset of the value options.
        columns: Indexes of the table's JSON columns.

    Raises:
        ValueError: A value option is not known.
    """
    options, pos = lenenc(data, pos)
    if options & ~PARTIAL_JSON:
        raise ValueError(f"the row has value options {options:#x}, but only {PARTIAL_JSON:#x} is supported")
    if not options:
        return frozenset(), pos
    size = (len(columns) + 7) >> 3
    bits = int.from_bytes(data[pos : pos + size], "little")
    return frozenset(index for n, index in enumerate(columns) if bits >> n & 1), pos + size


class PartialRowDecoder:
    """Read rows of one table version value by value.

    Args:
        table: The table.
        columns: Code of its columns.
        keys: Indexes of the key columns in key order.
        extra_key_members: Members after them in every key.
    """

    def __init__(
        self, table: Table, columns: tuple[ColumnCode, ...], keys: tuple[int, ...], extra_key_members: str = ""
    ) -> None:
        self.table, self._columns, self._keys, self._extra_key_members = table, columns, keys, extra_key_members
        self._json_columns = tuple(i for i, column in enumerate(table.columns) if column.type_name == "JSON")
        self._readers: dict[int, _ReadValue] = {}

    def row(self, data: bytes, pos: int, layout: RowLayout) -> PartialRow:
        """Return what can be read of the row at ``pos``.

        Args:
            data: Bytes of the rows.
            pos: Offset of the row's first image.
            layout: Layout of the event's rows.

        Raises:
            ValueError: The row does not end inside the event: its structure is broken.
            IndexError: Likewise.
        """
        text = data.decode("latin-1")
        partial_row = PartialRow(pos)
        changed: frozenset[int] = frozenset()
        key_values: dict[int, str] = {}
        for number, present in enumerate(layout.images):
            if number and layout.partial:
                changed, pos = partial_json_columns(data, pos, self._json_columns)
            values: dict[int, str] = {}
            pos = self._image(data, text, pos, present, changed, values, partial_row.failed)
            key_values = (
                values | key_values
            )  # of two values the older one: the key of an update is that of the row it changes
            partial_row.images.append(
                {self._columns[i].name: self._event_text(i, v) for i, v in values.items() if self._columns[i].in_value}
            )
        partial_row.end = pos
        if self._keys and all(i in key_values for i in self._keys):
            partial_row.key = (
                "{"
                + ",".join(self._columns[i].label + key_values[i] for i in self._keys)
                + self._extra_key_members
                + "}"
            )
        return partial_row

    def _image(
        self,
        data: bytes,
        text: str,
        pos: int,
        present: tuple[int, ...],
        changed: frozenset[int],
        values: dict[int, str],
        failed: list[tuple[str, str]],
    ) -> int:
        size = (len(present) + 7) >> 3
        nulls = int.from_bytes(data[pos : pos + size], "little")
        pos += size
        for number, index in enumerate(present):
            code = self._columns[index]
            if nulls >> number & 1:
                if code.refuse_null is None:
                    values[index] = code.null
                else:
                    _convert_null(code, failed)
                continue
            end = pos + _width(code.wire, data, pos)
            if end > len(data):
                raise ValueError("a value extends past the end of the event")
            if index not in changed:
                try:
                    values[index] = self._reader(index)(data, text, pos)[1]
                except Exception as error:  # whatever a malformed value raises in generated code
                    hidden = code.constant is not None or code.change is not None or not code.in_value
                    failed.append((code.name, type(error).__name__ + ("" if hidden else f": {error}")))
            pos = end
        return pos

    def _event_text(self, index: int, text: str) -> str:
        """Return a value as events show it: masked, hashed or cut where the configuration says so."""
        code = self._columns[index]
        if code.constant is not None:
            return code.constant
        plain_null = code.convert is None and text == code.null
        return text if code.change is None or plain_null else code.change(text)

    def _reader(self, index: int) -> _ReadValue:
        read = self._readers.get(index)
        if read is None:
            emitter, bodies = Emitter({}), list[str]()
            emitter.column(self._columns[index], bodies.append)
            emitter.finish()
            source = "\n ".join(["def run(b, t, p):", *emitter.lines, f"return p, f'{(bodies or ['null'])[0]}'"])
            exec(source, emitter.namespace)  # source generated here from the table
            read = self._readers[index] = emitter.namespace["run"]
        return read


def _convert_null(code: ColumnCode, failed: list[tuple[str, str]]) -> None:
    try:
        if code.refuse_null is not None and (code.in_key or (code.in_value and code.constant is None)):
            code.refuse_null()
    except ValueError as error:
        failed.append((code.name, f"{type(error).__name__}: {error}"))


def _width(wire: WireLayout, data: bytes, pos: int) -> int:
    """Return the bytes of a value."""
    if not wire.prefix:
        return sum(calcsize("<" + fmt) for _, fmt in wire.fields)
    if pos + wire.prefix > len(data):
        raise ValueError("a length extends past the end of the event")
    return wire.prefix + int.from_bytes(data[pos : pos + wire.prefix], "little")


class RowFailure(NamedTuple):
    """Say what failed in a row.

    Args:
        column: The column, or empty when it is not one value.
        why: The cause.
        remedy: What to do.
    """

    column: str
    why: str
    remedy: str


def row_error(table: Table, failure: RowFailure, row: int, key: str | None, ctx: EventContext) -> ValueDecodeError:
    """Return the error that names place, table, column and row.

    Args:
        table: The table.
        failure: What failed.
        row: Number of the row in the event.
        key: JSON text of the row's key (byte text), or None.
        ctx: Names the event.
    """
    what = f"A value of column {failure.column}" if failure.column else "A row"
    location = f"{ctx.where}, table {table.id}, row {row}"
    return ValueDecodeError(
        f"{what} of table {table.id} cannot be decoded",
        where=location + (f", key {key_text(key)}" if key else ""),
        why=failure.why,
        remedy=failure.remedy,
    )


def key_text(key: str) -> str:
    """Return a key as ``name=value, ...``, for messages."""
    values: Mapping[str, object] = json.loads(key.encode("latin-1"))
    return ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in values.items())
