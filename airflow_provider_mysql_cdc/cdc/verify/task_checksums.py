"""What one task of a verification needs for checksums: those of each table, and which keys differ in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import Message

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify.checksum_entries import ChecksumBlocks, SumKind
from airflow_provider_mysql_cdc.cdc.verify.checksum_keys import key_texts
from airflow_provider_mysql_cdc.cdc.verify.checksum_reader import TableChecksums
from airflow_provider_mysql_cdc.cdc.verify.checksum_tables import DifferingKeys, KeyFilter, has_checksums
from airflow_provider_mysql_cdc.cdc.verify.compared_table import ComparedTable
from airflow_provider_mysql_cdc.cdc.verify.sql_row_text import sql_texts


class TaskChecksums:
    """Hold the checksums of one task.

    Args:
        cfg: The connector's configuration.
        blocks: Takes the entries.
        buckets: Buckets of keys of the tables that are compared by checksums, by number.
        differing: Of other tables, the keys to look at, where a round by checksums was before.
        partitions: Partitions of topics.
        with_structures: Returns a table with the structures that it has had, by number.
    """

    def __init__(
        self,
        cfg: ConnectorConfig,
        blocks: ChecksumBlocks,
        buckets: Mapping[int, int],
        differing: Mapping[TableId, DifferingKeys],
        partitions: Mapping[str, int],
        with_structures: Callable[[int], ComparedTable],
    ) -> None:
        self.blocks = blocks
        self._cfg, self._buckets, self._differing = cfg, buckets, differing
        self._partitions, self._with_structures = partitions, with_structures
        self._tables: dict[int, TableChecksums] = {}
        self._filters: dict[int, KeyFilter | None] = {}

    def of_table(self, compared: ComparedTable) -> TableChecksums | None:
        """Return what makes the checksums of a table; None where its rows are compared.

        Args:
            compared: The table.
        """
        number = compared.number
        if number not in self._buckets or not has_checksums(self._cfg, compared):
            return None
        checksums = self._tables.get(number)
        if checksums is None:
            partitions, with_structures = self._partitions.get(compared.topic, 1), self._with_structures(number)
            checksums = TableChecksums(self._cfg, with_structures, partitions, self._buckets[number], self.blocks)
            self._tables[number] = checksums
        return checksums

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
        table = compared.table
        return differing.filter_for(compared, key_texts(self._cfg, table), sql_texts(self._cfg, table))

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
                if bucket is None and chosen.condition:
                    self.blocks.add(SumKind.UNJUDGED_TABLE, number)
            else:
                skipped += message.value() is not None
        if skipped:
            self.blocks.add(SumKind.RECORDS, number, number=skipped)
        return looked_at
