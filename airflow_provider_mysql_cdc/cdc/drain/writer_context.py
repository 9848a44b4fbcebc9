"""What one writer of a batch is started with, and what it keeps for the next one.

What a writer keeps from one batch to the next, and for how long.

=========================  ========================================================================================
What                       Until
=========================  ========================================================================================
Kafka producer, with its   any error; a batch that does not follow the one that it wrote last; anybody who takes the
transactional id           id over, which ends it at its next commit; a thousand tables (``committer``)
ledger, as read so far     the end of the task
dump connection            any error; a batch that does not begin where the connection stands; another server
decoders and formats of    any error; another structure of the table, other TABLE_MAP metadata, another share of the
tables                     topic
=========================  ========================================================================================

An error ends the task, except one: a record that is too large for the producer's batches, which begins the batch again
with nothing kept but the producer's settings.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.binlog.stream import BinlogStream
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker
from airflow_provider_mysql_cdc.cdc.commit.takeover import join_plan
from airflow_provider_mysql_cdc.cdc.commit.topic_records import RecordedTopic
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import NeverReadTable, UncheckedTable
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain.committer import Progress, knows_many
from airflow_provider_mysql_cdc.cdc.drain.table_route import KeptRoutes
from airflow_provider_mysql_cdc.cdc.drain.taken_over import TakenOver
from airflow_provider_mysql_cdc.cdc.drain.window_keys import WindowKeys
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.formats.chain_writer import begin_batch, with_chain
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.job.coordinator import CoordinatorClient
from airflow_provider_mysql_cdc.cdc.job.schema_ids import ask_driver
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, same_fingerprint
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter


@dataclass(slots=True)
class KeptDump:
    """Hold a dump connection from the end of one batch to the start of the next.

    Attributes:
        check: Called while the dump waits, and when something has arrived; that of the batch that is written.
    """

    check: Callable[[], None] = lambda: None
    _stream: BinlogStream | None = None
    _end: BinlogOffset | None = None

    def on_wait(self) -> None:
        """Call the current batch's check (``open_stream``)."""
        self.check()

    def take(self, start: BinlogOffset) -> BinlogStream | None:
        """Return the connection if it stands where a batch starts, on the same server and in the same file.

        It was checked when it was opened, and a server reads one file after the other for it, so nothing can come in
        between. One that stands elsewhere is closed.

        Args:
            start: The batch's start.
        """
        stream, end, self._stream = self._stream, self._end, None
        if stream is None or end is None:
            return None
        same_server = start.server_uuid == end.server_uuid and same_fingerprint(end.origin, start.origin)
        if same_server and stream.reached == (start.file, start.pos):
            return stream
        stream.close()
        return None

    def keep(self, stream: BinlogStream, end: BinlogOffset) -> None:
        """Keep a connection.

        Args:
            stream: The connection; a batch was read to its end.
            end: The batch's end.
        """
        self._stream, self._end, self.check = stream, end, lambda: None

    def close(self) -> None:
        """Close the connection, if one is kept."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


@dataclass(frozen=True, slots=True)
class KeptParts:
    """Hold what a batch takes over from the one before, besides producer and ledger.

    Args:
        dump: The dump connection.
        routes: Routes of tables.
        met_tables: Tables that the producer's client has met (``committer``).
    """

    dump: KeptDump = field(default_factory=KeptDump)
    routes: KeptRoutes = field(default_factory=KeptRoutes)
    met_tables: set[str] = field(default_factory=set)


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


class KeptWriter:
    """Hold what one writer keeps from batch to batch.

    Args:
        cfg: The connector's configuration.
        index: The writer's index.
        channel: Calls to the driver.
        sink: Its transactional producer, not yet initialised, which the caller closes; None for one of its own.
    """

    def __init__(
        self, cfg: ConnectorConfig, index: int, channel: CoordinatorClient, sink: TransactionalWriter | None = None
    ) -> None:
        self.cfg, self.index, self.channel = cfg, index, channel
        self.formats = RecordFormats.from_config(cfg, ask_driver(channel))
        self.parts = KeptParts()
        self._written: BatchPlan | None = None
        with contextlib.ExitStack() as opened:
            self.sink = sink or opened.enter_context(
                contextlib.closing(with_chain(cfg, kafka_clients.record_writer(cfg, index), ask_driver(channel)))
            )
            # Open until the end: a writer that meets thousands of tables joins the plan many times
            # (``committer``), and reads only newer ledger records then.
            self.ledger = opened.enter_context(kafka_clients.ledger(cfg))
            self._opened = opened.pop_all()

    def join(self, plan: BatchPlan) -> LedgerState:
        """Take part in a plan, and return the ledger as it is then.

        After the batch before, the transactional id is still this writer's: whoever takes it over ends this writer at
        its next commit. So only the plan is compared, and the id is not taken over again, unless the client has met so
        many tables that another one is cheaper.

        Args:
            plan: The plan.

        Raises:
            FencedError: Another plan or attempt is in force.
            SinkError: Kafka refuses.
        """
        written, self._written = self._written, None
        if knows_many(self.parts.met_tables):
            self.parts.met_tables.clear()
            self.sink.renew()
            written = None
        if written is None or written.epoch + 1 != plan.epoch:
            state = join_plan(self.ledger, plan, self.sink, self.index)
        else:
            state = self.ledger.peek()
            state.require_plan(plan)
        begin_batch(self.sink, plan, state.topics)
        return state

    def complete(self, plan: BatchPlan) -> None:
        """Note that a batch is written to its end, so that the next one can be joined with what is kept.

        Args:
            plan: The batch.
        """
        self._written = plan

    def forget(self) -> None:
        """Drop what is kept of earlier batches; the producer has to take over its transactional id again."""
        self._written = None
        self.parts.dump.close()
        self.parts = KeptParts()

    def close(self) -> None:
        """Close all connections."""
        self.parts.dump.close()
        self._opened.close()
