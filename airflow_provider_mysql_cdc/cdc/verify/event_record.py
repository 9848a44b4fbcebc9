"""What a verification reads of a record, in whatever format the record is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from airflow_provider_mysql_cdc.cdc.model.records import Headers
from airflow_provider_mysql_cdc.cdc.verify.value_form import Forms

Row = Mapping[str, Any]
"""Values of a row by column, as JsonConverter writes them in whatever format the record is (bytes are Base64)."""


UNKNOWN_STRUCTURE = -1
"""Number of the structure of an event that may have been written under several."""


class UnreadableRecord(Exception):
    """Raised with the reason why a record cannot be read as an event."""


@dataclass(frozen=True, slots=True)
class EventRecord:
    """Hold what a record says.

    Args:
        op: ``c``, ``u``, ``d``, ``r`` or ``t`` as in the envelope; empty for a tombstone and for a message that is no
            change event (op ``m``, a heartbeat). In TiCDC's protocol ``d`` for a record without a value.
        key: The fields of the key; None for a record without one.
        before: The row before the event; None if the record does not say.
        after: The row after the event; None if there is none.
        source: The source block; empty where the format has none. In TiCDC's protocol the extension's members.
        forms: How the values of ``before`` and ``after`` are written; None if the record does not say.
        key_forms: How those of the key are written; None if the record does not say.
        structure: Number of the structure that the table had then (``written_structures``).
        transaction: The transaction block; None if there is none.
        key_bytes: The key as it is.
        key_exact: Whether the key is in the bytes that the stream writes for its fields, in their order.
    """

    op: str
    key: Row | None
    before: Row | None
    after: Row | None
    source: Row
    forms: Forms | None = None
    key_forms: Forms | None = None
    structure: int = 0
    transaction: Row | None = None
    key_bytes: bytes | None = field(default=None, compare=False)
    key_exact: bool = field(default=True, compare=False)


class EventReader(Protocol):
    """Read the records of one topic."""

    def read(self, key: bytes | None, value: bytes | None, headers: Headers = ()) -> EventRecord:
        """Return what a record says.

        A record of a row that was read from the table and written by this package's encoders reads the same as the
        event of an equal row.

        Args:
            key: The record's key.
            value: Its value.
            headers: Its headers; those with GUIDs of schemas are read, where records have them.

        Raises:
            UnreadableRecord: It is not an event as the stream is configured to write them.
        """
        ...
