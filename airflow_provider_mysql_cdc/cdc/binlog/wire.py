"""Primitives of the binlog's byte format."""

from __future__ import annotations

from struct import Struct

HEADER_LENGTH = 19
# timestamp, type, server id, size with header and checksum, end position (32 bits), flags
HEADER = Struct("<IBIIIH").unpack_from

_LENENC_SIZES = {252: 2, 253: 3, 254: 8}


def lenenc(buf: bytes, pos: int) -> tuple[int, int]:
    """Return a length-encoded integer and the offset after it.

    Raises:
        IndexError: The bytes end early, or the first byte is not one of a length-encoded integer.
    """
    first = buf[pos]
    if first < 251:
        return first, pos + 1
    size = _LENENC_SIZES.get(first)
    stop = pos + 1 + (size or 0)
    if size is None or stop > len(buf):
        raise IndexError(f"length-encoded integer at {pos}")
    return int.from_bytes(buf[pos + 1 : stop], "little"), stop


def varint(buf: bytes, pos: int) -> tuple[int, int]:
    """Return an unsigned integer of MySQL's serialization library and the offset after it.

    The number of trailing one bits of the first byte is the number of further bytes; the value follows the zero bit
    after them, little-endian. Nine bytes hold a full 64-bit value.

    Raises:
        IndexError: The bytes end early.
    """
    first = buf[pos]
    if not first & 1:
        return first >> 1, pos + 1
    extra_bytes = ((first + 1) & ~first).bit_length() - 1
    stop = pos + 1 + extra_bytes
    if stop > len(buf):
        raise IndexError(f"variable-length integer at {pos}")
    value = int.from_bytes(buf[pos:stop], "little")
    return value >> (extra_bytes + 1 if extra_bytes < 8 else 8), stop


def signed_varint(buf: bytes, pos: int) -> tuple[int, int]:
    """Return a signed integer of MySQL's serialization library (sign in the lowest bit) and the offset after it.

    Raises:
        IndexError: The bytes end early.
    """
    value, pos = varint(buf, pos)
    return (value >> 1) ^ -(value & 1), pos


def bits(data: bytes, count: int) -> tuple[bool, ...]:
    """Return ``count`` bits, the first in the highest bit of the first byte."""
    return tuple(bool(data[i >> 3] & 0x80 >> (i & 7)) for i in range(count))
