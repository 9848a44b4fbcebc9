"""The entries of a first pass: last states of keys, and states of rows or sums over them, in blocks of bytes.

The keys of a table are divided into buckets by the CRC-32 of their text. All entries of one such bucket go to the same
task of the shuffle, beside the entries of tables that are compared by value (``entries``).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Protocol, TypeGuard, cast
from zlib import crc32

from airflow_provider_mysql_cdc.cdc.formats.record_topics import partition_of
from airflow_provider_mysql_cdc.cdc.verify.read.sql_literals import escapes_as_in_sql
from airflow_provider_mysql_cdc.cdc.verify.read.sql_row_text import CHECKSUM_BYTES, table_mark

MARK = b"\xff\xff"
"""What blocks of these entries begin with; no table has this number."""
NO_ROW = bytes(8)
"""The checksum of a row that does not exist."""
STATE = struct.Struct(">HH16sQ8s")
"""The state of a key after some records: table; bucket; the key's text or its digest; order; checksum of the row."""
SUM = struct.Struct(">BHHQQ")
"""Kind (``SumKind``), table, bucket, number, sum."""
STATES, ROW_STATES, SUMS = MARK + b"K", MARK + b"R", MARK + b"S"
HEAD_BYTES = len(STATES)
MAX_BUCKETS = 1024
"""Most buckets of a table; the server sends a sum of each for every chunk of rows."""
ROWS_PER_BUCKET = 256
SUM_BITS = 0xFFFF_FFFF_FFFF_FFFF
_BLOCK_BYTES = 1 << 16
_MAX_SUMS = 100_000
_ID_BYTES = 16
_BACKSLASH, _ESCAPE = b"\\", b"\\u"


class SumKind(IntEnum):
    """Say what an entry with numbers is."""

    ROWS = 0
    """Number and sum of checksums of rows of a bucket."""
    RECORDS = 1
    """Number of events of a table."""
    UNJUDGED_BUCKET = 2
    """Records of a bucket of keys have to be read."""
    UNJUDGED_TABLE = 3
    """Records or rows of a table have to be read, of which it is not known which key they have."""
    COUNTED_ROWS = 4
    """Number of rows of a table that are in no sum: they have states, or are left out because they are equal."""


class RecordSlices(Protocol):
    """Take the keys and rows out of the records of one table as bytes (``json_slices``, ``avro_slices``)."""

    def checksum_of(self, data: bytes, /) -> bytes:
        """Return the checksum of a table's mark, the fields of a key and a row, one behind the other."""

    def fields_of(self, key: bytes, /) -> bytes | None:
        """Return the fields of a key; None if other bytes may have the same values, or it is none of the table's."""

    def fields_of_all(self, keys: Sequence[bytes], /) -> Sequence[bytes | None]:
        """Return the same of several keys."""

    def rows_after(self, values: Sequence[bytes]) -> Sequence[bytes | None]:
        """Return the row after each event; empty for a delete, None where the event has to be read."""

    def row_after(self, value: bytes) -> bytes | None:
        """Return the same of one event."""

    def row_of(self, value: bytes) -> bytes | None:
        """Return the row of a record that the product's encoders have written for it; None where it has to be read."""


def checksum_of(text: bytes) -> bytes:
    """Return the checksum of a row: 64 bits of a SHA-256, which every server has (9.6 and later have no MD5()).

    Sums of them are as good as single ones. CRCs are linear: their sums may be equal where rows exchange values.

    Args:
        text: The table's mark, and the texts of the key's fields and of the row, one behind the other.
    """
    return bytes_checksum_of(escapes_as_in_sql(text))


def bytes_checksum_of(data: bytes) -> bytes:
    """Return the checksum of a row whose bytes are compared as they are, which the server does not compute."""
    return hashlib.sha256(data).digest()[:CHECKSUM_BYTES]


def bucket_count(rows: int) -> int:
    """Return the number of buckets for the keys of a table that has about so many rows."""
    return max(1, min(MAX_BUCKETS, rows // ROWS_PER_BUCKET))


def key_id(fields: bytes) -> bytes:
    """Return at most 16 bytes that tell a key, given its fields, from all others of its table."""
    return fields if len(fields) <= _ID_BYTES else hashlib.md5(fields, usedforsecurity=False).digest()


def key_bucket(fields: bytes, buckets: int) -> int:
    """Return the bucket of a key, given its fields."""
    return crc32(escapes_as_in_sql(fields)) % buckets


def shuffle_bucket(table: int, bucket: int, shuffle_buckets: int) -> int:
    """Return which task compares a bucket of a table; small tables are spread over all of them."""
    return (table * 31 + bucket) % shuffle_buckets


class ChecksumBlocks:
    """Collect entries by the shuffle's bucket, and hand on full blocks."""

    def __init__(self, shuffle_buckets: int) -> None:
        self.shuffle_buckets = shuffle_buckets
        self.states = [bytearray() for _ in range(shuffle_buckets)]
        self.row_states = [bytearray() for _ in range(shuffle_buckets)]
        self._block_bytes = max(1024, min(_BLOCK_BYTES, (64 << 20) // shuffle_buckets))
        self._sums: dict[tuple[SumKind, int, int], list[int]] = {}

    def add(self, kind: SumKind, table: int, bucket: int = 0, number: int = 0, checksum: int = 0) -> None:
        """Add numbers to those that this task has of the same bucket; 0 for a whole table."""
        known = self._sums.setdefault((kind, table, bucket), [0, 0])
        known[0] += number
        known[1] += checksum

    def take_full(self) -> Iterator[tuple[int, bytes]]:
        """Yield the full blocks, with the shuffle's buckets, once."""
        yield from self._take_states(self._block_bytes)
        if len(self._sums) >= _MAX_SUMS:
            yield from self._take_sums()

    def take_rest(self) -> Iterator[tuple[int, bytes]]:
        """Yield all blocks that are left."""
        yield from self._take_states(1)
        yield from self._take_sums()

    def _take_states(self, least_bytes: int) -> Iterator[tuple[int, bytes]]:
        for head, blocks in ((STATES, self.states), (ROW_STATES, self.row_states)):
            for bucket, states in enumerate(blocks):
                if len(states) >= least_bytes:
                    yield bucket, head + states
                    blocks[bucket] = bytearray()

    def _take_sums(self) -> Iterator[tuple[int, bytes]]:
        blocks: dict[int, bytearray] = {}
        for (kind, table, bucket), (number, checksum) in self._sums.items():
            block = blocks.setdefault(shuffle_bucket(table, bucket, self.shuffle_buckets), bytearray(SUMS))
            block += SUM.pack(kind, table, bucket, number, checksum & SUM_BITS)
        self._sums.clear()
        for place, block in blocks.items():
            yield place, bytes(block)


class KeyStates:
    """Write the states of the keys of one table: which key, and a checksum of what events say of it, or of its row.

    Args:
        number: The table's number.
        slices: Takes the fields out of its keys.
        partitions: Partitions of its topic.
        buckets: Buckets of its keys.
        blocks: Takes the states.
    """

    def __init__(
        self, number: int, slices: RecordSlices, partitions: int, buckets: int, blocks: ChecksumBlocks
    ) -> None:
        self._number, self._table_mark = number, table_mark(number)
        self._slices, self._checksum_of = slices, slices.checksum_of
        self._partitions, self._buckets, self._blocks = partitions, buckets, blocks

    def add_events(self, keys: Sequence[bytes], rows: Sequence[bytes], partition: int, end: int) -> None:
        """Add what events say of their keys; of several events of a key, the last one counts.

        Args:
            keys: Keys of records, in their order.
            rows: The row after each event; empty where there is none.
            partition: The partition of the events.
            end: The offset after the last of them, or a later one; events of later calls are later ones.
        """
        if self._partitions > 1:
            for key in keys:
                if partition_of(key, self._partitions) != partition:
                    self.mark(key)
        # There are at least as many offsets as records.
        self._put(keys, rows, range(end - len(keys), end), self._blocks.states)

    def add_rows(self, keys: Sequence[bytes], rows: Sequence[bytes]) -> None:
        """Add rows of the table, as events say them, with the keys of their records."""
        self._put(keys, rows, [0] * len(keys), self._blocks.row_states)

    def _put(
        self, keys: Sequence[bytes], rows: Sequence[bytes], orders: Sequence[int], states: list[bytearray]
    ) -> None:
        fields = self._slices.fields_of_all(keys)
        if not _are_short_and_plain(fields, rows):
            for each in zip(keys, fields, rows, orders, strict=True):
                self._put_one(*each, states)
            return
        number, mark, sha256 = self._number, self._table_mark, hashlib.sha256
        buckets, count = self._buckets, self._blocks.shuffle_buckets
        pack, first = STATE.pack, shuffle_bucket(number, 0, count)
        for of_key, row, order in zip(fields, rows, orders, strict=True):
            bucket = crc32(of_key) % buckets
            # Of the digest, the entry takes the first bytes (``STATE``).
            digest = sha256(mark + of_key + row).digest()
            states[(first + bucket) % count] += pack(number, bucket, of_key, order, digest)

    def _put_one(self, key: bytes, fields: bytes | None, row: bytes, order: int, states: list[bytearray]) -> None:
        if fields is None:
            self.mark(key)
            return
        bucket = key_bucket(fields, self._buckets)
        checksum = self._checksum_of(self._table_mark + fields + row) if row else NO_ROW
        place = shuffle_bucket(self._number, bucket, self._blocks.shuffle_buckets)
        states[place] += STATE.pack(self._number, bucket, key_id(fields), order, checksum)

    def mark(self, key: bytes) -> None:
        """Let the records of a key be read; those of the whole table where the key may be another text of a row's."""
        fields = self._slices.fields_of(key)
        if fields is None:
            self._blocks.add(SumKind.UNJUDGED_TABLE, self._number)
        else:
            self._blocks.add(SumKind.UNJUDGED_BUCKET, self._number, key_bucket(fields, self._buckets))


def _are_short_and_plain(fields: Sequence[bytes | None], rows: Sequence[bytes]) -> TypeGuard[Sequence[bytes]]:
    """Return whether all keys are known and short, all have a row, and the server writes no character otherwise."""
    if None in fields or b"" in rows:
        return False
    of_keys = cast("Sequence[bytes]", fields)
    if max(map(len, of_keys), default=0) > _ID_BYTES:
        return False
    text = b"".join((*of_keys, *rows))
    return _BACKSLASH not in text or _ESCAPE not in text
