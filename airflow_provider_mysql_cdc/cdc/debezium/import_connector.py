"""Take a stream over from a Debezium connector: its offset, the structures there, and what it has written behind it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.position import current_offset
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import SIGNAL_OFFSET_KEY, TAKEN_OVER_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore, StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import reset_plan
from airflow_provider_mysql_cdc.cdc.commit.reconcile import reconcile
from airflow_provider_mysql_cdc.cdc.commit.takeover import read_as_planner
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.debezium.binlog_place import find_start, find_written
from airflow_provider_mysql_cdc.cdc.debezium.connect_offsets import DebeziumOffset, require_no_incremental
from airflow_provider_mysql_cdc.cdc.debezium.sources import (
    ConnectorStatement,
    all_tables,
    different_tables,
    signals_read,
    structures_at,
)
from airflow_provider_mysql_cdc.cdc.debezium.stopped import require_finished_batch
from airflow_provider_mysql_cdc.cdc.debezium.topic_ends import LastRecord, TopicEnds, require_partition
from airflow_provider_mysql_cdc.cdc.drain.failover.reset_structures import schema_records
from airflow_provider_mysql_cdc.cdc.drain.taken_over import TakenOver
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SchemaError, StateError
from airflow_provider_mysql_cdc.cdc.formats.record_topics import topics_of_tables
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.topic_guard import history_id_record
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, moves_back
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.operate.prepare_job import count_written
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import accept_topics
from airflow_provider_mysql_cdc.cdc.operate.source_server import at_one_server
from airflow_provider_mysql_cdc.cdc.schema.full_description import describe_all
from airflow_provider_mysql_cdc.cdc.schema.history import require_own_history
from airflow_provider_mysql_cdc.cdc.schema.snapshot_records import captured_state, ddl_context
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import TableDefinitions, captured_tables, read_definitions
from airflow_provider_mysql_cdc.cdc.signals.kafka_channel import SignalOffsets
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import topic_id
from airflow_provider_mysql_cdc.cdc.snapshot.recovery import require_no_ddl


@dataclass(frozen=True, slots=True)
class ConnectorState:
    """Hold what a connector has stored.

    Args:
        offset: Its offset.
        statements: Its schema history; None where it is not given.
    """

    offset: DebeziumOffset
    statements: Sequence[ConnectorStatement] | None = None


@dataclass(frozen=True, slots=True)
class Takeover:
    """Say how a stream goes on from a connector.

    Args:
        taken: What the connector has written, and where the stream begins.
        state: Structures at the start from the connector's history; None where the server's are those.
        notes: What a person should know.
    """

    taken: TakenOver
    state: SchemaState | None
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON for a person."""
        taken = self.taken
        return {
            "offset": str(taken.start),
            "gtids": taken.start.gtids,
            "left_out": "nothing"
            if taken.start == taken.until
            else f"what the connector has written between {taken.start} and {taken.until}",
            "structures": "the server's, which were not changed after the offset"
            if self.state is None
            else "the connector's schema history",
            "notes": list(self.notes),
        }


def plan_takeover(
    cfg: ConnectorConfig, connector: ConnectorState, log: Log, *, trusts_offset: bool = False
) -> Takeover:
    """Return how the stream would go on; nothing is written.

    Args:
        cfg: The connector's configuration, of one server.
        connector: What the connector has stored.
        log: Receives one line of text.
        trusts_offset: Whether records of topics that do not say their place count as before the offset.

    Raises:
        CdcError: The stream cannot go on without a loss or records that come twice.
    """
    if cfg.is_ticdc:
        raise ConfigError(
            "a connector's topics have other records than TiCDC's protocol",
            where="output.format",
            remedy="leave sink.protocol at its default, or begin with a snapshot in topics of their own",
        )
    offset = connector.offset
    require_no_incremental(offset)
    written = count_written(cfg)
    with connect(cfg.connection_settings()) as conn:
        start = find_start(cfg, conn, offset)
        log(f"the connector's offset is {offset}; the stream begins at the transaction boundary {start.offset}")
        definitions = read_definitions(conn, cfg, captured_tables(conn, cfg))
        state, notes = _structures(cfg, connector, definitions, start.offset)
        tables = dict.fromkeys(definitions.tables)
        if state is not None and connector.statements is not None:
            tables |= all_tables(cfg, connector.statements, ddl_context(definitions))
        topics = TopicEnds(cfg, offset, trusts_offset=trusts_offset)
        last = topics.read([*dict.fromkeys(topics_of_tables(cfg, tables).values())])
        taken = find_written(cfg, conn, offset, start, last, trusts_offset=trusts_offset)
        _require_partitions(taken, last, topics.partitions)
        taken = replace(taken, boundary_partitions=topics.boundary_partitions, written=written)
    return Takeover(taken, state, (*notes, *_signal_notes(cfg)))


def _require_partitions(taken: TakenOver, last: Sequence[LastRecord], partitions: Mapping[str, int]) -> None:
    for record in last:
        place = taken.ends.get(record.topic, {}).get(record.partition)
        if place is not None and (place > taken.reached or record.transaction_id):
            require_partition(record, partitions[record.topic])


def _structures(
    cfg: ConnectorConfig, connector: ConnectorState, definitions: TableDefinitions, start: BinlogOffset
) -> tuple[SchemaState | None, tuple[str, ...]]:
    """Return the structures of the connector's history where the server has later ones, and notes about differences."""
    with connect(cfg.connection_settings()) as conn:
        end = current_offset(conn)
    stored = None
    if connector.statements is not None:
        stored = structures_at(cfg, connector.statements, start, ddl_context(definitions))
    try:
        require_no_ddl(cfg, start, end)
    except SchemaError as error:
        if stored is None:
            raise SchemaError(
                "the table structures at the connector's offset are not known: a captured table was changed after it",
                where=error.where,
                remedy="give the connector's schema history (--debezium-history-topic or --debezium-history-file)",
            ) from error
        return stored, (f"structures are those of the connector's history, because of {error.where}",)
    if stored is None:
        return None, ()
    text = "the connector's history differs from the server, {}; the server's structure is used"
    differences = different_tables(cfg, stored, captured_state(definitions))
    return None, tuple(f"{table}: {text.format(how)}" for table, how in differences.items())


def take_over(
    cfg: ConnectorConfig, store: OffsetStore, owner: str, log: Log, plan: Callable[[ConnectorConfig], Takeover]
) -> Takeover:
    """Store a connector's offset as this stream's, with the structures there and what is in the topics behind it.

    Args:
        cfg: The connector's configuration.
        store: The offset store.
        owner: ``dag_id/run_id/task_id/map_index``.
        log: Receives one line of text.
        plan: Returns how the stream goes on (``plan_takeover``); called under the run lock.

    Raises:
        CdcError: The stream cannot go on so; nothing was written.
    """
    cfg = at_one_server(cfg, store, log)
    settings = cfg.connection_settings()
    with run_lock.hold_run_lock(settings, cfg.topic_prefix, owner) as lock, JobLedger(cfg) as job:
        stored = store.load()
        before = read_as_planner(
            kafka_clients.ledger(cfg), expect_plan=stored is not None and stored.committed is not None
        )
        require_finished_batch(_unfinished(stored, before))
        require_own_history(cfg)
        takeover = plan(cfg)
        start, epoch = takeover.taken.start, _next_epoch(stored, before)
        _require_not_behind(stored, start)
        if takeover.state is None:
            records, count = schema_records(cfg, job, start, epoch)
        else:
            job.create_topics({})
            described = describe_all(cfg, takeover.state, start, epoch)
            records = [SideRecord(cfg.history_topic, None, record.to_bytes()) for record in described]
            records.append(history_id_record(cfg, job))
            count = len(takeover.state.tables)
        lock.require()
        job.commit(records)
        log(f"the structures of {count} table(s) were written as of {start}")
        now_ms = time.time_ns() // 1_000_000
        ledger = job.begin(
            reset_plan(epoch, start, owner, now_ms, gapless=True),
            [job.record(TAKEN_OVER_KEY, takeover.taken.to_json()), *_signal_records(cfg, job, before)],
        )
        accept_topics(cfg, job, ledger)
        store.save(reconcile(stored, ledger, at_ms=now_ms).state, stored)
    log(f"the stream goes on from {start}, epoch {epoch}")
    return takeover


def _signal_records(cfg: ConnectorConfig, job: JobLedger, before: LedgerState | None) -> list[SideRecord]:
    """Return the ledger record of how far the connector has read the Kafka signal topic; none where it has not.

    A stream that was given back may have read more than the connector has.
    """
    read = signals_read(cfg)
    if read is None:
        return []
    topic = str(cfg[F.SIGNAL_KAFKA_TOPIC])
    offsets = SignalOffsets(topic, topic_id(make_admin(cfg.signal_kafka_settings()), topic), {0: read})
    stored = (before or LedgerState()).other_records.get(SIGNAL_OFFSET_KEY)
    own = SignalOffsets.from_json(stored) if stored is not None else None
    if own is not None and (own.topic, own.topic_id) == (topic, offsets.topic_id) and own.offsets.get(0, 0) >= read:
        return []
    return [job.record(SIGNAL_OFFSET_KEY, offsets.to_json())]


def _signal_notes(cfg: ConnectorConfig) -> tuple[str, ...]:
    if not cfg.accepts_signals_from("kafka") or signals_read(cfg) is not None:
        return ()
    text = (
        f"the connector's group {cfg[F.SIGNAL_KAFKA_GROUP_ID]} has stored no offset of the signal topic "
        f"{cfg[F.SIGNAL_KAFKA_TOPIC]}: the stream begins where a connector would that is started for the first time"
    )
    return (text,)


def _unfinished(stored: StoredState | None, ledger: LedgerState | None) -> object:
    if ledger is not None and ledger.plan is not None and not ledger.complete():
        return f"{ledger.plan.kind} {ledger.plan.epoch}, {ledger.plan.start} to {ledger.plan.end}"
    return stored.pending if stored is not None and (ledger is None or ledger.plan is None) else None


def _require_not_behind(stored: StoredState | None, start: BinlogOffset) -> None:
    """Refuse a connector's offset from before the stream: that of a take-over long ago."""
    committed = stored.committed if stored is not None else None
    if committed is not None and moves_back(committed, start):
        raise StateError(
            "the stream is ahead of the connector: it was taken over before",
            where=f"the stream's offset is {committed}, the connector's {start}",
            remedy="nothing, if the connector was not started again since; mysql_cdc_drain goes on. To read the "
            "changes between the two again, trigger mysql_cdc_reset_offset",
        )


def _next_epoch(stored: StoredState | None, ledger: LedgerState | None) -> int:
    plan = ledger.plan if ledger is not None else None
    return max(stored.epoch if stored else 0, plan.epoch if plan else 0) + 1
