"""The entries that map tasks hand to the tasks that compare: one for each row and each event, in blocks of bytes.

Entries with the same key go to the same bucket, whichever side they come from. A block is the concatenation of entries
of one bucket, so the shuffle handles few large objects instead of many small ones.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from enum import IntEnum
from typing import NamedTuple
from zlib import crc32

HEADER = struct.Struct("<HBIQQII")
"""What an entry begins with: table, kind, partition, offset, order, sizes of key and value (``FoldEntry``)."""
BLOCK_BYTES = 1 << 16
"""Bytes from which on a block is handed on."""
SAMPLE_MARK = "sample"
"""What the bytes of a key are behind where their hash decides whether it belongs to a sample."""
SAMPLE_SHARES = 1_000_000
_SAMPLE_SEED = crc32(SAMPLE_MARK.encode())


class EntryKind(IntEnum):
    """Say what an entry is."""

    ROW = 0
    """A row of the table."""
    ALIVE = 1
    """An event after which the row exists."""
    DEAD = 2
    """An event after which the row does not exist."""
    TRUNCATE = 3
    """An event that deletes all rows of the table; it is in every bucket."""
    ADDED = 4
    """A row of a table without a key that an event adds."""
    REMOVED = 5
    """A row of a table without a key that an event takes away."""
    KEYLESS_ROW = 6
    """A row of a table without a key."""
    STEP = 7
    """A record in the history of its key (``history.key_history``), in addition to the others."""
    UNDECIDABLE = 8
    """Events of a table without a key do not say which rows they are about; its value is the reason. It is in every
    bucket."""
    ALIVE_UNDER_OTHER_KEY = 9
    """As ``ALIVE``, of a record whose key was another one then; that one has chosen its partition."""
    DEAD_UNDER_OTHER_KEY = 10
    """As ``DEAD``, likewise."""
    TOMBSTONE = 11
    """A tombstone, after which the row does not exist for consumers of a topic of one table; its place is not known."""
    UNREADABLE = 12
    """A record that is no event; its value is the reason."""
    REPAIRED = 13
    """A record that a repair has written, in addition to the others (``row_records``)."""
    TRANSACTION_EVENT = 14
    """An event in its transaction (``history.transactions``), in addition to the others."""
    TRANSACTION_BOUNDARY = 15
    """A BEGIN or END record of the transaction topic."""
    TOPIC_START = 16
    """The first record of a part of a topic; it is in every bucket."""
    UNPLACED = 17
    """Events from before the table got its key do not say that one; its order is where the table got it. It is in every
    bucket."""

    KEPT = 18
    """The record key of an event where ``message.key.columns`` chooses it, in addition to the others. It is the
    value, behind a byte that is not 0 if the row exists after the event."""


IN_EVERY_BUCKET = frozenset({EntryKind.TRUNCATE, EntryKind.UNDECIDABLE, EntryKind.TOPIC_START, EntryKind.UNPLACED})


class FoldEntry(NamedTuple):
    """Hold one row or event.

    Args:
        table: The table's number in the verification.
        kind: What it is.
        partition: The partition of the record; of a row, the one that its record would go to.
        offset: The record's offset.
        order: Where the event is in the binlog, for records of different partitions; 0 where that is not known.
        key: Canonical bytes of the row's identity (``compared_table``).
        value: Canonical bytes of the row's values (``event_record``); empty for a row that does not exist. Of an event
        of a
            table without a key, what decides whether it counts (``key_state.event_mark``).
    """

    table: int
    kind: EntryKind
    partition: int
    offset: int
    order: int
    key: bytes
    value: bytes


def bucket_of(key: bytes, buckets: int) -> int:
    """Return the bucket of a key."""
    return crc32(key) % buckets


def is_sampled(key: bytes, sample_percent: float) -> bool:
    """Return whether a key belongs to the sample; the same keys do in every verification."""
    return crc32(key, _SAMPLE_SEED) % SAMPLE_SHARES < sampled_shares(sample_percent)


def sampled_shares(sample_percent: float) -> float:
    """Return how many of ``SAMPLE_SHARES`` a sample has."""
    return sample_percent * (SAMPLE_SHARES / 100)


class EntryBlocks:
    """Collect entries by bucket, and hand on full blocks.

    Args:
        buckets: Number of buckets.
        sample_percent: Share of the keys that is kept.
        chosen: Numbers of tables whose entries are kept, because their records were chosen before.
    """

    def __init__(self, buckets: int, sample_percent: float = 100.0, chosen: Collection[int] = ()) -> None:
        self._buckets, self._sample_percent, self._chosen = buckets, sample_percent, chosen
        self._all = sample_percent >= 100
        self._pending = [bytearray() for _ in range(buckets)]
        # All pending blocks together are bounded, however many buckets there are.
        self._block_bytes = max(1024, min(BLOCK_BYTES, (64 << 20) // buckets))
        self._full: list[tuple[int, bytes]] = []

    def add(self, entry: FoldEntry) -> None:
        """Add an entry, unless its key does not belong to the sample."""
        if entry.kind in IN_EVERY_BUCKET:
            for bucket in range(self._buckets):
                self._append(bucket, entry)
        elif self._all or entry.table in self._chosen or is_sampled(entry.key, self._sample_percent):
            self._append(bucket_of(entry.key, self._buckets), entry)

    def _append(self, bucket: int, entry: FoldEntry) -> None:
        *numbers, key, value = entry
        pending = self._pending[bucket]
        pending += HEADER.pack(*numbers, len(key), len(value)) + key + value
        if len(pending) >= self._block_bytes:
            self._full.append((bucket, bytes(pending)))
            pending.clear()

    def take_full(self) -> list[tuple[int, bytes]]:
        """Return the full blocks, with their buckets, once."""
        full, self._full = self._full, []
        return full

    def take_rest(self) -> list[tuple[int, bytes]]:
        """Return all blocks that are left."""
        rest = [*self._full, *((bucket, bytes(block)) for bucket, block in enumerate(self._pending) if block)]
        self._full, self._pending = [], [bytearray() for _ in range(self._buckets)]
        return rest


def read_entries(block: bytes) -> Iterator[FoldEntry]:
    """Yield the entries of a block (``EntryBlocks``)."""
    pos, end, unpack, size, kinds = 0, len(block), HEADER.unpack_from, HEADER.size, tuple(EntryKind)
    while pos < end:
        table, kind, partition, offset, order, key_size, value_size = unpack(block, pos)
        key_start = pos + size
        value_start = key_start + key_size
        pos = value_start + value_size
        key, value = block[key_start:value_start], block[value_start:pos]
        yield FoldEntry(table, kinds[kind], partition, offset, order, key, value)
