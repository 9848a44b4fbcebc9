"""Send a signal to a stream: over Airflow, by a row of the signal table, or by a record of the Kafka signal topic.

What the driver would refuse is refused here, before anything is sent. Who sends a signal with an id of its own may send
it again: the driver asks for one snapshot per id, and a row that is there already is left alone.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any, get_args

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SourcePrivilegeError, SourceSettingError, StateError
from airflow_provider_mysql_cdc.cdc.model.table import TableId, quote_name
from airflow_provider_mysql_cdc.cdc.signals import airflow_channel
from airflow_provider_mysql_cdc.cdc.signals.actions import SchemaChanges, SignalAction, SignalChannel
from airflow_provider_mysql_cdc.cdc.signals.signal import Signal, SignalRefused, build_signal, read_action
from airflow_provider_mysql_cdc.cdc.sink.plain_writer import write_plain

_GRANT_REMEDY = "the account needs SELECT and INSERT on the signal table"
_COLUMNS = ("id", "type", "data")
CHANNELS: tuple[SignalChannel, ...] = get_args(SignalChannel)


def check_signal(
    cfg: ConnectorConfig, type_: str, data: Mapping[str, Any] | str, *, channel: str, id_: str = ""
) -> tuple[Signal, SignalAction]:
    """Return a signal and what it asks for, or refuse it.

    Args:
        cfg: The connector's configuration.
        type_: What it asks for, for example ``execute-snapshot``.
        data: Its parameters, or their JSON text.
        channel: ``airflow``, ``source`` or ``kafka``.
        id_: Its id; empty for a new one.

    Raises:
        ConfigError: The driver would refuse it, or nobody would take it.
    """
    where = f"signal {type_}, channel {channel}"
    if channel not in CHANNELS:
        raise ConfigError("the channel is not known", where=where, remedy=f"use one of {', '.join(CHANNELS)}")
    if not cfg.accepts_signals_from(channel):
        raise ConfigError(
            "nobody takes signals from this channel",
            where=where,
            remedy=f"add {channel} to signal.enabled.channels, or send it over the channel airflow",
        )
    if channel == "source" and cfg[F.SIGNAL_DATA_COLLECTION] is None:
        raise ConfigError("there is no signal table", where=where, remedy="set signal.data.collection")
    text = data if isinstance(data, str) else json.dumps(data)
    signal = build_signal(id_ or str(uuid.uuid4()), type_, text, channel)
    try:
        action = read_action(signal, cfg[F.SIGNAL_TRUSTED_CHANNELS])
        if isinstance(action, SchemaChanges):
            action.parse_changes(cfg)
        return signal, action
    except SignalRefused as refused:
        raise ConfigError(
            "the signal would be refused", where=where, why=refused.reason, remedy="correct it; nothing was sent"
        ) from refused


def send_signal(
    cfg: ConnectorConfig, type_: str, data: Mapping[str, Any] | str, *, channel: str = "airflow", id_: str = ""
) -> str:
    """Check a signal and send it.

    Args:
        cfg: The connector's configuration.
        type_: What it asks for, for example ``execute-snapshot``.
        data: Its parameters, or their JSON text.
        channel: ``airflow``, ``source`` or ``kafka``.
        id_: Its id; empty for a new one.

    Returns:
        The signal's id.

    Raises:
        ConfigError: See ``check_signal``.
        SourceError: There is no such table, or MySQL refuses the row.
        SinkError: Kafka refuses the record or cannot be reached.
        StateError: The signal table holds another signal of this id.
    """
    signal, _ = check_signal(cfg, type_, data, channel=channel, id_=id_)
    _SENDERS[signal.channel](cfg, signal)
    return signal.id


def _send_to_ledger(cfg: ConnectorConfig, signal: Signal) -> None:
    airflow_channel.send(cfg, signal.type, signal.data, signal.id)


def _send_to_table(cfg: ConnectorConfig, signal: Signal) -> None:
    """Insert the row, unless a try before has done so; the first three columns count, whatever their names (INC-29)."""
    table = cfg[F.SIGNAL_DATA_COLLECTION]
    assert table is not None  # check_signal
    with connect(cfg.connection_settings()) as conn:
        sql = "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
        rows = fetch_all(conn, f"{sql} ORDER BY ordinal_position LIMIT 3", (table.db, table.table))
        if len(rows) < len(_COLUMNS):
            raise SourceSettingError(
                "there is no signal table to write to",
                where=str(table),
                why=f"the account sees {len(rows)} of the columns {', '.join(_COLUMNS)}",
                remedy=f"create it (signal.data.collection.create=true lets the drain do so); {_GRANT_REMEDY}",
            )
        id_, type_, data = (quote_name(str(row[0])) for row in rows)
        select_sql = f"SELECT {type_}, {data} FROM {table.quoted()} WHERE {id_} = %s"
        existing_rows = fetch_all(conn, select_sql, (signal.id,))
        if not existing_rows:
            row = (signal.id, signal.type, signal.data)
            _insert(conn, table, f"INSERT INTO {table.quoted()} ({id_}, {type_}, {data}) VALUES (%s, %s, %s)", row)
        elif (signal.type, signal.data) not in existing_rows:
            raise StateError(
                "the signal table holds another signal of this id",
                where=f"{table}, id {signal.id}",
                remedy="send it under an id of its own",
            )


def _insert(conn: Any, table: TableId, sql: str, row: tuple[str, str, str]) -> None:
    try:
        fetch_all(conn, sql, row)
    except SourcePrivilegeError as error:
        raise SourcePrivilegeError(error.what, where=str(table), why=error.why, remedy=_GRANT_REMEDY) from error


def _send_to_kafka(cfg: ConnectorConfig, signal: Signal) -> None:
    """Write the record: key topic.prefix, value type and data (INC-41, INC-42), and the id beside them.

    Debezium's KafkaSignalChannel reads partition 0 only, and so does the driver.
    """
    data = json.loads(signal.data) if signal.data.strip() else {}
    value = json.dumps({"id": signal.id, "type": signal.type, "data": data}).encode()
    write_plain(cfg.signal_kafka_settings(), [(cfg[F.SIGNAL_KAFKA_TOPIC], cfg.topic_prefix.encode(), value)])


_SENDERS: dict[str, Callable[[ConnectorConfig, Signal], None]] = {
    "airflow": _send_to_ledger,
    "source": _send_to_table,
    "kafka": _send_to_kafka,
}
