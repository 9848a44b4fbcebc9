"""What a drain's driver does between two batches: interval, traffic of others, structures, full descriptions.

How far apart the batches of a run begin.

What a batch costs besides its records is the same for one record and for thousands. Few changes are worth that, since
somebody waits for them, but no more of it than the lag needs: where a batch takes little, the next one can wait longer.
Many changes come cheaper in fewer batches, and the lag stays below a second (ADR 0027).

What others have logged behind the committed offset: transactions that change no table of the stream.

They make no records, and a batch that only moves the offset costs as much as one with records. While a run waits it
looks at what is new with SHOW BINLOG EVENTS, over the connection that it has, and lets the offset wait where nothing
can concern the stream. Only events that are known to be harmless count as such: a statement, a compressed transaction,
anything unknown, or very much at once is left to a batch, which reads all of it.

Write a full description into the schema history after many statements, between two batches.

The driver writes it when a batch is complete: no writer is running, every record of the batch is before it in the
topic, and Kafka lets no older driver commit. All of it becomes visible or nothing; if the driver is killed before, a
later batch writes it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_dicts
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import unchecked_tables
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.apply import TableChange
from airflow_provider_mysql_cdc.cdc.ddl.classify import in_any_case
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain.ddl_events import DdlEventHandler, signaled_history
from airflow_provider_mysql_cdc.cdc.drain.statement_reports import correction_history
from airflow_provider_mysql_cdc.cdc.emit.topic_names import schema_change_topic
from airflow_provider_mysql_cdc.cdc.errors import RecordTooLargeError, SourceConnectionError, SourceError
from airflow_provider_mysql_cdc.cdc.faults import fault_point
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.job_metrics import JobLog
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.full_description import describe_all, description_size, replays_to
from airflow_provider_mysql_cdc.cdc.schema.history import load_schema_state
from airflow_provider_mysql_cdc.cdc.schema.table_changes import SignalTableChange


@dataclass(frozen=True, slots=True)
class _BatchBoundary:
    """A position between two batches, which stands in for an event and for the transaction around it."""

    file: str
    start_pos: int
    timestamp: int
    commit_us: int = 0
    server_id: int = 0
    gtid: str | None = None
    thread: int = 0
    query: str | None = None
    begun: bool = False


def records_between_batches(
    cfg: ConnectorConfig,
    signaled: Sequence[SignalTableChange],
    applied: Sequence[TableChange],
    boundary: BinlogOffset,
    epoch: int,
) -> Iterator[SideRecord]:
    """Yield the records of structures that a signal set between two batches, outside of the binlog.

    Args:
        cfg: The connector's configuration.
        signaled: The structures that the signal contains.
        applied: What they changed.
        boundary: The boundary after the last batch, from which on the structures are valid.
        epoch: The batch's epoch.
    """
    boundary_event = _BatchBoundary(boundary.file, boundary.pos, int(time.time()))
    for change in applied:
        yield from DdlEventHandler(cfg, epoch, {}).schema_changes([change], boundary_event, boundary_event)
    yield from signaled_history(cfg, signaled, boundary, epoch, between=True)


def correction_between_batches(
    cfg: ConnectorConfig, change: TableChange, boundary: BinlogOffset, epoch: int
) -> Iterator[SideRecord]:
    """Yield the records of a structure that was read from the server after a batch.

    Args:
        cfg: The connector's configuration.
        change: The structure, as a change of the table.
        boundary: The boundary after the batch, from which on the structure is valid.
        epoch: The batch's epoch.
    """
    boundary_event = _BatchBoundary(boundary.file, boundary.pos, int(time.time()))
    yield from DdlEventHandler(cfg, epoch, {}).schema_changes([change], boundary_event, boundary_event)
    yield correction_history(cfg, change, replace(boundary, origin=None), epoch)


MEDIAN_LAG_S = 0.25
"""Half of the changes are to be visible within these seconds, and almost all within twice as many."""
MOST_STRETCHED = 1.25
"""Share of ``poll.interval.ms`` that batches begin apart at most where there are few changes."""
BUSY_RECORDS_A_SECOND = 1_000.0
"""Records a second from which on batches begin further apart."""
BUSY_INTERVAL_S = 0.7
"""Seconds between the starts of two batches then, unless twice ``poll.interval.ms`` is less, or it is itself more."""


class BatchInterval:
    """Say when the next batch may begin.

    Args:
        poll_s: ``poll.interval.ms`` in seconds.
    """

    def __init__(self, poll_s: float) -> None:
        self._poll_s, self._busy_s = poll_s, max(poll_s, min(2 * poll_s, BUSY_INTERVAL_S))
        self._begun_before: float | None = None

    def earliest(self, begun: float, records: int, took: float) -> float:
        """Return when the batch after one that is complete may begin, by the same clock.

        The rate is that since the start of the batch before, so a burst after a quiet time delays nothing.

        Args:
            begun: When the batch began, in seconds.
            records: Records that it has written.
            took: Seconds that it took.
        """
        before, self._begun_before = self._begun_before, begun
        is_busy = before is not None and records >= BUSY_RECORDS_A_SECOND * (begun - before)
        if is_busy:
            return begun + self._busy_s
        # Half of the interval and the batch itself are the median lag.
        return begun + max(self._poll_s, min(2 * (MEDIAN_LAG_S - took), MOST_STRETCHED * self._poll_s))


MAX_WAIT_S = 10.0
"""Seconds for which the offset stays behind what others have logged."""
MAX_EVENTS = 200
"""Events of one look; where there are more, a batch reads them for less."""
_ROWS = frozenset(f"{kind}_rows{form}" for kind in ("Write", "Update", "Delete") for form in ("", "_v1", "_partial"))
_HARMLESS = _ROWS | {"Gtid", "Gtid_tagged", "Anonymous_Gtid", "Xid", "Rows_query"}
"""Event_type of events that name no table; for rows the TABLE_MAP event before them does."""
_TABLE_MAP = re.compile(r"table_id: \d+ \((.*)\)", re.DOTALL)


class ForeignTraffic:
    """Say whether what was logged since a batch can wait, because it is about no table of the stream.

    Args:
        cfg: The connector's configuration.
        start: The committed offset, where the batch ended.
        clock: Seconds of a clock that is never set back.

    Attributes:
        waits: Whether something was logged that the offset is behind.
    """

    def __init__(self, cfg: ConnectorConfig, start: BinlogOffset, clock: Callable[[], float] = time.monotonic) -> None:
        self._start, self._clock, self.waits = start, clock, False
        self._needs = in_any_case(cfg.needs_schema)
        # With transaction metadata, transactions of others have records.
        self._is_foreign = not cfg[F.PROVIDE_TRANSACTION_METADATA]
        self._looked_at, self._wait_until = start.pos, 0.0

    def may_wait(self, conn: MySqlConnection, end: BinlogOffset) -> bool:
        """Return whether nothing up to the end of the binlog needs a batch now; once it does, it goes on to.

        Args:
            conn: An open connection to the source.
            end: The end of the binlog; something was logged before it.

        Raises:
            SourceConnectionError: The connection is broken.
        """
        if self._is_foreign:
            self._is_foreign = self._is_same_file(end) and self._looked_to(conn, end)
        if self._is_foreign and not self.waits:
            self.waits, self._wait_until = True, self._clock() + MAX_WAIT_S
        return self._is_foreign and self._clock() < self._wait_until

    def _is_same_file(self, end: BinlogOffset) -> bool:
        return (end.server_uuid, end.file) == (self._start.server_uuid, self._start.file)

    def _looked_to(self, conn: MySqlConnection, end: BinlogOffset) -> bool:
        """Look at what was logged since the last look; return whether all of it up to the end is harmless."""
        if end.pos == self._looked_at:
            return True
        try:
            query = f"SHOW BINLOG EVENTS IN %s FROM {self._looked_at} LIMIT {MAX_EVENTS}"
            events = fetch_dicts(conn, query, (end.file,))
        except SourceConnectionError:
            raise
        except SourceError:  # a right that is missing, or a place where no event begins: the batch says what is wrong
            return False
        if not events or len(events) == MAX_EVENTS or not all(map(self._is_harmless, events)):
            return False
        self._looked_at = int(events[-1]["End_log_pos"])
        return self._looked_at >= end.pos

    def _is_harmless(self, event: dict[str, Any]) -> bool:
        kind, info = event["Event_type"], str(event["Info"])
        if kind == "Query":
            return info in ("BEGIN", "COMMIT")
        if kind != "Table_map":
            return kind in _HARMLESS
        named = _TABLE_MAP.fullmatch(info)  # long names are cut off
        if named is None or "." not in named[1]:
            return False
        # Names may have dots, so all ways to read them count.
        parts = named[1].split(".")
        return not any(self._needs(TableId(".".join(parts[:n]), ".".join(parts[n:]))) for n in range(1, len(parts)))


_SIZE_SHARE = 10
"""A description of that many records is written after one statement: it is larger than what it replaces otherwise."""


def describe_if_due(cfg: ConnectorConfig, job: JobLedger, plan: BatchPlan, counts: dict[str, int], log: JobLog) -> None:
    """Write a full description if enough statements came since the last one.

    Args:
        cfg: The connector's configuration.
        job: The ledger.
        plan: The batch; it is complete.
        counts: Records by topic of the batch.
        log: The job's log.

    Raises:
        SchemaError: The schema history cannot be read.
        SinkError: Kafka cannot be read or written.
    """
    statements = cfg[F.HISTORY_DESCRIPTION_STATEMENTS]
    if not statements or (job.history_cache.statements < statements and not _may_have_statements(cfg, counts)):
        return
    ledger = job.latest()
    end = ledger.end()
    # A structure behind a skipped statement may be wrong until it is compared with the server's.
    if end is None or any(unchecked.skipped for unchecked in unchecked_tables(ledger).values()):
        return
    state = load_schema_state(cfg, until=end, epoch=plan.epoch + 1, cache=job.history_cache)
    if job.history_cache.statements >= max(statements, description_size(state) // _SIZE_SHARE):
        _describe(cfg, job, state, end, plan.epoch, log)


def _may_have_statements(cfg: ConnectorConfig, counts: dict[str, int]) -> bool:
    """Return whether a batch may have added to the history; such a statement mostly has a schema change record."""
    changes = cfg.route_topic(schema_change_topic(cfg[F.TOPIC_PREFIX])).topic
    return bool(counts.get(changes)) or not cfg[F.INCLUDE_SCHEMA_CHANGES]


def _describe(
    cfg: ConnectorConfig, job: JobLedger, state: SchemaState, end: BinlogOffset, epoch: int, log: JobLog
) -> None:
    values = [record.to_bytes() for record in describe_all(cfg, state, end, epoch)]
    if not replays_to(cfg, values, state, end):
        log.once(
            "WARNING: the schema history gets no full description, because the structures cannot be described without "
            "a difference; each start reads all its statements. Please report this"
        )
        return
    records = [SideRecord(cfg.history_topic, None, value) for value in values]
    try:
        job.commit(records, check=lambda: fault_point("description.before_commit"))
    except RecordTooLargeError as error:
        log.once(
            f"WARNING: the schema history gets no full description, and each start reads all its statements: {error}"
        )
        return
    fault_point("description.after_commit")
    log(f"the schema history has a full description of {len(state.tables) + len(state.unparsed)} tables at {end}")
