"""Write what events say of a key, and what the table's row is, as entries of a few bytes: which key, and a checksum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
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

    def checksums_of(self, keys: Sequence[bytes], rows: Sequence[bytes]) -> list[bytes]:
        """Return checksums of keys with their rows, of which a state takes the first bytes.

        Args:
            keys: Keys of records.
            rows: A row of each; empty where there is none.
        """
        return self._checksums(self._fields_of_all(keys), rows)

    def _checksums(self, fields: Sequence[bytes | None], rows: Sequence[bytes]) -> list[bytes]:
        escaped_checksum = self._escaped_checksum
        return [
            NO_ROW
            if not row or of_key is None  # whose records are read
            else sha256(text).digest()
            if _BACKSLASH not in (text := of_key + row)
            else escaped_checksum(text)
            for of_key, row in zip(fields, rows, strict=True)
        ]

    def _escaped_checksum(self, text: bytes) -> bytes:
        return self._checksum_of(text) if _ESCAPE in text else sha256(text).digest()

    def add_events(self, keys: Sequence[bytes], checksums: Iterable[bytes], partition: int, end: int) -> None:
        """Add what the last event of each key says.

        Args:
            keys: Keys of records.
            checksums: The checksum of each with the row after its last event (``checksums_of``).
            partition: The partition of the events.
            end: The offset after the last of them; states with a higher one are later ones.
        """
        if self._partitions > 1:
            self._check_partitions(keys, partition)
        self._put(keys, self._fields_of_all(keys), checksums, end, self._blocks.states)

    def add_rows(self, keys: Sequence[bytes], rows: Sequence[bytes]) -> None:
        """Add rows of the table.

        Args:
            keys: Keys of their records.
            rows: The rows, as events say them.
        """
        fields = self._fields_of_all(keys)
        self._put(keys, fields, self._checksums(fields, rows), 0, self._blocks.row_states)

    def _put(
        self,
        keys: Sequence[bytes],
        fields: Sequence[bytes | None],
        checksums: Iterable[bytes],
        order: int,
        states: list[bytearray],
    ) -> None:
        number, buckets, count, pack = self._number, self._buckets, self._blocks.shuffle_buckets, STATE.pack
        of_bucket = [states[shuffle_bucket(number, bucket, count)] for bucket in range(buckets)]
        for key, of_key, checksum in zip(keys, fields, checksums, strict=True):
            if of_key is None:
                self.mark(key)
                continue
            bucket = crc32(of_key) % buckets if _BACKSLASH not in of_key else key_bucket(of_key, buckets)
            of_bucket[bucket] += pack(
                number, bucket, of_key if len(of_key) <= ID_BYTES else key_id(of_key), order, checksum
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
