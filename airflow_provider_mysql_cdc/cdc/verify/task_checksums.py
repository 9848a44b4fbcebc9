"""What one task of a verification needs for checksums: those of each table, and which keys differ in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import Message

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify.checksum_entries import ChecksumBlocks, SumKind
from airflow_provider_mysql_cdc.cdc.verify.checksum_parts import checksum_parts, has_checksums
from airflow_provider_mysql_cdc.cdc.verify.checksum_reader import TableChecksums
from airflow_provider_mysql_cdc.cdc.verify.checksum_tables import DifferingKeys, KeyFilter
from airflow_provider_mysql_cdc.cdc.verify.compared_table import ComparedTable


class TaskChecksums:
    """Hold the checksums of one task.

    Args:
        cfg: The connector's configuration.
        blocks: Takes the entries.
        formats: The formats of records; None when all of them are JSON.
        buckets: Buckets of keys of the tables that are compared by checksums, by number.
        differing: Of other tables, the keys to look at, where a round by checksums was before.
        partitions: Partitions of topics.
        with_structures: Returns a table with the structures that it has had, by number.
        sums_in_sql: Whether the server may add up the checksums of rows, and choose rows by their buckets.
    """

    def __init__(
        self,
        cfg: ConnectorConfig,
        blocks: ChecksumBlocks,
        formats: RecordFormats | None,
        buckets: Mapping[int, int],
        differing: Mapping[TableId, DifferingKeys],
        partitions: Mapping[str, int],
        with_structures: Callable[[int], ComparedTable],
        *,
        sums_in_sql: bool,
    ) -> None:
        self.blocks = blocks
        self._cfg, self._formats, self._buckets, self._differing = cfg, formats, buckets, differing
        self._partitions, self._with_structures, self._sums_in_sql = partitions, with_structures, sums_in_sql
        self._tables: dict[int, TableChecksums | None] = {}
        self._filters: dict[int, KeyFilter | None] = {}

    def of_table(self, compared: ComparedTable) -> TableChecksums | None:
        """Return what makes the checksums of a table; None where its rows are compared.

        Args:
            compared: The table.
        """
        number = compared.number
        if number not in self._buckets or not has_checksums(self._cfg, compared):
            return None
        if number not in self._tables:
            self._tables[number] = self._make(number)
        return self._tables[number]

    def _make(self, number: int) -> TableChecksums | None:
        compared = self._with_structures(number)
        parts = checksum_parts(self._cfg, compared, self._formats, sums_in_sql=self._sums_in_sql)
        if parts is None:
            return None
        partitions = self._partitions.get(compared.topic, 1)
        return TableChecksums(self._cfg, compared, parts, partitions, self._buckets[number], self.blocks)

    def filter_of(self, compared: ComparedTable) -> KeyFilter | None:
        """Return which keys of a table are looked at; None for all.

        Args:
            compared: The table.
        """
        if compared.number not in self._filters:
            differing = self._differing.get(compared.table.id)
            self._filters[compared.number] = None if differing is None else self._filter(compared, differing)
        return self._filters[compared.number]

    def _filter(self, compared: ComparedTable, differing: DifferingKeys) -> KeyFilter | None:
        parts = checksum_parts(self._cfg, compared, self._formats, sums_in_sql=self._sums_in_sql)
        return None if parts is None else differing.filter_for(compared, parts.keys, parts.texts)

    def left_messages(self, number: int, chosen: KeyFilter, messages: Sequence[Message]) -> list[Message]:
        """Return the records whose keys are looked at, and count the events of the others.

        Args:
            number: The table's number.
            chosen: Which keys are looked at.
            messages: Records of its topic.
        """
        looked_at, skipped, bucket_of, differing = list[Message](), 0, chosen.bucket_of, chosen.differing
        for message in messages:
            bucket = bucket_of(message.key())
            if bucket is None or bucket in differing:
                looked_at.append(message)
                if bucket is None:
                    self.blocks.add(SumKind.UNJUDGED_TABLE, number)
            else:
                skipped += message.value() is not None
        if skipped:
            self.blocks.add(SumKind.RECORDS, number, number=skipped)
        return looked_at
