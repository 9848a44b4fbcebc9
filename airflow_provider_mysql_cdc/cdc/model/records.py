"""The records that go to Kafka, from the decoder or driver that writes them to the producer.

A ``RowRecord`` is a plain tuple, because generated code and the native kernel build at least one for each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

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


RowRecord = tuple[bytes | None, bytes | None, int, int, Any]
"""Key and value of a row's record, the row's number, which of the row's records it is, and header, partition or
None."""
