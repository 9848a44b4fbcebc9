"""Read parts of tables and topics for a first pass by checksums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.job.task_runner import Block
from airflow_provider_mysql_cdc.cdc.verify.checksum_entries import ChecksumBlocks, SumKind
from airflow_provider_mysql_cdc.cdc.verify.checksum_function import sums_sql
from airflow_provider_mysql_cdc.cdc.verify.checksum_parts import ChecksumParts
from airflow_provider_mysql_cdc.cdc.verify.checksum_records import RecordChecksums
from airflow_provider_mysql_cdc.cdc.verify.compared_table import ComparedTable
from airflow_provider_mysql_cdc.cdc.verify.key_states import KeyStates
from airflow_provider_mysql_cdc.cdc.verify.record_range import read_messages
from airflow_provider_mysql_cdc.cdc.verify.row_records import WrittenRow
from airflow_provider_mysql_cdc.cdc.verify.verify_operations import TopicRange


class TableChecksums:
    """Make the checksums of one table, of its topic and of its rows.

    Args:
        cfg: The connector's configuration.
        compared: The table, with its structures.
        parts: Takes its records apart.
        partitions: Partitions of its topic.
        buckets: Buckets of its keys.
        blocks: Takes the entries.
    """

    def __init__(
        self,
        cfg: ConnectorConfig,
        compared: ComparedTable,
        parts: ChecksumParts,
        partitions: int,
        buckets: int,
        blocks: ChecksumBlocks,
    ) -> None:
        self._cfg, self._table, self._number, self._buckets = cfg, compared.table.id, compared.number, buckets
        self._blocks, self._parts, self._is_older = blocks, parts, _is_older(compared)
        self._states = KeyStates(compared.number, parts.keys, partitions, buckets, blocks, parts.checksum_of)
        self._records = RecordChecksums(compared.number, self._states, parts.of_events, blocks, self._is_older)

    def read_records(self, part: TopicRange) -> Iterator[Block]:
        """Read a part of the topic; yield the blocks that are full.

        Args:
            part: The part.
        """
        for messages in read_messages(self._cfg, part.topic, part.partition, (part.start, part.end)):
            if self._records.add(messages, part.partition, messages[-1].offset() + 1):
                yield from self._blocks.take_full()
        yield from self._blocks.take_full()

    def add_rows(self, rows: Iterable[WrittenRow]) -> None:
        """Add rows of the table.

        Args:
            rows: The rows, as records that the product's encoders have written.
        """
        keys, afters, row_of, count = list[bytes](), list[bytes](), self._parts.of_row, 0
        for key, value, _, _ in rows:
            count += 1
            after = None if value is None else row_of(value)
            if key is None or not after:
                self.leave_unjudged()
                continue
            keys.append(key)
            afters.append(after)
        self._states.add_rows(keys, afters)
        self._blocks.add(SumKind.COUNTED_ROWS, self._number, number=count)

    def sums_sql(self, condition: str) -> str | None:
        """Return the statement whose rows ``add_sums`` takes; None where the rows are encoded here.

        Args:
            condition: Which rows.
        """
        texts = self._parts.texts
        return None if texts is None else sums_sql(self._table, texts, self._buckets, condition)

    def add_sums(self, sums: Iterable[tuple[Any, Any, Any]]) -> int:
        """Add sums that the server has computed, and return the number of rows.

        Args:
            sums: Bucket, number and sum of checksums.
        """
        rows = 0
        for bucket, number, checksum in sums:
            rows += int(number)
            if bucket is None:
                self.leave_unjudged()
            else:
                self._blocks.add(SumKind.ROWS, self._number, int(bucket), int(number), int(checksum or 0))
        return rows

    def leave_unjudged(self) -> None:
        """Let all rows of the table be compared, because some have no checksum."""
        self._blocks.add(SumKind.UNJUDGED_TABLE, self._number)


def _is_older(compared: ComparedTable) -> Callable[[int], bool] | None:
    written = compared.written
    return (
        written.is_older if written is not None and written.has_changed and not compared.columns.has_schemas else None
    )
