"""An ad-hoc snapshot from the side of who asks for it: the signal, its id, and how it stands."""

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
from airflow_provider_mysql_cdc.cdc.operate.send_signal import check_signal
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import captured_tables
from airflow_provider_mysql_cdc.cdc.signals.signal import Signal
from airflow_provider_mysql_cdc.cdc.signals.table_names import SignalRefused, match_tables, quote_text

_MAX_SHOWN_ENTRIES = 5
ACTIVE_STATES = ("waiting", "running", "paused")


def signal_id(owner: str, generation: int = 0) -> str:
    """Return the id of the signal that a task sends: the same for every try of it.

    Args:
        owner: ``dag_id/run_id/task_id/map_index``.
        generation: Which time the task is done, when a person has cleared it; 0 for the first.

    Returns:
        40 characters: Debezium's signal table has a column ``id VARCHAR(42)``.
    """
    return "airflow-" + hashlib.sha256(f"{owner}#{generation}".encode()).hexdigest()[:32]


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
        condition: SQL that the rows of each of them have to fulfil.
        surrogate_key: Column to cut the tables by in place of the key.
        channel: ``airflow``, ``source`` or ``kafka``.
        id_: The signal's id; empty for a new one.

    Raises:
        ConfigError: There is no table, or the driver would refuse the signal.
    """
    names = list(tables)
    if not names:
        raise ConfigError("no table is given", where="tables", remedy="name one at least, as database.table")
    data: dict[str, Any] = {"type": kind, "data-collections": names}
    if condition.strip():
        data["additional-conditions"] = [{"data-collection": name, "filter": condition} for name in names]
    if surrogate_key.strip():
        data["surrogate-key"] = surrogate_key.strip()
    return check_signal(cfg, "execute-snapshot", data, channel=channel, id_=id_)


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
    """Refuse tables that the stream does not capture, before anything starts.

    Args:
        cfg: The connector's configuration.
        entries: Names ``database.table``, or regular expressions for them.

    Raises:
        ConfigError: No captured table is meant by one of them.
        SourceError: The server cannot be asked.
    """
    with connect(cfg.connection_settings()) as conn:
        captured = captured_tables(conn, cfg)
    try:
        _, unmatched = match_tables(entries, captured)
    except SignalRefused as refused:
        raise ConfigError("a table cannot be looked for", where="tables", why=refused.reason) from refused
    if unmatched:
        raise ConfigError(
            "a table is not captured",
            where="tables: " + ", ".join(map(quote_text, unmatched[:_MAX_SHOWN_ENTRIES])),
            why=f"none of the {len(captured)} captured tables that the account can see is meant; letters count as they "
            "are written",
            remedy="correct the name (database.table); or add the table to table.include.list of the connection",
        )


def peek_ledger(cfg: ConnectorConfig) -> LedgerState:
    """Return what the ledger says now; a transaction under way, or of a killed driver, may hide the newest of it.

    Args:
        cfg: The connector's configuration.

    Raises:
        SinkError: Kafka does not answer.
    """
    return kafka_clients.ledger(cfg).peek()


def snapshot_done(status: SnapshotStatus, request_id: str | None) -> bool:
    """Return whether a snapshot is done.

    Args:
        status: How it stands.
        request_id: The signal's id, or None for all.

    Raises:
        StateError: It was refused, stopped or given up.
    """
    if status.state == "aborted":
        raise StateError(
            "the snapshot was not read to its end",
            where=f"signal {request_id}",
            why=status.reason or "it was stopped",
            remedy="read the notices in the log of the drain; then ask again, with another signal",
        )
    return status.state == "done"


def status_json(status: SnapshotStatus) -> dict[str, Any]:
    """Return plain JSON: the state, and each table's state and rows."""
    tables = {name: {"state": table.state, "rows": table.rows} for name, table in status.tables.items()}
    return {"state": status.state, "tables": tables}


def task_signal_id(ledger: LedgerState, owner: str, generation: int) -> str:
    """Return the id of the signal of a task: that of an earlier time whose snapshot is still at work, or a new one.

    A person who clears a task that has succeeded wants the tables read again; one that clears it half-way does not.

    Args:
        ledger: The ledger.
        owner: ``dag_id/run_id/task_id/map_index``.
        generation: Which time the task is done.
    """
    earlier = (signal_id(owner, time) for time in range(generation - 1, -1, -1))
    active_ids = (id_ for id_ in earlier if snapshot_status(ledger, id_).state in ACTIVE_STATES)
    return next(active_ids, signal_id(owner, generation))
