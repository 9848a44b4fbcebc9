"""What stands for a large value that many tables have in common, in the keys of caches.

A server with thousands of tenants has thousands of tables of a few shapes. Hashing seven columns takes 10 microseconds,
and comparing them as long; so equal values get one object that stands for them all, and is compared by identity.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Any, Generic, TypeVar

T = TypeVar("T", bound=Hashable)
_VALUES = 1_024
"""Different values that are remembered."""
_SEEN = 16_384
"""Objects that are remembered to be one of them."""


class Alike(Generic[T]):
    """Stand for all values that are equal to one; made by ``alike`` alone.

    Args:
        value: That value.
    """

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value


_first = lru_cache(maxsize=_VALUES)(Alike)
# By id: the object, which keeps the id from being another's, and what stands for it.
_seen: dict[int, tuple[Any, Alike[Any]]] = {}


def alike(value: T) -> Alike[T]:
    """Return what stands for a value: the same object for equal ones, as long as it is remembered.

    Args:
        value: The value; not to be changed any more.

    Raises:
        TypeError: It cannot be hashed.
    """
    found = _seen.get(id(value))
    if found is not None and found[0] is value:
        return found[1]
    made: Alike[T] = _first(value)
    if len(_seen) >= _SEEN:
        _seen.clear()
    _seen[id(value)] = value, made
    return made
