"""The order in which Java walks a ``HashSet`` of texts: Debezium lists a statement's tables in it."""

from __future__ import annotations

from collections.abc import Iterable

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
