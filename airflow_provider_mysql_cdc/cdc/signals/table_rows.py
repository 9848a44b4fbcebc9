"""Read the signals from the rows that the stream inserts into the signal table (INC-14, INC-29).

The first three columns are id, type and data, whatever they are called; updated and deleted rows are not signals
(Debezium 3.6.1, ``SignalRecord`` and ``EventDispatcher.isASignalEventToProcess``). A transaction's signals become
ledger records when its end has been read, so they are committed with the marker of the next commit: a later attempt
finds either both in the ledger or neither.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from airflow_provider_mysql_cdc.cdc.binlog.rows_header import RowsHeader, check_rows
from airflow_provider_mysql_cdc.cdc.binlog.stream import Event
from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMap, WireType, wire_type
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.enums import WatermarkStrategy
from airflow_provider_mysql_cdc.cdc.ddl.collations import MAX_CHARACTER_BYTES, charset_by_id
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText, EventContext
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.table_check import check_table_map
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import BadRow, TolerantDecoder
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.mysql_types import TEXT_BY_SIZE, mysql_type
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import RowRecord, SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from airflow_provider_mysql_cdc.cdc.signals.actions import SchemaChanges, SignalRefused
from airflow_provider_mysql_cdc.cdc.signals.signal import (
    SCHEMA_CHANGES,
    STOP_SNAPSHOT,
    Signal,
    build_signal,
    read_action,
)

log = logging.getLogger(__name__)

WINDOW_OPEN, WINDOW_CLOSE = "snapshot-window-open", "snapshot-window-close"
"""Types of the rows that are watermarks (Debezium 3.6.1, ``OpenIncrementalSnapshotWindow``)."""
MAX_TRANSACTION_SIGNALS = 10_000
MAX_TRANSACTION_BYTES = 64 * 2**20
"""Most signals of one transaction, and most bytes of their data. All are held in memory until the transaction ends;
more than this is not a deliberate use of signals."""

WatermarkHandler = Callable[[str, str], None]
SchemaChangesHandler = Callable[[SchemaChanges], bool]
_INSERTED, _DELETED = 0, 2


@dataclass(frozen=True, slots=True)
class CommitTime:
    """Hold when the transaction of a signal was committed.

    Args:
        us: Microseconds since 1970, which MySQL 8.0 and later log; 0 if they are not logged.
        seconds: Seconds since 1970 of the event that ends the transaction; 0 if they are not known.
    """

    us: int = 0
    seconds: int = 0

    def sent_ms(self, signal: Signal) -> int:
        """Return a signal's time: of a second, its first millisecond for a stop and its last one for other signals.

        So a stop does not seem to be later than a request that was made after it.
        """
        last = 0 if signal.type.strip() == STOP_SNAPSHOT or not self.seconds else 999
        return self.us // 1000 or self.seconds * 1000 + last


@dataclass(slots=True)
class SignalRows:
    """Collect signals and watermarks from the signal table during a batch.

    Args:
        cfg: The connector's configuration; it names a signal table.
        epoch: The batch's epoch.
        side_records: Receives the ledger records of signals, for the next commit; None in a writer that commits none.
        on_watermark: Called with id and type of each watermark when its transaction has ended, also when an earlier
            attempt has committed it.
    """

    cfg: ConnectorConfig
    epoch: int
    side_records: list[SideRecord] | None = None
    on_watermark: WatermarkHandler | None = None
    _watermarks: list[tuple[str, str]] = field(default_factory=list)
    _signals: list[Signal] = field(default_factory=list)
    _data_bytes: int = 0
    _surplus: int = 0

    @classmethod
    def for_writer(
        cls,
        cfg: ConnectorConfig,
        epoch: int,
        writer: int,
        side_records: list[SideRecord],
        on_watermark: WatermarkHandler | None,
    ) -> SignalRows | None:
        """Return the reader of the signal table; None when neither signals nor watermarks of it are used.

        Args:
            cfg: The connector's configuration.
            epoch: The batch's epoch.
            writer: The writer's index; writer 0 commits the signals, every writer applies the structures.
            side_records: Receives ledger records.
            on_watermark: Receives watermarks, in any writer.
        """
        source_enabled = cfg.accepts_signals_from("source")
        if cfg[F.SIGNAL_DATA_COLLECTION] is None or not (source_enabled or on_watermark):
            return None
        return cls(cfg, epoch, side_records if source_enabled and writer == 0 else None, on_watermark)

    def row_reader(self, table: Table | None, table_map: TableMap, where: str) -> SignalRowReader | None:
        """Return the reader of the rows after a TABLE_MAP event; None for another table, or when they cannot be read.

        Args:
            table: The table's structure in the schema history, or None.
            table_map: The event.
            where: The event's binlog position, for messages.

        Raises:
            SchemaError: The table's structure is not known, and watermarks are needed.
        """
        table_id = TableId(table_map.db, table_map.table)
        if table_id != self.cfg[F.SIGNAL_DATA_COLLECTION]:
            return None
        structure, reason = matching_structure(table, table_map)
        if structure is not None:
            return SignalRowReader(self, structure, table_map)
        what = f"the rows of the signal table {table_id} cannot be read"
        remedy = "recreate it with three character columns: id, type and data"
        if self.on_watermark is not None:
            raise SchemaError(what, where=where, why=reason, remedy=remedy)
        log.warning("%s from %s on: %s; %s", what, where, reason, remedy)
        return None

    def add_row(self, row: Signal, *, deleted: bool) -> None:
        """Add a row; it takes effect when its transaction ends.

        Args:
            row: The row.
            deleted: Whether it was deleted instead of inserted.
        """
        if row.type in (WINDOW_OPEN, WINDOW_CLOSE):
            if not deleted:
                self._watermarks.append((row.id, row.type))
            elif (
                row.type == WINDOW_OPEN
                and self.cfg[F.INCREMENTAL_SNAPSHOT_WATERMARKING_STRATEGY] is WatermarkStrategy.INSERT_DELETE
            ):
                # Deleting the row that opened a window closes the window (Debezium 3.6.1, ``SignalRecord``).
                self._watermarks.append((row.id.replace("open", "close"), WINDOW_CLOSE))
        elif not deleted:
            if len(self._signals) < MAX_TRANSACTION_SIGNALS and self._data_bytes < MAX_TRANSACTION_BYTES:
                self._signals.append(row)
                self._data_bytes += len(row.data)
            else:
                self._surplus += 1

    def end_transaction(
        self,
        start_offset: BinlogOffset,
        on_schema_changes: SchemaChangesHandler,
        commit_time: CommitTime = CommitTime(),
        *,
        already_committed: bool,
    ) -> None:
        """Publish the watermarks and signals of a transaction that has ended.

        Args:
            start_offset: The boundary before the transaction; part of the ledger keys of its signals.
            on_schema_changes: Applies the table structures of a signal, in every writer and every attempt; returns
                whether it did. Not called when signals of the table are not enabled.
            commit_time: When the transaction was committed.
            already_committed: Whether an earlier attempt committed the transaction, and its signals with it.
        """
        if not (self._signals or self._watermarks):
            return
        for id_, type_ in self._watermarks:
            if self.on_watermark is not None:
                self.on_watermark(id_, type_)
        if self._surplus:
            reason = (
                f"its transaction inserted {self._surplus} signals more than the {len(self._signals)} that are accepted"
            )
            self._signals.append(build_signal("", "", "", "source", reason))
        if self.cfg.accepts_signals_from("source"):
            self._signals = [self._apply_schema_changes(signal, on_schema_changes) for signal in self._signals]
        if self.side_records is not None and not already_committed:
            key_prefix = f"{self.epoch}-{start_offset.file.rpartition('.')[2]}-{start_offset.pos}"
            for number, signal in enumerate(self._signals, 1):
                key = signal.ledger_key(f"{key_prefix}-{number}").encode()
                sent_ms = commit_time.sent_ms(signal)
                positioned = replace(signal, position=start_offset, epoch=self.epoch, sent_ms=sent_ms)
                self.side_records.append(SideRecord(self.cfg.ledger_topic, key, encode(positioned.to_json())))
        self.abandon_transaction()

    def abandon_transaction(self) -> None:
        """Forget the rows of a transaction that has ended, or that is read again from its beginning."""
        self._watermarks.clear()
        self._signals.clear()
        self._data_bytes = self._surplus = 0

    def _apply_schema_changes(self, signal: Signal, on_schema_changes: SchemaChangesHandler) -> Signal:
        """Return a signal, marked when its structures were applied; the driver reports why another one is refused."""
        if signal.type.strip() != SCHEMA_CHANGES:
            return signal
        try:
            action = read_action(signal, frozenset())
        except SignalRefused:
            return signal
        return replace(signal, applied=isinstance(action, SchemaChanges) and on_schema_changes(action))


class SignalRowReader:
    """Read rows of one version of the signal table.

    Args:
        rows: Receives the rows.
        table: The table.
        table_map: The TABLE_MAP event that announces the rows.
    """

    __slots__ = ("_bad_rows", "_column_count", "_column_names", "_decoder", "_signal_rows")

    def __init__(self, rows: SignalRows, table: Table, table_map: TableMap) -> None:
        self._signal_rows, self._column_count = rows, len(table.columns)
        self._column_names = tuple(c.name for c in table.columns[:3])
        self._bad_rows: list[BadRow] = []
        # As key columns they are decoded unchanged: configured column filters, masks and hashes do not apply to them.
        options = DecoderOptions(
            key_columns=self._column_names, included=self._column_names, tombstones=False, skipped_ops=frozenset()
        )
        self._decoder = TolerantDecoder(compile_decoder(table, table_map, options, EnvelopeText()), self._bad_rows)

    def read_event(self, event: Event, header: RowsHeader, kind: int) -> None:
        """Read the rows of an event.

        Args:
            event: The row event.
            header: Its header.
            kind: 0 for inserted rows, 2 for deleted ones; other kinds are ignored.

        Raises:
            BinlogCorruptError: The event does not belong to the table.
            ValueDecodeError: The boundaries of its rows cannot be found.
        """
        if kind not in (_INSERTED, _DELETED):
            return
        check_rows(event, header, self._column_count)
        decoded_rows: list[RowRecord] = []
        decode = self._decoder.write if kind == _INSERTED else self._decoder.delete
        decode(event.buf, header.pos, event.end, EventContext(where=f"{event.file}:{event.start_pos}"), decoded_rows)
        signals = {row: self._signal_from_values(json.loads(key or b"{}")) for key, _, row, *_ in decoded_rows}
        signals |= {bad_row.row: self._invalid_signal(bad_row) for bad_row in self._bad_rows}
        self._bad_rows.clear()
        for _, signal in sorted(signals.items()):
            self._signal_rows.add_row(signal, deleted=kind == _DELETED)

    def _invalid_signal(self, bad_row: BadRow) -> Signal:
        names = ", ".join(name for name, _ in bad_row.failed) or "a column"
        return self._signal_from_values(json.loads(bad_row.after or bad_row.before or "{}"), f"{names} cannot be read")

    def _signal_from_values(self, values: Mapping[str, object], invalid_reason: str = "") -> Signal:
        id_, type_, data = (_to_text(values.get(name)) for name in self._column_names)
        return build_signal(id_, type_, data, "source", invalid_reason)


def _to_text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)


def matching_structure(table: Table | None, table_map: TableMap) -> tuple[Table | None, str]:
    """Return a structure that fits a TABLE_MAP event, from the history or from the event alone; or why there is none.

    Args:
        table: The structure in the schema history, or None: a history that began before the table became the signal
            table may not contain it.
        table_map: The event.
    """
    reason = "the schema history does not contain the table"
    if len(table_map.column_types) < 3:
        return None, f"it has only {len(table_map.column_types)} columns, but id, type and data are needed"
    if table is not None:
        try:
            check_table_map(table, table_map)
            return table, ""
        except SchemaError as error:
            reason = error.why
    columns = [_column_from_table_map(table_map, index) for index in range(len(table_map.column_types))]
    text_columns = tuple(column for column in columns if column is not None)
    if len(text_columns) < len(columns):
        return None, f"{reason}, and the binlog alone does not describe its columns"
    return Table(TableId(table_map.db, table_map.table), text_columns), ""


_TEXT_TYPE_NAMES = {mysql_type(name).width: name for name in TEXT_BY_SIZE}


def _column_from_table_map(table_map: TableMap, index: int) -> Column | None:
    """Return a character column as TABLE_MAP describes it (MySQL 8.0.1 and later); None for any other column."""
    collation_id = None if table_map.charsets is None else table_map.charsets[index]
    charset = None if collation_id is None else charset_by_id(collation_id)
    if charset is None or charset == "binary":
        return None
    wire_column: WireType = wire_type(table_map.column_types[index], table_map.column_meta[index])
    bytes_per_char = MAX_CHARACTER_BYTES.get(charset, 4)
    char_types = {
        wt.VARCHAR: ("VARCHAR", wire_column.length // bytes_per_char),
        wt.STRING: ("CHAR", wire_column.length // bytes_per_char),
    }
    type_name, length = char_types.get(
        wire_column.code, (_TEXT_TYPE_NAMES.get(wire_column.length, "") if wire_column.code == wt.BLOB else "", None)
    )
    if not type_name:
        return None
    nullable = table_map.nullable(index)
    return Column(f"c{index}", index + 1, type_name, length=length, nullable=nullable, charset=charset)
