"""The records that go to Kafka, from the decoder or driver that writes them to the producer.

A ``RowRecord`` is a plain tuple, because generated code and the native kernel build at least one for each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

Header = tuple[str, bytes]
"""Name and value of a record's header."""
Headers = Sequence[tuple[str, bytes | None]]
"""Names and values of a record's headers."""


class SideRecord(NamedTuple):
    """A record that belongs to no row: ledger, schema history, schema change, transaction, heartbeat, notification.

    It goes to partition 0 of its topic.

    Args:
        topic: Its topic.
        key: Its key, or None.
        value: Its value; None deletes the key from a compacted topic.
        headers: Its headers, or None.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers | None = None


RowRecord = tuple[bytes | None, bytes | None, int, int, Header | None, int | None]
"""A record of a row: key, value, number of the row in its event, number of the record among those of the row, header of
its own or None, and partition.

The partition is None until something has chosen it: ``format_rows``, the output that hashes keys, or a decoder that
writes records in TiCDC's protocol directly."""
PartitionedRecord = tuple[bytes | None, bytes | None, int, int, Header | None, int]
"""A ``RowRecord`` in its final format, whose partition is chosen."""


class AddedHeaders(tuple[tuple[str, bytes | None], ...]):
    """The headers that transforms have added to a record, in place of its own: the transforms are done with it."""

    __slots__ = ()


HEADER: Final = 4
"""Index of a record's own header in a ``RowRecord``."""
PARTITION: Final = 5
"""Index of the partition in a ``RowRecord``."""
CHANGE, TOMBSTONE, NEW_KEY = 0, 1, 2
"""Numbers of the records of a row: its change event, the tombstone after a delete, and the create event of an UPDATE
that changes the key, which follows the delete event of the old key."""


def byte_count(records: Sequence[RowRecord]) -> int:
    """Return the bytes of the records' keys and values."""
    return sum(len(record[0] or b"") + len(record[1] or b"") for record in records)
