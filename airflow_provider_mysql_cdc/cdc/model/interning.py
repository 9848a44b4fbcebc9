"""What stands for a large value that many tables have in common, in the keys of caches.

A server with thousands of tenants has thousands of tables of a few shapes. Hashing seven columns takes 10 microseconds,
and comparing them as long; so equal values get one object that stands for them all, and is compared by identity.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Any, Generic, TypeVar

T = TypeVar("T", bound=Hashable)
_MAX_VALUES = 1_024
"""Different values that are remembered."""
_MAX_OBJECTS = 16_384
"""Objects that are remembered to be one of them."""


class Interned(Generic[T]):
    """Stand for all values that are equal to one; made by ``interned`` alone.

    Args:
        value: That value.
    """

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value


_interned_by_value = lru_cache(maxsize=_MAX_VALUES)(Interned)
# By id: the object, which keeps the id from being another's, and what stands for it.
_interned_by_id: dict[int, tuple[Any, Interned[Any]]] = {}


def interned(value: T) -> Interned[T]:
    """Return what stands for a value: the same object for equal ones, as long as it is remembered.

    Args:
        value: The value; not to be changed any more.

    Raises:
        TypeError: It cannot be hashed.
    """
    cached = _interned_by_id.get(id(value))
    if cached is not None and cached[0] is value:
        return cached[1]
    result: Interned[T] = _interned_by_value(value)
    if len(_interned_by_id) >= _MAX_OBJECTS:
        _interned_by_id.clear()
    _interned_by_id[id(value)] = value, result
    return result
