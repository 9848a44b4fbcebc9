"""Decode whole transactions with the native kernel.

The kernel reads GTID, BEGIN, TABLE_MAP, row and XID events of tables that it knows from the server's bytes. The event
loop reads every transaction that contains anything else or is damaged. The texts around row numbers, which the loop
writes for each event, are written once here, with marks where they differ.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc.binlog.rows_header import DELETE_ROWS, UPDATE_ROWS, WRITE_ROWS, common_headers
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import EventContext
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import PANIC, Tally
from airflow_provider_mysql_cdc.cdc.decode.native_rows import NativeRowDecoder
from airflow_provider_mysql_cdc.cdc.model.records import RowRecord

log = logging.getLogger(__name__)
BATCH_FULL, TRUNCATED, DECLINED = 0, 1, -1
"""Why decoding ended: there are many records, a transaction is not complete, or Python has to read it."""
JSON_MARK, BINARY_MARK = "\0", "\u0100"
"""Text around the names of marks: JSON contains no such character, and byte text none above U+00FF."""
_MAX_TABLES = 4_000
"""Further tables are left to the event loop until structures change: each takes some kilobytes."""
_MAX_BYTES = 1 << 20
"""Bytes of records after which decoding pauses, so that they can be produced and committed."""
_OPERATIONS = (("c", WRITE_ROWS), ("u", UPDATE_ROWS), ("d", DELETE_ROWS))
MarkedPieces = list[tuple[bytes, str]]


class MarkedContext(NamedTuple):
    """Hold the texts around rows, with marks for what differs from event to event.

    Args:
        ctx: The texts.
        sign: Text around the names of marks.
    """

    ctx: EventContext
    sign: str = JSON_MARK


class MarkedTime:
    """Represent a time in a text: formatting it writes a mark, dividing it the mark of that unit.

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


COMMIT_TIME = MarkedTime("micros", {1_000_000: "seconds", 1000: "millis"})
CURRENT_TIME = MarkedTime("now_nanos", {1_000_000: "now_millis", 1000: "now_micros"})


def mark(name: str, sign: str = JSON_MARK) -> str:
    """Return the mark in a text for something that differs from event to event.

    Args:
        name: Its name, as ``native/src/row_context.rs`` has it.
        sign: Text around it.
    """
    return f"{sign}{name}{sign}"


def split_marks(text: str, sign: str = JSON_MARK) -> MarkedPieces:
    """Return a text with marks as the kernel takes it: literal pieces, each with the mark that follows it.

    Args:
        text: The text, byte text.
        sign: Text around the names of marks.
    """
    parts = [*text.split(sign), ""]
    return [(parts[i].encode("latin-1"), parts[i + 1]) for i in range(0, len(parts), 2)]


class NativeTransactions(NamedTuple):
    """Hold the transactions of one call.

    Args:
        at: Offset after the last one.
        pos: Position after the last one.
        end_reason: Why it ended.
        segments: Routes with records of one partition, of each partition in binlog order, and the partition; where
            events are kept apart the GTID and the number of the row event in the transaction, from 1, else None and 0;
            and the bytes of keys and values.
        gtids: Runs of transactions: a server's UUID, the first number and the one after the last.
        last_transaction: Server id, GTID, commit time in microseconds and thread of the last transaction; None when
            there is none.
        changes: For each segment how many rows were created, updated and deleted.
        totals: Transactions, and row events of tables that are not captured.
    """

    at: int
    pos: int
    end_reason: int
    segments: list[tuple[Any, list[RowRecord], int, str | None, int, int]]
    gtids: list[tuple[str, int, int]]
    last_transaction: tuple[int, str | None, int, int] | None
    changes: Sequence[tuple[int, int, int]] = ()
    totals: tuple[int, int] = (0, 0)

    @property
    def cut(self) -> bool:
        """Whether more bytes may bring more transactions."""
        return self.end_reason == TRUNCATED


class NativeTransactionDecoder:
    """Decode transactions through the kernel.

    Args:
        module: The kernel.
        tally: Counts what it decodes.
        by_event: Whether the records of each row event are kept apart, by GTID and number.

    Attributes:
        failed: Whether the kernel has failed; it must not be called again.
        now: The time in nanoseconds in records; 0 for the clock's.
    """

    def __init__(self, module: Any, tally: Tally, *, by_event: bool = False) -> None:
        self._native, self.by_event = module.TransactionDecoder(tally.native, by_event), by_event
        self._seen_tables: set[bytes] = set()
        self._signers: dict[int, str] = {}
        self.failed = False
        self.now = 0

    @property
    def commit_ts(self) -> int:
        """TiCDC's timestamp of the last transaction; the kernel leaves those to Python that would not be above it."""
        return int(self._native.commit_ts)

    @commit_ts.setter
    def commit_ts(self, value: int) -> None:
        self._native.commit_ts = value

    def sign(self, signers: Mapping[int, str]) -> None:
        """Leave transactions to Python whose GTIDs are not of the same servers as the last ones with their server ids.

        Args:
            signers: server_uuid of the last GTID by server id.
        """
        if signers != self._signers:
            self._signers = dict(signers)
            raw = [(server_id, bytes.fromhex(uuid.replace("-", ""))) for server_id, uuid in signers.items()]
            self._native.sign(raw)

    def needs_table(self, table_map: bytes) -> bool:
        """Return whether the kernel does not know a table yet and has room for it.

        Args:
            table_map: As for ``learn``.
        """
        return table_map not in self._seen_tables and len(self._seen_tables) < _MAX_TABLES

    def learn(
        self, table_map: bytes, table_route: Any, decoder: Any, context: MarkedContext | None, partitions: int = 1
    ) -> None:
        """Tell the kernel what the rows after a TABLE_MAP event become, where it can decode them.

        Args:
            table_map: The event's body after the table's number.
            table_route: Returned with the records.
            decoder: The table's decoder; None for rows that are skipped.
            context: Texts around the rows; None where they are not known in advance.
            partitions: Partition count of the topic; 0 for a table that is not captured.
        """
        self._seen_tables.add(table_map)
        rows, texts = None, [None, None, None]
        if decoder is not None:
            if not isinstance(decoder, NativeRowDecoder) or context is None or type(context.ctx.first_row) is not int:
                return
            rows, texts = decoder.plan, list(self._texts(decoder, context))
        self._native.learn(table_map, table_route, rows, texts, partitions)

    def _texts(self, decoder: NativeRowDecoder, context: MarkedContext) -> Iterator[Any]:
        headers = common_headers(len(decoder.table.columns))
        for op, kind in _OPERATIONS:
            if op not in decoder.operations or kind not in headers:
                yield None
                continue
            before, after = decoder.row_texts(context.ctx, op)
            yield split_marks(before, context.sign), split_marks(after, context.sign), headers[kind]

    def forget(self) -> None:
        """Forget all tables: structures have changed."""
        self._seen_tables.clear()
        self._native.forget()

    def decode_transactions(
        self, chunk: bytes, at: int, file: str, pos: int, limit: int, checksum_size: int
    ) -> NativeTransactions:
        """Decode transactions until there are many records, or Python has to read one.

        Args:
            chunk: Packets of a dump.
            at: Offset of the packet with the first transaction's GTID event.
            file: Binlog file.
            pos: Position of that event.
            limit: No event ends after this position.
            checksum_size: Bytes of checksum after each event.
        """
        decoded = NativeTransactions(
            *self._native.decode_transactions(chunk, at, file, pos, limit, checksum_size, _MAX_BYTES, self.now)
        )
        if decoded.end_reason == PANIC:
            self.failed = True
            log.warning("transactions are read event by event from %s:%d on: the native kernel failed", file, pos)
        return decoded
