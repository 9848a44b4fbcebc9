"""Generate, per table version, the functions that turn row events into records.

Tables of one shape share their code (``table_shape``). A generated function reads rows as long as their bitmap of NULL
columns stays the same, because everything about a row's layout but the lengths of its variable parts follows from that
bitmap. A function is generated when its bitmap is first seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial

from airflow_provider_mysql_cdc.cdc.binlog.rows_header import full_bitmap
from airflow_provider_mysql_cdc.cdc.binlog.table_map import WireType
from airflow_provider_mysql_cdc.cdc.decode.codegen.decode_error import FailureLocator, RowPosition, header_text
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import (
    NULLED,
    DecoderOptions,
    EnvelopeText,
    EventContext,
)
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import JSON, Dialect, schema_wrapper
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ROW_ERRORS, NullBitmapFunctions
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_indexes
from airflow_provider_mysql_cdc.cdc.decode.codegen.row_image import ImageContext, RowImageDecoder
from airflow_provider_mysql_cdc.cdc.decode.codegen.row_salvage import PartialRowDecoder, row_layout
from airflow_provider_mysql_cdc.cdc.decode.codegen.table_shape import (
    KEY_PREFIX,
    KEY_SUFFIX,
    VALUE_PREFIX,
    OwnedKeys,
    TableShape,
    shared_table_shape,
)
from airflow_provider_mysql_cdc.cdc.decode.codegen.unavailable import unavailable
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import Buffer
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import to_byte_text
from airflow_provider_mysql_cdc.cdc.model.records import CHANGE, NEW_KEY, TOMBSTONE, RowRecord
from airflow_provider_mysql_cdc.cdc.model.table import Table

# (bytes, byte text, offset of the first bitmap, end, text before the row number, text after, row, out.append)
DecodeRun = Callable[[bytes, str, int, int, str, str, int, Callable[[RowRecord], None]], tuple[int, int]]

_ALL_PRESENT = b"\xff" * 1024  # twice 4096 columns
MAX_PATTERNS = 256  # MINIMAL has a pattern for each set of columns that statements change


class RowDecoder:
    """Decode the row events of one table version.

    Args:
        table: The table.
        wires: Wire types of its columns.
        options: Modes.
        envelope: Constant text around the rows.
        dialect: How records are assembled.
        prefixes: Text that keys and values begin with; None for the schemas of ``envelope``.
        owned: Selects the rows whose records are produced; None for all. Rows that leave columns out, and updates that
            change the key, are decoded whatever their key.
        refusal: Makes the exception for events with rows that fail or leave columns out, of the error or None; None to
            decode such rows and to raise ``ValueDecodeError``.

    Raises:
        Declined: The dialect has no code for the table.
    """

    native = False
    """Whether the native kernel decodes first; see ``NativeRowDecoder``."""
    writes_deletes = True
    """Whether deletes have a record before their tombstone."""
    unwrapped: bool | None = None
    """Where values are rows alone, and those of updates the row after it: whether deletes have theirs."""

    def __init__(
        self,
        table: Table,
        wires: tuple[WireType, ...],
        options: DecoderOptions,
        envelope: EnvelopeText,
        dialect: Dialect = JSON,
        prefixes: tuple[str, str] | None = None,
        owned: OwnedKeys | None = None,
        refusal: Callable[[Exception | None], Exception] | None = None,
    ) -> None:
        self.table, self.options, self.owned, self._refusal = table, options, owned, refusal
        self.keys = key_indexes(table, options)
        self._shape = shared_table_shape(table.columns, self.keys, wires, options, envelope, dialect)
        self._find_json_shape = partial(shared_table_shape, table.columns, self.keys, wires, options, envelope)
        self.columns, self._size, self.extra_key_members = (
            self._shape.columns,
            self._shape.size,
            self._shape.extra_key_members,
        )
        self.key_wrapper = schema_wrapper(envelope.key_schema) if prefixes is None else (prefixes[0], "")
        self.value_wrapper = schema_wrapper(envelope.value_schema) if prefixes is None else (prefixes[1], "")
        self._after_row, self.dialect, self._number = dialect.after_row(options), dialect, dialect.number
        self._before_source, self._needs_byte_text = (
            {op: dialect.before_source(op) for op in "cud"},
            dialect.needs_byte_text,
        )
        self._image_context: ImageContext | None = None
        self._image_decoders: dict[tuple[str, bytes], RowImageDecoder] = {}
        self._images = self._shape.images
        self._writes: NullBitmapFunctions = NullBitmapFunctions(
            partial(self._make_run, dialect.insert(), tombstone=False)
        )
        self._deletes: NullBitmapFunctions = NullBitmapFunctions(
            partial(self._make_run, dialect.before, tombstone=options.tombstones)
        )

    @property
    def writes(self) -> NullBitmapFunctions:
        """Return the functions (``DecodeRun``) that read inserted rows with all columns, by their bitmap of NULLs."""
        return self._writes

    @cached_property
    def json_shape(self) -> TableShape:
        """The code of the columns as JSON, from which headers are made."""
        return self._shape if self.dialect is JSON else self._find_json_shape()

    @property
    def bitmap_size(self) -> int:
        """Return the bytes of a bitmap of NULLs."""
        return self._size

    # -- the three functions of the contract --------------------------------------------------------------------

    def write(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of a WRITE_ROWS event.

        Args:
            buf: Bytes that hold the event.
            pos: Offset of the first row (``RowsHeader.pos``).
            end: Offset after the last row.
            ctx: Text around the rows.
            out: Gets the records.

        Returns:
            Number of rows.

        Raises:
            ValueDecodeError: A value cannot be decoded or represented.
        """
        return self._decode_runs(self._writes, "c", buf, pos, end, ctx, out)

    def delete(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of a DELETE_ROWS event; arguments and errors as for ``write``."""
        return self._decode_runs(self._deletes, "d", buf, pos, end, ctx, out)

    def update(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of an UPDATE_ROWS event; arguments and errors as for ``write``."""
        if "u" in self.options.skipped_ops:
            return 0
        data = bytes(buf[pos:end])
        if not self._images_complete(buf, pos, 2):
            return self._image_decoder("u", buf, pos, 2).update(data, ctx, out.append)
        text = data.decode("latin-1")
        images, size, keyed, all_owned = self._images, self._size, bool(self.keys), self.owned is None
        before, last, p = 0, end - pos, 0
        row = first = ctx.first_row
        prefix, after, number = self.value_wrapper[0] + self.dialect.before, self.dialect.after, self._number
        middle, tail = self.row_texts(ctx, "u")
        key_prefix, key_suffix = self.key_wrapper
        append = out.append
        try:
            while p < last:
                before = p
                if not all_owned and (stop := self._unowned_update_end(data, text, p)):
                    p, row = stop, row + 1
                    continue
                second, old_key, old = images[data[p : p + size]](data, text, p)
                p, new_key, new = images[data[second : second + size]](data, text, second)
                if old_key == new_key:
                    key = f"{key_prefix}{new_key}{key_suffix}".encode("latin-1") if keyed else None
                    row_text = row if number is None else number(row)
                    value = f"{prefix}{old}{after}{new}{middle}{row_text}{tail}".encode("latin-1")
                    append((key, value, row, CHANGE, None, None))
                else:
                    json_keys = () if self.dialect is JSON else self._json_keys(data, text, (before, second))
                    self._key_change((old_key, old), (new_key, new), row, ctx, append, json_keys)
                row += 1
            if p != last:
                raise ValueError("the rows do not end where the event ends")
        except ROW_ERRORS as error:
            raise self._failure(error, data, RowPosition(before, row, 2), ctx) from error
        return row - first

    def partial_update(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of a PARTIAL_UPDATE_ROWS event; arguments and errors as for ``write``."""
        if "u" in self.options.skipped_ops:
            return 0
        return self._image_decoder("p", buf, pos, 2).update(bytes(buf[pos:end]), ctx, out.append)

    def key_bytes(self, key: str | None) -> bytes | None:
        """Return a record key.

        Args:
            key: JSON text of its payload, byte text.
        """
        return None if key is None else f"{self.key_wrapper[0]}{key}{self.key_wrapper[1]}".encode("latin-1")

    def partial_decoder(self) -> PartialRowDecoder:
        """Return the decoder that reads rows of this table value by value."""
        return PartialRowDecoder(self.table, self.columns, self.keys, self.extra_key_members)

    # -- drivers ------------------------------------------------------------------------------------------------

    def _decode_runs(
        self,
        variants: NullBitmapFunctions,
        op: str,
        buf: Buffer,
        pos: int,
        end: int,
        ctx: EventContext,
        out: list[RowRecord],
    ) -> int:
        if op in self.options.skipped_ops:
            return 0
        data = bytes(buf[pos:end])
        if not self._images_complete(buf, pos, 1):
            return self._image_decoder(op, buf, pos, 1).write_or_delete(op, data, ctx, out.append)
        text = data.decode("latin-1")
        size, last, p = self._size, end - pos, 0
        row = first = ctx.first_row
        middle, tail = self.row_texts(ctx, op)
        try:
            while p < last:
                p, row = variants[data[p : p + size]](data, text, p, last, middle, tail, row, out.append)
            if p != last:
                raise ValueError("the rows do not end where the event ends")
        except ROW_ERRORS as error:
            raise self._failure(error, data, RowPosition(p, row, 1), ctx) from error
        return row - first

    def _unowned_update_end(self, data: bytes, text: str, pos: int) -> int:
        """Return the offset after a row that keeps its key and whose records are not produced; 0 for any other."""
        keys, size = self._shape.key_images, self._size
        stop, old_key = keys[data[pos : pos + size]](data, text, pos)
        stop, key = keys[data[stop : stop + size]](data, text, stop)
        if key != old_key or self.owned is None:
            return 0
        return 0 if self.owned.owns(self.key_bytes(key) if self.keys else None) else stop

    def row_texts(self, ctx: EventContext, op: str) -> tuple[str, str]:
        """Return the text between the images and the row number, and the text after it, byte text.

        Args:
            ctx: Text around the rows.
            op: Operation letter.
        """
        middle = f"{self._before_source[op]}{ctx.src_head}"
        tail = self._after_row(ctx, op) + self.value_wrapper[1]
        if not self._needs_byte_text or (middle.isascii() and tail.isascii()):
            return middle, tail
        return to_byte_text(middle), to_byte_text(tail)

    def _images_complete(self, buf: Buffer, pos: int, images: int) -> bool:
        """Return whether every column is present in every image."""
        size = self._size
        bitmaps = buf[pos - size * images : pos]
        if bitmaps == _ALL_PRESENT[: size * images]:  # the server sets the spare bits too
            return True
        full = int.from_bytes(full_bitmap(len(self.columns)), "little")
        starts = range(0, len(bitmaps), size)
        return not any(full & ~int.from_bytes(bitmaps[at : at + size], "little") for at in starts)

    def _image_decoder(self, op: str, buf: Buffer, pos: int, images: int) -> RowImageDecoder:
        if self._refusal is not None:
            raise self._refusal(None)
        bitmaps = bytes(buf[pos - self._size * images : pos])
        decoder = self._image_decoders.get((op, bitmaps))
        if decoder is None:
            if len(self._image_decoders) >= MAX_PATTERNS:
                self._image_decoders.clear()
            shape = row_layout(bitmaps, len(self.columns), images, partial=op == "p")
            decoder = self._image_decoders[op, bitmaps] = RowImageDecoder(self._make_image_context(), shape, op == "c")
        return decoder

    def _make_image_context(self) -> ImageContext:
        if self._image_context is None:
            pairs = zip(self.table.columns, self.columns, strict=True)
            self._image_context = ImageContext(
                table=self.table,
                columns=self.columns,
                keys=self.keys,
                extra_key_members=self.extra_key_members,
                absent=tuple(
                    unavailable(c, self.options, code.null, null_refused=code.refuse_null is not None)
                    for c, code in pairs
                ),
                tombstones=self.options.tombstones,
                key_wrapper=self.key_wrapper,
                value_wrapper=self.value_wrapper,
                row_texts=self.row_texts,
                key_change=self._key_change,
            )
        return self._image_context

    def _json_keys(self, data: bytes, text: str, starts: tuple[int, int]) -> list[str]:
        """Return the JSON of the keys of images."""
        keys, size, noted = self.json_shape.key_images, self._size, len(NULLED.values)
        found = [keys[data[at : at + size]](data, text, at)[1] for at in starts]
        del NULLED.values[noted:]  # those of the images are noted
        return found

    def _key_change(
        self,
        before: tuple[str, str],
        after: tuple[str, str],
        row: int,
        ctx: EventContext,
        append: Callable[[RowRecord], None],
        json_keys: Sequence[str] = (),
    ) -> None:
        """Add delete, tombstone and create of an UPDATE that changes the key (EVT-28, EVT-29)."""
        prefix, dialect = self.value_wrapper[0], self.dialect
        (old_key, old), (new_key, new) = before, after
        columns, (old_json, new_json) = [self.table.columns[i] for i in self.keys], json_keys or (old_key, new_key)
        new_header, old_header = None, None
        if not self.options.flat:
            new_header = ("__debezium.newkey", header_text(new_json, columns, self.options))
            old_header = ("__debezium.oldkey", header_text(old_json, columns, self.options))
        old_bytes = f"{self.key_wrapper[0]}{old_key}{self.key_wrapper[1]}".encode("latin-1")
        new_bytes = f"{self.key_wrapper[0]}{new_key}{self.key_wrapper[1]}".encode("latin-1")
        number = row if self._number is None else self._number(row)
        middle, tail = self.row_texts(ctx, "d")
        value = f"{prefix}{dialect.before}{old}{middle}{number}{tail}"
        append((old_bytes, value.encode("latin-1"), row, CHANGE, new_header, None))
        if self.options.tombstones:
            append((old_bytes, None, row, TOMBSTONE, new_header, None))
        middle, tail = self.row_texts(ctx, "c")
        value = f"{prefix}{dialect.insert()}{new}{middle}{number}{tail}"
        append((new_bytes, value.encode("latin-1"), row, NEW_KEY, old_header, None))

    def _failure(self, error: Exception, data: bytes, position: RowPosition, ctx: EventContext) -> Exception:
        if self._refusal is not None:
            return self._refusal(error)
        return FailureLocator(self.table, self.columns, self.keys, self._size, self._images).explain(
            error, data, position, ctx
        )

    def _make_run(self, start: str, bitmap: bytes | None, *, tombstone: bool) -> DecodeRun:
        texts = {
            KEY_PREFIX: self.key_wrapper[0],
            KEY_SUFFIX: self.key_wrapper[1],
            VALUE_PREFIX: self.value_wrapper[0],
        }
        decode_run: DecodeRun = self._shape.run(start, bitmap, tombstone=tombstone, texts=texts, owned=self.owned)
        return decode_run
