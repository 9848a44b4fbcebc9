"""What the cursor of a scan rests on: a table that has kept its rows since the scan began, and records of one form.

A cursor says that everything up to a key is told. That is not so any more when another table took the name, when rows
came without row events (EXCHANGE PARTITION, IMPORT TABLESPACE), when the stream goes on elsewhere, or when the
configuration gives records another key, value or topic by now. Then the scan begins anew: rows come once more rather
than never.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
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
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import statement_effects

_RECORD_NEUTRAL_GROUPS = frozenset({Group.CONNECTOR, Group.FILTERS, Group.HISTORY, Group.SIGNALS, Group.TOPICS})
"""Groups of properties that decide what is captured and where side records go, not how the record of a row looks."""
_MAX_DDL_CHARS = 200


def record_format_digest(cfg: ConnectorConfig) -> str:
    """Return a digest of the properties that decide how the records of a row look and where they go.

    Args:
        cfg: The connector's configuration.
    """
    record_pins = {name: pin for name, pin in property_pins(cfg, snapshot=False).items() if _affects_records(name)}
    return hashlib.sha256(json.dumps(record_pins, sort_keys=True).encode()).hexdigest()[:16]


def _affects_records(name: str) -> bool:
    declared_field = F.BY_NAME.get(name)
    if declared_field is None:  # members of families: transforms, converters, rules for columns
        return not name.startswith(SOURCE_TEXT_PREFIX)
    return declared_field.group not in _RECORD_NEUTRAL_GROUPS or name == F.TRANSFORMS.name


@dataclass(slots=True)
class ScanValidity:
    """Hold what scans rest on now.

    Args:
        stream_offset: Where the stream stands.
        format_digest: Digest of what decides how records look (``record_format_digest``).
        scans: The scans that may go on.
        invalid_reasons: Why scans cannot go on, by their orders.
    """

    stream_offset: BinlogOffset
    format_digest: str
    scans: Iterable[TableScan]
    invalid_reasons: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scans = [scan for scan in self.scans if scan.state == "running"]
        for scan in self.scans:
            if scan.format_digest != self.format_digest:
                self.invalid_reasons[scan.order] = "the properties that decide the format of its records have changed"
            elif (
                scan.start_offset is None
                or not comparable(scan.start_offset, self.stream_offset)
                or compare_offsets(scan.start_offset, self.stream_offset) > 0
            ):
                self.invalid_reasons[scan.order] = f"the stream was moved to {self.stream_offset} since it began"

    def check_record(self, record: HistoryRecord) -> None:
        """Take note of a record of the schema history.

        Args:
            record: The record.
        """
        if record.snapshot and not record.starts_description:
            return
        affected_scans = [
            scan for scan in self.scans if scan.order not in self.invalid_reasons and self._is_after_start(scan, record)
        ]
        if not affected_scans:
            return
        tables = None if record.starts_description else _replaced_tables(record)
        for scan in affected_scans:
            if tables is None or {scan.table, TableId(scan.table.db, "")} & tables:
                cause = (
                    "the table structures were read from the server again"
                    if record.starts_description
                    else record.ddl[:_MAX_DDL_CHARS]
                )
                self.invalid_reasons[scan.order] = f"its rows were replaced at {record.position}: {cause}"

    def _is_after_start(self, scan: TableScan, record: HistoryRecord) -> bool:
        position, since = record.position, scan.start_offset
        if since is None or not comparable(position, since) or not comparable(position, self.stream_offset):
            return False
        return compare_offsets(position, since) > 0 and compare_offsets(position, self.stream_offset) <= 0


def _replaced_tables(record: HistoryRecord) -> frozenset[TableId] | None:
    """Return the tables whose rows are others behind a statement; None when nobody knows which."""
    try:
        ddl_effects = statement_effects(record.ddl, record.context)
    except DdlParseError:
        return None
    # Rows that TRUNCATE takes away leave nothing behind that would have to be read.
    replacing = [effect for effect in ddl_effects if effect.kind != "truncate" and not effect.unless_exists]
    return frozenset(table for e in replacing for table in (e.table, e.new_name) if table is not None)
