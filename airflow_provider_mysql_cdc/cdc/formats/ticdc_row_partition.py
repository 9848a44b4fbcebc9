"""To which partition a flat row goes whose values are not shown in JSON: the form's dispatcher, asked for it alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from airflow_provider_mysql_cdc.cdc.avro.avro_payload import payload_of
from airflow_provider_mysql_cdc.cdc.binlog.wire_types import WireType
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.table_shape import TableShape, shape_of_table
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import key_indexes
from airflow_provider_mysql_cdc.cdc.formats.ticdc_format import TicdcForm
from airflow_provider_mysql_cdc.cdc.model.table import Table
from airflow_provider_mysql_cdc.cdc.ticdc.commit_ts import CommitTs
from airflow_provider_mysql_cdc.cdc.ticdc.partition_dispatcher import Dispatch

_NO_TS = CommitTs(0)


class Spread(ABC):
    """Say to which partition rows go."""

    __slots__ = ()

    @abstractmethod
    def of_event(self, stamp: int) -> int | None:
        """Return the partition of all rows of an event, or None where each row has its own.

        Args:
            stamp: The transaction's timestamp.
        """

    def of_row(self, data: bytes, text: str, at: int) -> int:
        """Return the partition of a row.

        Args:
            data: Rows of an event.
            text: The same as byte text.
            at: Where the row's last image begins.

        Raises:
            ValueError: It cannot be told.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class OnePartition(Spread):
    """All rows of a table share a partition.

    Args:
        partition: Its number.
    """

    partition: int = 0

    def of_event(self, stamp: int) -> int:
        """Return the partition; see ``Spread``."""
        return self.partition


@dataclass(frozen=True, slots=True)
class ByTransaction(Spread):
    """Those of a transaction do.

    Args:
        dispatch: The form's dispatcher.
        count: Partitions of the topic.
    """

    dispatch: Dispatch
    count: int

    def of_event(self, stamp: int) -> int:
        """Return the partition; see ``Spread``."""
        return self.dispatch({}, CommitTs(stamp), self.count)


@dataclass(frozen=True, slots=True)
class ByValues(Spread):
    """Those with equal values in some columns do.

    Args:
        dispatch: The form's dispatcher.
        count: Partitions of the topic.
        shape: Reads the columns that decide, as JSON.
        by_key: Whether it has them as a key; values may show them otherwise.
        names: Their names.
    """

    dispatch: Dispatch
    count: int
    shape: TableShape
    by_key: bool
    names: tuple[str, ...]

    def of_event(self, stamp: int) -> None:
        """Return None: each row has its own."""

    def of_row(self, data: bytes, text: str, at: int) -> int:
        """Return the partition of a row; see ``Spread``."""
        _, key, value = self.shape.images[data[at : at + self.shape.size]](data, text, at)
        return self.dispatch(payload_of((key if self.by_key else value).encode("latin-1")), _NO_TS, self.count)


def spread_of(
    form: TicdcForm,
    table: Table,
    wires: tuple[WireType, ...],
    options: DecoderOptions,
    envelope: EnvelopeText,
    count: int,
) -> Spread:
    """Return to which partitions the rows of a table version go.

    Args:
        form: The form of the table's records.
        table: The table.
        wires: Wire types of its columns.
        options: From ``wiring.table_options``.
        envelope: From ``wiring.envelope_text``.
        count: Partitions of the topic.
    """
    if count == 1:
        return OnePartition()
    if form.rule.name == "ts":
        return ByTransaction(form.dispatch, count)
    if not form.deciding:
        return OnePartition(form.dispatch({}, _NO_TS, count))
    names = form.deciding
    told = (
        replace(options, key_columns=names, included=())
        if form.by_key
        else replace(options, key_columns=(), included=names)
    )
    shape = shape_of_table(table.columns, key_indexes(table, told), wires, told, envelope)
    return ByValues(form.dispatch, count, shape, form.by_key, names)
