"""The steps of an operator before and after a Spark job: reconcile, plan, and move the stored offset at the end.

All of them run in the Airflow worker without Spark. Their order is the commit protocol's (design, section 4): the plan
is stored before anything is read, and the offset moves only when the ledger shows that the whole batch is in Kafka.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_presence import read_existing
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore, StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.reconcile import Reconciliation, reconcile
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.batch_planner import with_assignments
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.faults import fault_point
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.operate.job_outcome import JobOutcome, job_outcome
from airflow_provider_mysql_cdc.cdc.signals.signal_table import require_watermarks

FENCE_AFTER_S = 5.0


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """Hold a job that is ready to submit.

    Args:
        spec: The job spec; it contains secrets and goes into a 0600 file.
        plan: The plan in the spec, for the log.
    """

    spec: JobSpec
    plan: BatchPlan


def read_ledger(cfg: ConnectorConfig, owner: str = "") -> LedgerState | None:
    """Return the ledger, or None when its topic does not exist.

    A killed writer leaves an open transaction that hides later commits; such a writer is fenced. A live one commits
    within seconds; a slow one of another run is not fenced.

    Args:
        cfg: The connector's configuration.
        owner: The run whose writers may be fenced although they are running.

    Raises:
        RunInProgressError: A run of another owner is running and hides the end of the ledger.
    """
    return kafka_clients.ledger(cfg).read(
        fence_after_s=FENCE_AFTER_S,
        before_fence=lambda: run_lock.require_sole_run(cfg.connection_settings(), cfg.topic_prefix, owner),
    )


def reconcile_store(
    cfg: ConnectorConfig, store: OffsetStore, log: Log, owner: str = ""
) -> tuple[Reconciliation, LedgerState | None]:
    """Reconcile the stored state with the ledger, and store the result.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store.
        log: Receives one line of text.
        owner: ``dag_id/run_id/task_id/map_index``; empty for no run.

    Returns:
        The result, with the state that is stored now, and the ledger.

    Raises:
        LedgerMissingError, LedgerMismatchError: A person has to decide.
        OffsetConflictError: Another run changed the stored state at the same time.
        RunInProgressError: Another run is running and hides the end of the ledger.
    """
    stored = store.load()
    offset_stored = stored is not None and stored.committed is not None
    ledger = read_existing(partial(read_ledger, cfg, owner), expect_plan=offset_stored)
    result = reconcile(stored, ledger, at_ms=time.time_ns() // 1_000_000)
    log(f"offset store and ledger: {result.action}: {result.reason}")
    if result.changed:
        result = replace(result, state=store.save(result.state, stored))
    return result, ledger


def check_signal_table(cfg: ConnectorConfig, conn: Any, log: Log) -> None:
    """Create the signal table where that is configured; log what is wrong with it, which does not stop the drain.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        log: Receives one line of text.
    """
    try:
        require_watermarks(conn, cfg, log)
    except ConfigError as error:
        log(f"WARNING: ad-hoc snapshots are refused: {error.message()}")


def topic_weights(ledger: LedgerState | None) -> dict[str, int]:
    """Return the record counts of the last batch by topic, which decide how topics are assigned to writers.

    Args:
        ledger: The ledger; None before the first batch.
    """
    return dict(ledger.outcome.get("counts", {})) if ledger and ledger.outcome else {}


def with_topics(cfg: ConnectorConfig, plan: BatchPlan, ledger: LedgerState | None) -> BatchPlan:
    """Return a pending plan with its topics; a plan that the store has without them never reached the ledger.

    If the run that created it writes it to the ledger at the same moment, the ledger refuses the later of the two.

    Args:
        cfg: The connector's configuration.
        plan: The plan as stored.
        ledger: The ledger.

    Raises:
        SourceError: The server's tables cannot be read.
    """
    if plan.omitted_topics is None:
        return plan
    with connect(cfg.connection_settings()) as conn:
        return with_assignments(cfg, conn, plan, topic_weights(ledger))


def store_and_prepare(
    cfg: ConnectorConfig,
    plan: BatchPlan,
    store: OffsetStore,
    state: StoredState,
    ledger: LedgerState | None,
    run_for_s: float = 0.0,
) -> PreparedJob:
    """Store the plan, which decides between two runs that plan at once, and return the Spark job for it.

    Args:
        cfg: The connector's configuration.
        plan: The job's plan.
        store: Airflow's offset store.
        state: The state that is stored now.
        ledger: The ledger; None when it does not exist yet; it is created then.
        run_for_s: Seconds for which one Spark session drains batch after batch.

    Raises:
        OffsetConflictError: Another run changed the stored state at the same time.
    """
    if ledger is None:
        # With the ledger's id stored, a ledger lost during the first batch can be distinguished from one never created.
        ledger_store = kafka_clients.ledger(cfg)
        ledger_store.ensure()
        ledger = ledger_store.read()
    store.save(state.with_plan(plan, ledger.topic_id if ledger else None), state)
    id_ = secrets.token_hex(8)
    return PreparedJob(JobSpec(plan.kind, cfg.properties(), plan.to_json(), plan.owner, run_for_s, id_), plan)


def settle_offset(cfg: ConnectorConfig, store: OffsetStore, log: Log, spec: JobSpec | None = None) -> JobOutcome:
    """Move the stored offset to the last batch that is complete in Kafka, however the job ended.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store.
        log: Receives one line of text.
        spec: The job that was submitted; None for the last batch, whichever run and try wrote it.

    Returns:
        How the job ended; ``job_outcome`` lists the cases.

    Raises:
        CdcError: As ``reconcile_store``.
    """
    fault_point("airflow.before_commit")
    result, ledger = reconcile_store(cfg, store, log)
    return job_outcome(result.state, ledger, spec)
