"""What one record for Kafka is while it goes from a decoder or a driver to the producer."""

from __future__ import annotations

from typing import Any

Header = tuple[str, bytes]
"""Name and value of a record's header."""
SideRecord = tuple[str, bytes | None, bytes | None]
"""Topic, key and value of a record that belongs to no row: a marker, schema history, a schema change, a transaction.
It goes to partition 0 of its topic, within the commit of the writer that has it."""
RowRecord = tuple[bytes | None, bytes | None, int, int, Any]
"""Key and value of a row's record, the row's number, which of the row's records it is, and header, partition or
None."""
