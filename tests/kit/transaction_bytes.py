"""Transactions of rows as a server sends them, for tests of the native walk."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro import avro_source
from airflow_provider_mysql_cdc.cdc.avro.avro_columns import AVRO
from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.rows_header import common_headers
from airflow_provider_mysql_cdc.cdc.drain.whole_transactions import decoder_of, row_context
from airflow_provider_mysql_cdc.cdc.emit import source_block as source_of
from airflow_provider_mysql_cdc.cdc.emit.source_block import source_block
from airflow_provider_mysql_cdc.cdc.ticdc import ticdc_source as flat_source
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_source import TicdcSource
from kit.binlog_bytes import UUID, event_bytes, packets

COMMIT_US = 1_763_900_000_123_456


def gtid_body(
    number: int = 1,
    *,
    us: int = COMMIT_US,
    original: int | None = None,
    clock: int = 2,
    order: int = 5,
    uuid: bytes = UUID,
) -> bytes:
    """Return the body of a GTID event, as MySQL 8.0 and later write it."""
    times = us.to_bytes(7, "little")
    if original is not None:
        times = (us | 1 << 55).to_bytes(7, "little") + original.to_bytes(7, "little")
    return struct.pack("<B16sqBqq", 1, uuid, number, clock, 4, order) + times + b"\xfc\x2c\x01" + bytes(4)


def begin_body(thread: int = 11, sql: bytes = b"BEGIN") -> bytes:
    """Return the body of a QUERY event with a database and status variables."""
    return struct.pack("<IIBHH", thread, 0, 2, 0, 3) + b"\0\0\0" + b"db\0" + sql


def map_body(number: int, text: bytes) -> bytes:
    """Return the body of a TABLE_MAP event whose structure nobody looks at."""
    return number.to_bytes(6, "little") + text


def rows_body(number: int, kind: int, columns: int, rows: bytes) -> bytes:
    """Return the body of a row event."""
    return number.to_bytes(6, "little") + b"\1\0" + common_headers(columns)[kind] + rows


def route(decoder: Any, **more: Any) -> Any:
    """Return what a walk gives back with the rows of a table."""
    table = decoder.table
    block = source_block(table.id, prefix="p", **more)
    flat: Any = getattr(decoder, "row_plan", None)
    if flat is not None:
        told = TicdcSource(block, flat.modes.extension)
        return SimpleNamespace(
            path=table.id.path(), source=told, decoder=decoder, write_source_block=flat_source.fill, signals=None
        )
    direct = decoder.python.dialect is AVRO
    source = avro_source.avro_source(table.id, "p", block) if direct else block
    fill = avro_source.fill if direct else source_of.fill
    return SimpleNamespace(path=table.id.path(), source=source, decoder=decoder, write_source_block=fill, signals=None)


def learn(walker: Any, table_map: bytes, of: Any, partitions: int = 1) -> None:
    """Let a walker know a table as a writer does."""
    walker.learn(table_map, of, decoder_of(of), row_context(of), partitions)


@dataclass
class Sent:
    """Collect events as the server sends them.

    Args:
        pos: Position behind the last.
        crc: Whether events carry checksums.
        data: The packets.
        ends: Offset and position behind each transaction.
    """

    pos: int = 1000
    crc: bool = True
    data: bytearray = field(default_factory=bytearray)
    ends: list[tuple[int, int]] = field(default_factory=list)

    def add(self, kind: int, body: bytes, **more: Any) -> Sent:
        """Send an event."""
        self.pos += 19 + len(body) + (4 if self.crc else 0)
        self.data += packets(b"\0" + event_bytes(kind, body, self.pos, crc=self.crc, **more))
        return self

    def begin(self, number: int = 1, thread: int = 11, **gtid: Any) -> Sent:
        """Send what a transaction begins with."""
        self.add(c.GTID_LOG_EVENT, gtid_body(number, **gtid))
        return self.add(c.QUERY_EVENT, begin_body(thread))

    def end(self) -> Sent:
        """Send what it ends with."""
        self.add(c.XID_EVENT, bytes(8))
        self.ends.append((len(self.data), self.pos))
        return self

    def tail(self) -> int:
        """Return the bytes of checksum behind an event."""
        return 4 if self.crc else 0
