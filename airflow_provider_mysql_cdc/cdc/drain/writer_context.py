"""What one writer of a batch is started with: configuration, plan, table structures, producer and callbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker
from airflow_provider_mysql_cdc.cdc.commit.topic_records import RecordedTopic
from airflow_provider_mysql_cdc.cdc.commit.unchecked_tables import UncheckedTable
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import NeverReadTable
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain.committer import Progress
from airflow_provider_mysql_cdc.cdc.drain.kept_parts import KeptParts
from airflow_provider_mysql_cdc.cdc.drain.taken_over import TakenOver
from airflow_provider_mysql_cdc.cdc.drain.window_keys import WindowKeys
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter


@dataclass(frozen=True, slots=True)
class WriterContext:
    """Hold what a writer is started with.

    Args:
        cfg: The connector's configuration.
        plan: The batch.
        index: The writer's index, from 0.
        state: Table structures as of the batch's start.
        sink: The transactional producer, already initialised (older attempts are fenced).
        server: Variables of the source (``ddl_events.server_variables``).
        resume_marker: The last marker of an earlier attempt at the same batch, or None.
        run_id: Id of the run, for the context headers.
        progress: Called every two seconds with counters.
        window_keys: Remembers which rows of tables under incremental snapshot were changed; None outside of a window.
        recorded_topics: Topics as the ledger knows them.
        unchecked: Tables that statements of earlier batches touched, and that are not compared with the server yet.
        unread: Captured tables whose earlier rows are in no record.
        formats: Gives each table its record format; None when all records are JSON.
        renew_producer: Replaces the producer's Kafka client after a commit, and takes its transactional id over; None
            keeps the client.
        require_in_force: Raises FencedError where another attempt is in force; called before the writer connects again.
        report_refusal: Called when the schema of a table version is refused, or a record by the transforms, with the
            last transaction boundary before it and the error with which the writer ends.
        commit_before_refusal: Whether the writer commits what it has produced before it ends for that reason.
        heartbeat_due_s: Seconds until the first heartbeat is due.
        taken_over: What a Debezium connector had written when the stream was taken over from it, or None.
        kept: What the batch takes over from the one before, and leaves for the next.
    """

    cfg: ConnectorConfig
    plan: BatchPlan
    index: int
    state: SchemaState
    sink: TransactionalWriter
    server: Mapping[str, int]
    resume_marker: Marker | None = None
    run_id: str = ""
    progress: Progress = lambda _: None
    window_keys: WindowKeys | None = None
    recorded_topics: Mapping[str, RecordedTopic] = field(default_factory=dict)
    unchecked: Mapping[TableId, UncheckedTable] = field(default_factory=dict)
    unread: Mapping[TableId, NeverReadTable] = field(default_factory=dict)
    formats: RecordFormats | None = None
    renew_producer: Callable[[Marker], None] | None = None
    require_in_force: Callable[[], None] = lambda: None
    report_refusal: Callable[[BinlogOffset, CdcError], None] = lambda before, error: None
    commit_before_refusal: bool = False
    heartbeat_due_s: float = 0
    taken_over: TakenOver | None = None
    kept: KeptParts = field(default_factory=KeptParts)
