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
_ROOM = 32
_GONE: Any = object()  # never leaves this process: a version is pickled as one dict


class Layers(Mapping[K, V]):
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
        found: V = self._added.get(key, _GONE)
        if found is _GONE:
            found = self._changed[key] if key in self._changed else self._base[key]
        if found is _GONE:
            raise KeyError(key)
        return found

    def __contains__(self, key: object) -> bool:
        if key in self._added:
            return True
        changed: Mapping[Any, V] = self._changed
        return changed[key] is not _GONE if key in changed else key in self._base

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[K]:
        changed = self._changed
        base = (k for k in self._base if changed.get(k) is not _GONE) if changed else iter(self._base)
        return chain(base, self._added)

    def __reduce__(self) -> tuple[Any, ...]:
        return Layers, (dict(self),)

    def __repr__(self) -> str:
        return f"Layers({dict(self)!r})"

    def having(self, key: K, value: V) -> Layers[K, V]:
        """Return the mapping with an entry added, at its end, or replaced in its place."""
        more = self._copy()
        if key in self and key not in self._added:
            more._changed[key] = value
        else:
            more._size += key not in self._added
            more._added[key] = value
        return more._folded()

    def without(self, keys: Collection[K]) -> Layers[K, V]:
        """Return the mapping without some entries; those that are not there are passed over."""
        less = self._copy()
        for key in keys:
            if key not in less:
                continue
            less._size -= 1
            if key in less._added:
                del less._added[key]
            else:
                less._changed[key] = _GONE
        return less._folded()

    def _copy(self) -> Layers[K, V]:
        other = Layers[K, V](self._base)
        other._changed, other._added, other._size = self._changed.copy(), self._added.copy(), self._size
        return other

    def _folded(self) -> Layers[K, V]:
        if len(self._changed) + len(self._added) <= _ROOM + 2 * isqrt(len(self._base)):
            return self
        whole = self._base.copy()
        for key, value in self._changed.items():
            if value is _GONE:
                del whole[key]
            else:
                whole[key] = value
        whole.update(self._added)
        return Layers(whole)


def layered(entries: Mapping[K, V]) -> Layers[K, V]:
    """Return a mapping as one whose versions share their entries.

    Args:
        entries: The mapping; not to be changed any more.
    """
    return entries if isinstance(entries, Layers) else Layers(entries)
