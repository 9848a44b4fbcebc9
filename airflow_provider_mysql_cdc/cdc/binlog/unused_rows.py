"""Large row events of which nothing is read: they pass without being held."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple, Protocol

from airflow_provider_mysql_cdc.cdc.binlog import control_events
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.packets import MAX_PACKET_PAYLOAD, PACKET_HEADER, PassedOver
from airflow_provider_mysql_cdc.cdc.binlog.rows_header import ROW_EVENTS, TABLE_ID_BYTES

LARGE_EVENT = 1 << 18
"""Bytes from which on a row event of which nothing is read is not held."""
UnusedRows = Callable[[int], bool]
"""Says of a table id whether nothing is read of its rows."""
# Packet header (length and sequence number), status byte, event header.
FRAME = Struct("<IBIBIIIH")
_BODY_OFFSET = FRAME.size
HEAD_LENGTH = _BODY_OFFSET + TABLE_ID_BYTES
"""Bytes of a packet that say whose rows it holds."""
_KEPT_BYTES = 4096  # the event's header and, for 4096 columns (MySQL's limit), two bitmaps of 512 bytes


class Packets(Protocol):
    """Where packets come from (``packets.PacketReader``)."""

    def pass_over(self, chunk: bytes, pos: int, length: int, kept: int) -> PassedOver:
        """Read a payload of ``length`` bytes and keep the first ``kept`` of them."""


class PassedEvent(NamedTuple):
    """Hold a row event that passed.

    Args:
        event: The event; of its body there is the beginning.
        log_pos: Position after it, as its header says.
        rest: What has arrived behind it: the next chunk.
    """

    event: Event
    log_pos: int
    rest: bytes


def no_rows(table_id: int) -> bool:
    """Return True: for a reader of statements, which reads no rows at all.

    Args:
        table_id: Any table id.
    """
    return True


def pass_over(
    packets: Packets, unused: UnusedRows, chunk: bytes, at: int, *, file: str, pos: int, checksum: bool
) -> PassedEvent | None:
    """Read a large row event of which nothing is used, and check its checksum.

    Args:
        packets: Where packets come from.
        unused: Says of a table id whether nothing is read of its rows.
        chunk: The current chunk, which holds the frame of the event.
        at: Offset of the frame.
        file: Binlog file.
        pos: Position of the event.
        checksum: Whether events carry checksums.

    Returns:
        The event; None for any other one, and for one whose packets have to be looked at.

    Raises:
        BinlogCorruptError: The checksum does not hold, or the packets have another length than the event.
        SourceConnectionError: Silence, or the connection broke.
    """
    length_word, status, timestamp, kind, server_id, size, log_pos, flags = FRAME.unpack_from(chunk, at)
    table_id, length = chunk[at + _BODY_OFFSET : at + _BODY_OFFSET + TABLE_ID_BYTES], size + 1
    is_large_row_event = size > LARGE_EVENT and kind in ROW_EVENTS and len(table_id) == TABLE_ID_BYTES
    # An empty packet follows one of the greatest length.
    regular = not status and length_word & 0xFFFFFF == min(length, MAX_PACKET_PAYLOAD) and length % MAX_PACKET_PAYLOAD
    if not is_large_row_event or not regular or not unused(int.from_bytes(table_id, "little")):
        return None
    head, crc, rest = packets.pass_over(chunk, at, length, _KEPT_BYTES)
    if checksum and crc != control_events.CRC_RESIDUE:
        raise control_events.checksum_error(file, pos, kind)
    body = _BODY_OFFSET - PACKET_HEADER
    event = Event(kind, timestamp, server_id, flags, file, pos, pos + size, head, body, len(head))
    return PassedEvent(event, log_pos, rest)
