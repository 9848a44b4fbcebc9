"""Read parts of tables and topics for a first pass by checksums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from confluent_kafka import Message

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.job.task_runner import Block
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify.compare.avro_slices import avro_slices, record_schemas
from airflow_provider_mysql_cdc.cdc.verify.compare.checksum_entries import (
    ChecksumBlocks,
    KeyStates,
    RecordSlices,
    SumKind,
)
from airflow_provider_mysql_cdc.cdc.verify.compare.checksum_fold import DifferingKeys, KeyFilter
from airflow_provider_mysql_cdc.cdc.verify.compare.json_slices import json_slices, place_in_binlog, value_prefix
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import position_order
from airflow_provider_mysql_cdc.cdc.verify.read.row_records import WrittenRow, read_messages
from airflow_provider_mysql_cdc.cdc.verify.read.sql_row_text import SqlTexts, sql_texts, sums_sql
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import ComparedTable
from airflow_provider_mysql_cdc.cdc.verify.verify_operations import TopicRange

_MAX_STATES = 10_000
"""States after which the blocks that are full are handed on."""


def has_checksums(cfg: ConnectorConfig, compared: ComparedTable) -> bool:
    """Return whether a table can be compared by checksums: its records say as bytes which row they are about.

    TiCDC's records do not always say by their keys in which partition they belong.
    """
    has_bytes = value_prefix(cfg, compared.table) is not None or record_schemas(cfg, compared.table) is not None
    return compared.own_key and compared.alone and has_bytes


def record_slices(cfg: ConnectorConfig, compared: ComparedTable, formats: RecordFormats | None) -> RecordSlices | None:
    """Return what takes the records of a table apart that has checksums; None where they have to be read."""
    prefix = value_prefix(cfg, compared.table)
    if prefix is not None:
        return json_slices(cfg, compared.table, prefix)
    return None if formats is None else avro_slices(cfg, compared, formats)


class RecordChecksums:
    """Fold the records of one table's topic by key as bytes, part by part.

    Args:
        number: The table's number.
        states: Takes the states of its keys.
        slices: Takes the rows out of its values.
        blocks: Takes the numbers of its records.
        is_older: Says of a place in the binlog whether the table may have had another structure there, which records
            without schemas do not say (``written_structures``); None where it has had one structure alone.
    """

    def __init__(
        self,
        number: int,
        states: KeyStates,
        slices: RecordSlices,
        blocks: ChecksumBlocks,
        is_older: Callable[[int], bool] | None = None,
    ) -> None:
        self._number, self._states, self._slices = number, states, slices
        self._blocks, self._is_older = blocks, is_older
        self._states_since = 0

    def add(self, messages: Sequence[Message], partition: int, end: int) -> bool:
        """Add records of one partition, in their order; return whether there may be full blocks.

        Args:
            messages: The records.
            partition: Their partition.
            end: The offset after the last one; states of later calls are later ones.
        """
        keys, values = [message.key() for message in messages], [message.value() for message in messages]
        others = 0
        if self._is_older is not None or not self._add_plain(keys, values, partition, end):
            others = self._add_one_by_one(zip(keys, values, strict=True), partition, end)
        self._blocks.add(SumKind.RECORDS, self._number, number=len(messages) - others)
        self._states_since += len(messages)
        if self._states_since < _MAX_STATES:
            return False
        self._states_since = 0
        return True

    def _add_plain(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], partition: int, end: int
    ) -> bool:
        """Return whether all records are events that need not be read, and were added; otherwise none was."""
        if None in values or None in keys:
            return False
        afters = self._slices.rows_after(cast("Sequence[bytes]", values))
        if None in afters:
            return False
        # At once, while the rows are in the processor's cache.
        self._states.add_events(cast("Sequence[bytes]", keys), cast("Sequence[bytes]", afters), partition, end)
        return True

    def _add_one_by_one(self, records: Iterable[tuple[bytes | None, bytes | None]], partition: int, end: int) -> int:
        """Add records; return how many of them are no events."""
        row_after, is_older, others = self._slices.row_after, self._is_older, 0
        last: dict[bytes, bytes] = {}
        for key, value in records:
            if key is None:
                self._blocks.add(SumKind.UNJUDGED_TABLE, self._number)
                others += 1
                continue
            if value is None:
                last[key] = b""
                others += 1
                continue
            after = row_after(value)
            if is_older is not None and is_older(position_order(*place_in_binlog(value))):
                # Its key, too, may be written as that of another row now.
                self._blocks.add(SumKind.UNJUDGED_TABLE, self._number)
            if after is None:
                self._states.mark(key)
            else:
                last[key] = after
        self._states.add_events(list(last), list(last.values()), partition, end)
        return others


class TableChecksums:
    """Make the checksums of one table, of its topic and of its rows.

    Args:
        compared: The table, with the structures that it has had.
        slices: Takes its records apart.
        texts: Expressions with which the server computes the same; None where the rows are encoded here.
        partitions: Partitions of its topic.
        buckets: Buckets of its keys.
        blocks: Takes the entries.
        sample: Tells the keys that are compared; None for all.
    """

    def __init__(
        self,
        cfg: ConnectorConfig,
        compared: ComparedTable,
        slices: RecordSlices,
        texts: SqlTexts | None,
        partitions: int,
        buckets: int,
        blocks: ChecksumBlocks,
        sample: KeyFilter | None,
    ) -> None:
        self._cfg, self._table, self._number, self._buckets = cfg, compared.table.id, compared.number, buckets
        self._blocks, self._texts, self._row_of, self._sample = blocks, texts, slices.row_of, sample
        self._states = KeyStates(compared.number, slices, partitions, buckets, blocks)
        self._records = RecordChecksums(compared.number, self._states, slices, blocks, _is_older(compared))

    def read_records(self, part: TopicRange) -> Iterator[Block]:
        """Read a part of the topic; yield the blocks that are full."""
        for messages in read_messages(self._cfg, part.topic, part.partition, (part.start, part.end)):
            end, sample = messages[-1].offset() + 1, self._sample
            chosen = messages if sample is None else [message for message in messages if sample.has(message.key())]
            if self._records.add(chosen, part.partition, end):
                yield from self._blocks.take_full()
        yield from self._blocks.take_full()

    def add_rows(self, rows: Iterable[WrittenRow]) -> None:
        """Add rows of the table, as records that the product's encoders have written."""
        keys, afters, row_of, count = list[bytes](), list[bytes](), self._row_of, 0
        for key, value, _, _ in rows:
            if self._sample is not None and not self._sample.has(key):
                continue
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
        """Return the statement whose rows ``add_sums`` takes; None where the rows are encoded here."""
        if self._texts is None:
            return None
        sampled = "" if self._sample is None else f" AND {self._sample.condition}"
        return sums_sql(self._table, self._number, self._texts, self._buckets, condition + sampled)

    def add_sums(self, sums: Iterable[tuple[Any, Any, Any]]) -> int:
        """Add sums that the server has computed: bucket, number and sum of checksums; return the number of rows."""
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
    changed = written is not None and written.has_changed and not compared.columns.has_schemas
    return written.is_older if written is not None and changed else None


@dataclass(slots=True)
class TaskChecksums:
    """Hold what one task of a verification needs for checksums: those of each table, and which keys it looks at.

    Args:
        blocks: Takes the entries.
        formats: The formats of records; None when all of them are JSON.
        buckets: Buckets of keys of the tables that are compared by checksums, by number.
        differing: Of other tables, the keys to look at, where a round by checksums was before.
        sample_percent: Share of the keys that is compared.
        partitions: Partitions of topics.
        with_structures: Returns a table with the structures that it has had, by number.
        sums_in_sql: Whether the server may add up the checksums of rows, and choose rows by their buckets.
    """

    cfg: ConnectorConfig
    blocks: ChecksumBlocks
    formats: RecordFormats | None
    buckets: Mapping[int, int]
    differing: Mapping[TableId, DifferingKeys]
    sample_percent: float
    partitions: Mapping[str, int]
    with_structures: Callable[[int], ComparedTable]
    sums_in_sql: bool
    _tables: dict[int, TableChecksums | None] = field(default_factory=dict)
    _filters: dict[int, KeyFilter | None] = field(default_factory=dict)

    def of_table(self, compared: ComparedTable) -> TableChecksums | None:
        """Return what makes the checksums of a table; None where its rows are compared by value."""
        number = compared.number
        if number not in self.buckets or not has_checksums(self.cfg, compared):
            return None
        if number not in self._tables:
            self._tables[number] = self._make(self.with_structures(number))
        return self._tables[number]

    def _make(self, compared: ComparedTable) -> TableChecksums | None:
        slices = record_slices(self.cfg, compared, self.formats)
        if slices is None:
            return None
        texts, buckets = self._texts(compared), self.buckets[compared.number]
        is_sample = self.sample_percent < 100
        sample = KeyFilter(slices, buckets, None, self.sample_percent, texts) if is_sample else None
        partitions = self.partitions.get(compared.topic, 1)
        return TableChecksums(self.cfg, compared, slices, texts, partitions, buckets, self.blocks, sample)

    def _texts(self, compared: ComparedTable) -> SqlTexts | None:
        return sql_texts(self.cfg, compared.table) if self.sums_in_sql else None

    def filter_of(self, compared: ComparedTable) -> KeyFilter | None:
        """Return which keys of a table are looked at behind a first pass; None for all, or a sample of identities."""
        if compared.number not in self._filters:
            keys = self.differing.get(compared.table.id)
            slices = None if keys is None else record_slices(self.cfg, compared, self.formats)
            self._filters[compared.number] = (
                None
                if keys is None or slices is None or keys.differing is None or compared.table != keys.table
                else KeyFilter(slices, keys.buckets, keys.differing, self.sample_percent, self._texts(compared))
            )
        return self._filters[compared.number]

    def left_messages(self, number: int, chosen: KeyFilter, messages: Sequence[Message]) -> list[Message]:
        """Return the records of a table's topic whose keys are looked at, and count the events of the others."""
        looked_at, skipped = list[Message](), 0
        for message in messages:
            fields = chosen.fields_of(message.key())
            if fields is None:
                looked_at.append(message)
                self.blocks.add(SumKind.UNJUDGED_TABLE, number)
            elif chosen.differs(fields):
                looked_at.append(message)
            elif chosen.is_sampled(fields):
                skipped += message.value() is not None
        if skipped:
            self.blocks.add(SumKind.RECORDS, number, number=skipped)
        return looked_at
