"""Numbers as Java writes them: ``Double.toString`` and ``Float.toString`` of JDK 19 and later."""

from __future__ import annotations

import struct
from collections.abc import Callable
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
