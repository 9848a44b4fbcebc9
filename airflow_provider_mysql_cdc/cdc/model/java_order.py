"""The order in which Java walks a ``HashSet`` of texts: Debezium lists a statement's tables in it."""

from __future__ import annotations

from collections.abc import Iterable

_FIRST_CAPACITY = 16


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


def java_order(text: str) -> bytes:
    """Return the key by which ``String.compareTo`` sorts: UTF-16 units, unlike Python's code points."""
    return text.encode("utf-16-be", "surrogatepass")


def hash_set_order(texts: Iterable[str]) -> list[str]:
    """Return distinct texts in the order a ``java.util.HashSet`` gives them after adding them in the given order.

    Texts of one bucket keep the order of insertion, and so they do when the table grows (at three quarters full).

    Args:
        texts: The elements.
    """
    distinct = list(dict.fromkeys(texts))
    capacity = _FIRST_CAPACITY
    while len(distinct) > capacity * 3 // 4:
        capacity *= 2
    spread = {t: (h := java_hash(t)) ^ h >> 16 for t in distinct}
    return sorted(distinct, key=lambda t: spread[t] & capacity - 1)
