"""Give a stream back: a Debezium connector goes on from this stream's offset, with its structures."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.position import check_available
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import SIGNAL_OFFSET_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
from airflow_provider_mysql_cdc.cdc.commit.reconcile import reconcile
from airflow_provider_mysql_cdc.cdc.commit.takeover import read_as_planner
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.debezium.connect_offsets import connector_of, offset_key, written_offset
from airflow_provider_mysql_cdc.cdc.debezium.sources import history_values, offset_records
from airflow_provider_mysql_cdc.cdc.debezium.stopped import require_finished_batch
from airflow_provider_mysql_cdc.cdc.drain.failover.reset_structures import definitions_at
from airflow_provider_mysql_cdc.cdc.drain.taken_over import taken_over
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, NoOffsetError, SchemaError, StateError
from airflow_provider_mysql_cdc.cdc.formats.record_topics import partition_of
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import read_incremental_state
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, compare_offsets
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.operate.prepare_job import given_back_record, require_only_own_records
from airflow_provider_mysql_cdc.cdc.operate.source_server import at_one_server
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import TableDefinitions
from airflow_provider_mysql_cdc.cdc.signals.kafka_channel import SignalOffsets
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses
from airflow_provider_mysql_cdc.cdc.sink.record_writer import write_plain
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec, describe_created, ensure_topics, existing_topics


@dataclass(frozen=True, slots=True)
class ExportedStream:
    """Hold what a connector goes on from.

    Args:
        offset: Its offset, as Kafka Connect stores it.
        history: Values of records for its schema history.
        at: This stream's offset.
        plan: Epoch of the last plan.
        signals: How far the Kafka signal topic is read; None where it is not.
    """

    offset: Mapping[str, Any]
    history: list[bytes]
    at: BinlogOffset
    plan: int
    signals: int | None = None


def export_stream(cfg: ConnectorConfig, store: OffsetStore, owner: str, log: Log) -> ExportedStream:
    """Return the offset and the structures from which a connector goes on.

    Args:
        cfg: The connector's configuration.
        store: The offset store.
        owner: ``dag_id/run_id/task_id/map_index``.
        log: Receives one line of text.

    Raises:
        NoOffsetError: The stream has no offset.
        StateError: A batch, an ad-hoc snapshot or an XA transaction is not over, or a connector has written since the
            last take-over or export.
        BinlogPurgedError: The server no longer has the offset.
        SchemaError: A captured table was changed after it.
        RunInProgressError: A run of the stream is running.
    """
    cfg = at_one_server(cfg, store, log)
    with run_lock.hold_run_lock(cfg.connection_settings(), cfg.topic_prefix, owner):
        stored = store.load()
        expects = stored is not None and stored.committed is not None
        ledger = read_as_planner(kafka_clients.ledger(cfg), expect_plan=expects) or LedgerState()
        if ledger.plan is not None and not ledger.complete():
            require_finished_batch(f"{ledger.plan.kind} {ledger.plan.epoch}, {ledger.plan.start} to {ledger.plan.end}")
        state = reconcile(stored, ledger if ledger.plan is not None else None).state
        if state.committed is None:
            raise NoOffsetError(
                "the stream has no offset to give back",
                where=f"topic.prefix={cfg.topic_prefix}",
                remedy="name the store that the DAGs use; a stream that never ran has nothing to give back",
            )
        require_only_own_records(cfg, ledger)
        _require_nothing_open(ledger, state.committed)
        with connect(cfg.connection_settings()) as conn:
            offset = check_available(conn, cfg.connection_settings(), state.committed)
        definitions = _definitions(cfg, offset)
    log(f"the connector will go on from {offset}, with {len(definitions.tables)} table(s)")
    history = history_values(cfg, definitions, offset)
    plan = 0 if ledger.plan is None else ledger.plan.epoch
    return ExportedStream(written_offset(offset, int(time.time())), history, offset, plan, _signals_read(cfg, ledger))


def mark_given_back(cfg: ConnectorConfig, exported: ExportedStream) -> None:
    """Remember in the ledger where the topics end, once everything is written from which the connector goes on.

    Args:
        cfg: The connector's configuration.
        exported: From ``export_stream``, whose lock is over.

    Raises:
        StateError: The stream has run since: the connector would write its last batches once more.
        SinkError: Kafka cannot be reached.
    """
    plan = kafka_clients.ledger(cfg).peek().plan
    if (0 if plan is None else plan.epoch) != exported.plan:
        raise StateError(
            "the stream has run while it was given back",
            where=f"{exported.at}" + ("" if plan is None else f", then {plan.start} to {plan.end}"),
            why="the offset for the connector is before that, so it would write these events once more",
            remedy="do not start the connector; pause the DAGs of the stream, and export again",
        )
    write_plain(cfg.kafka_settings(), [given_back_record(cfg, exported.plan)])


def _definitions(cfg: ConnectorConfig, offset: BinlogOffset) -> TableDefinitions:
    try:
        return definitions_at(cfg, offset)
    except SchemaError as error:
        raise SchemaError(
            "the server's structures are not those at the stream's offset",
            where=error.where,
            why="a captured table was changed after the offset",
            remedy="run mysql_cdc_drain, and export then",
        ) from error


def _signals_read(cfg: ConnectorConfig, ledger: LedgerState) -> int | None:
    stored = ledger.other_records.get(SIGNAL_OFFSET_KEY)
    if stored is None or not cfg.accepts_signals_from("kafka"):
        return None
    read = SignalOffsets.from_json(stored)
    return read.offsets.get(0) if read.topic == cfg[F.SIGNAL_KAFKA_TOPIC] else None


def _require_nothing_open(ledger: LedgerState, offset: BinlogOffset) -> None:
    taken = taken_over(ledger)
    if taken is not None and taken.start.server_uuid == offset.server_uuid and compare_offsets(offset, taken.until) < 0:
        raise StateError(
            "the stream has not passed what the connector had written before it was taken over",
            where=f"{offset}, take-over up to {taken.until}",
            why="the connector would write these events once more",
            remedy="run mysql_cdc_drain once, and export then",
        )
    if ledger.prepared():
        raise StateError(
            "XA transactions are prepared and not decided",
            where=", ".join(map(str, ledger.prepared()[:5])),
            why="the connector writes their rows where they are prepared, before the offset: they would be lost",
            remedy="commit or roll them back, run mysql_cdc_drain, and export then",
        )
    if scans := read_incremental_state(ledger).active_scans:
        raise StateError(
            "ad-hoc snapshots are not over",
            where=", ".join(str(scan.table) for scan in scans[:10]),
            why="the connector knows nothing of them, and would not read the rest",
            remedy="run mysql_cdc_drain until they are, or stop them with the signal stop-snapshot, and export then",
        )


def write_history(cfg: ConnectorConfig, topic: str, exported: ExportedStream) -> int:
    """Append the structures to a connector's history topic, which is created if it is missing; return their number.

    Args:
        cfg: The connector's configuration.
        topic: The topic.
        exported: From ``export_stream``.

    Raises:
        ConfigError: It is this stream's own history, or has more than one partition.
        SinkError: Kafka refuses.
    """
    if topic == cfg.history_topic:
        raise ConfigError(
            "a connector cannot use this stream's own schema history",
            where=f"topic {topic}",
            remedy="name the connector's history topic: the one of its JSON before it was taken over, or a new one",
        )
    admin = make_admin(cfg.kafka_settings("admin"))
    keep = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    ensure_topics(admin, {topic: TopicSpec(1, -1, keep)})
    info = describe_created(admin, [topic], broker_addresses(cfg.kafka_settings()))[topic]
    if info.partitions != 1:
        raise ConfigError(
            "a schema history has one partition",
            where=f"topic {topic}, {info.partitions} partitions",
            remedy="name another topic",
        )
    # In a transaction, its end would be a record that a connector waits for in vain.
    write_plain(cfg.kafka_settings(), [SideRecord(topic, None, value) for value in exported.history])
    return len(exported.history)


def write_offset(cfg: ConnectorConfig, topic: str, connector: str, exported: ExportedStream) -> None:
    """Write the offset into the topic in which Kafka Connect stores offsets, under the connector's key.

    Args:
        cfg: The connector's configuration.
        topic: The topic, of a worker that has stopped the connector.
        connector: The connector's name.
        exported: From ``export_stream``.

    Raises:
        SinkError: Kafka refuses, or the topic does not exist.
    """
    records = offset_records(cfg, topic)
    info = existing_topics(make_admin(cfg.kafka_settings("admin")), [topic])[topic]
    own = [r for r in records if connector_of(r.key, cfg.topic_prefix) == connector]
    # Compaction and Kafka Connect compare keys within a partition.
    key = own[-1].key if own and own[-1].key is not None else offset_key(connector, cfg.topic_prefix)
    partition = own[-1].partition if own else partition_of(key, info.partitions)
    value = json.dumps(dict(exported.offset), separators=(",", ":")).encode()
    write_plain(cfg.kafka_settings(), [SideRecord(topic, key, value)], partition=partition)
