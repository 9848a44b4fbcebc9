"""The source block of events in Avro; constant parts are joined once a table, as ``emit.source_block`` does."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro import avro_binary as binary
from airflow_provider_mysql_cdc.cdc.avro.avro_payload import Encode, encoder
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import literal
from airflow_provider_mysql_cdc.cdc.decode.values.temporal import Memo
from airflow_provider_mysql_cdc.cdc.emit import source_block as source
from airflow_provider_mysql_cdc.cdc.emit.contracts import Contract, Member
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId

# Times are later than 1970-01-01 00:00:08.192: with fewer bits their upper ones would be none.
_LATE = 8_192_000
# Numbers of 30 bits and less are quicker to work with.
_LOW = "{{F[(low := {0} & {1}) & 63]}}{{M[low >> 6 & 127]}}"
# By member: the f-string body of its bytes; times come from ``us``, ``ms`` and ``ns``.
_BODIES = {
    "ts_sec": "{varint(us // 1000000)}",
    "ts_ms": _LOW.format("ms", 0x1FFF) + "{H[ms >> 13]}",
    "ts_us": _LOW.format("us", 0xFFFFF) + "{M[low >> 13]}{H[us >> 20]}",
    "ts_ns": _LOW.format("ns", 0x7FFFFFF) + "{M[low >> 13 & 127]}{M[low >> 20]}{H[ns >> 27]}",
    "pos": "{p}",
    "gtid": "{g}{gtid}",
    "snapshot": "{snapshot}",
    "server_id": "{SERVERS[server_id]}",
    "file": "{FILES[file]}",
    "thread": "{THREADS[thread]}",
    "query": "{q}",
}
# The same where times are early: nothing but rows of snapshots in old contracts, and a server whose clock is not set.
_EARLY = _BODIES | {name: f"{{varint({name[-2:]})}}" for name in ("ts_ms", "ts_us", "ts_ns")}
_HEAD = (
    "def head(us, snapshot, server_id, gtid, file, pos):",
    "ms, ns = us // 1000, us * 1000",
    "if gtid is None: g, gtid = NO_GTID, ''",
    "else: g = GTIDS[len(gtid)]",
    "p = f'{F[pos & 63]}{M[pos >> 6 & 127]}{L[pos >> 13]}' if 8191 < pos < 134217728 else varint(pos)",
)
_TAIL = "def tail(thread, query, snapshot):", "q = NO_QUERY if query is None else query_of(query)"
_KEPT, _KEPT_UPPER = 256, 4096


def _bits(bits: int) -> str:
    """Return bits as the last bytes of a number, the lower ones of which come before."""
    return binary.varint(bits >> 1 if not bits & 1 else ~(bits >> 1))


# The upper bits of commit times and positions, and those of the current time, which change slowly.
_UPPER: Memo[str] = Memo(_bits, _KEPT_UPPER)
_NOW: Memo[str] = Memo(_bits, _KEPT_UPPER)
_FIRST, _MORE = binary.FIRST, binary.MORE


class _Kept(dict[Any, str]):
    """Remember the bytes of values that come again and again; forget all when there are too many."""

    def __init__(self, encode: Encode) -> None:
        super().__init__()
        self._encode = encode

    def __missing__(self, value: Any) -> str:
        if len(self) >= _KEPT:
            self.clear()
        found = self[value] = self._encode(value)
        return found


@dataclass(frozen=True, slots=True)
class AvroSource:
    """Write the source block of one table.

    Args:
        plain: What writes it in JSON.
        head: Function of commit time in microseconds, ``snapshot`` as bytes, server id, GTID or None, file and position
            that returns the block up to the row number.
        tail: Function of thread, query and ``snapshot`` as bytes that returns what is behind it.
        streamed: ``snapshot`` of streamed events as bytes.
        snapshot: Gives the bytes of a value of ``snapshot``.
        op_tail: Function of the current time in nanoseconds that returns what is behind the operation.
        quiet: Gives what is behind the row number of streamed events without a statement, by thread.
        constants: The bytes of members that are the same in all blocks of the table.
    """

    plain: source.SourceBlock
    head: Callable[..., str]
    tail: Callable[..., str]
    streamed: str
    snapshot: Encode
    op_tail: Callable[[int], str]
    quiet: Mapping[int, str]
    constants: Mapping[str, str]


def avro_source(table: TableId, prefix: str, plain: source.SourceBlock) -> AvroSource:
    """Return the writer of a table's source blocks in Avro.

    Args:
        table: The table.
        prefix: ``topic.prefix``.
        plain: The writer in JSON.
    """
    layout = plain.layout
    known = {
        "version": layout.product_version,
        "connector": layout.connector,
        "name": prefix,
        "db": table.db,
        "sequence": None,
        "table": table.table,
    }
    same = [m for m in layout.source if m.name != "row" and m.name not in _BODIES]
    constants = {m.name: encoder_of(m)(known[m.name]) for m in same}
    names = _functions(layout, constants)
    snapshot = _Kept(next(encoder_of(m) for m in layout.source if m.name == "snapshot"))
    streamed = snapshot[layout.snapshot_value("false")]
    head, tail = names["head"], names["tail"]
    quiet = _Kept(lambda thread: tail(thread or None, None, streamed))
    return AvroSource(plain, head, tail, streamed, snapshot.__getitem__, _op_tail_of(layout), quiet, constants)


def encoder_of(member: Member) -> Encode:
    """Return what writes the values of a member.

    Args:
        member: A member of a source block or an envelope.
    """
    return encoder(member.to_schema())


def _functions(layout: Contract, constants: Mapping[str, str]) -> dict[str, Any]:
    """Return the functions ``head`` and ``tail``."""
    members = {m.name: m for m in layout.source}
    gtid = encoder_of(members["gtid"])
    names: dict[str, Any] = {
        "varint": binary.varint, "F": _FIRST, "M": _MORE, "L": binary.LAST, "H": _UPPER,
        "NO_GTID": gtid(None), "GTIDS": _Kept(lambda size: gtid("0" * size)[:-size]),
    }  # fmt: skip
    for name, kept in (("server_id", "SERVERS"), ("file", "FILES"), ("thread", "THREADS")):
        names[kept] = _Kept(encoder_of(members[name]))
    if "query" in members:
        names["query_of"] = encoder_of(members["query"])
        names["NO_QUERY"] = names["query_of"](None)
    late, early = ([_body(m, bodies, constants) for m in layout.source] for bodies in (_BODIES, _EARLY))
    at = list(members).index("row")
    head = (*_HEAD, f"if us >= {_LATE}: return f'{''.join(late[:at])}'", f"return f'{''.join(early[:at])}'")
    tail = (_TAIL[0], *(_TAIL[1:] if "query" in members else ()), f"return f'{''.join(late[at + 1 :])}'")
    for lines in (head, tail):
        exec("\n ".join(lines), names)  # source generated here; names of tables are escaped in it
    return names


def _body(member: Member, bodies: Mapping[str, str], constants: Mapping[str, str]) -> str:
    """Return the f-string body of a member: constant per table, if nothing else is known of it."""
    if member.name not in bodies:
        return literal(constants.get(member.name, ""))
    return (literal(branch_of(member)) if member.name.startswith("ts_") else "") + bodies[member.name]


def branch_of(member: Member) -> str:
    """Return what stands before a whole number that is not null.

    Args:
        member: A member that is one.
    """
    return encoder_of(member)(0).removesuffix(binary.varint(0))


def _op_tail_of(layout: Contract) -> Callable[[int], str]:
    members = [m for m in layout.tail if m.name in ("ts_ms", "ts_us", "ts_ns")]
    ms = _Kept(encoder_of(members[0]))
    if len(members) == 1:
        return lambda ns: ms[ns // 1_000_000]
    us_head, ns_head = map(branch_of, members[1:])

    def op_tail(ns: int) -> str:
        us = ns // 1000
        low_us, low_ns = us & 0x1FFF, ns & 0xFFFFF
        return (
            f"{ms[ns // 1_000_000]}{us_head}{_FIRST[low_us & 63]}{_MORE[low_us >> 6]}{_NOW[us >> 13]}"
            f"{ns_head}{_FIRST[low_ns & 63]}{_MORE[low_ns >> 6 & 127]}{_MORE[low_ns >> 13]}{_NOW[ns >> 20]}"
        )

    return op_tail


def fill(ctx: Any, block: AvroSource, event: source.RowEvent, at: source.Transaction) -> None:
    """Set the texts of one streamed row event, as ``emit.source_block.fill`` does in JSON.

    Args:
        ctx: The decoder's context.
        block: The table's source block.
        event: The row event.
        at: The transaction around it.
    """
    file, pos = event.file, event.start_pos
    time_us = at.commit_us or event.timestamp * 1_000_000
    ctx.src_head = block.head(time_us, block.streamed, event.server_id, at.gtid, file, pos)
    if at.query is None or not block.plain.include_query:
        ctx.src_tail = block.quiet[at.thread]
    else:
        ctx.src_tail = block.tail(at.thread or None, at.query, block.streamed)
    ctx.tail = block.op_tail(time.time_ns())
    ctx.where = f"{file}:{pos}"
    ctx.plain = source.fill, block.plain, event, at


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
    ctx.plain = source.fill_snapshot, block.plain, offset, ts_ms, marker, last
