"""Avro's binary forms as byte text: text whose characters are the bytes, so that it joins as quickly as JSON text.

Source: Avro specification 1.11, "Binary Encoding".
"""

from __future__ import annotations

from struct import Struct

from airflow_provider_mysql_cdc.cdc.decode.temporal import Memo

_DOUBLE, _FLOAT = Struct("<d").pack, Struct("<f").pack


def varint(number: int) -> str:
    """Return an int or long: zigzag, then seven bits a byte, the lowest first.

    Args:
        number: From -2**63 to 2**63-1.
    """
    rest = (number << 1) ^ (number >> 63)
    out = []
    while rest > 0x7F:
        out.append(chr(rest & 0x7F | 0x80))
        rest >>= 7
    out.append(chr(rest))
    return "".join(out)


# Lengths, small numbers, enumerations; larger ones come in runs too (identifiers, times), so they are kept as well.
VARINTS: Memo[str] = Memo(varint)


def boolean(value: bool) -> str:
    """Return a boolean."""
    return "\x01" if value else "\x00"


def double(number: float) -> str:
    """Return a double."""
    return _DOUBLE(number).decode("latin-1")


def single(number: float) -> str:
    """Return a float; a number beyond its range becomes infinite, as in Java's narrowing."""
    try:
        return _FLOAT(number).decode("latin-1")
    except OverflowError:
        return _FLOAT(float("inf") if number > 0 else float("-inf")).decode("latin-1")


def data(value: bytes) -> str:
    """Return bytes: their number, then themselves."""
    return VARINTS[len(value)] + value.decode("latin-1")


def text(value: str) -> str:
    """Return a string: its length in UTF-8, then that.

    Args:
        value: The string; a half of a surrogate pair becomes a question mark, as in Java.
    """
    return data(value.encode("utf-8", "replace"))


def byte_text(value: str) -> str:
    """Return a string that is byte text of UTF-8 already."""
    return VARINTS[len(value)] + value


def unscaled(number: int) -> str:
    """Return an integer as bytes in its shortest two's complement, as BigInteger.toByteArray gives it (decimals)."""
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return VARINTS[size] + number.to_bytes(size, "big", signed=True).decode("latin-1")
