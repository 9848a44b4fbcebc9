"""Rows without change events around them, as ``ExtractNewRecordState`` writes them, and the text after their fields."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from airflow_provider_mysql_cdc.cdc.avro.avro_columns import FallbackToJson
from airflow_provider_mysql_cdc.cdc.binlog.table_map import WireType
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps, quote_or_null
from airflow_provider_mysql_cdc.cdc.decode import native_text
from airflow_provider_mysql_cdc.cdc.decode.codegen.decode_error import RowPosition
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText, EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import JSON, AfterRow, Declined, Dialect
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ROW_ERRORS, ColumnCode, ObjectDelimiters, literal
from airflow_provider_mysql_cdc.cdc.decode.native_rows import ColumnPlan, NativeRowFormat, event_plan, json_column_plan
from airflow_provider_mysql_cdc.cdc.decode.native_text import NativeTextFormat
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import (
    COMMIT_TIME,
    CURRENT_TIME,
    JSON_MARK,
    MarkedContext,
    mark,
)
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import Buffer
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import quote
from airflow_provider_mysql_cdc.cdc.emit import source_block
from airflow_provider_mysql_cdc.cdc.emit.source_block import EVENT_MEMBERS, SourceBlock, change_time
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import CHANGE, TOMBSTONE, AddedHeaders, RowRecord
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from airflow_provider_mysql_cdc.cdc.transforms import unwrap
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import RecordSchema
from airflow_provider_mysql_cdc.cdc.transforms.unwrap import EventMember

OPERATION = "\x01"
"""Stands for the operation in a text; JSON contains no such character."""
_NO_VALUE = "\x03"
"""Stands for null in the text of a header."""
_OUTER_MEMBERS = {
    "ts_ms": "{ns // 1000000}",
    "ts_us": "{ns // 1000}",
    "ts_ns": "{ns}",
}
_ARGUMENTS = "ts_us, snapshot, server_id, gtid, file, pos, thread, query, ns"
EventText = Callable[..., str]


@dataclass(frozen=True, slots=True)
class UnwrappedSource:
    """Write the texts of a table's events.

    Args:
        plain: The writer of the source block of the same events.
        fields: Function of ``_ARGUMENTS`` that returns the fields that rows get, each with a comma before it.
        headers: Function of the operation and ``_ARGUMENTS`` that returns what headers are added; None for none.
        differs: Whether fields differ from event to event.
    """

    plain: SourceBlock
    fields: EventText
    headers: Callable[..., AddedHeaders] | None
    differs: bool = True


def unwrapped_source(
    plain: SourceBlock, table: TableId, prefix: str, fields: Sequence[EventMember], headers: Sequence[EventMember]
) -> UnwrappedSource:
    """Return the writer of a table's texts.

    Args:
        plain: The writer of its source blocks.
        table: The table.
        prefix: ``topic.prefix``.
        fields: Members of the event that become fields.
        headers: Members that become headers.

    Raises:
        Declined: One of them is neither of the source block nor of the event itself.
    """
    constants = source_block.source_constants(plain.layout, table, prefix)
    quoted, raw = constants | {"op": f'"{OPERATION}"'}, {name: orjson.loads(text) for name, text in constants.items()}
    if any(member.field == "query" for member in headers):
        raise Declined("a header is a statement")
    raw |= {"op": OPERATION, "sequence": _NO_VALUE}
    texts = "".join(f",{literal(quote(member.new_name))}:{_expression(member, quoted)}" for member in fields)
    added = "".join(f"({member.new_name!r}, {_header(_expression(member, raw))})," for member in headers)
    return UnwrappedSource(plain, _function(texts), _header_function(added) if headers else None, bool(fields))


def _header(text: str) -> str:
    """Return the expression of a header's value, which is null where the f-string's text says so."""
    if text in (literal(_NO_VALUE), "{snapshot}"):
        return "None"
    encoded = "op" if text == literal(OPERATION) else f"f'{text}'.encode()"
    return f"{encoded} if {text[1:-1]} else None" if text in ("{gtid}", "{thread}") else encoded


def _expression(member: EventMember, constants: dict[str, str]) -> str:
    """Return the body of an f-string that writes a member."""
    if member.struct == "transaction":  # there is none without transaction metadata
        return literal(constants["sequence"])
    if member.struct == "source" and member.is_inside:
        # A row's number differs within the event.
        text = None if member.field == "row" else EVENT_MEMBERS.get(member.field)
        constant = constants.get(member.field)
        text = literal(constant) if text is None and constant is not None else text
    else:
        text = _OUTER_MEMBERS.get(member.field) if member.struct in (None, "source") else None
        text = literal(constants["op"]) if member.field == "op" and member.struct in (None, "source") else text
    if text is None:
        raise Declined(f"{member.new_name} is {member.field} of {member.struct or 'the event'}")
    return text


def _function(text: str) -> EventText:
    function: EventText = eval(f"lambda {_ARGUMENTS}: f'{text}'")  # members are literals; expressions from the tables
    return function


def _header_function(pairs: str) -> Callable[..., AddedHeaders]:
    function: Callable[..., AddedHeaders] = eval(f"lambda op, {_ARGUMENTS}: AddedHeaders(({pairs}))")
    return function


class SnapshotTexts:
    """Write the texts of the rows of a snapshot of one table; see ``avro_rows.SnapshotSource``.

    Args:
        block: The table's.
    """

    def __init__(self, block: UnwrappedSource) -> None:
        self._block, self._given = block, tuple[Any, ...]()

    def fill(
        self, ctx: EventContext, offset: BinlogOffset, ts_ms: int, marker: str, last: tuple[int, str | None] = (0, None)
    ) -> None:
        """Set the texts of rows; arguments as for ``source_block.fill_snapshot``."""
        plain = self._block.plain
        snapshot = dumps(plain.layout.snapshot_value(marker, typed=plain.typed))
        place = last[0], quote_or_null(last[1]), dumps(offset.file), offset.pos
        self._given = ts_ms * 1000, snapshot, *place, "null", "null"
        ctx.src_head = ctx.src_tail = ""
        ctx.where = f"{offset.file}:{offset.pos}"
        ctx.plain = source_block.fill_snapshot, plain, offset, ts_ms, marker, last

    def op_tail(self, ns: int) -> str:
        """Return the fields of rows at a time in nanoseconds, after ``fill``."""
        return self._block.fields(*self._given, ns)

    @property
    def marked_tail(self) -> str:
        """The same with marks in place of times, for the native kernel."""
        return self._block.fields(*self._given, CURRENT_TIME)


def fill(
    ctx: EventContext,
    block: UnwrappedSource,
    event: source_block.RowEvent,
    transaction: source_block.SourceTransaction,
) -> None:
    """Set the texts of the rows of one streamed event, and what their headers are made of.

    Args:
        ctx: The decoder's context; ``as_json`` returns the whole source block.
        block: The table's.
        event: The row event.
        transaction: The transaction around it.
    """
    ctx.src_head = ctx.src_tail = ctx.tail = ""
    file, pos = event.file, event.start_pos
    ctx.where = f"{file}:{pos}"
    ctx.plain = source_block.fill, block.plain, event, transaction
    if not block.differs and block.headers is None:
        return
    us, server, ns = change_time(block.plain.layout, event, transaction), event.server_id, time.time_ns()
    gtid, thread = transaction.gtid, transaction.thread
    if block.differs:
        query = transaction.query if block.plain.include_query else None
        gtid_text = "null" if gtid is None else f'"{gtid}"'
        ctx.src_tail = block.fields(
            us, "null", server, gtid_text, f'"{file}"', pos, thread or "null", quote_or_null(query), ns
        )
    if block.headers is not None:
        ctx.headers = us, None, server, gtid, file, pos, thread, None, ns


def marked_context(block: UnwrappedSource) -> MarkedContext:
    """Return the texts with marks in place of what differs from event to event, for the native kernel.

    Args:
        block: The table's.
    """
    places = (mark(name) for name in ("server", "gtid", "file", "position", "thread"))
    text = block.fields(COMMIT_TIME, "null", *places, "null", CURRENT_TIME)
    return MarkedContext(EventContext("", text, ""))


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
