"""Where the topics of a stream end, so that it shows if somebody else writes into them."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.taken_over import taken_over
from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import all_partition_counts, end_offsets_of_topics


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


def count_written(cfg: ConnectorConfig) -> int:
    """Return the sum of these ends, which grows with each record.

    Args:
        cfg: The connector's configuration.

    Raises:
        SinkError: Kafka cannot be reached.
    """
    return sum(sum(of.values()) for of in table_ends(cfg).values())


def require_only_own_records(cfg: ConnectorConfig, ledger: LedgerState | None) -> None:
    """Check before the first batch behind a take-over that the connector was not started again.

    Args:
        cfg: The connector's configuration.
        ledger: The ledger.

    Raises:
        StateError: It was: its records would come twice.
        SinkError: Kafka cannot be reached.
    """
    taken = taken_over(ledger) if ledger is not None else None
    if taken is None or ledger is None or ledger.plan is None or ledger.plan.kind != "reset":
        return
    if (count := count_written(cfg) - taken.written) > 0:
        raise StateError(
            "records were written into the stream's topics after it was taken over from a connector",
            where=f"topics {cfg.topic_prefix}.*, {count} record(s)",
            why="the connector was started again, or another program writes into them: this drain would write the "
            "same changes once more",
            remedy="stop the connector, run mysql-cdc import-debezium again, then this drain",
        )
