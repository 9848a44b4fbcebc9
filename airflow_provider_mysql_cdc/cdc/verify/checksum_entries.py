"""The entries of a first pass: last states of keys, and states of rows or sums over them, in blocks of bytes.

The keys of a table are divided into buckets by the CRC-32 of their text. All entries of one such bucket go to the same
task of the shuffle, beside the entries of tables that are compared row by row (``entries``).
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum

from airflow_provider_mysql_cdc.cdc.verify.sql_literals import escapes_as_in_sql

MARK = b"\xff\xff"
"""What blocks of these entries begin with; no table has this number."""
NO_ROW = bytes(8)
"""The checksum of a row that does not exist."""
STATE = struct.Struct(">HH16sQ8s")
"""The state of a key after some records: table; bucket; the key's text or its digest; order; checksum of the row."""
SPLIT_STATE = struct.Struct(">20s16s")
"""The same, as bytes: which key it is, and the rest, which compares by the order."""
SUM = struct.Struct(">BHHQQ")
"""Kind (``SumKind``), table, bucket, number, sum."""
SPLIT_ROW = struct.Struct(">20s8x8s")
"""The state of a row, which has no order: which key it is, and its checksum."""
STATES, ROW_STATES, SUMS = MARK + b"K", MARK + b"R", MARK + b"S"
HEAD_BYTES = len(STATES)
MAX_BUCKETS = 1024
"""Most buckets of a table; the server sends a sum of each for every chunk of rows."""
ROWS_PER_BUCKET = 256
_BLOCK_BYTES = 1 << 16
_MAX_SUMS = 100_000
ID_BYTES = 16
_SUM_BITS = 0xFFFF_FFFF_FFFF_FFFF


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


def bucket_count(rows: int) -> int:
    """Return the number of buckets for the keys of a table.

    Args:
        rows: About how many there are.
    """
    return max(1, min(MAX_BUCKETS, rows // ROWS_PER_BUCKET))


def key_id(fields: bytes) -> bytes:
    """Return at most 16 bytes that tell a key from all others of its table.

    Args:
        fields: Text of the key's fields.
    """
    return fields if len(fields) <= ID_BYTES else hashlib.md5(fields, usedforsecurity=False).digest()


def key_bucket(fields: bytes, buckets: int) -> int:
    """Return the bucket of a key.

    Args:
        fields: Text of the key's fields.
        buckets: Number of buckets of its table.
    """
    return zlib.crc32(escapes_as_in_sql(fields)) % buckets


class ChecksumBlocks:
    """Collect entries by the shuffle's bucket, and hand on full blocks.

    Args:
        shuffle_buckets: Number of tasks that compare.
    """

    def __init__(self, shuffle_buckets: int) -> None:
        self.shuffle_buckets = shuffle_buckets
        self.states = [bytearray() for _ in range(shuffle_buckets)]
        self.row_states = [bytearray() for _ in range(shuffle_buckets)]
        self._block_bytes = max(1024, min(_BLOCK_BYTES, (64 << 20) // shuffle_buckets))
        self._sums: dict[tuple[SumKind, int, int], list[int]] = {}

    def add(self, kind: SumKind, table: int, bucket: int = 0, number: int = 0, checksum: int = 0) -> None:
        """Add numbers to those that this task has of the same bucket.

        Args:
            kind: What they are.
            table: The table's number.
            bucket: The bucket; 0 for a whole table.
            number: How many.
            checksum: The sum of their checksums.
        """
        place = (kind, table, bucket)
        known = self._sums.get(place)
        if known is None:
            self._sums[place] = [number, checksum]
        else:
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
            block += SUM.pack(kind, table, bucket, number, checksum & _SUM_BITS)
        self._sums.clear()
        for place, block in blocks.items():
            yield place, bytes(block)


def shuffle_bucket(table: int, bucket: int, shuffle_buckets: int) -> int:
    """Return which task compares a bucket of a table; small tables are spread over all of them.

    Args:
        table: The table's number.
        bucket: The bucket.
        shuffle_buckets: Number of tasks.
    """
    return (table * 31 + bucket) % shuffle_buckets
