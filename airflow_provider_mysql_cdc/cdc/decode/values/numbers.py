"""DECIMAL values."""

from __future__ import annotations

# Bytes that hold 0 to 9 digits. Source: MySQL source, decimal.cc (dig2bytes).
DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def decimal_groups(precision: int, scale: int) -> list[tuple[int, int]]:
    """Return the groups of a packed DECIMAL as (digits, bytes), most significant first."""
    integer_digits = precision - scale
    groups = [(integer_digits % 9, DIGIT_BYTES[integer_digits % 9])] if integer_digits % 9 else []
    groups += [(9, 4)] * (integer_digits // 9 + scale // 9)
    if scale % 9:
        groups.append((scale % 9, DIGIT_BYTES[scale % 9]))
    return groups


def decimal_text(unscaled: int, scale: int) -> str:
    """Return the plain text of ``unscaled * 10**-scale`` with all digits after the point."""
    if not scale:
        return str(unscaled)
    digits = f"{abs(unscaled):0{scale + 1}d}"
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def decimal_double(unscaled: int, scale: int) -> float:
    """Return the double nearest to ``unscaled * 10**-scale``."""
    power: int = 10**scale
    return unscaled / power
