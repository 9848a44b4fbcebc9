"""Turn the rows that were read of one table into records."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.row_functions import TextDecoder
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import BadRow
from airflow_provider_mysql_cdc.cdc.emit.source_block import snapshot_marker
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.formats import wiring
from airflow_provider_mysql_cdc.cdc.formats.avro_rows import SnapshotSource
from airflow_provider_mysql_cdc.cdc.formats.dead_letter import DeadLetters
from airflow_provider_mysql_cdc.cdc.formats.partition_share import partition_of
from airflow_provider_mysql_cdc.cdc.formats.record_format import IdHeaders, TableForm, at_row
from airflow_provider_mysql_cdc.cdc.model.table import Table
from airflow_provider_mysql_cdc.cdc.sink.record_writer import Headers
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter
from airflow_provider_mysql_cdc.cdc.snapshot.rows import RowBlock

PLAIN = snapshot_marker()
"""``source.snapshot`` of rows that are neither the first nor the last."""
# Rows with the headers of their packets, offset, most rows, texts around them with marks, records
ManyRows = Callable[[bytes, int, int, EventContext, list[Any]], tuple[int, int]]
LATEST = 0.9
"""Share of transaction.timeout.ms after which a transaction of rows is given up."""


def out_of_time(cfg: ConnectorConfig, sink: TransactionalWriter) -> bool:
    """Return whether the open transaction is too old to be ended in good order.

    Args:
        cfg: The connector's configuration.
        sink: The transactional producer.
    """
    return sink.open_s >= cfg[F.TRANSACTION_TIMEOUT_MS] / 1000 * LATEST


@dataclass(frozen=True, slots=True)
class EmitTo:
    """Say where records go.

    Args:
        sink: The transactional producer.
        topic: The topic.
        partitions: Its number of partitions.
        headers: Headers of every record.
        writer: The writer's index.
        form: The records' form; None for what the decoder gives.
        ids: Headers that records get beside their other ones, or None.
    """

    sink: TransactionalWriter
    topic: str
    partitions: int
    headers: list[tuple[str, bytes]]
    writer: int
    form: TableForm | None = None
    ids: IdHeaders | None = None


class RowEmitter:
    """Produce the rows of one table.

    Args:
        cfg: The connector's configuration.
        table: The table.
        decode: Its compiled text decoder.
        fill: Puts the source block for a value of ``source.snapshot`` into the decoder's context.
        texts: Gives what stands behind the operation.
        where: Place for errors.
        to: Where the records go.
        counts: Records by topic; dead letters are added.
        identity: What tells this reading of the table from others, for the header cdc-id.
        marker: ``source.snapshot`` of most rows.
    """

    def __init__(
        self,
        *,
        cfg: ConnectorConfig,
        table: Table,
        decode: TextDecoder,
        fill: Callable[[EventContext, str], None],
        texts: SnapshotSource,
        where: str,
        to: EmitTo,
        counts: dict[str, int],
        identity: str,
        marker: str = PLAIN,
    ) -> None:
        self.topic, self.where = to.topic, where
        # Tables that share a topic may have equal keys.
        self._own_topic = wiring.own_topic(cfg, table.id)
        self._to, self._decode, self._fill = to, decode, fill
        self._op_tail = texts.op_tail
        self._identity = identity if cfg[F.CDC_ID_HEADER] else None
        self._unique = wiring.table_options(cfg, table).key_columns is None
        self._marker, self._usual = "", marker
        self._rows = 0
        self._ctx = EventContext()
        self._out: list[Any] = []
        # Rows with another form or with headers of their own are looked at one by one.
        alone = to.form is not None or to.ids is not None or self._identity is not None
        self._many = None if alone else getattr(decode, "many", None)
        self._plain = EventContext()
        if self._many is not None:
            fill(self._plain, marker)
            self._plain.where = where
            self._plain.tail = texts.marked_tail
        self._letters = DeadLetters(cfg, to.writer, to.sink.produce, counts) if DeadLetters.wanted(cfg) else None
        self.left_out = 0

    def block(self, block: RowBlock, before: int, edges: Mapping[int, str]) -> None:
        """Produce rows.

        Args:
            block: The rows.
            before: Number of rows of the chunk before it.
            edges: ``source.snapshot`` of rows by their number, from 1, where it is not that of most rows.

        Raises:
            ValueDecodeError: As for ``row``.
        """
        number, end, at = before, before + block.rows, 0
        if self._many is None or block.large:
            for number, packet in enumerate(block, before + 1):
                self.row(packet, edges.get(number, self._usual))
            return
        while number < end:
            plain = min((edge - 1 for edge in edges if edge > number), default=end)
            done, at = self._at_once(self._many, block, at, min(plain, end) - number)
            number += done
            if number < end:
                packet, at = block.row_at(at)
                number += 1
                self.row(packet, edges.get(number, self._usual))

    def _at_once(self, many: ManyRows, block: RowBlock, at: int, most: int) -> tuple[int, int]:
        """Produce rows that the kernel decodes at once; return their number and the offset behind them."""
        to, ctx, out = self._to, self._plain, list[Any]()
        done, at = many(block.data, at, most, ctx, out) if most else (0, at)
        self._rows += done
        if to.partitions == 1:
            to.sink.produce_all(self.topic, out, to.headers)
            return done, at
        for key, value, *_ in out:
            to.sink.produce(self.topic, key, value, partition_of(key, to.partitions), to.headers)
        return done, at

    def row(self, packet: bytes, marker: str) -> None:
        """Produce one row.

        Args:
            packet: The row's packet in MySQL's text protocol.
            marker: ``source.snapshot`` of this row.

        Raises:
            ValueDecodeError: A value cannot be read, and such rows stop the run.
        """
        ctx, out, to = self._ctx, self._out, self._to
        self._rows += 1
        if marker != self._marker:
            self._fill(ctx, marker)
            ctx.where = self.where
            self._marker = marker
        ctx.tail = self._op_tail(time.time_ns())
        out.clear()
        formed: list[tuple[bytes | None, bytes | None, int]] = []
        try:
            self._decode(packet, 0, ctx, out)
            if to.form is not None:
                formed = [self._formed(to.form, key, value) for key, value, *_ in out]
        except ValueDecodeError as error:
            if self._letters is None:
                raise
            self.left_out += 1
            self._letters.put(self.topic, BadRow(self._rows - 1, "r", error), ctx.as_json(), to.headers)
            return
        for number, (key, value, _, _, _) in enumerate(out):
            headers: Headers = to.headers
            if self._identity is not None:
                # Rows of a table without key may be equal, and message.key.columns need not be unique; there chunk and
                # row number tell rows apart.
                row = key if key is not None and self._unique else f"{self.where}/{self._rows}".encode()
                headers = [*headers, ("cdc-id", f"{self._identity}/{self._own_topic}/".encode() + row)]
            if to.form is None:
                name, data, partition = key, value, partition_of(key, to.partitions)
            else:
                name, data, partition = formed[number]
            if to.ids is not None:
                headers = to.ids.behind(headers, name, data)
            to.sink.produce(self.topic, name, data, partition, headers)

    def _formed(self, form: TableForm, key: Any, value: Any) -> tuple[bytes | None, bytes | None, int]:
        """Return key, value and partition of a record in its form."""
        try:
            name = form.key_bytes(key)
            return name, form.value_bytes(value), form.partition(name, key, value, self._to.partitions)
        except ValueDecodeError as error:
            raise at_row(error, self.where, None, key) from error
