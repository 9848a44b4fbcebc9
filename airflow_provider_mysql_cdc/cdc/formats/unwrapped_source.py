"""The text after the fields of rows that ``ExtractNewRecordState`` unwraps: members of their change events."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps, quote_or_null
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import literal
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import COMMIT_TIME, CURRENT_TIME, MarkedContext, mark
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import quote
from airflow_provider_mysql_cdc.cdc.emit import source_block
from airflow_provider_mysql_cdc.cdc.emit.source_block import EVENT_MEMBERS, SourceBlock, change_time
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import AddedHeaders
from airflow_provider_mysql_cdc.cdc.model.table import TableId
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
