"""A snapshot request or another signal as an operator makes it: checked, sent, and followed.

Check a signal and send it: as a record of the ledger, a row of the signal table, or a record of the Kafka topic.

``checked_signal`` is the only check: it refuses what the driver would refuse, and returns the frozen ``Signal`` that
``send_signal`` sends as it is. A signal with an id of its own can be sent again: the driver takes one snapshot per id,
a record of the ledger takes the place of the earlier one, and a row that exists already is left alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import (
    ConfigError,
    LedgerMissingError,
    SourcePrivilegeError,
    SourceSettingError,
    StateError,
)
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import SnapshotStatus, snapshot_status
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import ENDED_STATES
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId, quote_name
from airflow_provider_mysql_cdc.cdc.operate.source_server import at_server_of_ledger
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import captured_tables
from airflow_provider_mysql_cdc.cdc.signals.actions import (
    SchemaChanges,
    SignalChannel,
    SignalRefused,
    match_tables,
    quote_text,
)
from airflow_provider_mysql_cdc.cdc.signals.signal import Signal, build_signal, read_action
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.record_writer import write_plain
from airflow_provider_mysql_cdc.cdc.sink.topics import partition_counts

CHANNELS: tuple[SignalChannel, ...] = get_args(SignalChannel)
_GRANT_REMEDY = "the account needs SELECT and INSERT on the signal table"
_COLUMNS = ("id", "type", "data")
_KEY_NAMESPACE = uuid.UUID("7c5a4a5e-94e5-4f0b-8f0a-0d9a4a5b7c11")


def checked_signal(
    cfg: ConnectorConfig, type_: str, data: Mapping[str, Any] | str, *, channel: str = "airflow", id_: str = ""
) -> Signal:
    """Return a signal that the driver will accept, or refuse it.

    Args:
        cfg: The connector's configuration.
        type_: The signal's type, for example ``execute-snapshot``.
        data: Its parameters, or their JSON text.
        channel: ``airflow``, ``source`` or ``kafka``.
        id_: Its id; empty for a new one.

    Raises:
        ConfigError: The driver would refuse the signal, or does not read this channel.
    """
    where = f"signal {type_}, channel {channel}"
    if channel not in CHANNELS:
        raise ConfigError("there is no such signal channel", where=where, remedy=f"use one of {', '.join(CHANNELS)}")
    if not cfg.accepts_signals_from(channel):
        raise ConfigError(
            "the connector does not read signals from this channel",
            where=where,
            remedy=f"add {channel} to signal.enabled.channels, or send the signal over the channel airflow",
        )
    if channel == "source" and cfg[F.SIGNAL_DATA_COLLECTION] is None:
        raise ConfigError("no signal table is configured", where=where, remedy="set signal.data.collection")
    text = data if isinstance(data, str) else json.dumps(data)
    signal = build_signal(id_ or str(uuid.uuid4()), type_, text, channel)
    try:
        action = read_action(signal, cfg[F.SIGNAL_TRUSTED_CHANNELS])
        if isinstance(action, SchemaChanges):
            action.parse_changes(cfg)
    except SignalRefused as refused:
        raise ConfigError(
            "the connector would refuse the signal",
            where=where,
            why=refused.reason,
            remedy="correct it; nothing was sent",
        ) from refused
    return signal


def send_signal(cfg: ConnectorConfig, signal: Signal) -> None:
    """Send a signal over its channel.

    Args:
        cfg: The connector's configuration.
        signal: The signal, as ``checked_signal`` returned it.

    Raises:
        LedgerMissingError: The channel is ``airflow``, and there is no ledger topic.
        ForeignLedgerError: The channel is ``airflow``, and the ledger topic is another stream's.
        SourceError: There is no signal table, or MySQL refuses the row.
        SinkConnectionError: Kafka did not answer in time; the signal may have been written all the same.
        SinkError: Kafka refuses the record.
        StateError: The signal table holds another signal of this id.
    """
    _SENDERS[signal.channel](cfg, signal)


def _send_to_ledger(cfg: ConnectorConfig, signal: Signal) -> None:
    """Write the ledger record that the driver reads between two batches.

    The record is not part of a transaction: it neither waits for a running drain nor disturbs it. A pending signal is
    replaced by another one of the same id, so a repeated attempt adds nothing.
    """
    if cfg.ledger_topic not in partition_counts(make_admin(cfg.kafka_settings()), [cfg.ledger_topic]):
        raise LedgerMissingError(
            "the signal cannot be stored: the ledger topic does not exist",
            where=f"topic {cfg.ledger_topic}",
            why="no snapshot and no drain of this topic.prefix has run yet, or the topic was deleted",
            remedy="run mysql_cdc_snapshot or mysql_cdc_drain first, or correct topic.prefix and ledger.topic",
        )
    kafka_clients.ledger(cfg).claim()  # nothing is written into another stream's ledger
    key = signal.ledger_key(uuid.uuid5(_KEY_NAMESPACE, signal.id).hex)
    sent = replace(signal, sent_ms=time.time_ns() // 1_000_000)
    write_plain(cfg.kafka_settings(), [SideRecord(cfg.ledger_topic, key.encode(), encode(sent.to_json()))])


def _send_to_table(cfg: ConnectorConfig, signal: Signal) -> None:
    """Insert the row unless an earlier try has; the first three columns count, whatever their names (INC-29)."""
    table = cfg[F.SIGNAL_DATA_COLLECTION]
    assert table is not None  # checked_signal
    with connect(at_server_of_ledger(cfg).connection_settings()) as conn:
        sql = "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
        rows = fetch_all(conn, f"{sql} ORDER BY ordinal_position LIMIT 3", (table.db, table.table))
        if len(rows) < len(_COLUMNS):
            raise SourceSettingError(
                "the signal table cannot be written",
                where=str(table),
                why=f"the account sees only {len(rows)} of its three columns for {', '.join(_COLUMNS)}",
                remedy=f"create the table (signal.data.collection.create=true lets the drain do so); {_GRANT_REMEDY}",
            )
        id_, type_, data = (quote_name(str(row[0])) for row in rows)
        select_sql = f"SELECT {type_}, {data} FROM {table.quoted()} WHERE {id_} = %s"
        existing_rows = fetch_all(conn, select_sql, (signal.id,))
        if not existing_rows:
            row = (signal.id, signal.type, signal.data)
            _insert(conn, table, f"INSERT INTO {table.quoted()} ({id_}, {type_}, {data}) VALUES (%s, %s, %s)", row)
        elif (signal.type, signal.data) not in existing_rows:
            raise StateError(
                "the signal table already has another signal with this id",
                where=f"{table}, id {signal.id}",
                remedy="send the signal with another id, or delete that row first if it was refused",
            )


def _insert(conn: MySqlConnection, table: TableId, sql: str, row: tuple[str, str, str]) -> None:
    try:
        fetch_all(conn, sql, row)
    except SourcePrivilegeError as error:
        raise SourcePrivilegeError(error.what, where=str(table), why=error.why, remedy=_GRANT_REMEDY) from error


def _send_to_kafka(cfg: ConnectorConfig, signal: Signal) -> None:
    """Write the record to partition 0, where Debezium reads: key topic.prefix; value type, data (INC-41, 42) and id."""
    data = json.loads(signal.data) if signal.data.strip() else {}
    value = json.dumps({"id": signal.id, "type": signal.type, "data": data}).encode()
    write_plain(cfg.signal_kafka_settings(), [SideRecord(cfg[F.SIGNAL_KAFKA_TOPIC], cfg.topic_prefix.encode(), value)])


_SENDERS: dict[str, Callable[[ConnectorConfig, Signal], None]] = {
    "airflow": _send_to_ledger,
    "source": _send_to_table,
    "kafka": _send_to_kafka,
}


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
