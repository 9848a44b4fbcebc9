"""The source block of events in Avro, and with marks in place of what differs from event to event, for the native
kernel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro import avro_binary
from airflow_provider_mysql_cdc.cdc.avro.avro_payload import Encode, encoder
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import literal
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import BINARY_MARK, MarkedContext, mark
from airflow_provider_mysql_cdc.cdc.decode.values.temporal import Memo
from airflow_provider_mysql_cdc.cdc.emit import source_block
from airflow_provider_mysql_cdc.cdc.emit.contracts import Contract, Member
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId

# Times are later than 1970-01-01 00:00:08.192: so the upper bits are never zero.
_LATE_US = 8_192_000
# Numbers of 30 bits and less are quicker to work with.
_LOW_BITS = "{{F[(low := {0} & {1}) & 63]}}{{M[low >> 6 & 127]}}"
# By member: the f-string body of its bytes; times come from ``us``, ``ms`` and ``ns``.
_BODIES = {
    "ts_sec": "{varint(us // 1000000)}",
    "ts_ms": _LOW_BITS.format("ms", 0x1FFF) + "{H[ms >> 13]}",
    "ts_us": _LOW_BITS.format("us", 0xFFFFF) + "{M[low >> 13]}{H[us >> 20]}",
    "ts_ns": _LOW_BITS.format("ns", 0x7FFFFFF) + "{M[low >> 13 & 127]}{M[low >> 20]}{H[ns >> 27]}",
    "pos": "{p}",
    "gtid": "{g}{gtid}",
    "snapshot": "{snapshot}",
    "server_id": "{SERVERS[server_id]}",
    "file": "{FILES[file]}",
    "thread": "{THREADS[thread]}",
    "query": "{q}",
}
# The same where times are early: nothing but rows of snapshots in old contracts, and a server whose clock is not set.
_EARLY_BODIES = _BODIES | {name: f"{{varint({name[-2:]})}}" for name in ("ts_ms", "ts_us", "ts_ns")}
_HEAD_LINES = (
    "def head(us, snapshot, server_id, gtid, file, pos):",
    "ms, ns = us // 1000, us * 1000",
    "if gtid is None: g, gtid = NO_GTID, ''",
    "else: g = GTIDS[len(gtid)]",
    "p = f'{F[pos & 63]}{M[pos >> 6 & 127]}{L[pos >> 13]}' if 8191 < pos < 134217728 else varint(pos)",
)
_TAIL_LINES = "def tail(thread, query, snapshot):", "q = NO_QUERY if query is None else query_of(query)"
_CACHE_SIZE, _UPPER_CACHE_SIZE = 256, 4096


def _bits(bits: int) -> str:
    """Return bits as the last bytes of a number, the lower ones of which come before."""
    return avro_binary.varint(bits >> 1 if not bits & 1 else ~(bits >> 1))


# The upper bits of commit times and positions, and those of the current time, which change slowly.
_UPPER_BITS: Memo[str] = Memo(_bits, _UPPER_CACHE_SIZE)
_NOW_UPPER_BITS: Memo[str] = Memo(_bits, _UPPER_CACHE_SIZE)
_FIRST, _MORE = avro_binary.FIRST, avro_binary.CONTINUED


class _EncodedCache(dict[Any, str]):
    """Remember the bytes of values that come again and again; forget all when there are too many."""

    def __init__(self, encode: Encode) -> None:
        super().__init__()
        self._encode = encode

    def __missing__(self, value: Any) -> str:
        if len(self) >= _CACHE_SIZE:
            self.clear()
        encoded = self[value] = self._encode(value)
        return encoded


@dataclass(frozen=True, slots=True)
class AvroSource:
    """Write the source block of one table.

    Args:
        plain: The writer of the same block in JSON.
        head: Function of commit time in microseconds, ``snapshot`` as bytes, server id, GTID or None, file and position
            that returns the block up to the row number.
        tail: Function of thread, query and ``snapshot`` as bytes that returns the text after the row number.
        streamed_snapshot: ``snapshot`` of streamed events as bytes.
        snapshot: Returns the bytes of a value of ``snapshot``.
        op_tail: Function of the current time in nanoseconds that returns the bytes after the operation.
        tail_by_thread: Returns the bytes after the row number of streamed events without a statement, by thread.
        constants: The bytes of members that are the same in all blocks of the table.
    """

    plain: source_block.SourceBlock
    head: Callable[..., str]
    tail: Callable[..., str]
    streamed_snapshot: str
    snapshot: Encode
    op_tail: Callable[[int], str]
    tail_by_thread: Mapping[int, str]
    constants: Mapping[str, str]


def avro_source(table: TableId, prefix: str, plain: source_block.SourceBlock) -> AvroSource:
    """Return the writer of a table's source blocks in Avro.

    Args:
        table: The table.
        prefix: ``topic.prefix``.
        plain: The writer in JSON.
    """
    layout = plain.layout
    values = {
        "version": layout.product_version,
        "connector": layout.connector,
        "name": prefix,
        "db": table.db,
        "sequence": None,
        "table": table.table,
    }
    constant_members = [m for m in layout.source if m.name != "row" and m.name not in _BODIES]
    constants = {m.name: member_encoder(m)(values[m.name]) for m in constant_members}
    names = _compile_functions(layout, constants)
    snapshot = _EncodedCache(next(member_encoder(m) for m in layout.source if m.name == "snapshot"))
    streamed = snapshot[layout.snapshot_value("false")]
    head, tail = names["head"], names["tail"]
    tail_by_thread = _EncodedCache(lambda thread: tail(thread or None, None, streamed))
    return AvroSource(
        plain, head, tail, streamed, snapshot.__getitem__, _op_tail_function(layout), tail_by_thread, constants
    )


def member_encoder(member: Member) -> Encode:
    """Return what writes the values of a member.

    Args:
        member: A member of a source block or an envelope.
    """
    return encoder(member.to_schema())


def _compile_functions(layout: Contract, constants: Mapping[str, str]) -> dict[str, Any]:
    """Return the functions ``head`` and ``tail``."""
    members = {m.name: m for m in layout.source}
    gtid = member_encoder(members["gtid"])
    names: dict[str, Any] = {
        "varint": avro_binary.varint, "F": _FIRST, "M": _MORE, "L": avro_binary.LAST, "H": _UPPER_BITS,
        "NO_GTID": gtid(None), "GTIDS": _EncodedCache(lambda size: gtid("0" * size)[:-size]),
    }  # fmt: skip
    for name, cache_name in (("server_id", "SERVERS"), ("file", "FILES"), ("thread", "THREADS")):
        names[cache_name] = _EncodedCache(member_encoder(members[name]))
    if "query" in members:
        names["query_of"] = member_encoder(members["query"])
        names["NO_QUERY"] = names["query_of"](None)
    late, early = ([_body(m, bodies, constants) for m in layout.source] for bodies in (_BODIES, _EARLY_BODIES))
    row_index = list(members).index("row")
    head = (
        *_HEAD_LINES,
        f"if us >= {_LATE_US}: return f'{''.join(late[:row_index])}'",
        f"return f'{''.join(early[:row_index])}'",
    )
    tail = (
        _TAIL_LINES[0],
        *(_TAIL_LINES[1:] if "query" in members else ()),
        f"return f'{''.join(late[row_index + 1 :])}'",
    )
    for lines in (head, tail):
        exec("\n ".join(lines), names)  # source generated here; names of tables are escaped in it
    return names


def _body(member: Member, bodies: Mapping[str, str], constants: Mapping[str, str]) -> str:
    """Return the f-string body of a member: constant per table, if nothing else is known of it."""
    if member.name not in bodies:
        return literal(constants.get(member.name, ""))
    return (literal(branch_prefix(member)) if member.name.startswith("ts_") else "") + bodies[member.name]


def branch_prefix(member: Member) -> str:
    """Return the branch of the union before a whole number that is not null.

    Args:
        member: A member that is one.
    """
    return member_encoder(member)(0).removesuffix(avro_binary.varint(0))


def transaction_end(layout: Contract) -> str:
    """Return the bytes of a missing transaction where it is the last member of a value, as in contract 1.9.

    Args:
        layout: The event contract.
    """
    return "\x00" if layout.tail[-1].name == "transaction" else ""


def _op_tail_function(layout: Contract) -> Callable[[int], str]:
    members = [m for m in layout.tail if m.name in ("ts_ms", "ts_us", "ts_ns")]
    ms = _EncodedCache(member_encoder(members[0]))
    if len(members) == 1:
        end = transaction_end(layout)
        return lambda ns: ms[ns // 1_000_000] + end
    us_branch, ns_branch = map(branch_prefix, members[1:])

    def op_tail(ns: int) -> str:
        us = ns // 1000
        low_us, low_ns = us & 0x1FFF, ns & 0xFFFFF
        return (
            f"{ms[ns // 1_000_000]}{us_branch}{_FIRST[low_us & 63]}{_MORE[low_us >> 6]}{_NOW_UPPER_BITS[us >> 13]}"
            f"{ns_branch}{_FIRST[low_ns & 63]}{_MORE[low_ns >> 6 & 127]}{_MORE[low_ns >> 13]}"
            f"{_NOW_UPPER_BITS[ns >> 20]}"
        )

    return op_tail


def fill(
    ctx: Any, block: AvroSource, event: source_block.RowEvent, transaction: source_block.SourceTransaction
) -> None:
    """Set the texts of one streamed row event, as ``emit.source_block.fill`` does in JSON.

    Args:
        ctx: The decoder's context.
        block: The table's source block.
        event: The row event.
        transaction: The transaction around it.
    """
    file, pos = event.file, event.start_pos
    time_us = source_block.change_time(block.plain.layout, event, transaction)
    ctx.src_head = block.head(time_us, block.streamed_snapshot, event.server_id, transaction.gtid, file, pos)
    if transaction.query is None or not block.plain.include_query:
        ctx.src_tail = block.tail_by_thread[transaction.thread]
    else:
        ctx.src_tail = block.tail(transaction.thread or None, transaction.query, block.streamed_snapshot)
    ctx.tail = block.op_tail(time.time_ns())
    ctx.where = f"{file}:{pos}"
    ctx.plain = source_block.fill, block.plain, event, transaction


def fill_snapshot(
    ctx: Any,
    block: AvroSource,
    offset: BinlogOffset,
    ts_ms: int,
    marker: str = "true",
    last: tuple[int, str | None] = (0, None),
) -> None:
    """Set the texts of snapshot rows; arguments as for ``emit.source_block.fill_snapshot``, which does it in JSON."""
    layout = block.plain.layout
    snapshot = block.snapshot(layout.snapshot_value(marker, typed=block.plain.typed))
    ts_us = 0 if layout.flat_changes else ts_ms * 1000
    ctx.src_head = block.head(ts_us, snapshot, last[0], last[1], offset.file, offset.pos)
    ctx.src_tail = block.tail(None, None, snapshot)
    ctx.tail = block.op_tail(time.time_ns())
    ctx.where = f"{offset.file}:{offset.pos}"
    ctx.plain = source_block.fill_snapshot, block.plain, offset, ts_ms, marker, last


# Marks by member: of the source block, and of the members after the operation.
_SOURCE_MARKS = {
    "ts_sec": "seconds",
    "ts_ms": "millis",
    "ts_us": "micros",
    "ts_ns": "nanos",
    "server_id": "server",
    "gtid": "gtid",
    "file": "file",
    "pos": "position",
    "thread": "thread",
}
_NOW_MARKS = {"ts_ms": "now_millis", "ts_us": "now_micros", "ts_ns": "now_nanos"}
# The kernel's bytes of a value that is zero or empty, where the member is no time: some as unions with null first.
_ZERO, _SECOND = map(avro_binary.varint, (0, 1))
_KERNEL_ZEROS = {"server_id": _ZERO, "file": _ZERO, "pos": _ZERO, "gtid": _SECOND + _ZERO, "thread": _SECOND + _ZERO}
_NULLABLE = ("gtid", "thread")


def marked_context(block: AvroSource) -> MarkedContext | None:
    """Return the texts around rows as ``avro_source.fill`` makes them of an event without a statement.

    Args:
        block: The table's source block.

    Returns:
        None for a contract whose blocks the kernel would write differently.
    """
    layout = block.plain.layout
    # Rows of contract 1.9 do not have the time of the commit, as the kernel writes it.
    if not layout.recent:
        return None
    if not all(_matches_kernel(member) for member in layout.source if member.name in _KERNEL_ZEROS):
        return None
    row_index = [member.name for member in layout.source].index("row")
    constants = {**block.constants, "snapshot": block.streamed_snapshot}
    if "query" in (members := {member.name: member for member in layout.source}):
        constants["query"] = member_encoder(members["query"])(None)
    head, tail = (
        _texts(part, _SOURCE_MARKS, constants) for part in (layout.source[:row_index], layout.source[row_index + 1 :])
    )
    return MarkedContext(EventContext(head, tail, op_tail(block)), BINARY_MARK)


def op_tail(block: AvroSource) -> str:
    """Return the bytes after the operation, with marks.

    Args:
        block: The table's source block.
    """
    layout = block.plain.layout
    times = _texts((member for member in layout.tail if member.name in _NOW_MARKS), _NOW_MARKS, {})
    return times + transaction_end(layout)


def _texts(members: Iterable[Member], mark_names: Mapping[str, str], constants: Mapping[str, str]) -> str:
    return "".join(
        constants[member.name] if member.name in constants else _member_mark(member, mark_names[member.name])
        for member in members
    )


def _member_mark(member: Member, mark_name: str) -> str:
    branch = branch_prefix(member) if member.name.startswith("ts_") else ""
    return branch + mark(mark_name, BINARY_MARK)


def _matches_kernel(member: Member) -> bool:
    encode, zero_value = member_encoder(member), "" if member.type == "string" else 0
    return encode(zero_value) == _KERNEL_ZEROS[member.name] and (member.name not in _NULLABLE or encode(None) == _ZERO)
