"""A mapping of thousands of entries of which each change makes a new version, without a copy of them all.

A server may have 10,000 tables, and the structures behind each statement are a value of their own: a copy of all names
for each CREATE TABLE is 10,000 times 10,000 entries. What changed since the last whole copy stands beside it, in two
small dicts; they are folded into a new whole copy when they have grown to the square root of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from math import isqrt
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")
_MIN_LAYER_CAPACITY = 32
_DELETED: Any = object()  # never leaves this process: a version is pickled as one dict


class LayeredMapping(Mapping[K, V]):
    """Hold a version of a mapping; its order is that of a dict with the same history.

    Args:
        entries: What it holds; not to be changed any more.
    """

    __slots__ = ("_added", "_base", "_changed", "_size")

    def __init__(self, entries: Mapping[K, V]) -> None:
        self._base: dict[K, V] = entries if type(entries) is dict else dict(entries)
        # Entries of the base that have another value, or none; entries behind those of the base.
        self._changed: dict[K, V] = {}
        self._added: dict[K, V] = {}
        self._size = len(entries)

    def __getitem__(self, key: K) -> V:
        value: V = self._added.get(key, _DELETED)
        if value is _DELETED:
            value = self._changed[key] if key in self._changed else self._base[key]
        if value is _DELETED:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        if key in self._added:
            return True
        changed: Mapping[Any, V] = self._changed
        return changed[key] is not _DELETED if key in changed else key in self._base

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[K]:
        changed = self._changed
        base = (k for k in self._base if changed.get(k) is not _DELETED) if changed else iter(self._base)
        return chain(base, self._added)

    def __reduce__(self) -> tuple[Any, ...]:
        return LayeredMapping, (dict(self),)

    def __repr__(self) -> str:
        return f"LayeredMapping({dict(self)!r})"

    def with_entry(self, key: K, value: V) -> LayeredMapping[K, V]:
        """Return the mapping with an entry added, at its end, or replaced in its place."""
        updated = self._copy()
        if key in self and key not in self._added:
            updated._changed[key] = value
        else:
            updated._size += key not in self._added
            updated._added[key] = value
        return updated._compacted()

    def without(self, keys: Collection[K]) -> LayeredMapping[K, V]:
        """Return the mapping without some entries; those that are not there are passed over."""
        reduced = self._copy()
        for key in keys:
            if key not in reduced:
                continue
            reduced._size -= 1
            if key in reduced._added:
                del reduced._added[key]
            else:
                reduced._changed[key] = _DELETED
        return reduced._compacted()

    def _copy(self) -> LayeredMapping[K, V]:
        copy = LayeredMapping[K, V](self._base)
        copy._changed, copy._added, copy._size = self._changed.copy(), self._added.copy(), self._size
        return copy

    def _compacted(self) -> LayeredMapping[K, V]:
        if len(self._changed) + len(self._added) <= _MIN_LAYER_CAPACITY + 2 * isqrt(len(self._base)):
            return self
        merged = self._base.copy()
        for key, value in self._changed.items():
            if value is _DELETED:
                del merged[key]
            else:
                merged[key] = value
        merged.update(self._added)
        return LayeredMapping(merged)


def layered(entries: Mapping[K, V]) -> LayeredMapping[K, V]:
    """Return a mapping as one whose versions share their entries.

    Args:
        entries: The mapping; not to be changed any more.
    """
    return entries if isinstance(entries, LayeredMapping) else LayeredMapping(entries)
