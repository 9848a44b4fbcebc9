"""The rows that a writer produces to a topic which several writers share: those whose keys go to its partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OwnedKeys:
    """Decide by its key whether a writer produces a row, so that the other rows need not be decoded.

    Args:
        partition_count: The topic's partition count.
        own_partitions: Those of this writer.
        partitioner: Returns the partition of a record's key among so many.
    """

    partition_count: int
    own_partitions: frozenset[int]
    partitioner: Callable[[bytes | None, int], int]

    def owns(self, key: bytes | None) -> bool:
        """Return whether this writer produces the record with this key.

        Args:
            key: The key as the record has it, or None.
        """
        return self.partitioner(key, self.partition_count) in self.own_partitions
