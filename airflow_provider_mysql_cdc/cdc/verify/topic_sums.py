"""Compare sums over whole topics with those over their tables first: where each row has one event, that is enough.

A topic that a snapshot has filled, or inserts alone, has one event for each row. Then number and sum of checksums of
all its records are those of the table's rows, and nothing has to be folded by key. The other way round: sums of 64 bits
of SHA-256 are equal by chance only, unless records and rows are the same. As no two rows have one key
(``has_distinct_keys``), no two records have, so each is the last of its key. A record that is no event with a row, that
is in another partition than its key, or says what a row was before, ends this for its table: tasks read the topic
again, for the states of keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from airflow_provider_mysql_cdc.cdc.verify.compared_table import ComparedTable
from airflow_provider_mysql_cdc.cdc.verify.sql_row_text import sql_texts
from airflow_provider_mysql_cdc.cdc.verify.verify_operations import NextPart, PartSum, TopicRange

LEAST_RECORDS = 10_000
"""Fewer records are not worth a second consumer where the sums differ."""
MOST_RECORDS_PER_ROW = 1.25
"""With more of them, rows have several events; the server's estimate of rows may be too low by as much."""
_SUM_BITS = 0xFFFF_FFFF_FFFF_FFFF
_WHOLE_CHARSETS = frozenset({"ascii", "utf8", "utf8mb3", "utf8mb4", "binary"})
"""Character sets whose texts are other ones in UTF-8 where they are others."""


def has_distinct_keys(cfg: ConnectorConfig, table: Table) -> bool:
    """Return whether two rows never have one key in records, because of its columns' types and modes.

    Times in milliseconds or decimal numbers as DOUBLE may be the same of several rows.

    Args:
        cfg: The connector's configuration.
        table: The table, whose records' keys have the columns of its own.
    """
    options = table_options.table_options(cfg, table)
    columns = [table.column(name) for name in table.key_columns()]
    return bool(columns) and all(column is not None and _is_distinct(column, options) for column in columns)


def _is_distinct(column: Column, options: DecoderOptions) -> bool:
    if column.family is Family.INTEGER:
        return options.boolean_test(column) is None
    return column.family is Family.TEXT and column.charset in _WHOLE_CHARSETS


@dataclass(slots=True)
class _TableSums:
    """Hold the sums of one table and its topic.

    Args:
        unread: Parts of both that no task has reported yet.
        taken: Parts of the topic that tasks have got.
        rows: Number and sum of checksums of the rows.
        records: The same of the records.
        tried: Whether they may still be equal.
    """

    unread: int
    taken: list[TopicRange] = field(default_factory=list)
    rows: tuple[int, int] = (0, 0)
    records: tuple[int, int] = (0, 0)
    tried: bool = True

    def add(self, part: PartSum) -> None:
        self.unread -= 1
        number, checksum = self.rows if part.of_rows else self.records
        found = number + part.number, (checksum + part.checksum) & _SUM_BITS
        if part.of_rows:
            self.rows = found
        else:
            self.records = found
        self.tried = part.whole and (self.unread > 0 or self.rows == self.records)


class TopicSums:
    """Say which parts are read for sums alone, and which of them have to be read again.

    Args:
        parts: Number of parts of the tables to try and of their topics, by the table's number.
        numbers: Numbers of these tables.
        topics: The same of their topics.
    """

    def __init__(self, parts: Mapping[int, int], numbers: Mapping[TableId, int], topics: Mapping[str, int]) -> None:
        self._sums = {number: _TableSums(count) for number, count in parts.items()}
        self._numbers, self._topics = numbers, topics

    def mark(self, part: NextPart) -> NextPart:
        """Return a part as a task gets it: to be added up alone, or for the states of its keys.

        Args:
            part: The part.
        """
        number, records = None, part.records
        if part.chunk is not None:
            number = self._numbers.get(part.chunk.table)
        elif records is not None:
            number = self._topics.get(records.topic)
        if number is None or not (sums := self._sums[number]).tried:
            return part
        if records is not None:
            sums.taken.append(records)
        return replace(part, summed=number)

    def add(self, part: PartSum) -> Sequence[TopicRange]:
        """Take the sum of a part; return parts of the topic that have to be read once more, for the states of keys.

        Args:
            part: The sum.
        """
        sums = self._sums[part.table]
        if not sums.tried:
            return ()
        sums.add(part)
        return () if sums.tried else sums.taken

    @property
    def are_open(self) -> bool:
        """Return whether parts may have to be read again."""
        return any(sums.tried and sums.unread for sums in self._sums.values())

    def equal_tables(self) -> dict[int, int]:
        """Return the number of records of the tables that equal their topics, by the table's number."""
        return {n: sums.records[0] for n, sums in self._sums.items() if sums.tried and not sums.unread}


def topic_sums(
    cfg: ConnectorConfig,
    tables: Iterable[ComparedTable],
    rows: Mapping[int, int],
    chunks: Collection[TableId],
    ranges: Collection[TopicRange],
) -> TopicSums:
    """Return the sums of the tables whose topics may have one event for each row.

    Args:
        cfg: The connector's configuration.
        tables: Tables that are compared by checksums.
        rows: Rows of them as the server estimates them, by number.
        chunks: The table of each part of the tables.
        ranges: Parts of the topics.
    """
    parts, numbers, topics = dict[int, int](), dict[TableId, int](), dict[str, int]()
    for compared in tables:
        number, name = compared.number, compared.table.id
        of_topic = [part for part in ranges if part.topic == compared.topic]
        records = sum(part.end - part.start for part in of_topic)
        if not LEAST_RECORDS <= records <= rows.get(number, 0) * MOST_RECORDS_PER_ROW:
            continue
        if sql_texts(cfg, compared.table) is not None and has_distinct_keys(cfg, compared.table):
            parts[number] = len(of_topic) + sum(table == name for table in chunks)
            numbers[name], topics[compared.topic] = number, number
    return TopicSums(parts, numbers, topics)
