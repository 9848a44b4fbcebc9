"""Write what events say of a key, and what the table's row is, as entries of a few bytes: which key, and a checksum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import TypeGuard, cast
from zlib import crc32

from airflow_provider_mysql_cdc.cdc.formats.partition_assignment import partition_of
from airflow_provider_mysql_cdc.cdc.verify.checksum_entries import (
    ID_BYTES,
    NO_ROW,
    STATE,
    ChecksumBlocks,
    SumKind,
    key_bucket,
    key_id,
    shuffle_bucket,
)
from airflow_provider_mysql_cdc.cdc.verify.checksum_keys import KeySlices

_BACKSLASH, _ESCAPE = b"\\", b"\\u"


class KeyStates:
    """Write the states of the keys of one table.

    Args:
        number: The table's number.
        keys: Takes the fields out of its keys.
        partitions: Partitions of its topic.
        buckets: Buckets of its keys.
        blocks: Takes the states.
        checksum_of: Returns the checksum of identity and row.
    """

    def __init__(
        self,
        number: int,
        keys: KeySlices,
        partitions: int,
        buckets: int,
        blocks: ChecksumBlocks,
        checksum_of: Callable[[bytes], bytes],
    ) -> None:
        self._number, self._fields_of, self._fields_of_all = number, keys.fields_of, keys.fields_of_all
        self._partitions, self._buckets, self._blocks = partitions, buckets, blocks
        self._checksum_of = checksum_of

    def add_events(self, keys: Sequence[bytes], rows: Sequence[bytes], partition: int, end: int) -> None:
        """Add what events say of their keys; of several events of a key, the last one counts.

        Args:
            keys: Keys of records, in their order.
            rows: The row after each event; empty where there is none.
            partition: The partition of the events.
            end: The offset after the last of them, or a later one; events of later calls are later ones.
        """
        if self._partitions > 1:
            self._check_partitions(keys, partition)
        # There are at least as many offsets as records.
        self._put(keys, rows, range(end - len(keys), end), self._blocks.states)

    def add_rows(self, keys: Sequence[bytes], rows: Sequence[bytes]) -> None:
        """Add rows of the table.

        Args:
            keys: Keys of their records.
            rows: The rows, as events say them.
        """
        self._put(keys, rows, [0] * len(keys), self._blocks.row_states)

    def _put(
        self, keys: Sequence[bytes], rows: Sequence[bytes], orders: Sequence[int], states: list[bytearray]
    ) -> None:
        fields = self._fields_of_all(keys)
        if not _are_short_and_plain(fields, rows):
            self._put_one_by_one(keys, fields, rows, orders, states)
            return
        number, buckets, count = self._number, self._buckets, self._blocks.shuffle_buckets
        pack, first = STATE.pack, shuffle_bucket(number, 0, count)
        for of_key, row, order in zip(fields, rows, orders, strict=True):
            bucket = crc32(of_key) % buckets
            states[(first + bucket) % count] += pack(number, bucket, of_key, order, sha256(of_key + row).digest())

    def _put_one_by_one(
        self,
        keys: Sequence[bytes],
        fields_of_all: Sequence[bytes | None],
        rows: Sequence[bytes],
        orders: Sequence[int],
        states: list[bytearray],
    ) -> None:
        number, buckets, count = self._number, self._buckets, self._blocks.shuffle_buckets
        for key, fields, row, order in zip(keys, fields_of_all, rows, orders, strict=True):
            if fields is None:
                self.mark(key)
                continue
            text = fields + row
            if has_no_escape(text):
                bucket, checksum = crc32(fields) % buckets, sha256(text).digest()
            else:
                bucket, checksum = key_bucket(fields, buckets), self._checksum_of(text)
            states[shuffle_bucket(number, bucket, count)] += STATE.pack(
                number,
                bucket,
                key_id(fields),
                order,
                checksum if row else NO_ROW,  # of which the entry takes the first bytes (``STATE``)
            )

    def _check_partitions(self, keys: Iterable[bytes], partition: int) -> None:
        partitions = self._partitions
        for key in keys:
            if partition_of(key, partitions) != partition:
                self.mark(key)

    def mark(self, key: bytes) -> None:
        """Let the records of a key be read; those of the whole table where the key may be another text of a row's.

        Args:
            key: A record's key.
        """
        fields = self._fields_of(key)
        if fields is None:
            self._blocks.add(SumKind.UNJUDGED_TABLE, self._number)
        else:
            self._blocks.add(SumKind.UNJUDGED_BUCKET, self._number, key_bucket(fields, self._buckets))


def _are_short_and_plain(fields: Sequence[bytes | None], rows: Sequence[bytes]) -> TypeGuard[Sequence[bytes]]:
    """Return whether all keys are known and short, all have a row, and the server writes no character otherwise."""
    if None in fields or b"" in rows:
        return False
    of_keys = cast("Sequence[bytes]", fields)
    return max(map(len, of_keys), default=0) <= ID_BYTES and has_no_escape(b"".join((*of_keys, *rows)))


def has_no_escape(text: bytes) -> bool:
    """Return whether the server writes all characters of a text as records do.

    Args:
        text: Text of keys and rows.
    """
    return _BACKSLASH not in text or _ESCAPE not in text
