"""Which rows a writer wants of a topic that several writers share: those whose keys go to its partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OwnedKeys:
    """Tell by its key whether a row is wanted, so that the others need not be decoded.

    Args:
        partition_count: The topic's partition count.
        own_partitions: Those of this writer.
        partitioner: Returns the partition of a record's key among so many.
    """

    partition_count: int
    own_partitions: frozenset[int]
    partitioner: Callable[[bytes | None, int], int]

    def owns(self, key: bytes | None) -> bool:
        """Return whether the record with this key is this writer's.

        Args:
            key: The key as the record has it, or None.
        """
        return self.partitioner(key, self.partition_count) in self.own_partitions
