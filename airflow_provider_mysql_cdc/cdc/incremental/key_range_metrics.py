"""The metrics of the key range of an ad-hoc snapshot that was assigned last (MET-17 to MET-21)."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.incremental.scan_bounds import TableUnreadable, find_bound
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import KeyRange, TableScan
from airflow_provider_mysql_cdc.cdc.job.job_metrics import JobMetrics
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import Bound


@dataclass(slots=True)
class KeyRangeMeter:
    """Tell a job's metrics of key ranges.

    Args:
        conn: An open connection to the source, which nobody else uses while a range is assigned.
        metrics: The job's metrics.
    """

    conn: MySqlConnection
    metrics: JobMetrics
    _first_keys: dict[int, Bound | None] = field(default_factory=dict)

    def on_assigned(self, scan: TableScan, key_range: KeyRange) -> None:
        """Note a key range.

        Args:
            scan: Its scan.
            key_range: The range.
        """
        self.metrics.key_range = {
            "ChunkId": key_range.id,
            "ChunkFrom": bound_text(key_range.low),
            "ChunkTo": bound_text(key_range.high),
            "TableFrom": bound_text(self._first_key(scan)),
            "TableTo": bound_text(scan.last_key),
        }
        self.metrics.publish_if_due()

    def _first_key(self, scan: TableScan) -> Bound | None:
        """Return the first key of a scan's table; None where an index does not find it at once."""
        if scan.number not in self._first_keys and scan.columns and scan.surrogate_key is None:
            with suppress(TableUnreadable):
                self._first_keys[scan.number] = find_bound(self.conn, scan.table, scan.columns, scan.kinds)
        return self._first_keys.setdefault(scan.number, None)


def bound_text(bound: Bound | None) -> str:
    """Return a bound as a JSON list; empty for none.

    Args:
        bound: The bound.
    """
    return "" if bound is None else json.dumps(list(bound), ensure_ascii=False)
