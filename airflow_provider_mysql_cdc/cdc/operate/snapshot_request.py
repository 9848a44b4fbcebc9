"""A snapshot request as an operator makes it: its execute-snapshot signal, the signal's id, and its progress."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, StateError
from airflow_provider_mysql_cdc.cdc.incremental.snapshot_status import SnapshotStatus, snapshot_status
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import ENDED_STATES
from airflow_provider_mysql_cdc.cdc.operate.send_signal import checked_signal
from airflow_provider_mysql_cdc.cdc.operate.source_server import at_server_of_ledger
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import captured_tables
from airflow_provider_mysql_cdc.cdc.signals.signal import Signal
from airflow_provider_mysql_cdc.cdc.signals.table_names import SignalRefused, match_tables, quote_text

_MAX_SHOWN_ENTRIES = 5
ACTIVE_STATES = ("waiting", "running", "paused")


def signal_id(owner: str, generation: int = 0, content: str = "") -> str:
    """Return the id of the signal that a task sends: the same in every try that asks for the same.

    Args:
        owner: ``dag_id/run_id/task_id/map_index``.
        generation: How often the task was cleared; 0 for its first run (``operators.common.generation_of``).
        content: What it asks for (``signal_content``): a task whose tables or condition were corrected asks anew.

    Returns:
        40 characters: Debezium's signal table has a column ``id VARCHAR(42)``.
    """
    return "airflow-" + hashlib.sha256(f"{owner}#{generation}#{content}".encode()).hexdigest()[:32]


def snapshot_signal(
    cfg: ConnectorConfig,
    tables: Sequence[str],
    *,
    kind: str = "incremental",
    condition: str = "",
    surrogate_key: str = "",
    channel: str = "airflow",
    id_: str = "",
) -> Signal:
    """Return the ``execute-snapshot`` signal of a request, checked and ready to be sent.

    Args:
        cfg: The connector's configuration.
        tables: Names ``database.table``, or regular expressions for them, as ``parse_tables`` returns them.
        kind: ``incremental`` or ``blocking``.
        condition: SQL condition for the rows of each table.
        surrogate_key: Column that divides the tables into chunks instead of the key.
        channel: ``airflow``, ``source`` or ``kafka``.
        id_: The signal's id; empty for a new one.

    Raises:
        ConfigError: There is no table, or the driver would refuse the signal.
    """
    names = list(tables)
    if not names:
        raise ConfigError("no table is named", where="tables", remedy="name at least one, as database.table")
    data: dict[str, Any] = {"type": kind, "data-collections": names}
    if condition.strip():
        data["additional-conditions"] = [{"data-collection": name, "filter": condition} for name in names]
    if surrogate_key.strip():
        data["surrogate-key"] = surrogate_key.strip()
    return checked_signal(cfg, "execute-snapshot", data, channel=channel, id_=id_)


def parse_tables(tables: Sequence[str] | str | None) -> list[str]:
    """Return the names in one name, a list, or a list's JSON text, as a template renders it; None is no table.

    Args:
        tables: The tables; blanks around a name, and empty names, are left out.
    """
    names: Sequence[Any] = [tables] if isinstance(tables, str) else tables or []
    if isinstance(tables, str) and tables.lstrip().startswith("["):
        with contextlib.suppress(ValueError):  # a regular expression may begin with a bracket
            parsed = json.loads(tables)
            names = parsed if isinstance(parsed, list) else names
    return [name for name in (str(table).strip() for table in names) if name]


def require_captured(cfg: ConnectorConfig, entries: Sequence[str]) -> None:
    """Check that the stream captures the requested tables, before anything starts.

    Args:
        cfg: The connector's configuration.
        entries: Names ``database.table``, or regular expressions for them.

    Raises:
        ConfigError: An entry matches no captured table.
        SourceError: The query fails.
    """
    with connect(at_server_of_ledger(cfg).connection_settings()) as conn:
        captured = captured_tables(conn, cfg)
    try:
        _, unmatched = match_tables(entries, captured)
    except SignalRefused as refused:
        raise ConfigError("a table entry is invalid", where="tables", why=refused.reason) from refused
    if unmatched:
        raise ConfigError(
            "a requested table is not captured",
            where="tables: " + ", ".join(map(quote_text, unmatched[:_MAX_SHOWN_ENTRIES])),
            why=f"it matches none of the {len(captured)} captured tables the account sees; names are case-sensitive",
            remedy="correct the name (database.table), or add the table to table.include.list of the connection",
        )


def peek_ledger(cfg: ConnectorConfig) -> LedgerState:
    """Return the ledger as it is now; an open transaction, also of a killed driver, may hide its newest records.

    Args:
        cfg: The connector's configuration.

    Raises:
        SinkError: Kafka does not answer.
    """
    return kafka_clients.ledger(cfg).peek()


def snapshot_done(status: SnapshotStatus, request_id: str | None) -> bool:
    """Return whether a snapshot is done.

    Args:
        status: The snapshot's status.
        request_id: The signal's id, or None for all.

    Raises:
        StateError: The snapshot was refused, stopped or aborted.
    """
    if status.state == "aborted":
        raise StateError(
            "the snapshot ended before all its tables were read",
            where=f"signal {request_id}",
            why=status.reason or "it was stopped",
            remedy="read the notifications in the log of the drain, then request the snapshot again with a new signal",
        )
    return status.state == "done"


def require_readable(status: SnapshotStatus, request_id: str) -> None:
    """Require that a table of a snapshot which is left can be read.

    Args:
        status: The snapshot's status after a drain.
        request_id: Its id.

    Raises:
        StateError: Each of them could not be read. Only tables of an interrupted snapshot wait for that.
    """
    left = {name: table.reason for name, table in status.tables.items() if table.state not in ENDED_STATES}
    if left and all(left.values()):
        raise StateError(
            "tables of an interrupted snapshot cannot be read",
            where=f"{request_id}: {', '.join(left)}",
            why="; ".join(f"{name}: {reason}" for name, reason in left.items()),
            remedy="remove the cause (for example, grant SELECT), then run the Airflow task again: what was read is "
            "kept, and changes are drained meanwhile. To leave a table out, add it to table.exclude.list",
            retriable=True,
        )


def status_json(status: SnapshotStatus) -> dict[str, Any]:
    """Return plain JSON: the state, and each table's state and rows."""
    tables = {name: {"state": table.state, "rows": table.rows} for name, table in status.tables.items()}
    return {"state": status.state, "tables": tables}


def signal_content(signal: Signal) -> str:
    """Return what a signal asks for as one text.

    Args:
        signal: The signal.
    """
    return f"{signal.type} {signal.channel} {signal.data}"


def task_signal_id(ledger: LedgerState, owner: str, generation: int, content: str = "") -> str:
    """Return the id of a task's signal: that of an active snapshot from before the task was cleared, or a new one.

    Clearing a task that has succeeded requests a new snapshot; clearing an unfinished one continues its snapshot.

    Args:
        ledger: The ledger.
        owner: ``dag_id/run_id/task_id/map_index``.
        generation: How often the task was cleared.
        content: What it asks for (``signal_content``).
    """
    earlier = (signal_id(owner, time, content) for time in range(generation - 1, -1, -1))
    active_ids = (id_ for id_ in earlier if snapshot_status(ledger, id_).state in ACTIVE_STATES)
    return next(active_ids, signal_id(owner, generation, content))
