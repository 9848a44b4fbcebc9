"""What an operator does around a Spark job: reconcile, plan, and afterwards settle the stored offset.

All of it runs in the Airflow worker without Spark. The order is the commit protocol's (design, section 4): the plan is
stored before anything is read, and the offset moves only when the ledger says that everything is in Kafka.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.dump import FILE_START
from airflow_provider_mysql_cdc.cdc.binlog.origin import stamp
from airflow_provider_mysql_cdc.cdc.binlog.position import binary_logs, check_available, end_of_binlog
from airflow_provider_mysql_cdc.cdc.binlog.preflight import preflight, require
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.reconcile import Reconciled, reconcile
from airflow_provider_mysql_cdc.cdc.commit.run_tally import RunTally, counted
from airflow_provider_mysql_cdc.cdc.commit.store import OffsetStore, StoredState
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.pins import pins
from airflow_provider_mysql_cdc.cdc.drain.batch import dealt, plan_drain
from airflow_provider_mysql_cdc.cdc.drain.structures import rebuild_for_batch
from airflow_provider_mysql_cdc.cdc.errors import (
    BinlogPurgedError,
    CdcError,
    ConfigError,
    NoOffsetError,
    RunInProgressError,
    StateError,
    from_json,
)
from airflow_provider_mysql_cdc.cdc.faults import fault_point
from airflow_provider_mysql_cdc.cdc.incremental.taking import work_waits
from airflow_provider_mysql_cdc.cdc.job import run_lock, wiring
from airflow_provider_mysql_cdc.cdc.job.job_ledger import VIEW_KEY
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.job.known_history import require_known_history
from airflow_provider_mysql_cdc.cdc.job.last_words import told
from airflow_provider_mysql_cdc.cdc.job.pinned_plan import require_same_mode
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.schema.history import require_history, require_own_history
from airflow_provider_mysql_cdc.cdc.schema.internal_topics import require_kept
from airflow_provider_mysql_cdc.cdc.signals.signal_table import require_watermarks
from airflow_provider_mysql_cdc.cdc.snapshot import recovery
from airflow_provider_mysql_cdc.cdc.snapshot.gap import require_drained

Log = Callable[[str], None]
FENCE_AFTER_S = 5.0


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """Hold what to submit.

    Args:
        spec: The job spec; it contains secrets and goes into a 0600 file.
        plan: The plan inside it, for the log.
    """

    spec: JobSpec
    plan: BatchPlan


@dataclass(frozen=True, slots=True)
class Outcome:
    """Say how a job ended.

    Args:
        complete: Whether everything planned is committed and the stored offset has moved.
        offset: The stored offset as JSON.
        counts: Records by topic, of all batches of the run.
        error: What the job reported otherwise; beside a complete one, what it ended with behind its last batch.
        tally: What the run has written; None when the ledger does not tell.
    """

    complete: bool
    offset: dict[str, Any] | None
    counts: dict[str, int]
    error: CdcError | None = None
    tally: RunTally | None = None


def read_ledger(cfg: ConnectorConfig, owner: str = "") -> LedgerState | None:
    """Return the ledger, or None when its topic does not exist.

    A killed writer leaves a transaction open that hides what others committed; it is fenced. A live one commits within
    seconds; a slow one of another run is left alone.

    Args:
        cfg: The connector's configuration.
        owner: Whose writers may be fenced although they are at work.

    Raises:
        RunInProgressError: A run of another owner is at work and hides the end of the ledger.
    """
    return wiring.ledger(cfg).read(
        fence_after_s=FENCE_AFTER_S,
        before_fence=lambda: run_lock.require_nobody_else(cfg.connection_settings(), cfg.topic_prefix, owner),
    )


def synchronise(
    cfg: ConnectorConfig, store: OffsetStore, log: Log, owner: str = ""
) -> tuple[Reconciled, LedgerState | None]:
    """Bring stored state and ledger together, and store what follows from it.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store.
        log: Takes one line of text.
        owner: ``dag_id/run_id/task_id/map_index``; empty for nobody's.

    Returns:
        The result with the state as it is stored now, and the ledger.

    Raises:
        LedgerMissingError, LedgerMismatchError: A person has to decide.
        OffsetConflictError: Another run stored something at the same time.
        RunInProgressError: Another run is at work and hides the end of the ledger.
    """
    stored = store.load()
    ledger = read_ledger(cfg, owner)
    result = reconcile(stored, ledger, at_ms=time.time_ns() // 1_000_000)
    log(f"offset store and ledger: {result.action}: {result.reason}")
    if result.changed:
        result = replace(result, state=store.save(result.state, stored))
    return result, ledger


def prepare_snapshot(
    cfg: ConnectorConfig, store: OffsetStore, owner: str, log: Log, *, again: bool = False
) -> PreparedJob | None:
    """Plan an initial snapshot, or take up the one that was interrupted.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store.
        owner: ``dag_id/run_id/task_id/map_index``.
        log: Takes one line of text.
        again: Take a new snapshot although there is an offset already.

    Returns:
        The job, or None when the snapshot is not needed.
    """
    require_kept(cfg, log)
    result, ledger = synchronise(cfg, store, log, owner)
    state = result.state
    pending = state.pending
    if pending is not None and pending.kind == "snapshot":
        require_same_mode(cfg, pending)
        log(f"snapshot {pending.epoch} was interrupted; going on with its remaining chunks")
        return _job(cfg, replace(pending, owner=owner), store, state, ledger)
    if pending is not None and again:
        state, ledger = _give_up_purged(cfg, store, owner, log, pending)
    elif pending is not None and recovery.is_recovery(cfg):
        rebuild_for_batch(cfg, owner, _whole(cfg, pending, ledger), log)
        return None
    elif pending is not None:
        log(f"there is an offset already; batch {pending.epoch} is not finished, which is the drain's work")
        return None
    with connect(cfg.connection_settings()) as conn:
        if not again and not _snapshot_wanted(cfg, conn, state.committed, log):
            return None
        require(preflight(conn, cfg, snapshot=True))
        _look_at_signal_table(cfg, conn, log)
        require_own_history(cfg)
        here = end_of_binlog(conn, cfg.connection_settings())
        start = stream_start(cfg, conn, state.committed, ledger, log)
    if start is not None:
        require_drained(cfg, start, here)
    if recovery.is_recovery(cfg) and state.committed is not None:
        here = state.committed
    epoch = state.epoch + 1
    plan = BatchPlan(
        epoch=epoch,
        kind="snapshot",
        start=start or here,
        end=here,
        writers=1,
        owner=owner,
        created_ms=time.time_ns() // 1_000_000,
        server_id=cfg.server_id(0),
        pins=pins(cfg, snapshot=True),
        gapless=start is not None,
    )
    return _job(cfg, plan, store, state, ledger)


def stream_start(
    cfg: ConnectorConfig, conn: Any, committed: BinlogOffset | None, ledger: LedgerState | None, log: Log
) -> BinlogOffset | None:
    """Return where the stream stands that a new snapshot must not move past anything; None when nothing is to be kept.

    Nothing is, before the first snapshot, when the history alone is rebuilt, when the binlog behind the offset is gone,
    and right after a person moved the offset, which is how one decides to leave something out. A reset that kept the
    offset leaves nothing out.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        committed: The stored offset.
        ledger: The ledger.
        log: Takes one line of text.

    Raises:
        SourceError: The server cannot be asked.
    """
    if committed is None or recovery.is_recovery(cfg):
        return None
    plan = ledger.plan if ledger is not None else None
    if plan is not None and plan.kind == "reset" and not plan.gapless:
        log(f"the offset {committed} was set by hand; what lies between it and the snapshot's view is left out")
        return None
    try:
        return check_available(conn, cfg.connection_settings(), committed)
    except BinlogPurgedError as error:
        log(f"changes between {committed} and the snapshot's view are lost for the stream: {error.message()}")
        return None


def _give_up_purged(
    cfg: ConnectorConfig, store: OffsetStore, owner: str, log: Log, pending: BatchPlan
) -> tuple[StoredState, LedgerState | None]:
    """Set a batch aside that no drain can finish, because its binlog is gone; refuse when one can."""
    try:
        with connect(cfg.connection_settings()) as conn:
            check_available(conn, cfg.connection_settings(), pending.start)
            check_available(conn, cfg.connection_settings(), pending.end)
    except BinlogPurgedError as error:
        log(f"batch {pending.epoch} can never be finished and is given up: {error.message()}")
        reset_offset(cfg, store, owner, log)
        result, ledger = synchronise(cfg, store, log, owner)
        return result.state, ledger
    raise StateError(
        f"batch {pending.epoch} is not finished, so a new snapshot cannot begin",
        where=f"topic.prefix={cfg.topic_prefix}",
        remedy="run the drain first; it goes on from its markers (DAG mysql_cdc_reset_offset gives the batch up)",
        retriable=True,
    )


def _snapshot_wanted(cfg: ConnectorConfig, conn: Any, committed: BinlogOffset | None, log: Log) -> bool:
    """Return whether snapshot.mode asks for a snapshot now (SNAP-03 to SNAP-08)."""
    mode = str(cfg[F.SNAPSHOT_MODE])
    if mode == "never":
        log("snapshot.mode=never: no snapshot is taken")
        return False
    if mode == "recovery" and committed is None:
        raise NoOffsetError(
            "there is no offset whose schema history could be recovered",
            where=f"topic.prefix={cfg.topic_prefix}, snapshot.mode=recovery",
            remedy="take a snapshot first (snapshot.mode=initial)",
        )
    if committed is None or mode in ("always", "recovery"):
        return True
    if mode == "when_needed":
        try:
            check_available(conn, cfg.connection_settings(), committed)
        except BinlogPurgedError as error:
            log(f"snapshot.mode=when_needed: {error.message()}")
            return True
    log(f"there is an offset already ({committed}); no snapshot is needed")
    return False


def prepare_drain(
    cfg: ConnectorConfig,
    store: OffsetStore,
    owner: str,
    log: Log,
    *,
    run_for_s: float = 0.0,
    even_empty: bool = False,
    give_way: bool = False,
) -> PreparedJob | None:
    """Plan the next batch, or take up the one that was interrupted.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store.
        owner: ``dag_id/run_id/task_id/map_index``.
        log: Takes one line of text.
        run_for_s: Seconds for which one Spark session goes on with batch after batch.
        even_empty: Whether to plan a batch although nothing is new; its driver also asks the Kafka signal topic.
        give_way: Whether there is nothing to do while another run of the same stream is at work: a snapshot, or a drain
            with an ad-hoc snapshot behind it, may take hours. Otherwise the driver refuses to start beside it.

    Returns:
        The job, or None when nothing happened since the last batch, and nothing waits in the ledger.

    Raises:
        NoOffsetError: There is no offset and the configuration asks for a snapshot first.
    """
    if give_way and (other := other_run(cfg, owner)) is not None:
        log(f"this drain is passed over: {other}; the next one goes on at the same place")
        return None
    require_kept(cfg, log)
    result, ledger = synchronise(cfg, store, log, owner)
    state = result.state
    pending = state.pending
    if pending is not None and pending.gapless and nothing_of(pending, ledger):
        log(f"snapshot {pending.epoch} has not begun and waits for the drain; it is set aside")
        reset_offset(cfg, store, owner, log)
        result, ledger = synchronise(cfg, store, log, owner)
        state, pending = result.state, result.state.pending
    if pending is not None and pending.kind == "snapshot":
        raise NoOffsetError(
            f"snapshot {pending.epoch} is not finished",
            where=f"topic.prefix={cfg.topic_prefix}",
            remedy="run the snapshot task again; it reads only the chunks that are missing",
        )
    if str(cfg[F.SNAPSHOT_MODE]) == "initial_only":
        log("snapshot.mode=initial_only: the binlog is never drained")
        return None
    if pending is not None:
        log(f"batch {pending.epoch} was interrupted; going on from its markers")
        return _job(cfg, _whole(cfg, replace(pending, owner=owner), ledger), store, state, ledger, run_for_s)
    if state.committed is not None:
        require_history(cfg)
        require_known_history(cfg, ledger)
    with connect(cfg.connection_settings()) as conn:
        require(preflight(conn, cfg, snapshot=False))
        _look_at_signal_table(cfg, conn, log)
        start = state.committed or _first_offset(cfg, conn)
        epoch = state.epoch + 1
        plan = plan_drain(
            cfg,
            conn,
            start,
            epoch,
            owner,
            _weights(ledger),
            ledger.prepared() if ledger else (),
            even_empty=even_empty or (ledger is not None and work_waits(cfg, ledger)),
        )
    if plan is None:
        log(f"nothing new since {start}")
        return None
    return _job(cfg, plan, store, state, ledger, run_for_s)


def other_run(cfg: ConnectorConfig, owner: str) -> str | None:
    """Return which other run of the stream is at work now; None when none is.

    Args:
        cfg: The connector's configuration.
        owner: ``dag_id/run_id/task_id/map_index`` of this run.

    Raises:
        SourceError: The server cannot be asked.
    """
    try:
        run_lock.require_nobody_else(cfg.connection_settings(), cfg.topic_prefix, owner)
    except RunInProgressError as error:
        return f"{error.what} ({error.where}, {error.why})"
    return None


def _look_at_signal_table(cfg: ConnectorConfig, conn: Any, log: Log) -> None:
    """Create the signal table where that is asked for; say what keeps it from working, which keeps no drain."""
    try:
        require_watermarks(conn, cfg, log)
    except ConfigError as error:
        log(f"WARNING: ad-hoc snapshots are refused: {error.message()}")


def _weights(ledger: LedgerState | None) -> dict[str, int]:
    return dict(ledger.outcome.get("counts", {})) if ledger and ledger.outcome else {}


def _whole(cfg: ConnectorConfig, plan: BatchPlan, ledger: LedgerState | None) -> BatchPlan:
    """Return a pending plan with its topics; one that the store holds without them never reached the ledger.

    Should the run that made it put it in force at this very moment, the ledger refuses the later one of both.
    """
    if plan.topics is None:
        return plan
    with connect(cfg.connection_settings()) as conn:
        return dealt(cfg, conn, plan, _weights(ledger))


def nothing_of(plan: BatchPlan, ledger: LedgerState | None) -> bool:
    """Return whether nothing of a snapshot is written yet: its view comes before everything else.

    Args:
        plan: The snapshot's plan.
        ledger: The ledger.
    """
    view = ledger.others.get(VIEW_KEY) if ledger is not None else None
    return view is None or int(view["epoch"]) != plan.epoch


def _first_offset(cfg: ConnectorConfig, conn: Any) -> BinlogOffset:
    """Return where a stream without snapshot begins (SNAP-06, SNAP-07)."""
    mode = str(cfg[F.SNAPSHOT_MODE])
    if mode == "never":
        first = binary_logs(conn)[0][0]
        settings = cfg.connection_settings()
        return stamp(conn, settings, end_of_binlog(conn, settings).at(first, FILE_START))
    raise NoOffsetError(
        "there is no offset to start from",
        where=f"topic.prefix={cfg.topic_prefix}, snapshot.mode={mode}",
        why="neither the offset store nor the ledger knows this topic.prefix",
        remedy="run the snapshot first (DAG mysql_cdc_snapshot; snapshot.mode=no_data reads only the structures)",
    )


def _job(
    cfg: ConnectorConfig,
    plan: BatchPlan,
    store: OffsetStore,
    state: StoredState,
    ledger: LedgerState | None,
    run_for_s: float = 0.0,
) -> PreparedJob:
    """Store the plan, which decides between two runs at once, and wrap it up for Spark."""
    if ledger is None:
        # With the ledger's id stored, a ledger lost during the very first batch is told from one never made.
        made = wiring.ledger(cfg)
        made.ensure()
        ledger = made.read()
    store.save(state.with_plan(plan, ledger.topic_id if ledger else None), state)
    id_ = secrets.token_hex(8)
    return PreparedJob(JobSpec(plan.kind, cfg.properties(), plan.to_json(), plan.owner, run_for_s, id_), plan)


def settle(cfg: ConnectorConfig, store: OffsetStore, log: Log, spec: JobSpec | None = None) -> Outcome:
    """Move the stored offset to what Kafka holds, after a job ended in whatever way.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store.
        log: Takes one line of text.
        spec: The job that was submitted; the outcome's error is then what this very submission has said, also when all
            is complete. None takes the error that stands beside the plan in force, of whatever attempt.
    """
    fault_point("airflow.before_commit")
    result, ledger = synchronise(cfg, store, log)
    state = result.state
    outcome = dict(ledger.outcome or {}) if ledger else {}
    epoch = ledger.plan.epoch if ledger and ledger.plan else 0
    mine = outcome.get("epoch") == epoch
    error = from_json(outcome["error"]) if mine and outcome.get("error") else None
    complete = state.pending is None and state.committed is not None
    tally = counted(ledger) if ledger else None
    last = {str(k): int(v) for k, v in outcome.get("counts", {}).items()} if mine else {}
    counts = last if tally is None else dict(tally.counts)
    offset = state.committed.to_json() if state.committed else None
    if spec is not None:
        return Outcome(complete, offset, counts, told(ledger, spec.owner, spec.id), tally)
    return Outcome(complete, offset, counts, None if complete else error, tally)
