"""Decode each row event in Python and natively, and compare: records, errors and why the kernel declines.

What is walked as whole transactions is read event by event as well, and compared.

``watch`` puts a decoder that does both in the place of the native one; with the kernel installed the whole suite runs
with it (``conftest``). A difference fails the test in which it appears, and so does a decline that is not listed here.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch

from airflow_provider_mysql_cdc.cdc.avro.avro_binary import varint
from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import parse_gtid
from airflow_provider_mysql_cdc.cdc.binlog.query import begin_thread_id
from airflow_provider_mysql_cdc.cdc.binlog.rows_header import check_rows, rows_header
from airflow_provider_mysql_cdc.cdc.binlog.stream import BinlogStream, Event
from airflow_provider_mysql_cdc.cdc.decode import native_rows, native_text, text_decoder
from airflow_provider_mysql_cdc.cdc.decode import native_transactions as native_walk
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import NULLED, EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import INCOMPLETE, KEY_CHANGE, PANIC
from airflow_provider_mysql_cdc.cdc.decode.native_rows import header_plan
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import MarkedContext
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import KeyReader
from airflow_provider_mysql_cdc.cdc.drain.whole_transactions import decoder_of
from airflow_provider_mysql_cdc.cdc.formats import ticdc_rows as native_flat
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidTracker
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import NEW_KEY
from airflow_provider_mysql_cdc.cdc.sink.murmur2 import partition_python
from airflow_provider_mysql_cdc.cdc.snapshot.rows import RowBlock
from airflow_provider_mysql_cdc.cdc.ticdc.commit_ts import commit_ts, transaction_number
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_source import TicdcSource

TABLES = re.compile(
    r"a converter handles column .*"
    r"|column .* is truncated or hashed"
    r"|records are in TiCDC's protocol"
    r"|column .* is \w+ (big5|cp932|eucjpms|euckr|gb18030|gb2312|gbk|sjis|ujis)"
    r"|column .* has members in the character set binary"
    # In contract 1.9.
    r"|column .* is (TIMESTAMP|a TIMESTAMP whose text has no zeros at its end)"
    # In Avro.
    r"|column .* is (GEOMETRY|POINT|LINESTRING|POLYGON|MULTI\w+|GEOMETRYCOLLECTION|VECTOR)"
    r"|column .* of the key is masked or hashed in the value"
    # In TiCDC's protocol.
    r"|column .*, which the dispatcher uses, (is (FLOAT|DOUBLE|VECTOR|masked|(\w+CHAR|\w*TEXT))|has another spelling)",
    re.DOTALL,
)
"""Why a table is decoded in Python; anything else is a kind of column that the kernel should know."""


class Difference(AssertionError):
    """Say that both decoders do not agree."""


class _Both:
    """Decode in Python, and see that the kernel gives the same."""

    compared: ClassVar[Counter[str]] = Counter()
    """Events, by what is done with them (``NativeRowFormat.action``), and those whose keys change."""
    decode_natively: Any
    python: Any
    format: Any
    _native: Any

    def __init__(self, python: Any, wires: Any, *given: Any, **named: Any) -> None:
        self.wires = wires
        try:
            super().__init__(python, wires, *given, **named)  # type: ignore[call-arg]
        except Declined as reason:
            if TABLES.fullmatch(str(reason)) is None:
                raise Difference(f"the kernel declines a table: {reason}") from reason
            raise

    def write(self, *given: Any) -> int:
        return self._both("c", self.python.write, *given)

    def update(self, *given: Any) -> int:
        return self._both("u", self.python.update, *given)

    def delete(self, *given: Any) -> int:
        return self._both("d", self.python.delete, *given)

    def _both(self, op: str, python: Any, buf: Any, pos: int, end: int, ctx: Any, out: list[Any]) -> int:
        natively: list[Any] = ["before"]
        rows = self.decode_natively(op, bytes(buf), pos, end, ctx, natively)
        assert natively.pop(0) == "before"
        if rows == PANIC:
            raise Difference("the kernel panicked")
        if rows < 0 and natively:
            raise Difference(f"declined with {rows} and yet left {natively!r}")
        made = len(out)
        NULLED.take()
        try:
            wanted = python(buf, pos, end, ctx, out)
        except Exception as error:
            if rows >= 0:
                raise Difference(f"Python says {error!r}, the kernel {natively!r}") from error
            raise
        if rows < 0:
            self._expected(op, rows, buf, pos, ctx, out[made:])
        elif (rows, natively) != (wanted, out[made:]):
            raise Difference(f"Python: {wanted} {out[made:]!r}\nkernel: {rows} {natively!r}")
        self.compared[self.format.action] += 1
        self.compared["changed keys"] += any(record[3] == NEW_KEY for record in natively)
        return wanted

    def _expected(self, op: str, rows: int, buf: Any, pos: int, ctx: Any, records: list[Any]) -> None:
        asked = op in self._native and type(ctx.first_row) is int and ctx.stamp >= 0
        why = {
            KEY_CHANGE: lambda: header_plan(self.python, self.wires) is None,
            INCOMPLETE: lambda: not self.python._images_complete(buf, pos, 2 if op == "u" else 1),
        }.get(rows, lambda: not asked or bool(NULLED.values))  # values that become null are noted in Python
        if not why():
            raise Difference(f"the kernel declines rows that Python decodes ({rows}): {records!r}")


class BothDecoders(_Both, native_rows.NativeRowDecoder):
    """Compare records in JSON and in Avro."""


class BothFlat(_Both, native_flat.NativeTicdcDecoder):
    """Compare flat rows."""


class _Texts:
    """Read rows of the text protocol in Python, and see that the kernel gives the same."""

    compared: ClassVar[Counter[str]] = Counter()
    """Rows, by what is done with them (``NativeTextFormat.action``)."""
    sound = True
    decode_natively: Any
    python: Any
    format: Any

    def __init__(self, *given: Any, **named: Any) -> None:
        try:
            super().__init__(*given, **named)
        except Declined as reason:
            if TABLES.fullmatch(str(reason)) is None:
                raise Difference(f"the kernel declines a table: {reason}") from reason
            raise

    def __call__(self, packet: Any, pos: int, ctx: Any, out: list[Any]) -> None:
        natively: list[Any] = ["before"]
        rows = self.decode_natively(bytes(packet), pos, ctx, natively)
        assert natively.pop(0) == "before"
        if rows == PANIC:
            raise Difference("the kernel panicked")
        made = len(out)
        NULLED.take()
        try:
            self.python(packet, pos, ctx, out)
        except Exception as error:
            if rows >= 0 or natively:
                raise Difference(f"Python says {error!r}, the kernel {natively!r}") from error
            raise
        # Of a damaged row Python reads more, such as a number with a blank.
        if rows < 0 and self.sound and type(ctx.first_row) is int and not NULLED.values:
            raise Difference(f"the kernel declines a row that Python reads ({rows}): {out[made:]!r}")
        if natively != (out[made:] if rows >= 0 else []):
            raise Difference(f"Python: {out[made:]!r}\nkernel: {rows} {natively!r}")
        self.compared[self.format.action] += 1

    def decode_many(self, data: bytes, at: int, most: int, ctx: Any, out: list[Any]) -> tuple[int, int]:
        self.now, made = time.time_ns(), len(out)
        rows, stop = super().decode_many(data, at, most, ctx, out)  # type: ignore[misc]
        tail = at_time(ctx.tail, self.now, self.format.mark)
        plain = EventContext(ctx.src_head, ctx.src_tail, tail, first_row=ctx.first_row)
        if ctx.plain is not None:
            plain.plain = self._refill, *ctx.plain
        records: list[Any] = []
        for packet, _ in zip(RowBlock(most, data[at:]), range(rows), strict=False):
            self.python(packet, 0, plain, records)
        if out[made:] != records:
            raise Difference(f"Python: {records!r}\nkernel: {rows} {out[made:]!r}")
        if stop - at != sum(4 + len(packet) for packet, _ in zip(RowBlock(most, data[at:]), range(rows), strict=False)):
            raise Difference(f"{rows} rows do not end at {stop}")
        self.compared[self.format.action] += rows
        return rows, stop

    def _refill(self, ctx: EventContext, fill: Any, block: Any, *given: Any) -> None:
        fill(ctx, block, *given)
        ctx.tail = block.op_tail(self.now)


class BothTexts(_Texts, native_text.NativeTextDecoder):
    """Compare records."""


class BothKeys(text_decoder.NativeKeyReader):
    """Read keys of rows in Python, and see that the kernel gives the same."""

    compared = 0

    def __init__(self, table: Any, options: Any, columns: Any, module: Any) -> None:
        super().__init__(table, options, columns, module)
        self.one = KeyReader(table, options, columns)

    def __call__(self, data: bytes, at: int, most: int) -> tuple[list[bytes], int]:
        keys, stop = super().__call__(data, at, most)
        rows = [packet for packet, _ in zip(RowBlock(most, data[at:]), keys, strict=False)]
        if [self.one(row) for row in rows] != keys or stop - at != sum(4 + len(row) for row in rows):
            raise Difference(f"rows {rows!r} and keys {keys!r}, up to {stop}")
        type(self).compared += len(keys)
        return keys, stop


def at_time(tail: str, now: int, sign: str = native_walk.JSON_MARK) -> str:
    """Return what stands behind the operation at a time.

    Args:
        tail: The text, with marks.
        now: The time in nanoseconds.
        sign: What stands around the names of marks.
    """
    write = str if sign == native_walk.JSON_MARK else varint
    for name, share in (("now_millis", 1_000_000), ("now_micros", 1000), ("now_nanos", 1)):
        tail = tail.replace(native_walk.mark(name, sign), write(now // share))
    return tail


class BothWalks(native_walk.NativeTransactionDecoder):
    """Read what was walked event by event in Python, and see that the kernel gives the same."""

    compared = 0

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.routes: dict[bytes, Any] = {}

    def learn(
        self, table_map: bytes, route: Any, decoder: Any, around: MarkedContext | None, partitions: int = 1
    ) -> None:
        super().learn(table_map, route, decoder, around, partitions)
        self.routes.setdefault(table_map, (route, partitions))

    def forget(self) -> None:
        super().forget()
        self.routes.clear()

    def decode_transactions(
        self, chunk: bytes, at: int, file: str, pos: int, limit: int, checksum_size: int
    ) -> native_walk.NativeTransactions:
        self.now = time.time_ns()
        found = super().decode_transactions(chunk, at, file, pos, limit, checksum_size)
        if found.end_reason == PANIC:
            raise Difference("the walk panicked")
        if found.at != at:
            records: dict[int, list[Any]] = {}
            for of, some, partition, *event, size in found.segments:
                if size != sum(len(key or b"") + len(value or b"") for key, value, *_ in some):
                    raise Difference(f"{size} bytes were told of {some!r}")
                records.setdefault(partition, []).extend((of.path, record, *event) for record in some)
            with_python = _Reading(self, file, pos)
            with_python.read(chunk[at : found.at], found.pos, checksum_size)
            if records != with_python.records:
                raise Difference(f"Python: {with_python.records!r}\nwalked: {records!r}")
            if found.last_transaction != with_python.last:
                raise Difference(f"Python: {with_python.last!r}\nwalked: {found.last_transaction!r}")
            tracker = GtidTracker("")
            for run in found.gtids:
                tracker.add_range(*run)
            if tracker.text() != with_python.tracker.text():
                raise Difference(f"Python: {with_python.tracker.text()}\nwalked: {found.gtids!r}")
            BothWalks.compared += 1
        elif found.segments or found.gtids or found.last_transaction:
            raise Difference(f"nothing was walked, and yet there is {found!r}")
        return found


class _Reading:
    """Read transactions event by event."""

    def __init__(self, walker: BothWalks, file: str, pos: int) -> None:
        self.walker, self.file, self.pos = walker, file, pos
        self.records: dict[int, list[Any]] = {}
        self.tracker = GtidTracker("")
        self.last: Any = None
        self.tables: dict[int, Any] = {}

    def read(self, data: bytes, end: int, tail: int) -> None:
        stream = BinlogStream(None, BinlogOffset(self.file, self.pos))  # type: ignore[arg-type]
        stream._chunk, stream._checksum_length = data, tail
        for event in stream.events(BinlogOffset(self.file, end)):
            self._event(event)
        if stream._at != len(data):
            raise Difference("Python has not read all that was walked")

    def _event(self, event: Event) -> None:
        if event.type in c.GTID_EVENTS:
            self.events = 0
            self.at = SimpleNamespace(query=None, thread=0, gtid=None, commit_us=0)
            parsed = parse_gtid(event)
            # The kernel decodes transactions whose timestamps rise only.
            us = parsed.commit_us or event.timestamp * 1_000_000
            self.order = str(commit_ts(us, transaction_number(parsed.gtid, parsed.sequence_number)).value)
            self.at.gtid, self.at.commit_us, self.server = parsed.gtid, parsed.commit_us, event.server_id
        elif event.type == c.QUERY_EVENT:
            thread = begin_thread_id(event)
            assert thread is not None
            self.at.thread = thread
        elif event.type == c.TABLE_MAP_EVENT:
            number = int.from_bytes(event.buf[event.body : event.body + 6], "little")
            self.tables[number] = self.walker.routes[event.buf[event.body + 6 : event.end]]
        elif event.type in c.ROW_EVENT_KINDS:
            self._rows(event)
        elif event.type == c.XID_EVENT:
            self.last = self.server, self.at.gtid, self.at.commit_us, self.at.thread
            if self.at.gtid is not None:
                self.tracker.add(self.at.gtid)
        elif event.type != c.ROWS_QUERY_LOG_EVENT:
            raise Difference(f"an event of type {event.type} was walked")

    def _rows(self, event: Event) -> None:
        self.events += 1
        header = rows_header(event)
        route, partitions = self.tables[header.table_id]
        decoder = decoder_of(route)
        if decoder is None:
            return
        check_rows(event, header, len(decoder.table.columns))
        flat = isinstance(route.source, TicdcSource)
        ctx, out = EventContext(transaction=self.order if flat else "null"), list[Any]()
        with patch.object(time, "time_ns", lambda: self.walker.now):
            route.write_source_block(ctx, route.source, event, self.at)
        python = getattr(decoder, "python", decoder)
        decode = (python.write, python.update, python.delete)[c.ROW_EVENT_KINDS[event.type]]
        decode(event.buf, header.pos, event.end, ctx, out)
        place = (self.at.gtid, self.events) if self.walker.by_event else (None, 0)
        for record in out:
            key, *_, own_partition = record
            part = partition_python(key, partitions) if own_partition is None else own_partition
            self.records.setdefault(part, []).append((route.path, record, *place))


def watch() -> None:
    """Put the decoders that compare in the place of the native ones."""
    native_rows.NativeRowDecoder = BothDecoders  # type: ignore[misc]
    native_text.NativeTextDecoder = BothTexts  # type: ignore[misc]
    text_decoder.NativeKeyReader = BothKeys  # type: ignore[misc]
    native_flat.NativeTicdcDecoder = BothFlat  # type: ignore[misc]
    native_walk.NativeTransactionDecoder = BothWalks  # type: ignore[misc]
