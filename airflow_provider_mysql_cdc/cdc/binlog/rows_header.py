"""The header of a row event."""

from __future__ import annotations

from struct import Struct, error
from typing import NamedTuple, Protocol

from airflow_provider_mysql_cdc.cdc.errors import BinlogCorruptError, UnsupportedEventError

# Event type numbers: MySQL source, binlog_event.h (Log_event_type).
WRITE_ROWS_V1, UPDATE_ROWS_V1, DELETE_ROWS_V1 = 23, 24, 25
WRITE_ROWS, UPDATE_ROWS, DELETE_ROWS = 30, 31, 32
PARTIAL_UPDATE_ROWS = 39
ROW_EVENTS = frozenset(
    {WRITE_ROWS_V1, UPDATE_ROWS_V1, DELETE_ROWS_V1, WRITE_ROWS, UPDATE_ROWS, DELETE_ROWS, PARTIAL_UPDATE_ROWS}
)
_UPDATES = frozenset({UPDATE_ROWS_V1, UPDATE_ROWS, PARTIAL_UPDATE_ROWS})
_WRITES = frozenset({WRITE_ROWS_V1, WRITE_ROWS})
END_OF_STATEMENT = 0x0001
_MAX_COLUMNS = 4096  # of a table, MySQL manual, "Limits on Table Column Count"
LENENC_PREFIX = 251  # from here on a length-encoded integer takes several bytes

TABLE_ID_BYTES, FLAGS_END = 6, 8

_POST_HEADER_V1 = Struct("<IHH").unpack_from  # 6-byte table id, 2-byte flags
_POST_HEADER_V2 = Struct("<IHHH").unpack_from  # and the length of extra data, which counts its own two bytes


class BinlogEvent(Protocol):
    """What is read of an event."""

    @property
    def type(self) -> int:
        """Event type number."""

    @property
    def file(self) -> str:
        """Binlog file name."""

    @property
    def start_pos(self) -> int:
        """Position of the event in the file."""

    @property
    def buf(self) -> bytes | bytearray:
        """Bytes that hold the event."""

    @property
    def body(self) -> int:
        """Offset of the event body, after the 19-byte header."""

    @property
    def end(self) -> int:
        """Offset after the body, without checksum."""


class RowsHeader(NamedTuple):
    """Describe a row event up to its first row.

    Args:
        table_id: Number that the TABLE_MAP event before it announced.
        flags: Flags; ``END_OF_STATEMENT`` marks the statement's last row event.
        pos: Offset of the first row in the buffer; the bitmaps of present columns end here.
        width: Number of columns.
        present: Bitmap of columns present in the (before or only) image, column 0 in bit 0 of byte 0.
        present_after: The same for the after image of an UPDATE, else None.
    """

    table_id: int
    flags: int
    pos: int
    width: int
    present: bytes
    present_after: bytes | None

    def has_all_columns(self) -> bool:
        """Return whether every column is present in every image."""
        full = int.from_bytes(full_bitmap(self.width), "little")
        images = (self.present, self.present if self.present_after is None else self.present_after)
        return all(not full & ~int.from_bytes(image, "little") for image in images)


def has_column(bitmap: bytes, index: int) -> bool:
    """Return whether a column is in an image.

    Args:
        bitmap: The image's bitmap of present columns.
        index: The column's index, from 0.
    """
    return bool(bitmap[index >> 3] & 1 << (index & 7))


def full_bitmap(width: int) -> bytes:
    """Return the bitmap of ``width`` columns that are all present."""
    return ((1 << width) - 1).to_bytes((width + 7) >> 3, "little")


def common_headers(width: int) -> dict[int, bytes]:
    """Return what stands between flags and rows in most row events of a table, by event type.

    They have no extra data and leave out no column. Of a table with so many columns that their number takes more than
    one byte, each event is looked at in full.

    Args:
        width: Number of columns.
    """
    if width >= LENENC_PREFIX:
        return {}
    # The server sets the spare bits of the last byte too.
    image = b"\xff" * ((width + 7) >> 3)
    prefix = b"\x02\x00" + bytes([width])
    return {WRITE_ROWS: prefix + image, UPDATE_ROWS: prefix + image + image, DELETE_ROWS: prefix + image}


def lenenc(buf: bytes | bytearray, pos: int) -> tuple[int, int]:
    """Return a length-encoded integer and the offset after it.

    Raises:
        ValueError: When the first byte is not one of a length-encoded integer.
    """
    first = buf[pos]
    if first < LENENC_PREFIX:
        return first, pos + 1
    size = {252: 2, 253: 3, 254: 8}.get(first)
    if size is None:
        raise ValueError(f"a length begins with byte {first}")
    return int.from_bytes(buf[pos + 1 : pos + 1 + size], "little"), pos + 1 + size


def rows_header(event: BinlogEvent) -> RowsHeader:
    """Parse the post-header, extra data, width and column bitmaps of a row event (versions 1 and 2, partial updates).

    Args:
        event: The event.

    Raises:
        UnsupportedEventError: For types that carry no rows.
        BinlogCorruptError: When the structure does not hold.
    """
    if event.type not in ROW_EVENTS:
        raise _unsupported_error(event)
    try:
        header = _parse_header(event.type, event.buf, event.body)
    except (ValueError, IndexError, error) as cause:
        raise _truncated_error(event, str(cause)) from cause
    if header.pos > event.end:
        raise _truncated_error(event, "the bitmaps of present columns end after the event")
    return header


def check_rows(event: BinlogEvent, header: RowsHeader, width: int) -> None:
    """Refuse a row event that cannot belong to its table, or whose rows cannot be counted.

    An INSERT that names no column, with binlog_row_image=MINIMAL, has a bitmap of no columns and not a byte of rows: it
    stands for one row of defaults (seen with 9.7.4; the server refuses two of them).

    Args:
        event: The event.
        header: Its header.
        width: Columns of the table that its TABLE_MAP event announced.

    Raises:
        BinlogCorruptError: It has another number of columns, no rows, or rows without columns.
    """
    if header.width != width:
        raise _mismatch_error(event, f"it has {header.width} columns, the TABLE_MAP event before it {width}")
    empty = header.pos >= event.end
    if header.present[0] & 1 and not empty:
        return
    full = full_bitmap(width)
    images = [header.present] if header.present_after is None else [header.present, header.present_after]
    if any(a & b for image in images for a, b in zip(image, full, strict=True)):
        if empty:
            raise _mismatch_error(event, "it has no rows")
    elif not empty or event.type not in _WRITES:
        raise _mismatch_error(event, "its rows have no columns")


def _mismatch_error(event: BinlogEvent, why: str) -> BinlogCorruptError:
    return BinlogCorruptError(
        "A row event contradicts itself or its table",
        where=f"{event.file}:{event.start_pos}",
        why=why,
        remedy="check the binlog with mysqlbinlog --verify-binlog-checksum around this position",
    )


def _parse_header(kind: int, buf: bytes | bytearray, pos: int) -> RowsHeader:
    if kind >= WRITE_ROWS:
        low, high, flags, extra = _POST_HEADER_V2(buf, pos)
        if extra < 2:
            raise ValueError(f"its extra data has {extra} bytes, its own length included")
        pos += 8 + extra
    else:
        low, high, flags = _POST_HEADER_V1(buf, pos)
        pos += 8
    width = buf[pos]
    if width < LENENC_PREFIX:
        pos += 1
    else:
        width, pos = lenenc(buf, pos)
    if not 0 < width <= _MAX_COLUMNS:
        raise ValueError(f"it has {width} columns")
    size = (width + 7) >> 3
    present = bytes(buf[pos : pos + size])
    pos += size
    if kind not in _UPDATES:
        return RowsHeader(low | high << 32, flags, pos, width, present, None)
    return RowsHeader(low | high << 32, flags, pos + size, width, present, bytes(buf[pos : pos + size]))


def _truncated_error(event: BinlogEvent, why: str) -> BinlogCorruptError:
    return BinlogCorruptError(
        "The header of a row event cannot be read",
        where=f"{event.file}:{event.start_pos}",
        why=why,
        remedy="check the binlog with mysqlbinlog --verify-binlog-checksum around this position",
    )


def _unsupported_error(event: BinlogEvent) -> UnsupportedEventError:
    return UnsupportedEventError(f"Event type {event.type} carries no rows", where=f"{event.file}:{event.start_pos}")
