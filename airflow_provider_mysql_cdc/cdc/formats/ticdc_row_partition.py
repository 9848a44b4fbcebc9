"""Choose the partition of a row that is decoded directly to TiCDC's protocol, with the dispatcher of its format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from airflow_provider_mysql_cdc.cdc.avro.avro_payload import parse_payload
from airflow_provider_mysql_cdc.cdc.binlog.wire_types import WireType
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_indexes
from airflow_provider_mysql_cdc.cdc.decode.codegen.table_shape import TableShape, shared_table_shape
from airflow_provider_mysql_cdc.cdc.formats.ticdc_format import TicdcFormat
from airflow_provider_mysql_cdc.cdc.model.table import Table
from airflow_provider_mysql_cdc.cdc.ticdc.commit_ts import CommitTs
from airflow_provider_mysql_cdc.cdc.ticdc.partition_dispatcher import Dispatch

_NO_TS = CommitTs(0)


class RowPartitioner(ABC):
    """Choose the partitions of rows."""

    __slots__ = ()

    @abstractmethod
    def event_partition(self, stamp: int) -> int | None:
        """Return the partition of all rows of an event, or None if it depends on the row.

        Args:
            stamp: The transaction's commit timestamp.
        """

    def row_partition(self, data: bytes, text: str, pos: int) -> int:
        """Return the partition of a row.

        Args:
            data: Rows of an event.
            text: The same as byte text.
            pos: Where the row's last image begins.

        Raises:
            ValueError: It cannot be determined.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class SinglePartition(RowPartitioner):
    """Choose one partition for all rows of a table.

    Args:
        partition: Its number.
    """

    partition: int = 0

    def event_partition(self, stamp: int) -> int:
        """Return the partition; see ``RowPartitioner``."""
        return self.partition


@dataclass(frozen=True, slots=True)
class TransactionPartitioner(RowPartitioner):
    """Choose one partition for all rows of a transaction.

    Args:
        dispatch: The format's dispatcher.
        count: Partitions of the topic.
    """

    dispatch: Dispatch
    count: int

    def event_partition(self, stamp: int) -> int:
        """Return the partition; see ``RowPartitioner``."""
        return self.dispatch({}, CommitTs(stamp), self.count)


@dataclass(frozen=True, slots=True)
class ColumnPartitioner(RowPartitioner):
    """Choose the same partition for rows with equal values in some columns.

    Args:
        dispatch: The format's dispatcher.
        count: Partitions of the topic.
        shape: Decodes these columns to JSON.
        by_key: Whether it decodes them as a key, because values may contain them masked or converted.
        names: Names of these columns.
    """

    dispatch: Dispatch
    count: int
    shape: TableShape
    by_key: bool
    names: tuple[str, ...]

    def event_partition(self, stamp: int) -> None:
        """Return None: the partition depends on the row."""

    def row_partition(self, data: bytes, text: str, pos: int) -> int:
        """Return the partition of a row; see ``RowPartitioner``."""
        _, key, value = self.shape.images[data[pos : pos + self.shape.size]](data, text, pos)
        return self.dispatch(parse_payload((key if self.by_key else value).encode("latin-1")), _NO_TS, self.count)


def row_partitioner(
    record_format: TicdcFormat,
    table: Table,
    wires: tuple[WireType, ...],
    options: DecoderOptions,
    envelope: EnvelopeText,
    count: int,
) -> RowPartitioner:
    """Return the partitioner of a table version's rows.

    Args:
        record_format: The format of the table's records.
        table: The table.
        wires: Wire types of its columns.
        options: From ``table_options.table_options``.
        envelope: From ``table_options.envelope_text``.
        count: Partitions of the topic.
    """
    if count == 1:
        return SinglePartition()
    if record_format.rule.name == "ts":
        return TransactionPartitioner(record_format.dispatch, count)
    if not record_format.dispatch_names:
        return SinglePartition(record_format.dispatch({}, _NO_TS, count))
    names = record_format.dispatch_names
    shape_options = (
        replace(options, key_columns=names, included=())
        if record_format.by_key
        else replace(options, key_columns=(), included=names)
    )
    shape = shared_table_shape(table.columns, key_indexes(table, shape_options), wires, shape_options, envelope)
    return ColumnPartitioner(record_format.dispatch, count, shape, record_format.by_key, names)
