"""Prepare a job: complete its plan, store the plan, and return the job spec.

All steps of an operator run in the Airflow worker without Spark. Their order is the commit protocol's (design,
section 4): the plan is stored before anything is read, and ``settle_offset`` moves the offset only when the ledger
shows that the whole batch is in Kafka.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore, StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, topic_counts
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.batch_planner import with_assignments
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.signals.signal_table import require_watermarks


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """Hold a job that is ready to submit.

    Args:
        spec: The job spec; it contains secrets and goes into a 0600 file.
        plan: The plan in the spec, for the log.
    """

    spec: JobSpec
    plan: BatchPlan


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
    return topic_counts(ledger.outcome["counts"]) if ledger and ledger.outcome else {}


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
