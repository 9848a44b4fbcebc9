"""Avro's binary forms as byte text, and what the code of one column in Avro is made of.

Avro's binary forms as byte text: text whose characters are the bytes, so that it joins as quickly as JSON text.

Source: Avro specification 1.11, "Binary Encoding".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from struct import Struct
from types import MappingProxyType
from typing import Any

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import literal
from airflow_provider_mysql_cdc.cdc.decode.values.temporal import Memo
from airflow_provider_mysql_cdc.cdc.model.table import Column

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


_DOUBLE_BYTES = Struct("<d").pack
LENGTH_LIMIT = len(LENGTHS)
"""The first number of bytes that has no place in a table."""


@dataclass(frozen=True, slots=True)
class ColumnFormat:
    """Say how a column's values are written.

    Args:
        column: The column.
        options: Modes.
        branch: Text before a value that is not null: the branch of a union, or nothing.
        encode: Turns a value's JSON text (byte text) into its bytes (byte text).
    """

    column: Column
    options: DecoderOptions
    branch: str
    encode: Callable[[str], str]

    def body(self, text: str = "", *, size: str = "", max_size: int = LENGTH_LIMIT) -> str:
        """Return the f-string body of a value.

        Args:
            text: F-string body of its bytes.
            size: Expression of the number of bytes that precedes them, if there is one.
            max_size: The largest such number that the column's type allows.
        """
        return literal(self.branch) + (f"{{{length_code(size, max_size)}}}" if size else "") + text

    def without_branch(self) -> ColumnFormat:
        """Return the format of values without the branch of their union."""
        return replace(self, branch="")

    def integer(self, name: str) -> str:
        """Return the expression of a value that is a whole number.

        Args:
            name: The name that holds it.
        """
        branch = literal(self.branch)
        slow_branch = f"'{branch}' + " if branch else ""
        text = f"{branch}{{F[{name} & 63]}}{{M[{name} >> 6 & 127]}}{{L[{name} >> 13]}}"
        return (
            f"f'{text}' if 8191 < {name} < {FOUR_BYTE_LIMIT} "
            f"else {slow_branch}(large({name}) if {name} > 8191 else S[{name}] if {name} >= -8192 else varint({name}))"
        )

    def instant(self, name: str, unit: int) -> str:
        """Return the expression of a point in time.

        Args:
            name: The name that holds it.
            unit: Units a second: 1000 or 1000000.
        """
        # Numbers of 30 bits and less are quicker to work with.
        low, high = f"{name}_l", f"{name}_h"
        upper = f"{{L[{high}]}}" if unit == 1000 else f"{{M[{high} & 127]}}{{M[{high} >> 7 & 127]}}{{L[{high} >> 14]}}"
        text = f"{{F[{low} & 63]}}{{M[{low} >> 6 & 127]}}{{M[{low} >> 13 & 127]}}{{M[{low} >> 20]}}{upper}"
        branch = literal(self.branch)
        least, limit = 1 << LOW_BITS[unit], 1 << LOW_BITS[unit] + 14
        text = text.replace(low, f"({low} := {name} & 134217727)", 1).replace(high, f"({high} := {name} >> 27)", 1)
        return f"f'{branch}{text}' if {least} <= {name} < {limit} else '{branch}' + varint({name})"

    def unscaled(self, name: str) -> str:
        """Return the expression of a value that is the unscaled number of a decimal; money has three bytes mostly.

        Args:
            name: The name that holds it.
        """
        branch = literal(self.branch)
        return (
            f"f'{branch}\\x06{{B[{name} >> 16]}}{{B[{name} >> 8 & 255]}}{{B[{name} & 255]}}' if 32767 < {name} < "
            "8388608 "
            f"else '{branch}' + unscaled({name})"
        )

    def zero_date(self, null: str, epoch: str) -> str:
        """Return the bytes of MySQL's zero dates (TYPE-53).

        Args:
            null: Bytes of NULL.
            epoch: JSON text of the epoch, which replaces them where NULL is not allowed.
        """
        return null if self.column.nullable else self.encode(epoch)


LOW_BITS = {1000: 27, 1_000_000: 41}
"""Bits of a point in time below those that its last one or two bytes hold in this century, by units a second."""


def length_code(expression: str, max_size: int = LENGTH_LIMIT) -> str:
    """Return the expression of a number of bytes.

    Args:
        expression: Its expression, cheap to compute.
        max_size: The largest number that is allowed; where it is below 8192, a larger one is an error.
    """
    return (
        f"Z[{expression}]"
        if max_size < LENGTH_LIMIT
        else f"S[{expression}] if {expression} < {LENGTH_LIMIT} else varint({expression})"
    )


def utf8(text: str) -> str:
    """Return UTF-8 byte text as it is.

    Raises:
        UnicodeDecodeError: It is no UTF-8.
    """
    text.encode("latin-1").decode()
    return text


def finite(number: float) -> str:
    """Return a double.

    Raises:
        ValueError: It is not a number that MySQL stores.
    """
    if number - number != 0:
        raise ValueError(f"{number!r} is not a number that MySQL stores")
    return _DOUBLE_BYTES(number).decode("latin-1")


CODE_NAMESPACE: Mapping[str, Any] = MappingProxyType(
    {
        "S": SMALL,
        "Z": LENGTHS,
        "F": FIRST,
        "M": CONTINUED,
        "L": LAST,
        "B": BYTES,
        "varint": varint,
        "large": large,
        "unscaled": unscaled,
        "utf8": utf8,
        "finite": finite,
        "double_of": _DOUBLE_BYTES,
    }
)
"""What generated code sees: tables and functions of bytes."""
