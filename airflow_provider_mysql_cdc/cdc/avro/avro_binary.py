"""Avro's binary forms as byte text: text whose characters are the bytes, so that it joins as quickly as JSON text.

Source: Avro specification 1.11, "Binary Encoding".
"""

from __future__ import annotations

from struct import Struct

from airflow_provider_mysql_cdc.cdc.decode.values.temporal import Memo

BYTES: tuple[str, ...] = tuple(map(chr, range(256)))
# Tables of seven bits stay in a processor's cache; with fourteen, random numbers miss it, which costs more than steps.
CONTINUED: tuple[str, ...] = BYTES[0x80:]
"""Seven bits that are not the last ones."""
FIRST: tuple[str, ...] = CONTINUED[::2]
"""The same of the lowest six bits of a number that is not negative: zigzag appends a zero bit."""
FIRST_NEGATIVE: tuple[str, ...] = CONTINUED[1::2]
"""The same of the complement of a negative number: zigzag appends a one bit."""
LAST: tuple[str, ...] = tuple(chr(n) if n < 0x80 else chr(n & 0x7F | 0x80) + chr(n >> 7) for n in range(1 << 14))
"""Fourteen bits as the last one or two bytes."""
LENGTHS: tuple[str, ...] = LAST[::2]
"""Numbers of bytes below 8192."""
SMALL: tuple[str, ...] = LAST[::2] + LAST[::-2]
"""Whole numbers from -8192 to 8191; a negative number counts from the end."""
FOUR_BYTE_LIMIT = 1 << 27
"""The first number that takes more than four bytes."""
_DOUBLE, _FLOAT = Struct("<d").pack, Struct("<f").pack


def varint(number: int) -> str:
    """Return an int or long: zigzag, then seven bits a byte, the lowest first.

    Args:
        number: From -2**63 to 2**63-1.

    Raises:
        OverflowError: It is outside of this range.
    """
    if number >= FOUR_BYTE_LIMIT:
        return large(number)
    if number >= -8192:
        return SMALL[number] if number < 8192 else _bits(FIRST, number)
    return _bits(FIRST_NEGATIVE, ~number)


def large(number: int) -> str:
    """Return an int or long of ``FOUR_BYTE_LIMIT`` or more; argument and errors as for ``varint``."""
    # Large numbers come often: identifiers, times, hashes. Parts of 30 bits and less are quicker to work with.
    low, high = number & 0x7FFFFFF, number >> 27
    if 1 << 28 <= high < 1 << 36:
        middle = high & 0xFFFFFFF
        return (
            f"{FIRST[low & 63]}{CONTINUED[low >> 6 & 127]}{CONTINUED[low >> 13 & 127]}{CONTINUED[low >> 20]}"
            f"{CONTINUED[middle & 127]}"
            f"{CONTINUED[middle >> 7 & 127]}{CONTINUED[middle >> 14 & 127]}{CONTINUED[middle >> 21]}{LAST[high >> 28]}"
        )
    return _bits(FIRST, number)


def _bits(first_table: tuple[str, ...], number: int) -> str:
    """Return bits of which the lowest six have the forms of ``first_table``, from 14 to 63 of them."""
    low, high = number & 0x7FFFFFF, number >> 27
    if not high:
        return f"{first_table[low & 63]}{CONTINUED[low >> 6 & 127]}{LAST[low >> 13]}"
    first_bytes = (
        f"{first_table[low & 63]}{CONTINUED[low >> 6 & 127]}{CONTINUED[low >> 13 & 127]}{CONTINUED[low >> 20]}"
    )
    if high < 1 << 14:
        return first_bytes + LAST[high]
    if high < 1 << 28:
        return f"{first_bytes}{CONTINUED[high & 127]}{CONTINUED[high >> 7 & 127]}{LAST[high >> 14]}"
    if high >= 1 << 36:
        raise OverflowError(f"{number} has more than 63 bits")
    low = high & 0xFFFFFFF
    return (
        f"{first_bytes}{CONTINUED[low & 127]}{CONTINUED[low >> 7 & 127]}{CONTINUED[low >> 14 & 127]}"
        f"{CONTINUED[low >> 21]}{LAST[high >> 28]}"
    )


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
    """Return an integer as bytes in its shortest two's complement, as BigInteger.toByteArray returns it (decimals)."""
    if number < 0:
        size = (~number).bit_length() // 8 + 1
        return SMALL[size] + number.to_bytes(size, "big", signed=True).decode("latin-1")
    size = number.bit_length() // 8 + 1
    return f"{SMALL[size]}{number.to_bytes(size, 'big').decode('latin-1')}"
