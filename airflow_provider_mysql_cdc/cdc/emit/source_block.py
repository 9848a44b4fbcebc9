"""The source block of events as text: what is constant per table is joined once, the rest is filled in per event.

A block is one text around the row number: ``head`` ends in ``"row":`` and ``tail`` begins after the number. The order
of the members comes from the contract's table, so every contract uses the same code (DB2-17); what differs between
connectors is how they write a position in the source's log: ``fill`` for MySQL, ``fill_lsn`` for Db2.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import CodeType
from typing import Any, Protocol

from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps, quote_or_null
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import UnnumberedRow
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import NO_TRANSACTION
from airflow_provider_mysql_cdc.cdc.decode.values.temporal import Memo
from airflow_provider_mysql_cdc.cdc.emit.contracts import Contract, contract
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId


class SourceContext(Protocol):
    """The members of ``decode.codegen.decoder_options.EventContext`` that are set here."""

    src_head: str
    src_tail: str
    tail: str
    where: str
    first_row: int
    plain: tuple[Any, ...] | None


class RowEvent(Protocol):
    """The members of a binlog event that the source block shows (``binlog.stream.Event`` fits)."""

    @property
    def timestamp(self) -> int:
        """Seconds since the epoch at the statement's start."""

    @property
    def server_id(self) -> int:
        """Id of the server that wrote the event."""

    @property
    def file(self) -> str:
        """Binlog file."""

    @property
    def start_pos(self) -> int:
        """Position of the event; inside a compressed transaction that of the outer event."""


class SourceTransaction(Protocol):
    """The values in the source block of the transaction that an event belongs to."""

    @property
    def gtid(self) -> str | None:
        """GTID or None."""

    @property
    def commit_us(self) -> int:
        """Commit time in microseconds since the epoch, 0 when the server does not report it."""

    @property
    def thread(self) -> int:
        """Id of the session's thread, 0 when not known."""

    @property
    def query(self) -> str | None:
        """The statement that caused the rows, or None."""


EVENT_MEMBERS = {
    "ts_sec": "{ts_us // 1000000}",
    "ts_ms": "{ts_us // 1000}",
    "ts_us": "{ts_us}",
    "ts_ns": "{ts_us}000",
    "snapshot": "{snapshot}",
    "server_id": "{server_id}",
    "gtid": "{gtid}",
    "file": "{file}",
    "pos": "{pos}",
    "thread": "{thread}",
    "query": "{query}",
    "change_lsn": "{change_lsn}",
    "commit_lsn": "{commit_lsn}",
}
"""Expressions for the members that change from event to event; all others are constant per table."""
_MAX_THREADS = 256
# Arguments of head and tail by connector.
_CODE_ARGUMENTS = {
    "mysql": ("ts_us, snapshot, server_id, gtid, file, pos", "thread, query, snapshot"),
    "db2": ("ts_us, snapshot, change_lsn, commit_lsn", ""),
}


def _template(layout: Contract) -> tuple[str, str]:
    """Return the f-string text of head and tail; constants appear as ``{c_NAME}``."""
    text = ""
    for member in layout.source:
        value = "\0" if member.name == "row" else EVENT_MEMBERS.get(member.name, f"{{c_{member.name}}}")
        text += f'{"," if text else ""}"{member.name}":{value}'
    head, _, tail = text.partition("\0")
    return "{{" + head, tail + "}}"


@dataclass(frozen=True, slots=True)
class LsnPosition:
    """Hold the position of a change in Db2's log.

    Args:
        commit_us: Commit time in microseconds since the epoch.
        change_lsn: Log sequence number of the change, ``00000027:00000758:0003``, or None.
        commit_lsn: That of its commit, None for rows of a snapshot (DB2-06).
    """

    commit_us: int
    change_lsn: str | None
    commit_lsn: str | None


@cache
def _compiled_templates(version: str, connector: str, source_struct: str) -> tuple[CodeType, ...]:
    """Return the code that makes the functions of head and tail."""
    texts = zip(_template(contract(version, connector, source_struct)), _CODE_ARGUMENTS[connector], strict=True)
    return tuple(compile(f"lambda {arguments}: f'{text}'", "<source>", "eval") for text, arguments in texts)


@dataclass(frozen=True, slots=True)
class SourceBlock:
    """Write the source block of one table.

    Args:
        layout: The event contract.
        head: Function of (commit time in microseconds, ``snapshot`` as JSON, server id, GTID as JSON, file as JSON,
            position) that returns the text up to and including ``"row":``; for Db2 the last four are both LSNs.
        tail: Function of (thread, query and ``snapshot`` as JSON) that returns the text after the row number; for Db2
            it takes nothing.
        include_query: Whether ``query`` is filled (STRM-18).
        streamed_marker: ``snapshot`` of streamed events as JSON.
        typed: Whether the block is written with its schema.
        op_tail: Function of the current time in nanoseconds that returns the value's text after ``op``.
        tail_by_thread: Returns the text after the row number of streamed events without a statement, by thread; empty
            for Db2.
    """

    layout: Contract
    head: Callable[..., str]
    tail: Callable[..., str]
    include_query: bool
    streamed_marker: str
    op_tail: Callable[[int], str]
    typed: bool = True
    tail_by_thread: Mapping[int, str] = field(default_factory=dict)


def _op_tail_3(ns: int) -> str:
    return f',"ts_ms":{ns // 1_000_000},"ts_us":{ns // 1000},"ts_ns":{ns}}}'


def _op_tail_1(ns: int) -> str:
    return f',"ts_ms":{ns // 1_000_000}}}'


def _op_tail_1_9(ns: int) -> str:
    return f',"ts_ms":{ns // 1_000_000}{NO_TRANSACTION}}}'


def _op_tail_of(layout: Contract) -> Callable[[int], str]:
    if layout.recent:
        return _op_tail_3
    return _op_tail_1_9 if layout.transaction in layout.tail else _op_tail_1


def source_constants(
    layout: Contract, table: TableId, prefix: str, database: str | None = None, product_version: str | None = None
) -> dict[str, str]:
    """Return the members of a table's source blocks that are the same in all of them, as JSON; as for ``source_block``.

    Args:
        layout: The event contract.
        table: The table.
        prefix: ``topic.prefix``.
        database: ``source.db`` where the table's name does not hold it.
        product_version: Overrides the contract's ``source.version``.
    """
    return {
        "version": dumps(product_version or layout.product_version),
        "connector": dumps(layout.connector),
        "name": dumps(prefix),
        "db": dumps(database or table.db),
        "schema": dumps(table.db),
        "sequence": "null",
        "table": dumps(table.table),
    }


def source_block(
    table: TableId,
    *,
    prefix: str,
    version: str = "3.x",
    connector: str = "mysql",
    database: str | None = None,
    source_struct: str = "v2",
    include_query: bool = False,
    product_version: str | None = None,
    typed: bool = True,
) -> SourceBlock:
    """Return the writer of a table's source blocks.

    Args:
        table: The table; of a Db2 table the schema takes the place of MySQL's database (DB2-01).
        prefix: ``topic.prefix``, the value of ``source.name``.
        version: Contract version.
        connector: ``mysql`` or ``db2``.
        database: ``source.db`` where the table's name does not hold it.
        source_struct: ``source.struct.version``.
        include_query: ``include.query``.
        product_version: Overrides the contract's ``source.version``.
        typed: ``value.converter.schemas.enable``.

    Raises:
        ConfigError: There is no such contract.
    """
    layout = contract(version, connector, source_struct)
    # The templates come from the contract tables only; names of tables go in as values, never as code.
    constants = source_constants(layout, table, prefix, database, product_version)
    values = {f"c_{name}": value for name, value in constants.items()}
    head, tail = (eval(code, values) for code in _compiled_templates(layout.version, connector, source_struct))
    streamed = dumps(layout.snapshot_value("false"))
    return SourceBlock(
        layout,
        head,
        tail,
        include_query,
        streamed,
        _op_tail_of(layout),
        typed,
        Memo(lambda thread: tail(thread or "null", "null", streamed), _MAX_THREADS),
    )


def change_time(layout: Contract, event: RowEvent, transaction: SourceTransaction) -> int:
    """Return the time of a row's change in microseconds since the epoch.

    It is the time of the commit; in Debezium 1.9.7, the row event's own, in whole seconds. Schema changes have the
    commit's in both.

    Args:
        layout: The event contract.
        event: The row event.
        transaction: The transaction around it.
    """
    return change_us(layout, event.timestamp, transaction.commit_us)


def change_us(layout: Contract, timestamp: int, commit_us: int) -> int:
    """Return the time of a row's change as ``change_time``.

    Args:
        layout: The event contract.
        timestamp: Time of the row event in seconds since the epoch.
        commit_us: Commit time in microseconds since the epoch, 0 when the server does not report it.
    """
    return (layout.recent and commit_us) or timestamp * 1_000_000


def fill(ctx: SourceContext, block: SourceBlock, event: RowEvent, transaction: SourceTransaction) -> None:
    """Set the texts of one streamed row event; called once per event.

    Args:
        ctx: The decoder's context.
        block: The table's source block.
        event: The row event.
        transaction: The transaction around it.
    """
    file, pos = event.file, event.start_pos
    gtid = transaction.gtid
    ctx.src_head = block.head(
        change_time(block.layout, event, transaction),
        block.streamed_marker,
        event.server_id,
        "null" if gtid is None else f'"{gtid}"',
        f'"{file}"',
        pos,
    )
    if transaction.query is None or not block.include_query:
        ctx.src_tail = block.tail_by_thread[transaction.thread]
    else:
        ctx.src_tail = block.tail(transaction.thread or "null", quote_or_null(transaction.query), block.streamed_marker)
    ctx.tail = block.op_tail(time.time_ns())
    ctx.where = f"{file}:{pos}"
    ctx.plain = None


def fill_time(ctx: SourceContext, block: SourceBlock, event: RowEvent, transaction: SourceTransaction) -> None:
    """Set the texts of one streamed row event for records that show no more of its source than the time.

    Args:
        ctx: The decoder's context; ``as_json`` returns the whole source block.
        block: The table's source block.
        event: The row event.
        transaction: The transaction around it.
    """
    ctx.src_head = f'{{"ts_us":{transaction.commit_us or event.timestamp * 1_000_000},"row":'
    ctx.src_tail = ctx.tail = "}"
    ctx.where = f"{event.file}:{event.start_pos}"
    ctx.plain = fill, block, event, transaction


def fill_lsn(ctx: SourceContext, block: SourceBlock, position: LsnPosition, marker: str = "false") -> None:
    """Set the texts of a row of Db2; called once per row.

    Args:
        ctx: The decoder's context.
        block: The table's source block, made for connector ``db2``.
        position: The place of the change.
        marker: ``false`` for a streamed row, else what ``snapshot_marker`` returned.
    """
    snapshot = dumps(block.layout.snapshot_value(marker, typed=block.typed))
    ctx.src_head = block.head(
        position.commit_us, snapshot, quote_or_null(position.change_lsn), quote_or_null(position.commit_lsn)
    )
    ctx.src_tail = block.tail()
    ctx.tail = block.op_tail(time.time_ns())
    ctx.first_row = UnnumberedRow(0)
    ctx.where = f"LSN {position.change_lsn}"


def fill_snapshot(
    ctx: SourceContext,
    block: SourceBlock,
    offset: BinlogOffset,
    ts_ms: int,
    marker: str = "true",
    last_transaction: tuple[int, str | None] = (0, None),
) -> None:
    """Set the texts of snapshot rows; they stay valid until marker or time of reading change.

    Args:
        ctx: The decoder's context.
        block: The table's source block.
        offset: The binlog position of the snapshot's view.
        ts_ms: Time of the view in milliseconds since the epoch.
        marker: What ``snapshot_marker`` returned.
        last_transaction: Server id and GTID of the transaction before the rows, where the stream is at that
            position.
    """
    snapshot = dumps(block.layout.snapshot_value(marker, typed=block.typed))
    # Debezium writes server id 0 and no GTID for rows of a first snapshot; before 0.10 it wrote no time either (EX-02).
    ts_us = 0 if block.layout.flat_changes else ts_ms * 1000
    ctx.src_head = block.head(
        ts_us, snapshot, last_transaction[0], quote_or_null(last_transaction[1]), dumps(offset.file), offset.pos
    )
    ctx.src_tail = block.tail("null", "null", snapshot)
    ctx.tail = block.op_tail(time.time_ns())
    ctx.where = f"{offset.file}:{offset.pos}"
    ctx.plain = None


def snapshot_marker(
    *, first_row: bool = False, last_row: bool = False, first_table: bool = False, last_table: bool = False
) -> str:
    """Return ``source.snapshot`` of a snapshot row (DIS-11, settled).

    The first and last row of the snapshot take precedence over those of a table; the only row of a table is its last
    (as in Debezium 3.6.1).

    Args:
        first_row: The row is the first of its table.
        last_row: The row is the last of its table.
        first_table: The table is the first of the snapshot; when that one is empty, no row is "first".
        last_table: The table is the last with rows in the snapshot.
    """
    if last_row and last_table:
        return "last"
    if first_row and first_table:
        return "first"
    if last_row:
        return "last_in_data_collection"
    return "first_in_data_collection" if first_row else "true"


def source_dict(layout: Contract, values: Mapping[str, Any], *, change: bool = False) -> dict[str, Any]:
    """Return a source block as a dict in the contract's order; members without a value are null.

    Args:
        layout: The event contract.
        values: Values by member name; ``version`` and ``connector`` are taken from the contract unless given.
        change: Whether the block belongs to a schema change.
    """
    members: dict[str, Any] = {"version": layout.product_version, "connector": layout.connector, **values}
    return {m.name: members.get(m.name) for m in (layout.change_source if change else layout.source)}
