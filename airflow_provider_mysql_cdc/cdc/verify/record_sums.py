"""Add up the checksums of a topic's records as they are, where each of them is an event that says a row."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from hashlib import sha256
from operator import add
from typing import cast

from airflow_provider_mysql_cdc.cdc.formats.partition_assignment import partition_of
from airflow_provider_mysql_cdc.cdc.verify.checksum_keys import KeySlices
from airflow_provider_mysql_cdc.cdc.verify.checksum_records import EventSlicers, KafkaMessage
from airflow_provider_mysql_cdc.cdc.verify.key_states import has_no_escape

_NUMBERS_OF_A_DIGEST = 4
"""Numbers of 64 bits in a SHA-256, of which the first one is the checksum."""


class RecordSums:
    """Add up the checksums of records of one table's topic.

    Args:
        keys: Takes the fields out of keys.
        rows: Takes the rows out of values.
        partitions: Partitions of the topic.
        checksum_of: Returns the checksum of identity and row.
    """

    def __init__(
        self, keys: KeySlices, rows: EventSlicers, partitions: int, checksum_of: Callable[[bytes], bytes]
    ) -> None:
        self._keys, self._rows, self._partitions, self._checksum_of = keys, rows, partitions, checksum_of

    def sum_of(self, messages: Sequence[KafkaMessage], partition: int) -> int | None:
        """Return the sum of the checksums; None where a record is none that a row alone may have.

        Args:
            messages: The records.
            partition: Their partition.
        """
        keys, values = [message.key() for message in messages], [message.value() for message in messages]
        if None in keys or None in values:
            return None
        return self._sum_of_events(cast("Sequence[bytes]", keys), cast("Sequence[bytes]", values), partition)

    def _sum_of_events(self, keys: Sequence[bytes], values: Sequence[bytes], partition: int) -> int | None:
        rows: Sequence[bytes | None] | None = self._rows.of_run(values)
        if rows is None:
            if any(map(self._rows.is_change, values)):
                return None
            rows = list(map(self._rows.of_event, values))
        fields = self._keys.fields_of_all(keys)
        if None in rows or b"" in rows or None in fields or not self._are_in(partition, keys):
            return None
        return self._sum(list(map(add, cast("Sequence[bytes]", fields), cast("Sequence[bytes]", rows))))

    def _are_in(self, partition: int, keys: Sequence[bytes]) -> bool:
        count = self._partitions
        return count == 1 or all(partition_of(key, count) == partition for key in keys)

    def _sum(self, texts: Sequence[bytes]) -> int:
        if not has_no_escape(b"".join(texts)):
            return sum(int.from_bytes(self._checksum_of(text), "big") for text in texts)
        numbers = array("Q", b"".join([sha256(text).digest() for text in texts]))
        if sys.byteorder == "little":
            numbers.byteswap()
        return sum(numbers[::_NUMBERS_OF_A_DIGEST])
