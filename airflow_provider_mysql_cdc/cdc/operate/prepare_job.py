"""Prepare a job: complete its plan, store it, and see that nobody else writes into the stream's topics.

Prepare a job: complete its plan, store the plan, and return the job spec.

All steps of an operator run in the Airflow worker without Spark. Their order is the commit protocol's (design,
section 4): the plan is stored before anything is read, and ``settle_offset`` moves the offset only when the ledger
shows that the whole batch is in Kafka.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import GIVEN_BACK_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore, StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, topic_counts
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.batch_planner import with_assignments
from airflow_provider_mysql_cdc.cdc.drain.taken_over import taken_over
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, StateError
from airflow_provider_mysql_cdc.cdc.job.job_ledger import ledger_record
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Record
from airflow_provider_mysql_cdc.cdc.signals.signal_table import require_watermarks
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import all_partition_counts, end_offsets_of_topics


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """Hold a job that is ready to submit.

    Args:
        spec: The job spec; it contains secrets and goes into a 0600 file.
        plan: The plan in the spec, for the log.
    """

    spec: JobSpec
    plan: BatchPlan


def check_signal_table(cfg: ConnectorConfig, conn: MySqlConnection, log: Log) -> None:
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


@dataclass(frozen=True, slots=True)
class GivenBack(Record):
    """Say that the stream was given back to a connector.

    Args:
        plan: Epoch of the last plan.
        written: Sum of the ends of each topic (``count_written``).
    """

    plan: Count
    written: Mapping[str, Count]


def table_ends(cfg: ConnectorConfig) -> dict[str, dict[int, int]]:
    """Return where the topics of this prefix end, by topic and partition; without those that others may write into.

    Args:
        cfg: The connector's configuration.

    Raises:
        SinkError: Kafka cannot be reached.
    """
    admin = make_admin(cfg.kafka_settings("consumer"))
    others = (cfg.history_topic, cfg.ledger_topic, cfg[F.SIGNAL_KAFKA_TOPIC])
    counts = all_partition_counts(admin)
    topics = {t: range(n) for t, n in counts.items() if t.startswith(f"{cfg.topic_prefix}.") and t not in others}
    ends = end_offsets_of_topics(admin, topics) if topics else {}
    return {topic: {p: end for p, (_, end) in of.items()} for topic, of in ends.items()}


def count_written(cfg: ConnectorConfig) -> dict[str, int]:
    """Return the sum of these ends for each topic, which grows with each record.

    Args:
        cfg: The connector's configuration.

    Raises:
        SinkError: Kafka cannot be reached.
    """
    return {topic: sum(of.values()) for topic, of in table_ends(cfg).items()}


def given_back_record(cfg: ConnectorConfig, plan: int) -> SideRecord:
    """Return the ledger's record of where the topics end when the stream is given back to a connector.

    Args:
        cfg: The connector's configuration.
        plan: Epoch of the last plan; the next one, of an import or a reset, makes the record void.

    Raises:
        SinkError: Kafka cannot be reached.
    """
    return ledger_record(cfg, GIVEN_BACK_KEY, GivenBack(plan, count_written(cfg)).to_json())


def require_only_own_records(cfg: ConnectorConfig, ledger: LedgerState | None) -> None:
    """Check that no connector has written since the take-over, or since the way back, behind which nothing was planned.

    Args:
        cfg: The connector's configuration.
        ledger: The ledger.

    Raises:
        StateError: One has: its records would come twice.
        DamagedRecordError: The ledger's record of the way back is something else.
        SinkError: Kafka cannot be reached.
    """
    if ledger is None or ledger.plan is None:
        return
    taken = taken_over(ledger) if ledger.plan.kind == "reset" else None
    what, written = "taken over from a connector", None if taken is None else taken.written
    if given := ledger.other_records.get(GIVEN_BACK_KEY):
        record = GivenBack.from_json(given)
        if record.plan == ledger.plan.epoch:
            what, written = "given back to a connector", record.written
    if written is None:
        return
    # For each topic by itself: one that was deleted meanwhile hides nothing of another.
    if more := [f"{t}, {n} record(s)" for t, end in count_written(cfg).items() if (n := end - written.get(t, 0)) > 0]:
        raise StateError(
            f"records were written into the stream's topics after it was {what}",
            where="topics " + "; ".join(more[:5]) + ("" if len(more) <= 5 else f"; and {len(more) - 5} more"),
            why="the connector has worked since, or another program writes into them: the stream's offset is before "
            "them, so from there the same changes would be written once more",
            remedy="stop the connector, run mysql-cdc import-debezium again, then this",
        )
