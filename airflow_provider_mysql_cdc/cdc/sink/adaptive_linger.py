"""How long a writer's client waits for more records: long where all go to one partition, shortly where several share.

While a batch of a partition is under way and the next is ready, librdkafka (2.16) asks without a pause whether that one
may go (``rd_kafka_toppar_producer_serve`` wakes at once for what is ready, and then finds that too many messages wait
for their answer). A batch is ready when it is full, or when its oldest record has waited ``linger.ms``. So with 10 ms a
broker that answers later costs a whole processor until it does.

Where all records go to one partition, a client that waits long has nothing ready before: the next batch is full about
when the answer comes, or a commit asks for it. Where several partitions share what may wait, no batch becomes full, and
a client that waits long would stand still; but there a batch of another partition waits for its turn, and while it does
nothing is asked.
"""

from __future__ import annotations

SHARED_LINGER_MS, SINGLE_PARTITION_LINGER_MS = 10, 1_000
"""Milliseconds to wait, of records for several partitions and for one."""
_SIGNIFICANT_BYTES = 4 << 20
"""Bytes of a transaction that say something about the next."""
_MAX_SWITCHES = 4


class AdaptiveLinger:
    """Follow where the records of a writer go, and say how long its client is to wait.

    Args:
        single_partition: Whether its records go to one partition for as long as a transaction takes.
        fixed: Whether it is not to change: a user has said how long.
    """

    def __init__(self, *, single_partition: bool = False, fixed: bool = False) -> None:
        self._single_partition, self._last_single_partition = single_partition, single_partition
        self._switches_left = 0 if fixed else _MAX_SWITCHES
        self._partitions: set[tuple[str, int]] = set()

    def note_partition(self, topic: str, partition: int) -> None:
        """Note where records go.

        Args:
            topic: Topic name.
            partition: Partition number.
        """
        if len(self._partitions) < 2:
            self._partitions.add((topic, partition))

    def transaction_ended(self, size: int) -> None:
        """Note that a transaction has ended.

        Args:
            size: Bytes of its keys and values.
        """
        if self._partitions and size >= _SIGNIFICANT_BYTES:
            self._last_single_partition = len(self._partitions) == 1
        self._partitions.clear()

    @property
    def switch_due(self) -> bool:
        """Whether a client with the other wait would suit what the last transaction was; a few times at most."""
        return self._switches_left > 0 and self._last_single_partition != self._single_partition

    def switch(self) -> None:
        """Take the other wait where it is due."""
        if self.switch_due:
            self._single_partition, self._switches_left = self._last_single_partition, self._switches_left - 1

    @property
    def linger_ms(self) -> int:
        """Milliseconds that a record waits for others."""
        return SINGLE_PARTITION_LINGER_MS if self._single_partition else SHARED_LINGER_MS
