"""Whether a scan may continue at its cursor: its table's rows were not replaced, and the record format is unchanged.

A cursor means that all rows up to a key are published. That is no longer true if another table got the name, if rows
were added without row events (EXCHANGE PARTITION, IMPORT TABLESPACE), if columns or the primary key were changed
otherwise than by a column at the end whose value its definition says (values may change without row events), if the
stream was moved, or if the configuration now gives records another key, value or topic. Then the scan restarts, so that
rows are published twice rather than never.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.field import Group
from airflow_provider_mysql_cdc.cdc.config.pinned_properties import SOURCE_TEXT_PREFIX, property_pins
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import TableScan
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, comparable, compare_offsets
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import Effect, statement_effects

_RECORD_NEUTRAL_GROUPS = frozenset({Group.CONNECTOR, Group.FILTERS, Group.HISTORY, Group.SIGNALS, Group.TOPICS})
"""Groups of properties that decide what is captured and where side records are written, not the format of rows."""
_MAX_DDL_CHARS = 200


def record_format_digest(cfg: ConnectorConfig) -> str:
    """Return a digest of the properties that decide the format and the topic of row records.

    Args:
        cfg: The connector's configuration.
    """
    record_pins = {name: pin for name, pin in property_pins(cfg, snapshot=False).items() if _affects_records(name)}
    return hashlib.sha256(json.dumps(record_pins, sort_keys=True).encode()).hexdigest()[:16]


def _affects_records(name: str) -> bool:
    declared_field = F.BY_NAME.get(name)
    if declared_field is None:  # members of property families: transforms, converters, rules for columns
        return not name.startswith(SOURCE_TEXT_PREFIX)
    return declared_field.group not in _RECORD_NEUTRAL_GROUPS or name == F.TRANSFORMS.name


@dataclass(slots=True)
class ScanValidity:
    """Find scans that may not continue at their cursor.

    Args:
        stream_offset: Position of the stream.
        format_digest: Digest of the record format (``record_format_digest``).
        scans: The scans to check.
        captures: Returns whether the configuration captures a table.
        invalid_reasons: Why scans may not continue, by their orders.
        current_names: The names that tables of an interrupted snapshot have now, by the orders of their scans; None
            for a table that was dropped.
        arrivals: Captured names that a table got whose earlier names are not captured, each with the scan of a table
            that had left the captured names: the history may lack statements on names that are not captured.
    """

    stream_offset: BinlogOffset
    format_digest: str
    scans: Iterable[TableScan]
    captures: Callable[[TableId], bool] = lambda table: True
    invalid_reasons: dict[int, str] = field(default_factory=dict)
    current_names: dict[int, TableId | None] = field(default_factory=dict)
    arrivals: list[tuple[TableScan, TableId]] = field(default_factory=list)

    def __post_init__(self) -> None:
        scans = list(self.scans)
        self.scans = [scan for scan in scans if scan.state == "running" or scan.initial]
        self.current_names = {scan.number: scan.table for scan in scans if scan.initial}
        for scan in scans:
            if scan.state != "running":
                continue
            if scan.format_digest != self.format_digest:
                self.invalid_reasons[scan.number] = "the properties that decide the format of its records have changed"
            elif (
                scan.start_offset is None
                or not comparable(scan.start_offset, self.stream_offset)
                or compare_offsets(scan.start_offset, self.stream_offset) > 0
            ):
                self.invalid_reasons[scan.number] = f"the stream was moved to {self.stream_offset} since it began"

    def check_record(self, record: HistoryRecord) -> None:
        """Check the effect of a schema history record on the scans.

        Args:
            record: The record.
        """
        if record.continues_history or (record.snapshot and not record.starts_description):
            return
        affected_scans = [
            scan
            for scan in self.scans
            if (scan.number not in self.invalid_reasons or scan.initial) and self._is_after_start(scan, record)
        ]
        if not affected_scans:
            return
        effects = None if record.starts_description else _effects(record)
        tables = None if effects is None else _replaced_tables(effects)
        for scan in affected_scans:
            if scan.initial:
                self._follow(scan, effects or ())
            if scan.state != "running" or scan.number in self.invalid_reasons:
                continue
            if tables is None or {scan.table, TableId(scan.table.db, "")} & tables:
                cause = (
                    "the table structures were read from the server again"
                    if record.starts_description
                    else record.ddl[:_MAX_DDL_CHARS]
                )
                self.invalid_reasons[scan.number] = (
                    f"its rows or its structure were replaced at {record.position}: {cause}"
                )

    def renamed(self, scans: Iterable[TableScan]) -> list[tuple[TableScan, TableId]]:
        """Return the scans of an interrupted snapshot whose tables have other names now, or may have, with the names.

        Args:
            scans: The scans of the window.
        """
        names = ((scan, self.current_names.get(scan.number)) for scan in scans)
        return [*((scan, name) for scan, name in names if name is not None and name != scan.table), *self.arrivals]

    def _follow(self, scan: TableScan, effects: Iterable[Effect]) -> None:
        """Follow the table of a scan through the effects of one statement."""
        for effect in effects:
            name = self.current_names[scan.number]
            if name is None:
                return
            if effect.kind == "rename" and effect.table == name:
                self.current_names[scan.number] = effect.new_name
            elif effect.kind == "rename" and not self.captures(name) and not self.captures(effect.table):
                assert effect.new_name is not None
                self.arrivals += [(scan, effect.new_name)] if self.captures(effect.new_name) else []
            elif (effect.kind in ("drop", "truncate") and effect.table == name) or (
                effect.kind == "drop database" and effect.table.db == name.db
            ):
                self.current_names[scan.number] = None

    def _is_after_start(self, scan: TableScan, record: HistoryRecord) -> bool:
        position, since = record.position, scan.start_offset
        if since is None or not comparable(position, since) or not comparable(position, self.stream_offset):
            return False
        return compare_offsets(position, since) > 0 and compare_offsets(position, self.stream_offset) <= 0


def _effects(record: HistoryRecord) -> tuple[Effect, ...] | None:
    """Return the effects of a statement on tables as a whole; None if it cannot be parsed."""
    if record.structure is not None:  # the scan may have read with another primary key
        return (Effect("structure", record.structure.id),)
    try:
        return statement_effects(record.ddl, record.context)
    except DdlParseError:
        return None


def _replaced_tables(ddl_effects: Iterable[Effect]) -> frozenset[TableId]:
    """Return the tables whose rows a statement replaced."""
    # TRUNCATE, and DROP PARTITION, remove rows and add none that would have to be read.
    replacing = [e for e in ddl_effects if e.kind not in ("truncate", "partition rows") and not e.unless_exists]
    return frozenset(table for e in replacing for table in (e.table, e.new_name) if table is not None)
