"""Decode rows directly to TiCDC's protocol in Python, and choose their partitions.

Decode rows directly to TiCDC's protocol in Python.

It chooses the partition of each record as well; flat rows have no headers of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from airflow_provider_mysql_cdc.cdc.avro import avro_binary
from airflow_provider_mysql_cdc.cdc.avro.avro_columns import FallbackToJson
from airflow_provider_mysql_cdc.cdc.avro.avro_payload import parse_payload
from airflow_provider_mysql_cdc.cdc.binlog.table_map import WireType
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText, EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Dialect
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ROW_ERRORS
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_indexes
from airflow_provider_mysql_cdc.cdc.decode.codegen.table_shape import TableShape, shared_table_shape
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import Buffer
from airflow_provider_mysql_cdc.cdc.formats.ticdc_format import TicdcFormat
from airflow_provider_mysql_cdc.cdc.model.records import CHANGE, NEW_KEY, RowRecord
from airflow_provider_mysql_cdc.cdc.model.table import Table
from airflow_provider_mysql_cdc.cdc.ticdc.commit_ts import CommitTs
from airflow_provider_mysql_cdc.cdc.ticdc.flat_columns import ticdc_dialect
from airflow_provider_mysql_cdc.cdc.ticdc.partition_dispatcher import Dispatch
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_schema import TicdcModes

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


_OPERATIONS = {op: avro_binary.text(op) for op in "cu"}


@dataclass(frozen=True, slots=True)
class TicdcRowPlan:
    """Describe how records of a table version are built.

    Args:
        options: From ``table_options.table_options``, with the key's columns in the table's order.
        envelope: From ``table_options.envelope_text``.
        modes: Modes of the protocol.
        prefixes: Prefixes of keys and values.
        partitioner: Chooses the partitions of rows.
    """

    options: DecoderOptions
    envelope: EnvelopeText
    modes: TicdcModes
    prefixes: tuple[str, str]
    partitioner: RowPartitioner

    @property
    def dialect(self) -> Dialect:
        """Return the dialect that writes columns."""
        return ticdc_dialect(self.modes)


class TicdcRowDecoder(RowDecoder):
    """Decode complete row images; others raise ``FallbackToJson``.

    Args:
        table: The table.
        wires: Wire types of its columns.
        row_plan: How records are built.

    Raises:
        Declined: The dialect does not support the table.
    """

    def __init__(self, table: Table, wires: tuple[WireType, ...], row_plan: TicdcRowPlan) -> None:
        super().__init__(
            table,
            wires,
            row_plan.options,
            row_plan.envelope,
            row_plan.dialect,
            row_plan.prefixes,
            refusal=FallbackToJson,
        )
        self.row_plan = row_plan

    def write(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of a WRITE_ROWS event; arguments as for ``RowDecoder.write``.

        Raises:
            FallbackToJson: The event must be converted via JSON.
        """
        return self._append_rows("c", 1, buf, pos, end, ctx, out)

    def update(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of an UPDATE_ROWS event; arguments and errors as for ``write``."""
        return self._append_rows("u", 2, buf, pos, end, ctx, out)

    def delete(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of a DELETE_ROWS event; arguments and errors as for ``write``."""
        return self._append_rows("d", 1, buf, pos, end, ctx, out)

    def row_texts(self, ctx: EventContext, op: str) -> tuple[str, str]:
        """Return the text after a value's columns: operation and commit time; arguments as for ``RowDecoder``."""
        if not self.row_plan.modes.extension or op == "d":
            return "", ""
        return _OPERATIONS[op], ctx.tail

    def _append_rows(
        self, op: str, images: int, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]
    ) -> int:
        if op in self.options.skipped_ops:
            return 0
        if not self._images_complete(buf, pos, images):
            raise FallbackToJson
        if ctx.stamp < 0:
            raise FallbackToJson
        data = bytes(buf[pos:end])
        try:
            return self._rows(op, data, ctx, out)
        except ROW_ERRORS as error:
            raise FallbackToJson(error) from error

    def _rows(self, op: str, data: bytes, ctx: EventContext, out: list[RowRecord]) -> int:
        text, last, bitmap_size, images = data.decode("latin-1"), len(data), self._size, self._images
        (key_prefix, _), value_prefix, tail = (
            self.key_wrapper,
            self.value_wrapper[0],
            "".join(self.row_texts(ctx, op)),
        )
        keyed, has_value, update = bool(self.keys), op != "d", op == "u"
        partitioner, row, p = self.row_plan.partitioner, ctx.first_row, 0
        partition = event_partition = partitioner.event_partition(ctx.stamp)
        while p < last:
            first, number, end = p, CHANGE, tail
            if update:
                p, old_key, _ = images[data[p : p + bitmap_size]](data, text, p)
            image_start = p
            p, key, value = images[data[p : p + bitmap_size]](data, text, p)
            if update and key != old_key:
                if event_partition is None:
                    partition = partitioner.row_partition(data, text, first)
                out.append((f"{key_prefix}{old_key}".encode("latin-1"), None, row, CHANGE, None, partition))
                number, end = NEW_KEY, "".join(self.row_texts(ctx, "c"))
            if event_partition is None:
                partition = partitioner.row_partition(data, text, image_start)
            out.append(
                (
                    f"{key_prefix}{key}".encode("latin-1") if keyed else None,
                    f"{value_prefix}{value}{end}".encode("latin-1") if has_value else None,
                    row,
                    number,
                    None,
                    partition,
                )
            )
            row += 1
        if p != last:
            raise ValueError("the rows do not end where the event ends")
        return row - ctx.first_row
