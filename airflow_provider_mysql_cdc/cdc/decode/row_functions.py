"""Interfaces of decoders, which turn rows of one table version into records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.row_salvage import PartialRowDecoder
from airflow_provider_mysql_cdc.cdc.model.records import RowRecord
from airflow_provider_mysql_cdc.cdc.model.table import Table

Buffer = bytes | bytearray
AppendRows = Callable[[Buffer, int, int, EventContext, list[RowRecord]], int]
"""Appends the records of one kind of event and returns the number of rows; see ``RowFunctions.write``."""


class RowFunctions(Protocol):
    """Describe the functions of ``RowDecoder`` and of the decoders that replace it."""

    @property
    def table(self) -> Table:
        """The table version."""

    def write(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of inserts."""

    def delete(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of deletes."""

    def update(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of updates."""

    def partial_update(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of partial updates."""

    def key_bytes(self, key: str | None) -> bytes | None:
        """Return a record key in JSON."""

    def partial_decoder(self) -> PartialRowDecoder:
        """Return the decoder that reads rows value by value."""


DecodeTextRow = Callable[[bytes, int, EventContext, list[RowRecord]], None]
"""Appends the record of one row; see ``TextDecoder``."""
DecodeTextRows = Callable[[bytes, int, int, EventContext, list[RowRecord]], tuple[int, int]]
"""Appends the records of many rows; see ``NativeTextDecoder.decode_many``."""


class TextDecoder(Protocol):
    """Turn rows of the text protocol into records."""

    @property
    def decode_many(self) -> DecodeTextRows | None:
        """Decodes many rows at once; None where each row is decoded by itself."""

    def __call__(self, packet: bytes, pos: int, ctx: EventContext, out: list[RowRecord]) -> None:
        """Append the record of a row with op ``r`` (or ``read_op``).

        Args:
            packet: The row.
            pos: Offset of its first value.
            ctx: Text around the row.
            out: Gets the record.
        """
