"""The numbers that sensors and triggers send through Airflow's metrics while they wait."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

LAG_BYTES = "lag.bytes"
LAG_TRANSACTIONS = "lag.transactions"
LAG_BATCH_AGE = "lag.batch_age_seconds"
SIGNALS_WAITING = "signals.waiting"
ADHOC_TABLES_LEFT = "adhoc.tables_left"
ADHOC_ROWS = "adhoc.rows"
WATCH_REQUESTS = "watch.requests"
POLL_FAILURES = "watch.poll_failures"

_LAGGING = "`MySqlBinlogSensor`, its trigger, and `MySqlBinlogWatchTrigger`"
_ADHOC = "`MySqlIncrementalSnapshotSensor` and its trigger"
_WATCH = "`MySqlBinlogWatchTrigger`"

WAIT_METRICS: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        LAG_BYTES: ("gauge", _LAGGING, "Bytes of binlog, of all tables, that are not drained; also sent by tasks."),
        LAG_TRANSACTIONS: ("gauge", _LAGGING, "Transactions that are not drained, counted by GTIDs."),
        LAG_BATCH_AGE: ("gauge", _LAGGING, "Seconds since the last batch was stored, where anything is new; else 0."),
        SIGNALS_WAITING: ("gauge", _WATCH, "Signals that no drain has read yet (channels `airflow` and `kafka`)."),
        WATCH_REQUESTS: ("counter", _WATCH, "Drains that were asked for."),
        POLL_FAILURES: ("counter", _WATCH, "Polls that could not read the server or Kafka."),
        ADHOC_TABLES_LEFT: ("gauge", _ADHOC, "Tables of the ad-hoc snapshot that are not read yet."),
        ADHOC_ROWS: ("gauge", _ADHOC, "Rows of it that are written."),
    }
)
"""By name below ``mysql_cdc``: the type, who sends it, and what it is."""
