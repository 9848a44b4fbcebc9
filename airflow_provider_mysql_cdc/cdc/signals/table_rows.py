"""Pick the signals out of the rows that are inserted into the signal table, as the stream brings them (INC-14, INC-29).

The first three columns are id, type and data, whatever their names; rows that are changed or deleted are no signals
(Debezium 3.6.1, ``SignalRecord`` and ``EventDispatcher.isASignalEventToProcess``). A transaction's signals become
ledger records when its end has been read, so they are committed with the marker of the first commit behind it: an
attempt that comes later finds either both in the ledger or neither.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog import wire_types as wt
from airflow_provider_mysql_cdc.cdc.binlog.rows_header import RowsHeader, check_rows
from airflow_provider_mysql_cdc.cdc.binlog.stream import Event
from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMap
from airflow_provider_mysql_cdc.cdc.binlog.wire_types import WireType, wire_type
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.enums import WatermarkStrategy
from airflow_provider_mysql_cdc.cdc.ddl.collations import MAX_BYTES, charset_by_id
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.table_check import check_table_map
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import BadRow, Tolerant
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from airflow_provider_mysql_cdc.cdc.signals.actions import SchemaChanges
from airflow_provider_mysql_cdc.cdc.signals.signal import SCHEMA_CHANGES, Signal, read_action, received
from airflow_provider_mysql_cdc.cdc.signals.table_names import SignalRefused
from airflow_provider_mysql_cdc.cdc.sink.record_writer import SideRecord

log = logging.getLogger(__name__)

OPEN, CLOSE = "snapshot-window-open", "snapshot-window-close"
"""Types of the rows that are watermarks (Debezium 3.6.1, ``OpenIncrementalSnapshotWindow``)."""
MOST_AT_ONCE = 10_000
MOST_BYTES = 64 * 2**20
"""Signals of one transaction, and bytes of their data; more are none that somebody meant, and all of them are held
until it ends."""

Watermark = Callable[[str, str], None]
Structures = Callable[[SchemaChanges], bool]
_INSERTED, _DELETED = 0, 2


@dataclass(slots=True)
class SignalRows:
    """Follow the signal table through a batch.

    Args:
        cfg: The connector's configuration; it names a signal table.
        epoch: The batch's epoch.
        side: Gets the ledger records of signals, for the next commit; None in a writer that hands none over.
        on_structures: Puts structures of a signal in force, in every writer and every attempt; returns whether it did.
            None where the table's signals do not count.
        on_watermark: Called with id and type of each watermark when its transaction has ended, also when an earlier
            attempt has committed it.
    """

    cfg: ConnectorConfig
    epoch: int
    side: list[SideRecord] | None = None
    on_watermark: Watermark | None = None
    on_structures: Structures | None = None
    _watermarks: list[tuple[str, str]] = field(default_factory=list)
    _signals: list[Signal] = field(default_factory=list)
    _bytes: int = 0
    _beyond: int = 0

    @classmethod
    def wanted(
        cls, cfg: ConnectorConfig, epoch: int, writer: int, side: list[SideRecord], on_watermark: Watermark | None
    ) -> SignalRows | None:
        """Return what follows the signal table; None where nobody wants anything of it.

        Args:
            cfg: The connector's configuration.
            epoch: The batch's epoch.
            writer: The writer's index; writer 0 hands signals over, and structures concern all.
            side: Gets ledger records.
            on_watermark: Gets watermarks, in any writer.
        """
        takes = cfg.takes_signals_from("source")
        if cfg[F.SIGNAL_DATA_COLLECTION] is None or not (takes or on_watermark):
            return None
        return cls(cfg, epoch, side if takes and writer == 0 else None, on_watermark)

    def reader(self, table: Table | None, table_map: TableMap, where: str) -> SignalReader | None:
        """Return what reads the rows behind a TABLE_MAP event; None when the table is another one, or not to be read.

        Args:
            table: Its structure by the schema history, or None.
            table_map: The event.
            where: Its place.

        Raises:
            SchemaError: Nothing tells the table's structure, and watermarks are waited for.
        """
        named = TableId(table_map.db, table_map.table)
        if named != self.cfg[F.SIGNAL_DATA_COLLECTION]:
            return None
        found, why = fitting(table, table_map)
        if found is not None:
            return SignalReader(self, found, table_map)
        what = f"the rows of the signal table {named} cannot be read"
        remedy = "create it anew with three columns of characters: id, type and data"
        if self.on_watermark is not None:
            raise SchemaError(what, where=where, why=why, remedy=remedy)
        log.warning("%s from %s on: %s; %s", what, where, why, remedy)
        return None

    def add(self, row: Signal, *, deleted: bool) -> None:
        """Take a row; it counts when its transaction ends.

        Args:
            row: The row.
            deleted: Whether it was deleted, not inserted.
        """
        if row.type in (OPEN, CLOSE):
            if not deleted:
                self._watermarks.append((row.id, row.type))
            elif (
                row.type == OPEN
                and self.cfg[F.INCREMENTAL_SNAPSHOT_WATERMARKING_STRATEGY] is WatermarkStrategy.INSERT_DELETE
            ):
                # The deletion of the row that opened a window closes it (Debezium 3.6.1, ``SignalRecord``).
                self._watermarks.append((row.id.replace("open", "close"), CLOSE))
        elif not deleted:
            if len(self._signals) < MOST_AT_ONCE and self._bytes < MOST_BYTES:
                self._signals.append(row)
                self._bytes += len(row.data)
            else:
                self._beyond += 1

    def end(self, begun_at: BinlogOffset, *, committed: bool) -> None:
        """Hand over what the transaction brought; it has ended.

        Args:
            begun_at: The boundary before the transaction, which names its signals.
            committed: Whether an earlier attempt committed the transaction, and with it its signals.
        """
        if not (self._signals or self._watermarks):
            return
        for id_, type_ in self._watermarks:
            if self.on_watermark is not None:
                self.on_watermark(id_, type_)
        if self._beyond:
            why = f"its transaction inserted {self._beyond} signals beyond the {len(self._signals)} that are taken"
            self._signals.append(received("", "", "", "source", why))
        if self.on_structures is not None and self.cfg.takes_signals_from("source"):
            self._signals = [self._told(signal, self.on_structures) for signal in self._signals]
        if self.side is not None and not committed:
            place = f"{self.epoch}-{begun_at.file.rpartition('.')[2]}-{begun_at.pos}"
            for number, signal in enumerate(self._signals, 1):
                key = signal.key(f"{place}-{number}").encode()
                placed = replace(signal, place=begun_at, epoch=self.epoch)
                self.side.append((self.cfg.ledger_topic, key, encode(placed.to_json())))
        self._watermarks.clear()
        self._signals.clear()
        self._bytes = self._beyond = 0

    def _told(self, signal: Signal, on_structures: Structures) -> Signal:
        """Return a signal, marked when it told structures; what is wrong with it is for the driver to say."""
        if signal.type.strip() != SCHEMA_CHANGES:
            return signal
        try:
            action = read_action(signal, frozenset())
        except SignalRefused:
            return signal
        return replace(signal, applied=isinstance(action, SchemaChanges) and on_structures(action))


class SignalReader:
    """Read rows of one version of the signal table.

    Args:
        rows: Gets the rows.
        table: The table.
        table_map: The TABLE_MAP event that announces the rows.
    """

    __slots__ = ("_decoder", "_failed", "_names", "_rows", "_width")

    def __init__(self, rows: SignalRows, table: Table, table_map: TableMap) -> None:
        self._rows, self._width = rows, len(table.columns)
        self._names = tuple(c.name for c in table.columns[:3])
        self._failed: list[BadRow] = []
        # As the key of an event all three come as they are, without the configuration's treatment of columns.
        options = DecoderOptions(
            key_columns=self._names, included=self._names, tombstones=False, skipped_ops=frozenset()
        )
        self._decoder = Tolerant(compile_decoder(table, table_map, options, EnvelopeText()), self._failed)

    def take(self, event: Event, header: RowsHeader, kind: int) -> None:
        """Take the rows of an event.

        Args:
            event: The row event.
            header: Its header.
            kind: 0 for inserted rows, 2 for deleted ones; others are no matter of signals.

        Raises:
            BinlogCorruptError: The event does not belong to the table.
            ValueDecodeError: Its rows cannot be told apart.
        """
        if kind not in (_INSERTED, _DELETED):
            return
        check_rows(event, header, self._width)
        made: list[Any] = []
        decode = self._decoder.write if kind == _INSERTED else self._decoder.delete
        decode(event.buf, header.pos, event.end, EventContext(where=f"{event.file}:{event.start_pos}"), made)
        for found in sorted([*made, *((bad.row, bad) for bad in self._failed)], key=_row_number):
            self._rows.add(self._signal(found), deleted=kind == _DELETED)
        self._failed.clear()

    def _signal(self, found: Any) -> Signal:
        if not isinstance(found[1], BadRow):
            return self._of(json.loads(found[0]))
        bad = found[1]
        names = ", ".join(name for name, _ in bad.failed) or "a column"
        return self._of(json.loads(bad.after or bad.before or "{}"), f"{names} cannot be read")

    def _of(self, values: Mapping[str, object], wrong: str = "") -> Signal:
        id_, type_, data = (_text(values.get(name)) for name in self._names)
        return received(id_, type_, data, "source", wrong)


def _row_number(found: Any) -> int:
    number: int = found[0] if isinstance(found[1], BadRow) else found[2]
    return number


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)


def fitting(table: Table | None, table_map: TableMap) -> tuple[Table | None, str]:
    """Return a structure that fits a TABLE_MAP event, from the history or of the event alone; or why there is none.

    Args:
        table: The structure by the schema history, or None: a history that began before the table was the signal table
            may not know it.
        table_map: The event.
    """
    why = "the schema history does not know it"
    if len(table_map.column_types) < 3:
        return None, f"it has {len(table_map.column_types)} columns, not id, type and data"
    if table is not None:
        try:
            check_table_map(table, table_map)
            return table, ""
        except SchemaError as error:
            why = error.why
    columns = [_told(table_map, index) for index in range(len(table_map.column_types))]
    known = tuple(column for column in columns if column is not None)
    if len(known) < len(columns):
        return None, f"{why}, and the binlog alone does not tell its columns"
    return Table(TableId(table_map.db, table_map.table), known), ""


_TEXTS = {1: "TINYTEXT", 2: "TEXT", 3: "MEDIUMTEXT", 4: "LONGTEXT"}


def _told(table_map: TableMap, index: int) -> Column | None:
    """Return a column of characters as TABLE_MAP tells it (MySQL 8.0.1 and later); None for any other."""
    number = None if table_map.charsets is None else table_map.charsets[index]
    charset = None if number is None else charset_by_id(number)
    if charset is None or charset == "binary":
        return None
    wire: WireType = wire_type(table_map.column_types[index], table_map.column_meta[index])
    size = MAX_BYTES.get(charset, 4)
    kinds = {wt.VARCHAR: ("VARCHAR", wire.a // size), wt.STRING: ("CHAR", wire.a // size)}
    type_name, length = kinds.get(wire.code, (_TEXTS.get(wire.a, "") if wire.code == wt.BLOB else "", None))
    if not type_name:
        return None
    nullable = table_map.nullable(index)
    return Column(f"c{index}", index + 1, type_name, length=length, nullable=nullable, charset=charset)
