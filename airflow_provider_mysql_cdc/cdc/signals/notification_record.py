"""Notifications about signals and snapshots, the initial one too, in Debezium's format.

Notifications about signals and snapshots, in Debezium's format.

Source: Debezium 3.6.1, ``SchemaFactory`` (schemas), ``SinkNotificationChannel`` and ``LogNotificationChannel`` (their
channels), ``IncrementalSnapshotNotificationService`` and ``InitialSnapshotNotificationService`` (types and members).

Notifications of an initial snapshot, and of a blocking one, which Debezium reports in the same way.

Source: Debezium 3.6.1, ``InitialSnapshotNotificationService``: each has a random id.
``AbstractSnapshotChangeEventSource`` writes STARTED and COMPLETED or ABORTED, ``RelationalSnapshotChangeEventSource``
IN_PROGRESS before the first row of a table and TABLE_SCAN_COMPLETED after its last one.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.field import Lookup
from airflow_provider_mysql_cdc.cdc.convert.connect_schema import ConnectSchema
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.emit.contracts import Member, struct
from airflow_provider_mysql_cdc.cdc.formats import record_topics
from airflow_provider_mysql_cdc.cdc.model.java import hash_map_order, hash_set_order
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.signals.signal import Signal

log = logging.getLogger(__name__)

INCREMENTAL = "Incremental Snapshot"
INITIAL = "Initial Snapshot"
SIGNAL = "Signal"
"""Aggregate type of a signal other than a snapshot; Debezium has no such notifications."""
UNLOGGED = "Unlogged Change"
"""Aggregate type of changes of rows without row events; Debezium does not report them."""
SKIPPED_STATEMENT = "Skipped Statement"
"""Aggregate type of statements that were not understood; Debezium writes them to its log only."""

SIGNAL_ID = "signal_id"
"""Id of the signal that requested a blocking snapshot: such notifications have random ids, as in Debezium."""
CONNECTOR_NAME = "connector_name"
DATA_COLLECTIONS = "data_collections"
SCANNED_COLLECTION = "scanned_collection"
CURRENT_COLLECTION = "current_collection_in_progress"
MAXIMUM_KEY = "maximum_key"
LAST_PROCESSED_KEY = "last_processed_key"
TOTAL_ROWS = "total_rows_scanned"
STATUS = "status"
REASON = "reason"
"""Why a signal was refused; Debezium writes this to its log only."""
STATEMENT = "statement"
POSITION = "position"
"""``file:position`` of the statement in the binlog."""

MAX_ADDITIONAL_CHARS = 64 * 1024
"""Most characters of one additional text, so that no record is too large for the brokers."""
MAX_PROGRESS_CHARS = 1024
"""Most characters of the list of tables in a notification that there is for each key range: with the whole list, a
snapshot of a thousand tables would publish a thousand lists of a thousand names."""


class NotificationType(StrEnum):
    """What a notification reports."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    RESUMED = "RESUMED"
    ABORTED = "ABORTED"
    IN_PROGRESS = "IN_PROGRESS"
    TABLE_SCAN_COMPLETED = "TABLE_SCAN_COMPLETED"
    COMPLETED = "COMPLETED"
    SKIPPED = "SKIPPED"


class ScanStatus(StrEnum):
    """How the scan of a table ended: ``status`` of TABLE_SCAN_COMPLETED."""

    EMPTY = "EMPTY"
    NO_PRIMARY_KEY = "NO_PRIMARY_KEY"
    SKIPPED = "SKIPPED"
    SQL_EXCEPTION = "SQL_EXCEPTION"
    SUCCEEDED = "SUCCEEDED"
    UNKNOWN_SCHEMA = "UNKNOWN_SCHEMA"


class Notification(NamedTuple):
    """Hold one notification before it is written.

    Args:
        type: The notification type.
        id: Id of the signal that caused it, or a random id.
        additional_data: Members of ``additional_data`` besides the connector's name.
        aggregate_type: The aggregate type.
    """

    type: NotificationType
    id: str
    additional_data: Mapping[str, str] = {}
    aggregate_type: str = INCREMENTAL


_SCHEMA_NAMESPACE = "io.debezium.connector.common"
_TEXT: ConnectSchema = {"type": "string", "optional": False}
_MAP: ConnectSchema = {"type": "map", "keys": _TEXT, "values": _TEXT, "optional": True}
_KEY = struct([Member("id").to_schema()], f"{_SCHEMA_NAMESPACE}.NotificationKey", version=1)
_VALUE = struct(
    [
        Member("id").to_schema(),
        Member("type").to_schema(),
        Member("aggregate_type").to_schema(),
        Member("additional_data", schema=tuple(_MAP.items())).to_schema(),
        Member("timestamp", "int64").to_schema(),
    ],
    f"{_SCHEMA_NAMESPACE}.Notification",
    version=1,
)


def notification_record(
    cfg: ConnectorConfig,
    aggregate_type: str,
    type_: NotificationType,
    id_: str,
    additional_data: Mapping[str, str],
    ts_ms: int,
) -> SideRecord | None:
    """Return the record of a notification; also write it to the log when the channel ``log`` is enabled.

    Args:
        cfg: The connector's configuration.
        aggregate_type: The subject: ``INCREMENTAL``, ``INITIAL``, ``SIGNAL``, ``UNLOGGED`` or ``SKIPPED_STATEMENT``.
        type_: What happened.
        id_: Id of the signal that caused it, or an id of its own.
        additional_data: Members of ``additional_data`` other than the connector's name.
        ts_ms: Milliseconds since the epoch.

    Returns:
        Topic, key and value after the transforms; None when no notification topic is configured.
    """
    bounded = {name: _shorten(text) for name, text in additional_data.items()}
    data = {**bounded, CONNECTOR_NAME: cfg[F.TOPIC_PREFIX]}
    data = {name: data[name] for name in hash_map_order(bounded, [CONNECTOR_NAME])}
    if "log" in cfg[F.NOTIFICATION_ENABLED_CHANNELS]:
        data_text = ", ".join(f"{name}={text}" for name, text in data.items())
        log.info(
            "[Notification Service]  {id='%s', aggregateType='%s', type='%s', additionalData={%s}, timestamp=%d}",
            id_, aggregate_type, type_.value, data_text, ts_ms,
        )  # fmt: skip
    topic = F.notification_topic(Lookup(cfg.values))
    if not topic:
        return None
    value = {
        "id": id_,
        "type": type_.value,
        "aggregate_type": aggregate_type,
        "additional_data": data,
        "timestamp": ts_ms,
    }
    key = _encode_json({"id": id_}, _KEY if cfg[F.KEY_SCHEMAS_ENABLE] else None)
    return record_topics.routed_record(
        cfg, topic, key, _encode_json(value, _VALUE if cfg[F.VALUE_SCHEMAS_ENABLE] else None)
    )


def notifications_enabled(cfg: ConnectorConfig) -> bool:
    """Return whether notifications are written to a topic or to the log.

    Args:
        cfg: The connector's configuration.
    """
    return "log" in cfg[F.NOTIFICATION_ENABLED_CHANNELS] or bool(F.notification_topic(Lookup(cfg.values)))


def notification_records(cfg: ConnectorConfig, notifications: Iterable[Notification]) -> list[SideRecord]:
    """Return the records of notifications with the current time, as ``notification_record`` does.

    Args:
        cfg: The connector's configuration.
        notifications: The notifications.
    """
    records = [
        notification_record(cfg, n.aggregate_type, n.type, n.id, n.additional_data, time.time_ns() // 1_000_000)
        for n in notifications
    ]
    return [record for record in records if record is not None]


def refusal_record(cfg: ConnectorConfig, signal: Signal, reason: str, ts_ms: int) -> SideRecord | None:
    """Return the notification of a refused signal, and always write the refusal to the log.

    Consumers that wait for a snapshot by its signal id learn from it that the snapshot has ended.

    Args:
        cfg: The connector's configuration.
        signal: The signal.
        reason: Why it is refused (``SignalRefused``).
        ts_ms: Milliseconds since the epoch.
    """
    log.warning("signal %s (%s, channel %s) is refused: %s", signal.id, signal.type, signal.channel, reason)
    aggregate = INCREMENTAL if signal.type.strip().endswith("-snapshot") else SIGNAL
    return notification_record(cfg, aggregate, NotificationType.ABORTED, signal.id, {REASON: reason}, ts_ms)


def join_names(names: Iterable[str], max_chars: int = MAX_ADDITIONAL_CHARS) -> str:
    """Return names as one text; of a list that is too long, the first ones and how many more there are.

    Args:
        names: The names; of equal ones, the first counts.
        max_chars: Most characters of the text.
    """
    distinct = list(dict.fromkeys(names))
    text = ",".join(distinct)
    if len(text) <= max_chars:
        return text
    size, shown = 0, 0
    for name in distinct:
        size += len(name) + 1
        if size + len(f"and {len(distinct)} more") > max_chars:
            break
        shown += 1
    return ",".join([*distinct[:shown], f"and {len(distinct) - shown} more"])


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_ADDITIONAL_CHARS else text[: MAX_ADDITIONAL_CHARS - 3] + "..."


def _encode_json(payload: Mapping[str, object], schema: ConnectSchema | None) -> bytes:
    text = dumps(payload)
    return (text if schema is None else f'{{"schema":{dumps(schema)},"payload":{text}}}').encode()


def snapshot_notification(
    type_: NotificationType, additional_data: Mapping[str, str] | None = None, signal_id: str = ""
) -> Notification:
    """Return a notification of an initial or blocking snapshot.

    Args:
        type_: What happened.
        additional_data: Members of ``additional_data`` besides the connector's name.
        signal_id: Id of the signal that requested a blocking snapshot.
    """
    data = dict(additional_data or {})
    if signal_id:
        data[SIGNAL_ID] = signal_id
    return Notification(type_, str(uuid.uuid4()), data, INITIAL)


def table_in_progress(table: TableId, tables: str, signal_id: str = "") -> Notification:
    """Return the notification that a table is being read.

    Args:
        table: The table.
        tables: All tables of the snapshot (``list_in_progress``).
        signal_id: Id of the signal that requested a blocking snapshot.
    """
    data = {
        CURRENT_COLLECTION: str(table),
        DATA_COLLECTIONS: tables,
    }
    return snapshot_notification(NotificationType.IN_PROGRESS, data, signal_id)


def table_scan_completed(table: TableId, rows: int, tables: str, signal_id: str = "") -> Notification:
    """Return the notification that a table was read.

    Args:
        table: The table.
        rows: Rows that were read.
        tables: All tables of the snapshot (``table_list``).
        signal_id: Id of the signal that requested a blocking snapshot.
    """
    data = {
        SCANNED_COLLECTION: str(table),
        DATA_COLLECTIONS: tables,
        TOTAL_ROWS: str(rows),
        STATUS: ScanStatus.SUCCEEDED.value,
    }
    return snapshot_notification(NotificationType.TABLE_SCAN_COMPLETED, data, signal_id)


def table_scan_failed(table: TableId, reason: str, signal_id: str = "") -> Notification:
    """Return the notification that a table could not be read.

    Args:
        table: The table.
        reason: Why.
        signal_id: Id of the signal that requested a blocking snapshot.
    """
    data = {
        SCANNED_COLLECTION: str(table),
        STATUS: ScanStatus.SQL_EXCEPTION.value,
        REASON: reason,
    }
    return snapshot_notification(NotificationType.TABLE_SCAN_COMPLETED, data, signal_id)


def table_list(tables: Iterable[TableId]) -> str:
    """Return the tables of a snapshot as a text, whose length is bounded, as there is one in two notifications of each.

    Args:
        tables: The tables.
    """
    return join_names(map(str, tables), MAX_PROGRESS_CHARS)


def list_in_progress(tables: Iterable[TableId]) -> str:
    """Return the same for notifications of tables in progress, in which Debezium has the order of a hash set.

    Args:
        tables: The tables.
    """
    names = hash_set_order(map(str, tables))
    return join_names(names, MAX_PROGRESS_CHARS)
