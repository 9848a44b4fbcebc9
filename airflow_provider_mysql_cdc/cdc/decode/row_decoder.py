"""Generate, per table version, the functions that turn row events into records.

Tables of one shape share their code (``table_shape``). A generated function reads rows as long as their bitmap of NULL
columns stays the same, because everything about a row's layout but the lengths of its variable parts follows from that
bitmap. Functions are made when a bitmap is first seen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.rows_header import full_bitmap
from airflow_provider_mysql_cdc.cdc.binlog.wire_types import WireType
from airflow_provider_mysql_cdc.cdc.decode.codegen.decode_error import Failure, Place, header_text
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Dialect
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.json_dialect import JSON
from airflow_provider_mysql_cdc.cdc.decode.codegen.null_bitmap_functions import ROW_ERRORS, Variants
from airflow_provider_mysql_cdc.cdc.decode.codegen.owned_keys import OwnedKeys
from airflow_provider_mysql_cdc.cdc.decode.codegen.row_image import Frame, PatternRows
from airflow_provider_mysql_cdc.cdc.decode.codegen.row_salvage import Salvage, shape_of
from airflow_provider_mysql_cdc.cdc.decode.codegen.table_shape import KEY_HEAD, KEY_TAIL, VALUE_HEAD, shape_of_table
from airflow_provider_mysql_cdc.cdc.decode.codegen.unavailable import unavailable
from airflow_provider_mysql_cdc.cdc.decode.row_functions import Buffer
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import to_byte_text
from airflow_provider_mysql_cdc.cdc.model.table import Table

Record = tuple[bytes | None, bytes | None, int, int, tuple[str, bytes] | None]
# (bytes, byte text, offset of the first bitmap, end, text before the row number, text after, row, out.append)
Run = Callable[[bytes, str, int, int, str, str, int, Callable[[Record], None]], tuple[int, int]]

_ALL_SET = b"\xff" * 1024  # twice 4096 columns
PATTERNS = 256  # MINIMAL has a pattern for each set of columns that statements change


def schema_wrap(schema: str | None) -> tuple[str, str]:
    """Return what stands before and after a payload, byte text."""
    if schema is None:
        return "", ""
    return f'{{"schema":{to_byte_text(schema)},"payload":', "}"


def key_indexes(table: Table, options: DecoderOptions) -> tuple[int, ...]:
    """Return the indexes of the event key's columns in key order, or empty."""
    names = table.key_columns() if options.key_columns is None else options.key_columns
    order = {column.name.lower(): index for index, column in enumerate(table.columns)}
    return tuple(order[name.lower()] for name in names)


class RowDecoder:
    """Decode the row events of one table version.

    Args:
        table: The table.
        wires: Wire types of its columns.
        options: Modes.
        envelope: Constant text around the rows.
        dialect: How records are put together.
        heads: What keys and values begin with; None for what ``envelope`` says.
        owned: Tells rows whose records are wanted; None for all. Of rows that leave columns out, and of updates that
            change the key, the others' records come as well.

    Raises:
        Declined: The dialect has no code for the table.
    """

    native = False
    """Whether the native kernel is asked first."""

    def __init__(
        self,
        table: Table,
        wires: tuple[WireType, ...],
        options: DecoderOptions,
        envelope: EnvelopeText,
        dialect: Dialect = JSON,
        heads: tuple[str, str] | None = None,
        owned: OwnedKeys | None = None,
    ) -> None:
        self.table, self._options, self._owned = table, options, owned
        self._keys = key_indexes(table, options)
        self._shape = shape_of_table(table.columns, self._keys, wires, options, envelope, dialect)
        self._columns, self._size, self._key_more = self._shape.columns, self._shape.size, self._shape.key_more
        self._key_wrap = schema_wrap(envelope.key_schema) if heads is None else (heads[0], "")
        self._value_wrap = schema_wrap(envelope.value_schema) if heads is None else (heads[1], "")
        self._after_row, self._dialect, self._number = dialect.after_row(options), dialect, dialect.number
        self._behind, self._foreign = {op: dialect.behind(op) for op in "cud"}, dialect.foreign
        # Without the schemas, which stand in what keys and values begin with: of many tables they are megabytes.
        self._envelope = EnvelopeText(None, None, envelope.null_text, envelope.insert_text)
        self._frame: Frame | None = None
        self._patterns: dict[tuple[str, bytes], PatternRows] = {}
        self._images = self._shape.images
        self._writes: Variants = Variants(partial(self._run, dialect.insert(), tombstone=False))
        self._deletes: Variants = Variants(partial(self._run, dialect.before, tombstone=options.tombstones))

    # -- the three functions of the contract --------------------------------------------------------------------

    def write(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[Any]) -> int:
        """Append the records of a WRITE_ROWS event.

        Args:
            buf: Bytes that hold the event.
            pos: Offset of the first row (``RowsHeader.pos``).
            end: Offset after the last row.
            ctx: Text around the rows.
            out: Gets ``(key, value, row, leg, header)`` a record; leg 1 is a tombstone, 2 the create of a key change.

        Returns:
            Number of rows.

        Raises:
            ValueDecodeError: A value cannot be decoded or represented.
        """
        return self._runs(self._writes, "c", buf, pos, end, ctx, out)

    def delete(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[Any]) -> int:
        """Append the records of a DELETE_ROWS event; arguments and errors as for ``write``."""
        return self._runs(self._deletes, "d", buf, pos, end, ctx, out)

    def update(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[Any]) -> int:
        """Append the records of an UPDATE_ROWS event; arguments and errors as for ``write``."""
        if "u" in self._options.skipped_ops:
            return 0
        data = bytes(buf[pos:end])
        if not self._complete(buf, pos, 2):
            return self._pattern("u", buf, pos, 2).update(data, ctx, out.append)
        text = data.decode("latin-1")
        images, size, keyed, every = self._images, self._size, bool(self._keys), self._owned is None
        before, last, p = 0, end - pos, 0
        row = first = ctx.first_row
        head, between, number = self._value_wrap[0] + self._dialect.before, self._dialect.after, self._number
        middle, tail = self._around(ctx, "u")
        key_head, key_tail = self._key_wrap
        append = out.append
        try:
            while p < last:
                before = p
                if not every and (stop := self._foreign_update(data, text, p)):
                    p, row = stop, row + 1
                    continue
                p, old_key, old = images[data[p : p + size]](data, text, p)
                p, new_key, new = images[data[p : p + size]](data, text, p)
                if old_key == new_key:
                    key = f"{key_head}{new_key}{key_tail}".encode("latin-1") if keyed else None
                    shown = row if number is None else number(row)
                    value = f"{head}{old}{between}{new}{middle}{shown}{tail}".encode("latin-1")
                    append((key, value, row, 0, None))
                else:
                    self._key_change((old_key, old), (new_key, new), row, ctx, append)
                row += 1
            if p != last:
                raise ValueError("the rows do not end where the event ends")
        except ROW_ERRORS as error:
            raise self._failure(error, data, Place(before, row, 2), ctx) from error
        return row - first

    def partial_update(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[Any]) -> int:
        """Append the records of a PARTIAL_UPDATE_ROWS event; arguments and errors as for ``write``."""
        if "u" in self._options.skipped_ops:
            return 0
        return self._pattern("p", buf, pos, 2).update(bytes(buf[pos:end]), ctx, out.append)

    def key_bytes(self, key: str | None) -> bytes | None:
        """Return a record key.

        Args:
            key: JSON text of its payload, byte text.
        """
        return None if key is None else f"{self._key_wrap[0]}{key}{self._key_wrap[1]}".encode("latin-1")

    def salvage(self) -> Salvage:
        """Return what reads rows of this table value by value."""
        return Salvage(self.table, self._columns, self._keys, self._key_more)

    # -- drivers ------------------------------------------------------------------------------------------------

    def _runs(
        self, variants: Variants, op: str, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[Any]
    ) -> int:
        if op in self._options.skipped_ops:
            return 0
        data = bytes(buf[pos:end])
        if not self._complete(buf, pos, 1):
            return self._pattern(op, buf, pos, 1).single(op, data, ctx, out.append)
        text = data.decode("latin-1")
        size, last, p = self._size, end - pos, 0
        row = first = ctx.first_row
        middle, tail = self._around(ctx, op)
        try:
            while p < last:
                p, row = variants[data[p : p + size]](data, text, p, last, middle, tail, row, out.append)
            if p != last:
                raise ValueError("the rows do not end where the event ends")
        except ROW_ERRORS as error:
            raise self._failure(error, data, Place(p, row, 1), ctx) from error
        return row - first

    def _foreign_update(self, data: bytes, text: str, pos: int) -> int:
        """Return the offset behind a row that keeps its key, and whose records are not wanted; 0 for any other."""
        keys, size = self._shape.key_images, self._size
        stop, old_key = keys[data[pos : pos + size]](data, text, pos)
        stop, key = keys[data[stop : stop + size]](data, text, stop)
        if key != old_key or self._owned is None:
            return 0
        return 0 if self._owned.owns(self.key_bytes(key) if self._keys else None) else stop

    def _around(self, ctx: EventContext, op: str) -> tuple[str, str]:
        """Return the text between the images and the row number, and the text after it."""
        middle = f"{self._behind[op]}{ctx.src_head}"
        tail = self._after_row(ctx, op) + self._value_wrap[1]
        if not self._foreign or (middle.isascii() and tail.isascii()):
            return middle, tail
        return to_byte_text(middle), to_byte_text(tail)

    def _complete(self, buf: Buffer, pos: int, images: int) -> bool:
        """Return whether every column is present in every image."""
        size = self._size
        bitmaps = buf[pos - size * images : pos]
        if bitmaps == _ALL_SET[: size * images]:  # the server sets the spare bits too
            return True
        full = int.from_bytes(full_bitmap(len(self._columns)), "little")
        starts = range(0, len(bitmaps), size)
        return not any(full & ~int.from_bytes(bitmaps[at : at + size], "little") for at in starts)

    def _pattern(self, op: str, buf: Buffer, pos: int, images: int) -> PatternRows:
        bitmaps = bytes(buf[pos - self._size * images : pos])
        found = self._patterns.get((op, bitmaps))
        if found is None:
            if len(self._patterns) >= PATTERNS:
                self._patterns.clear()
            shape = shape_of(bitmaps, len(self._columns), images, partial=op == "p")
            found = self._patterns[op, bitmaps] = PatternRows(self._frame_of(), shape, op == "c")
        return found

    def _frame_of(self) -> Frame:
        if self._frame is None:
            pairs = zip(self.table.columns, self._columns, strict=True)
            self._frame = Frame(
                table=self.table,
                columns=self._columns,
                keys=self._keys,
                key_more=self._key_more,
                absent=tuple(
                    unavailable(c, self._options, self._envelope, code.null, refused=code.refuse_null is not None)
                    for c, code in pairs
                ),
                tombstones=self._options.tombstones,
                key_wrap=self._key_wrap,
                value_wrap=self._value_wrap,
                around=self._around,
                key_change=self._key_change,
            )
        return self._frame

    def _key_change(
        self,
        before: tuple[str, str],
        after: tuple[str, str],
        row: int,
        ctx: EventContext,
        append: Callable[[Record], None],
    ) -> None:
        """Add delete, tombstone and create of an UPDATE that changes the key (EVT-28, EVT-29)."""
        head = self._value_wrap[0]
        (old_key, old), (new_key, new) = before, after
        columns = [self.table.columns[i] for i in self._keys]
        new_header, old_header = None, None
        if not self._options.flat:
            new_header = ("__debezium.newkey", header_text(new_key, columns, self._options))
            old_header = ("__debezium.oldkey", header_text(old_key, columns, self._options))
        old_bytes = f"{self._key_wrap[0]}{old_key}{self._key_wrap[1]}".encode("latin-1")
        new_bytes = f"{self._key_wrap[0]}{new_key}{self._key_wrap[1]}".encode("latin-1")
        middle, tail = self._around(ctx, "d")
        append((old_bytes, f'{head}{{"before":{old}{middle}{row}{tail}'.encode("latin-1"), row, 0, new_header))
        if self._options.tombstones:
            append((old_bytes, None, row, 1, new_header))
        middle, tail = self._around(ctx, "c")
        value = f'{head}{{"before":null,"after":{new}{middle}{row}{tail}'
        append((new_bytes, value.encode("latin-1"), row, 2, old_header))

    def _failure(self, error: Exception, data: bytes, place: Place, ctx: EventContext) -> Exception:
        return Failure(self.table, self._columns, self._keys, self._size, self._images).explain(error, data, place, ctx)

    def _run(self, start: str, bitmap: bytes | None, *, tombstone: bool) -> Run:
        texts = {KEY_HEAD: self._key_wrap[0], KEY_TAIL: self._key_wrap[1], VALUE_HEAD: self._value_wrap[0]}
        made: Run = self._shape.run(start, bitmap, tombstone=tombstone, texts=texts, owned=self._owned)
        return made
