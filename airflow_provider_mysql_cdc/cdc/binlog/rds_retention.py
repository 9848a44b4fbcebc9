"""How long Amazon RDS and Aurora keep the binlog: a row of a table of theirs, whatever the server's variable says.

Amazon RDS user guide, "Configuring binary log retention": ``binlog retention hours`` is NULL at first, and then a file
is deleted as soon as nothing of RDS needs it. Others set ``binlog_expire_logs_seconds``, or tell nothing in SQL.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.server_facts import RunRequirements, ServerFacts
from airflow_provider_mysql_cdc.cdc.errors import SourceError
from airflow_provider_mysql_cdc.cdc.model.finding import WARNING, Finding

_EXISTS = (
    "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'mysql' AND TABLE_NAME = 'rds_configuration'"
)
_HOURS = "SELECT value FROM mysql.rds_configuration WHERE name = 'binlog retention hours'"
_FIX = "CALL mysql.rds_set_configuration('binlog retention hours', 168)"


def read_rds_retention(conn: Any) -> int | None:
    """Return for how many seconds Amazon RDS keeps the binlog: 0 for not at all, None where nothing says so.

    Args:
        conn: An open connection; its account sees the table if it may SELECT everywhere, or from that table.

    Raises:
        SourceError: The server cannot be asked.
    """
    if not fetch_all(conn, _EXISTS)[0][0]:
        return None
    try:
        found = fetch_all(conn, _HOURS)
    except SourceError as error:
        if error.can_retry:
            raise
        return None  # the account may see the table and not read it
    return int(float(found[0][0] or 0) * 3600) if found else None


def rds_deletes_binlog(facts: ServerFacts, _: RunRequirements) -> Iterator[Finding]:
    """Yield that Amazon RDS deletes binlog files as soon as it does not need them itself (SETUP-18, FAULT-11)."""
    if facts.rds_retention_s == 0:
        yield Finding(
            WARNING,
            "Amazon RDS deletes the server's binlog files as soon as it can",
            "'binlog retention hours' is not set, so the position of the stream is gone after any pause, and a new "
            "snapshot is needed",
            _FIX,
        )
