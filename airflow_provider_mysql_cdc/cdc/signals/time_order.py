"""Put signals of several sequences, each in its own order already, into one order by time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")


def in_time_order(items: Iterable[T], sequence: Callable[[T], Hashable], time_ms: Callable[[T], int]) -> list[T]:
    """Return the items by their times; those of one sequence keep their order, whatever their times are.

    Args:
        items: The items, those of one sequence in its order.
        sequence: Returns the sequence of an item: a channel, or a partition.
        time_ms: Returns the time of an item in milliseconds since 1970; 0 if it is not known.
    """
    latest: dict[Hashable, int] = {}
    timed: list[tuple[int, T]] = []
    for item in items:
        key = sequence(item)
        latest[key] = max(latest.get(key, 0), time_ms(item))
        timed.append((latest[key], item))
    return [item for _, item in sorted(timed, key=lambda pair: pair[0])]
