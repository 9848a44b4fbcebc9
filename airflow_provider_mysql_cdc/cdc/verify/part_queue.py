"""The parts of tables and topics that are left to read; tasks take one after the other."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from airflow_provider_mysql_cdc.cdc.job.task_operation import EmptyMessage
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.verify.verify_operations import NextPart, TopicRange

MAX_RANGE_RECORDS = 500_000
"""Offsets of a partition that one part spans at most."""


def topic_ranges(topic: str, bounds: dict[int, tuple[int, int]]) -> list[TopicRange]:
    """Return the parts of a topic.

    Args:
        topic: The topic.
        bounds: First offset, and the offset after the last record, by partition.
    """
    return [
        TopicRange(topic, partition, start, min(start + MAX_RANGE_RECORDS, end))
        for partition, (first, end) in sorted(bounds.items())
        for start in range(first, end, MAX_RANGE_RECORDS)
    ]


class PartQueue:
    """Hand out parts, and log how many are left.

    Args:
        chunks: Parts of tables.
        ranges: Parts of topics.
        log: Takes one line of text.
    """

    def __init__(self, chunks: Sequence[SnapshotChunk], ranges: Sequence[TopicRange], log: Log) -> None:
        self._parts: list[NextPart] = [*(NextPart(chunk=chunk) for chunk in chunks)]
        self._parts += [NextPart(records=part) for part in ranges]
        # The source and Kafka are read at the same time.
        self._parts.sort(key=lambda part: -_size(part))
        self._total, self._log, self._lock = len(self._parts), log, threading.Lock()

    def next(self, task: int, request: EmptyMessage) -> NextPart:
        """Return the next part; an empty one when none is left.

        Args:
            task: The task that asks.
            request: Nothing.
        """
        with self._lock:
            if not self._parts:
                return NextPart()
            taken = self._total - len(self._parts)
            if taken and taken % max(1, self._total // 10) == 0:
                self._log(f"verification: {taken:,} of {self._total:,} parts of tables and topics are read")
            return self._parts.pop(0)


def _size(part: NextPart) -> int:
    if part.chunk is not None:
        return part.chunk.rows
    return 0 if part.records is None else part.records.end - part.records.start
