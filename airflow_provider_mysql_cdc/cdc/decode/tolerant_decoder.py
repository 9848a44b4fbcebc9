"""Interfaces of decoders, which turn rows of one table version into records, and the one that goes on after a row
that cannot be.

Continue after a row that cannot be decoded (``event.processing.failure.handling.mode`` warn or skip).

Events without such a row are decoded as usual. When a row fails, the event is decoded again row by row: the records of
the other rows are unchanged, and keep their row numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import NULLED, EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ROW_ERRORS
from airflow_provider_mysql_cdc.cdc.decode.codegen.row_salvage import (
    PartialRow,
    PartialRowDecoder,
    RowLayout,
    row_layout,
)
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import quote_byte_text
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
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


class BadRow(NamedTuple):
    """Describe a row that was left out.

    Args:
        row: Its number in the event.
        op: Operation letter.
        error: Why; with the first cause as ``__cause__``.
        key: The record key it would have had, or None when there is none or it cannot be decoded.
        key_json: JSON text of the key's payload, or None.
        before: JSON text of the before image's values that can be decoded, or None.
        after: The same of the after image.
        failed: Name and cause of each column that cannot be decoded.
    """

    row: int
    op: str
    error: ValueDecodeError
    key: bytes | None = None
    key_json: str | None = None
    before: str | None = None
    after: str | None = None
    failed: tuple[tuple[str, str], ...] = ()


class TolerantDecoder:
    """Offer a decoder's functions; rows that fail are added to a list instead of stopping the event.

    Args:
        decoder: The decoder.
        failed: Gets the rows that were left out.
    """

    def __init__(self, decoder: RowFunctions, failed: list[BadRow]) -> None:
        self._decoder, self._failed = decoder, failed
        self._partial_decoder: PartialRowDecoder = decoder.partial_decoder()

    def write(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of a WRITE_ROWS event; arguments as for ``RowDecoder.write``.

        Raises:
            ValueDecodeError: The event is malformed, so the ends of its rows cannot be found.
        """
        return self._decode_event(self._decoder.write, "c", buf, pos, end, ctx, out)

    def update(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of an UPDATE_ROWS event; see ``write``."""
        return self._decode_event(self._decoder.update, "u", buf, pos, end, ctx, out)

    def delete(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of a DELETE_ROWS event; see ``write``."""
        return self._decode_event(self._decoder.delete, "d", buf, pos, end, ctx, out)

    def partial_update(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of a PARTIAL_UPDATE_ROWS event; see ``write``."""
        return self._decode_event(self._decoder.partial_update, "p", buf, pos, end, ctx, out)

    def _decode_event(
        self,
        decode: Callable[..., int],
        kind: str,
        buf: Buffer,
        pos: int,
        end: int,
        ctx: EventContext,
        out: list[RowRecord],
    ) -> int:
        record_count = len(out)
        try:
            return decode(buf, pos, end, ctx, out)
        except ValueDecodeError as error:
            del out[record_count:]
            NULLED.values.clear()
            width = len(self._decoder.table.columns)
            size = (width + 7) // 8 * (2 if kind in "up" else 1)
            bitmaps = bytes(buf[pos - size : pos])
            shape = row_layout(bitmaps, width, 2 if kind in "up" else 1, partial=kind == "p")
            rows = self._partial_rows(bytes(buf[pos:end]), shape, error)
            NULLED.values.clear()
            first = ctx.first_row
            try:
                at = 0
                for number, row in enumerate(rows, first):
                    ctx.first_row = number
                    row_event = bitmaps + bytes(buf[pos + at : pos + row.end])
                    at = row.end
                    self._decode_row(decode, kind, row_event, size, row, ctx, out)
            finally:
                ctx.first_row = first
            return len(rows)

    def _partial_rows(self, data: bytes, shape: RowLayout, error: ValueDecodeError) -> list[PartialRow]:
        """Return all rows of an event, or raise the error when their bounds cannot be found."""
        rows: list[PartialRow] = []
        pos = 0
        try:
            while pos < len(data) or not rows:  # a row of defaults has no bytes
                rows.append(self._partial_decoder.row(data, pos, shape))
                if rows[-1].end == pos and data:
                    raise ValueError("the rows have no bytes")
                pos = rows[-1].end
        except ROW_ERRORS:
            raise error from error.__cause__
        return rows

    def _decode_row(
        self,
        decode: Callable[..., int],
        kind: str,
        row_event: bytes,
        size: int,
        row: PartialRow,
        ctx: EventContext,
        out: list[RowRecord],
    ) -> None:
        record_count, nulled_count = len(out), len(NULLED.values)
        try:
            decode(row_event, size, len(row_event), ctx, out)
        except ValueDecodeError as error:
            del out[record_count:], NULLED.values[nulled_count:]
            images = [_object(image) for image in row.images]
            self._failed.append(
                BadRow(
                    row=ctx.first_row,
                    op="u" if kind == "p" else kind,
                    error=error,
                    key=self._decoder.key_bytes(row.key),
                    key_json=_utf8(row.key),
                    before=None if kind == "c" else images[0],
                    after=images[-1] if kind != "d" else None,
                    failed=tuple(row.failed),
                )
            )


def _object(values: dict[str, str]) -> str:
    members = ",".join(f"{quote_byte_text(name)}:{text}" for name, text in values.items())
    return _utf8(f"{{{members}}}") or "{}"


def _utf8(text: str | None) -> str | None:
    return None if text is None else text.encode("latin-1").decode("utf-8", "replace")
