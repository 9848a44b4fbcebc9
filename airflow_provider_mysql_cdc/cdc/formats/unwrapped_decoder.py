"""The decoder of rows without change events around them, as ``ExtractNewRecordState`` writes them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro.avro_row_decoder import FallbackToJson
from airflow_provider_mysql_cdc.cdc.binlog.wire_types import WireType
from airflow_provider_mysql_cdc.cdc.decode import native_text
from airflow_provider_mysql_cdc.cdc.decode.codegen.decode_error import RowPosition
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import AfterRow, Dialect
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ColumnCode, ObjectDelimiters
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.json_dialect import JSON
from airflow_provider_mysql_cdc.cdc.decode.codegen.null_bitmap_functions import ROW_ERRORS
from airflow_provider_mysql_cdc.cdc.decode.native_rows import ColumnPlan, NativeRowFormat, event_plan, json_column_plan
from airflow_provider_mysql_cdc.cdc.decode.native_text import NativeTextFormat
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import JSON_MARK
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.decode.row_functions import Buffer
from airflow_provider_mysql_cdc.cdc.formats.unwrapped_source import OPERATION
from airflow_provider_mysql_cdc.cdc.model.records import CHANGE, TOMBSTONE, AddedHeaders, RowRecord
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table
from airflow_provider_mysql_cdc.cdc.transforms import unwrap
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import RecordSchema
from airflow_provider_mysql_cdc.cdc.transforms.unwrap import EventMember


def _refuse_null() -> str:
    raise ValueError("NULL in a column that must not be NULL, at which a converter stops")


def _column_codes(columns: tuple[Column, ...], *given: Any) -> tuple[ColumnCode, ...]:
    """Return the code of columns; arguments as for ``MakeColumnCodes``."""
    codes = zip(columns, JSON.codes(columns, *given), strict=True)
    return tuple(code if column.nullable else replace(code, refuse_null=_refuse_null) for column, code in codes)


def _column_plan(column: Column, wire: WireType, code: ColumnCode, options: DecoderOptions) -> ColumnPlan:
    """Return how the kernel reads and writes a column; arguments as for ``json_column_plan``."""
    label, null, *others = json_column_plan(column, wire, replace(code, refuse_null=None), options)
    return label, null if column.nullable else None, *others  # type: ignore[return-value]


def _dialect(*, rewrites: bool) -> Dialect:
    def after_row(ctx: EventContext, op: str) -> str:
        deleted = f',"{unwrap.DELETED_FIELD}":"{"true" if op == "d" else "false"}"' if rewrites else ""
        return f"{deleted}{(ctx.src_tail + ctx.tail).replace(OPERATION, op)}}}"

    after: AfterRow = after_row
    image = ObjectDelimiters("{", ",", "")
    texts = dict.fromkeys(("before", "after", "null", "source", "row"), "")
    return replace(JSON, codes=_column_codes, after_row=lambda options: after, image=image, **texts)  # type: ignore[arg-type]


_UNWRAPPED, _REWRITTEN = _dialect(rewrites=False), _dialect(rewrites=True)
NATIVE_TEXT = {
    dialect: NativeTextFormat(dialect, JSON_MARK, native_text.json_column_plan, "table", "unwrapped")
    for dialect in (_UNWRAPPED, _REWRITTEN)
}
NATIVE_ROWS = NativeRowFormat(lambda *given: event_plan(_column_plan, *given), "unwrapped")


@dataclass(frozen=True, slots=True)
class UnwrappedForm:
    """Say what a chain makes of the events of one table version.

    Args:
        schema: Schema of rows.
        mode: What becomes of deletes (``delete.tombstone.handling.mode``).
        deleted: Value of a delete where that is no row.
        fields: Members of the event that become fields.
        headers: Members that become headers.
        tombstone_headers: Headers of tombstones.
        replaces_null: Whether the transform writes NULL as the column's default.
    """

    schema: RecordSchema
    mode: str
    deleted: bytes | None
    fields: tuple[EventMember, ...]
    headers: tuple[EventMember, ...]
    tombstone_headers: AddedHeaders
    replaces_null: bool

    @property
    def rewrites(self) -> bool:
        """Whether deletes are rows."""
        return self.mode in (unwrap.REWRITE, unwrap.REWRITE_WITH_TOMBSTONE)

    @property
    def dialect(self) -> Dialect:
        """How records are assembled."""
        return _REWRITTEN if self.rewrites else _UNWRAPPED


class UnwrappedRowDecoder(RowDecoder):
    """Decode complete row images with unchanged keys; other events are refused.

    Args:
        table: The table.
        wires: Wire types of its columns.
        options: Modes; ``tombstones`` is about those that are left behind the transform.
        envelope: Constant text around rows.
        form: What rows become.
    """

    def __init__(
        self, table: Table, wires: tuple[WireType, ...], options: DecoderOptions, envelope: EnvelopeText,
        form: UnwrappedForm,
    ) -> None:  # fmt: skip
        super().__init__(table, wires, options, envelope, form.dialect, refusal=FallbackToJson)
        self.unwrapped, self.writes_deletes = form.rewrites, form.mode != unwrap.DELETE_TO_TOMBSTONE
        self._deleted = form.deleted or b""

    def row_texts(self, ctx: EventContext, op: str) -> tuple[str, str]:
        """Return the texts after a row; see ``RowDecoder``."""
        if op == "d" and not self.unwrapped:
            return self._deleted.decode("latin-1"), ""
        return "", super().row_texts(ctx, op)[1]  # the context's head is of headers

    def update(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of an UPDATE_ROWS event; arguments and errors as for ``write``."""
        return self._decode_keyed("u", buf, pos, end, ctx, out)

    def delete(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of a DELETE_ROWS event; arguments and errors as for ``write``."""
        decode = super().delete if self.unwrapped else self._decode_deletes
        return decode(buf, pos, end, ctx, out)

    def _decode_deletes(self, *event: Any) -> int:
        return self._decode_keyed("d", *event)

    def _decode_keyed(self, op: str, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of rows of whose first image only the key is read."""
        if op in self.options.skipped_ops:
            return 0
        data, images = bytes(buf[pos:end]), 2 if op == "u" else 1
        if not self._images_complete(buf, pos, images):
            raise FallbackToJson
        text, size, keys, rows = data.decode("latin-1"), self._size, self._shape.key_images, self._images
        prefix, tail = self.value_wrapper[0], self.row_texts(ctx, op)[1]
        row = first = ctx.first_row
        p = before = 0
        try:
            while p < len(data):
                before = p
                p, old_key = keys[data[p : p + size]](data, text, p)
                key = self.key_bytes(old_key) if self.keys else None
                if images == 2:
                    p, new_key, image = rows[data[p : p + size]](data, text, p)
                    if new_key != old_key:
                        raise FallbackToJson
                    out.append((key, f"{prefix}{image}{tail}".encode("latin-1"), row, CHANGE, None, None))
                elif self.writes_deletes:
                    out.append((key, self._deleted, row, CHANGE, None, None))
                else:
                    out.append((key, None, row, TOMBSTONE, None, None))
                row += 1
            if p != len(data):
                raise ValueError("the rows do not end where the event ends")
        except ROW_ERRORS as error:
            raise self._failure(error, data, RowPosition(before, row, images), ctx) from error
        return row - first
