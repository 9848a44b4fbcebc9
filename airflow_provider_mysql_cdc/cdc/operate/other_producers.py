"""Where the topics of a stream end, so that it shows if somebody else writes into them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import GIVEN_BACK_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.taken_over import taken_over
from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.job.job_ledger import ledger_record
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Record
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import all_partition_counts, end_offsets_of_topics


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
