"""Whole transactions through the native kernel: what it is told of a table, and what Python gets of them.

The kernel walks GTID, BEGIN, TABLE_MAPs, rows and XID of tables that it knows, in the bytes as they come from the
server; a transaction that holds anything else, or that is damaged, is left to the loop of events, whole. The texts
around row numbers, which the loop makes for each event, are made once here, with marks where they differ.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc.binlog.rows_header import DELETE_ROWS, UPDATE_ROWS, WRITE_ROWS, usual_headers
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import PANIC, Tally
from airflow_provider_mysql_cdc.cdc.decode.native_rows import NativeDecoder

log = logging.getLogger(__name__)
OVER, CUT, LEFT = 0, 1, -1
"""Why a walk ended: there are many records, a transaction is not there as a whole, or is for Python."""
JSON_MARK, BINARY_MARK = "\0", "\u0100"
"""What stands around the names of places: JSON holds no such character, and byte text none beyond a byte."""
_MOST_TABLES = 4_000
"""Tables beyond are left to the loop of events until structures change: each takes some kilobytes."""
_MOST_BYTES = 1 << 20
"""Bytes of records after which a walk ends, so that they can be produced and committed."""
_OPERATIONS = (("c", WRITE_ROWS), ("u", UPDATE_ROWS), ("d", DELETE_ROWS))
Pieces = list[tuple[bytes, str]]


class Marked(NamedTuple):
    """Hold the texts around rows with marks in place of what differs from event to event.

    Args:
        ctx: The texts.
        sign: What stands around the names of marks.
    """

    ctx: EventContext
    sign: str = JSON_MARK


class Clock:
    """Stand for a time in a text: a whole share of it leaves the mark of that share.

    Args:
        unit: The mark of the time itself.
        shares: Marks by divisor.
    """

    def __init__(self, unit: str, shares: dict[int, str]) -> None:
        self._unit, self._shares = unit, shares

    def __floordiv__(self, divisor: int) -> str:
        return mark(self._shares[divisor])

    def __str__(self) -> str:
        return mark(self._unit)

    def __format__(self, spec: str) -> str:
        return str(self)


COMMIT = Clock("micros", {1_000_000: "seconds", 1000: "millis"})
NOW = Clock("now_nanos", {1_000_000: "now_millis", 1000: "now_micros"})


def mark(name: str, sign: str = JSON_MARK) -> str:
    """Return what stands in a text for something that differs from event to event.

    Args:
        name: Its name, as ``native/src/around.rs`` has it.
        sign: What stands around it.
    """
    return f"{sign}{name}{sign}"


def pieces(text: str, sign: str = JSON_MARK) -> Pieces:
    """Return a text with marks as the kernel takes it: literal pieces, each with the mark behind it.

    Args:
        text: The text, byte text.
        sign: What stands around the names of marks.
    """
    parts = [*text.split(sign), ""]
    return [(parts[i].encode("latin-1"), parts[i + 1]) for i in range(0, len(parts), 2)]


class Walked(NamedTuple):
    """Tell what a walk found.

    Args:
        at: Offset behind it.
        pos: Position behind it.
        why: Why it ended.
        segments: Routes with records of one partition, of each partition in binlog order, and the partition; where
            events are told apart the GTID and the number of the row event in the transaction, from 1, else None and 0;
            and the bytes of keys and values.
        gtids: Runs of transactions: a server's UUID, the first number and the one behind the last.
        last: Server id, GTID, commit time in microseconds and thread of the last transaction; None when there is none.
    """

    at: int
    pos: int
    why: int
    segments: list[tuple[Any, list[Any], int, str | None, int, int]]
    gtids: list[tuple[str, int, int]]
    last: tuple[int, str | None, int, int] | None

    @property
    def cut(self) -> bool:
        """Whether more bytes may bring more transactions."""
        return self.why == CUT


class NativeWalker:
    """Walk transactions.

    Args:
        module: The kernel.
        tally: Counts what it decodes.
        by_event: Whether the records of each row event are told apart, by GTID and number.

    Attributes:
        failed: Whether the kernel has failed; it is not to be asked again.
        now: The time in nanoseconds that records tell; 0 for that of the clock.
    """

    def __init__(self, module: Any, tally: Tally, *, by_event: bool = False) -> None:
        self._walker, self.by_event = module.Walker(tally.native, by_event), by_event
        self._met: set[bytes] = set()
        self.failed = False
        self.now = 0

    def wants(self, table_map: bytes) -> bool:
        """Return whether there is something to learn of a table.

        Args:
            table_map: As for ``learn``.
        """
        return table_map not in self._met and len(self._met) < _MOST_TABLES

    def learn(self, table_map: bytes, route: Any, decoder: Any, around: Marked | None, partitions: int = 1) -> None:
        """Take over what rows behind a TABLE_MAP become, where the kernel can decode them.

        Args:
            table_map: The event's body behind the table's number.
            route: Given back with the records.
            decoder: The table's decoder; None for rows that nobody wants.
            around: Texts around the rows; None where they cannot be told ahead.
            partitions: Partition count of the topic.
        """
        self._met.add(table_map)
        rows, texts = None, [None, None, None]
        if decoder is not None:
            if not isinstance(decoder, NativeDecoder) or around is None or type(around.ctx.first_row) is not int:
                return
            rows, texts = decoder.plan, list(self._texts(decoder, around))
        self._walker.learn(table_map, route, rows, texts, partitions)

    def _texts(self, decoder: NativeDecoder, around: Marked) -> Iterator[Any]:
        heads = usual_headers(len(decoder.table.columns))
        for op, kind in _OPERATIONS:
            if op not in decoder.operations or kind not in heads:
                yield None
                continue
            before, behind = decoder.texts_around(around.ctx, op)
            yield pieces(before, around.sign), pieces(behind, around.sign), heads[kind]

    def forget(self) -> None:
        """Know no table any more: structures have changed."""
        self._met.clear()
        self._walker.forget()

    def walk(self, chunk: bytes, at: int, file: str, pos: int, limit: int, tail: int) -> Walked:
        """Walk transactions until their records are many, or one is for Python.

        Args:
            chunk: Packets of a dump.
            at: Offset of the packet with the first transaction's GTID event.
            file: Binlog file.
            pos: Position of that event.
            limit: No event ends behind this position.
            tail: Bytes of checksum behind each event.
        """
        found = Walked(*self._walker.walk(chunk, at, file, pos, limit, tail, _MOST_BYTES, self.now))
        if found.why == PANIC:
            self.failed = True
            log.warning("transactions are read event by event from %s:%d on: the native kernel failed", file, pos)
        return found
