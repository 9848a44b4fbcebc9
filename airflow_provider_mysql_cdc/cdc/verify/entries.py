"""The entries that map tasks hand to the tasks that compare: one for each row and each event, in blocks of bytes.

Entries with the same key go to the same bucket, whichever side they come from. A block is the concatenation of entries
of one bucket, so the shuffle handles few large objects instead of many small ones. Entries of one table, kind and
partition are written as a run of keys and values, which Python's own ``marshal`` writes and reads at once: driver and
tasks are of one version of Python, on which PySpark insists.
"""

from __future__ import annotations

import marshal
import struct
from collections import defaultdict
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple
from zlib import crc32

HEADER = struct.Struct("<HBIQQII")
"""What an entry begins with: table, kind, partition, offset, order, sizes of key and value (``FoldEntry``)."""
BLOCK_BYTES = 1 << 16
"""Bytes from which on a block is handed on."""
ROW_RUN, EVENT_RUN = 254, 255
"""In place of a kind: the entry holds many rows, or events, of one table and partition."""
PLACE = struct.Struct(">QQ")
"""What the value of an event in a run ends with: offset and order, which compare as bytes."""
RUN_BYTES = 16 << 20
"""Most bytes that a task holds for runs."""
_OBJECT_BYTES = 128
"""About what Python takes for the objects of an entry in a run."""
_MARSHAL_VERSION = 2  # later ones look for objects that come twice
_SAMPLE_SEED = 0x5EED
_SAMPLE_SHARES = 1_000_000


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
    """A record in the history of its key (``key_history``), in addition to the others."""
    OLDER = 8
    """Events of a table without a key have other columns than the table; it is in every bucket."""
    ALIVE_UNDER_OTHER_KEY = 9
    """As ``ALIVE``, of a record whose key was another one then; that one has chosen its partition."""
    DEAD_UNDER_OTHER_KEY = 10
    """As ``DEAD``, likewise."""
    TOMBSTONE = 11
    """A tombstone, after which the row does not exist for consumers of a topic of one table; its place is not known."""
    UNREADABLE = 12
    """A record that is no event; its value is the reason."""
    REPAIRED = 13
    """A record that a repair has written, in addition to the others (``repair_marks``)."""
    TRANSACTION_EVENT = 14
    """An event in its transaction (``transaction_fold``), in addition to the others."""
    TRANSACTION_BOUNDARY = 15
    """A BEGIN or END record of the transaction topic."""
    TOPIC_START = 16
    """The first record of a part of a topic; it is in every bucket."""
    VIEWED = 17
    """The last snapshot has read rows of a table without a key, whose past was read again; it is in every bucket."""
    UNPLACED = 18
    """Events from before the table got its key do not say that one; its order is where the table got it. It is in every
    bucket."""


IN_EVERY_BUCKET = frozenset(
    {EntryKind.TRUNCATE, EntryKind.OLDER, EntryKind.TOPIC_START, EntryKind.VIEWED, EntryKind.UNPLACED}
)


class FoldEntry(NamedTuple):
    """Hold one row or event.

    Args:
        table: The table's number in the verification.
        kind: What it is.
        partition: The partition of the record; of a row, the one that its record would go to.
        offset: The record's offset.
        order: Where the event is in the binlog, for records of different partitions; 0 where that is not known.
        key: Canonical bytes of the row's identity (``row_identity``).
        value: Canonical bytes of the row's values (``row_text``); empty for a row that does not exist. Of an event of a
            table without a key, what decides whether it counts (``equal_rows.event_mark``).
    """

    table: int
    kind: EntryKind
    partition: int
    offset: int
    order: int
    key: bytes
    value: bytes


def bucket_of(key: bytes, buckets: int) -> int:
    """Return the bucket of a key.

    Args:
        key: The row's identity.
        buckets: Number of buckets.
    """
    return crc32(key) % buckets


def is_sampled(key: bytes, sample_percent: float) -> bool:
    """Return whether a key belongs to the sample; the same keys do in every verification.

    Args:
        key: The row's identity.
        sample_percent: Share of the keys, above 0 and at most 100.
    """
    return crc32(key, _SAMPLE_SEED) % _SAMPLE_SHARES < sample_percent * (_SAMPLE_SHARES / 100)


class EntryBlocks:
    """Collect entries by bucket, and hand on full blocks.

    Args:
        buckets: Number of buckets.
        sample_percent: Share of the keys that is kept.
    """

    def __init__(self, buckets: int, sample_percent: float = 100.0) -> None:
        self._buckets, self._sample_percent = buckets, sample_percent
        self._all = sample_percent >= 100
        self._pending = [bytearray() for _ in range(buckets)]
        # All pending blocks together are bounded, however many buckets there are.
        self._block_bytes = max(1024, min(BLOCK_BYTES, (64 << 20) // buckets))
        self._full: list[tuple[int, bytes]] = []
        self._runs: dict[tuple[int, int, int], dict[int, list[bytes]]] = {}
        self._run_bytes, self._most_run_bytes = 0, min(RUN_BYTES, buckets * BLOCK_BYTES * 2)

    def add(self, entry: FoldEntry) -> None:
        """Add an entry, unless its key does not belong to the sample."""
        if entry.kind in IN_EVERY_BUCKET:
            for bucket in range(self._buckets):
                self._append(bucket, _packed(*entry))
        else:
            self.put(*entry)

    def put(self, table: int, kind: int, partition: int, offset: int, order: int, key: bytes, value: bytes) -> None:
        """Add an entry that is in one bucket; arguments as of ``FoldEntry``."""
        if self._all or is_sampled(key, self._sample_percent):
            self._append(crc32(key) % self._buckets, _packed(table, kind, partition, offset, order, key, value))

    def put_run(self, table: int, kind: int, partition: int, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Add many entries of one table and partition, whose keys are in the sample or not as those of others are.

        Args:
            table: The table's number.
            kind: ``ROW_RUN`` or ``EVENT_RUN``.
            partition: The partition.
            keys: Canonical bytes of the rows' identities.
            values: Those of their values; of events with ``PLACE`` behind them, which alone stands for a row that does
                not exist.
        """
        if not self._all:
            percent = self._sample_percent
            pairs = [pair for pair in zip(keys, values, strict=True) if is_sampled(pair[0], percent)]
            keys, values = [key for key, _ in pairs], [value for _, value in pairs]
        runs = self._runs.get((table, kind, partition))
        if runs is None:
            runs = self._runs[table, kind, partition] = defaultdict(list)
        buckets = self._buckets
        for key, value in zip(keys, values, strict=True):
            run = runs[crc32(key) % buckets]
            run.append(key)
            run.append(value)
        self._run_bytes += sum(map(len, keys)) + sum(map(len, values)) + len(keys) * _OBJECT_BYTES
        if self._run_bytes >= self._most_run_bytes:
            self._end_runs()

    def _end_runs(self) -> None:
        for (table, kind, partition), runs in self._runs.items():
            for bucket, run in runs.items():
                run_bytes = marshal.dumps(run, _MARSHAL_VERSION)
                self._append(bucket, HEADER.pack(table, kind, partition, 0, 0, 0, len(run_bytes)) + run_bytes)
        self._runs.clear()
        self._run_bytes = 0

    def _append(self, bucket: int, entry: bytes) -> None:
        pending = self._pending[bucket]
        pending += entry
        if len(pending) >= self._block_bytes:
            self._full.append((bucket, bytes(pending)))
            pending.clear()

    def take_full(self) -> list[tuple[int, bytes]]:
        """Return the full blocks, with their buckets, once."""
        full, self._full = self._full, []
        return full

    def take_rest(self) -> list[tuple[int, bytes]]:
        """Return all blocks that are left."""
        self._end_runs()
        rest = [*self._full, *((bucket, bytes(block)) for bucket, block in enumerate(self._pending) if block)]
        self._full, self._pending = [], [bytearray() for _ in range(self._buckets)]
        return rest


def _packed(table: int, kind: int, partition: int, offset: int, order: int, key: bytes, value: bytes) -> bytes:
    return HEADER.pack(table, kind, partition, offset, order, len(key), len(value)) + key + value


def run_entries(run: bytes | memoryview) -> tuple[list[bytes], list[bytes]]:
    """Return the keys and the values of a run.

    Args:
        run: The value of its entry.
    """
    flat: list[bytes] = marshal.loads(run)
    return flat[::2], flat[1::2]


def event_of_run(table: int, partition: int, key: bytes, value: bytes) -> FoldEntry:
    """Return the entry of an event of a run.

    Args:
        table: The table's number.
        partition: The partition.
        key: The key.
        value: The value, with ``PLACE`` behind it.
    """
    row, (offset, order) = value[: -PLACE.size], PLACE.unpack(value[-PLACE.size :])
    return FoldEntry(table, EntryKind.ALIVE if row else EntryKind.DEAD, partition, offset, order, key, row)
