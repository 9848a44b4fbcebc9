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
from airflow_provider_mysql_cdc.cdc.config.pinned_properties import SOURCE_OF, pins
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import TableScan
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, comparable, order
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import effects

_ELSEWHERE = frozenset({Group.CONNECTOR, Group.FILTERS, Group.HISTORY, Group.SIGNALS, Group.TOPICS})
"""Groups of properties that decide what is captured and where side records go, not how the record of a row looks."""
_SHOWN = 200


def form_of(cfg: ConnectorConfig) -> str:
    """Return a digest of the properties that decide how the records of a row look and where they go.

    Args:
        cfg: The connector's configuration.
    """
    found = {name: pin for name, pin in pins(cfg, snapshot=False).items() if _decides_form(name)}
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]


def _decides_form(name: str) -> bool:
    declared = F.BY_NAME.get(name)
    if declared is None:  # members of families: transforms, converters, rules for columns
        return not name.startswith(SOURCE_OF)
    return declared.group not in _ELSEWHERE or name == F.TRANSFORMS.name


@dataclass(slots=True)
class Basis:
    """Hold what scans rest on now.

    Args:
        at: Where the stream stands.
        form: Digest of what decides how records look (``form_of``).
        scans: The scans that may go on.
        found: Why scans cannot go on, by their orders.
    """

    at: BinlogOffset
    form: str
    scans: Iterable[TableScan]
    found: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scans = [scan for scan in self.scans if scan.state == "running"]
        for scan in self.scans:
            if scan.form != self.form:
                self.found[scan.order] = "the configuration that decides how its records look is another one by now"
            elif scan.since is None or not comparable(scan.since, self.at) or order(scan.since, self.at) > 0:
                self.found[scan.order] = f"the stream goes on at {self.at}, elsewhere than when it began"

    def look(self, record: HistoryRecord) -> None:
        """Take note of a record of the schema history.

        Args:
            record: The record.
        """
        if record.snapshot and not record.describes:
            return
        behind = [scan for scan in self.scans if scan.order not in self.found and self._behind(scan, record)]
        if not behind:
            return
        tables = None if record.describes else _moved(record)
        for scan in behind:
            if tables is None or {scan.table, TableId(scan.table.db, "")} & tables:
                what = "the structures were described anew" if record.describes else record.ddl[:_SHOWN]
                self.found[scan.order] = f"its rows are others since {record.position}: {what}"

    def _behind(self, scan: TableScan, record: HistoryRecord) -> bool:
        at, since = record.position, scan.since
        if since is None or not comparable(at, since) or not comparable(at, self.at):
            return False
        return order(at, since) > 0 and order(at, self.at) <= 0


def _moved(record: HistoryRecord) -> frozenset[TableId] | None:
    """Return the tables whose rows are others behind a statement; None when nobody knows which."""
    try:
        found = effects(record.ddl, record.context)
    except DdlParseError:
        return None
    # Rows that TRUNCATE takes away leave nothing behind that would have to be read.
    moves = [effect for effect in found if effect.kind != "truncate" and not effect.unless_exists]
    return frozenset(table for e in moves for table in (e.table, e.other) if table is not None)
