"""What Java does otherwise than Python: numbers as text, and the order of a ``HashSet``."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from math import isfinite

_F32 = struct.Struct("<f")
_FLT_MIN = 1.1754943508222875e-38


def _java_notation(text: str, one_digit: Callable[[], str]) -> str:
    """Return Java's notation of a shortest decimal given in Python's notation (no sign)."""
    mantissa, _, exp_text = text.partition("e")
    integer_part, _, fraction = mantissa.partition(".")
    exponent = (int(exp_text) if exp_text else 0) + len(integer_part) - 1
    digits = integer_part + fraction
    stripped = digits.lstrip("0")
    exponent -= len(digits) - len(stripped)
    digits = stripped.rstrip("0")
    if len(digits) == 1:
        # Java looks for the closest decimal of two digits where one would do.
        mantissa, _, exp_text = one_digit().partition("e")
        digits, exponent = mantissa.replace(".", "").rstrip("0"), int(exp_text)
    if -3 <= exponent < 7:
        if exponent < 0:
            return "0." + "0" * (-exponent - 1) + digits
        digits = digits.ljust(exponent + 1, "0")
        return f"{digits[: exponent + 1]}.{digits[exponent + 1 :] or '0'}"
    return f"{digits[0]}.{digits[1:] or '0'}E{exponent}"


def java_double(value: float) -> str:
    """Return a double as Java's ``Double.toString`` of JDK 19 and later writes it (shortest decimal)."""
    if -1e7 < value < 1e7 and (value >= 1e-3 or value <= -1e-3 or value == 0):
        return repr(value)
    if not isfinite(value):
        raise ValueError(f"{value!r} is not a number that MySQL stores")
    text = repr(value)
    if text[0] == "-":
        return "-" + _java_notation(text[1:], lambda: f"{-value:.1e}")
    return _java_notation(text, lambda: f"{value:.1e}")


def _shortest_float(value: float, bits: bytes) -> str:
    """Return the shortest decimal that reads back as the same float (positive values only)."""
    for digits in range(1 if value < _FLT_MIN else 6, 9):
        text = f"{value:.{digits - 1}e}"
        try:
            if _F32.pack(float(text)) == bits:
                return text
        except OverflowError:  # rounded up beyond the largest float
            continue
    return f"{value:.8e}"


def java_float(value: float) -> str:
    """Return a float, given as the double of the same value, as Java's ``Float.toString`` writes it (JDK 19+)."""
    if value == 0:
        return repr(value)
    if not isfinite(value):
        raise ValueError(f"{value!r} is not a number that MySQL stores")
    sign, value = ("-", -value) if value < 0 else ("", value)
    return sign + _java_notation(_shortest_float(value, _F32.pack(value)), lambda: f"{value:.1e}")


_INITIAL_CAPACITY = 16


def java_hash(text: str) -> int:
    """Return ``String.hashCode()`` as an unsigned 32-bit number.

    Args:
        text: Any text; Java hashes its UTF-16 units.
    """
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for i in range(0, len(units), 2):
        value = (value * 31 + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return value


def java_sort_key(text: str) -> bytes:
    """Return the key by which ``String.compareTo`` sorts: UTF-16 units, unlike Python's code points."""
    return text.encode("utf-16-be", "surrogatepass")


def hash_set_order(texts: Iterable[str]) -> list[str]:
    """Return distinct texts in the order a ``java.util.HashSet`` gives them after adding them in the given order.

    Texts of one bucket keep the order of insertion, and so they do when the table grows (at three quarters full).

    Args:
        texts: The elements.
    """
    distinct = list(dict.fromkeys(texts))
    return _bucket_order(distinct, _INITIAL_CAPACITY)


def _bucket_order(keys: list[str], capacity: int) -> list[str]:
    while len(keys) > capacity * 0.75:
        capacity *= 2
    spread_hashes = {t: (h := java_hash(t)) ^ h >> 16 for t in keys}
    return sorted(keys, key=lambda t: spread_hashes[t] & capacity - 1)


def hash_map_order(copied: Iterable[str], added: Iterable[str], room: int = _INITIAL_CAPACITY) -> list[str]:
    """Return keys in the order of a ``java.util.HashMap`` that was made of another map and then added to.

    Such a map has room for as many keys as it copies and doubles when it is three quarters full.

    Args:
        copied: Keys of the map that it was made of.
        added: Keys put into it afterwards.
        room: What it has room for where it copies nothing.
    """
    first = list(dict.fromkeys(copied))
    keys = list(dict.fromkeys([*first, *added]))
    capacity = 1
    while capacity < (int(len(first) / 0.75 + 1) if first else room):
        capacity *= 2
    return _bucket_order(keys, capacity)
