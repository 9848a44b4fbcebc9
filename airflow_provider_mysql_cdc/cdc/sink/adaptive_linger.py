"""Choose ``linger.ms`` of a writer's producer: long for records of one partition, short for several partitions.

While one batch of a partition is in flight and the next is ready, librdkafka (2.16) polls without a pause whether it
may send that one (``rd_kafka_toppar_producer_serve`` wakes at once for a ready batch, and then finds that too many
messages are unacknowledged). A batch is ready when it is full, or when its oldest record has waited ``linger.ms``. So
with 10 ms, a broker that answers later than that costs a whole CPU core until it answers.

If all records go to one partition, a producer with a long linger has no ready batch before the answer: the next batch
becomes full at about the time of the answer, or a commit flushes it. If several partitions share the queue, no batch
becomes full, and a long linger would stall the producer; but there the ready batches of other partitions wait for their
turn, and librdkafka does not poll meanwhile.
"""

from __future__ import annotations

SHARED_LINGER_MS, SINGLE_PARTITION_LINGER_MS = 10, 1_000
"""``linger.ms`` for records of several partitions, and of one."""
_SIGNIFICANT_BYTES = 4 << 20
"""Bytes from which a transaction predicts how the next one is distributed over partitions."""
_MAX_SWITCHES = 4


class AdaptiveLinger:
    """Track the partitions that a writer's records go to, and choose ``linger.ms`` of its producer.

    Args:
        single_partition: Whether all records of a transaction are expected to go to one partition.
        fixed: Whether the value must not change, because the user has set it.
    """

    def __init__(self, *, single_partition: bool = False, fixed: bool = False) -> None:
        self._single_partition, self._last_single_partition = single_partition, single_partition
        self._switches_left = 0 if fixed else _MAX_SWITCHES
        self._partitions: set[tuple[str, int]] = set()

    def note_partition(self, topic: str, partition: int) -> None:
        """Note the partition of some records.

        Args:
            topic: Topic name.
            partition: Partition number.
        """
        if len(self._partitions) < 2:
            self._partitions.add((topic, partition))

    def transaction_ended(self, size: int) -> None:
        """Note that a transaction has ended.

        Args:
            size: Bytes of the transaction's keys and values.
        """
        if self._partitions and size >= _SIGNIFICANT_BYTES:
            self._last_single_partition = len(self._partitions) == 1
        self._partitions.clear()

    @property
    def switch_due(self) -> bool:
        """Whether the other ``linger.ms`` would suit the last transaction; False after a few switches."""
        return self._switches_left > 0 and self._last_single_partition != self._single_partition

    def switch(self) -> None:
        """Change to the other ``linger.ms`` if that is due."""
        if self.switch_due:
            self._single_partition, self._switches_left = self._last_single_partition, self._switches_left - 1

    @property
    def linger_ms(self) -> int:
        """Milliseconds that a record waits for others of its batch."""
        return SINGLE_PARTITION_LINGER_MS if self._single_partition else SHARED_LINGER_MS
