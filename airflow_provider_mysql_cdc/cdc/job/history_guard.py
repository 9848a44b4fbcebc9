"""Check that the schema history is the topic that the stream has written, by Kafka's topic id in the ledger.

A history that was deleted and created again, by hand or by a broker that creates topics automatically, is empty, so
every table is unknown. Rows of unknown tables stop a drain, or are left out where the configuration says so.
"""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import HISTORY_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo, describe_created, describe_topics, end_offsets

_REBUILD_REMEDY = "rebuild the history: set snapshot.mode=recovery and trigger mysql_cdc_snapshot"
_RESTART_SNAPSHOT_REMEDY = (
    "abandon the snapshot (mysql_cdc_reset_offset with offset=current) and take it again (mysql_cdc_snapshot with "
    "again=true)"
)


def history_difference(cfg: ConnectorConfig, ledger: LedgerState | None) -> str:
    """Return how the history topic differs from the one recorded in the ledger; empty when it is the same.

    Args:
        cfg: The connector's configuration.
        ledger: The ledger.

    Raises:
        SinkError: Kafka refuses or does not answer.
    """
    return _compare(cfg, ledger)[0]


def _compare(cfg: ConnectorConfig, ledger: LedgerState | None) -> tuple[str, TopicInfo | None]:
    """Return how the topic differs, and the topic as it is; None where nothing is recorded, or the topic is gone."""
    recorded = ledger.other_records.get(HISTORY_KEY) if ledger is not None else None
    if recorded is None:
        return "", None
    topic, admin = cfg.history_topic, make_admin(cfg.kafka_settings())
    current = describe_topics(admin, [topic], broker_addresses(cfg.kafka_settings())).get(topic)
    if current is None:
        return "it was deleted", None
    if recorded["topic"] == topic:
        changed = None not in (recorded["id"], current.id) and recorded["id"] != current.id
        return "it was deleted and created again" if changed else "", current
    first, end = end_offsets(admin, topic, [0])[0]
    empty = f"it is empty; until now the stream has written to {recorded['topic']}"
    return "" if end > first else empty, current


def require_recorded_history(
    cfg: ConnectorConfig, ledger: LedgerState | None, *, snapshot: bool = False
) -> TopicInfo | None:
    """Check that the history topic is the one that the stream has written.

    Args:
        cfg: The connector's configuration.
        ledger: The ledger.
        snapshot: Whether an unfinished snapshot would continue with it.

    Returns:
        The topic as it is; None where the ledger records none.

    Raises:
        SchemaError: It is another topic, or deleted.
        SinkError: Kafka refuses or does not answer.
    """
    problem, current = _compare(cfg, ledger)
    if problem:
        raise SchemaError(
            "the schema history is lost",
            where=f"topic {cfg.history_topic}",
            why=f"{problem}; it held the structures of the tables",
            remedy="find out who deleted or replaced it; then "
            + (_RESTART_SNAPSHOT_REMEDY if snapshot else _REBUILD_REMEDY),
        )
    return current


def history_id_record(cfg: ConnectorConfig, job: JobLedger) -> SideRecord:
    """Return the ledger record of the history topic; the topic exists.

    Args:
        cfg: The connector's configuration.
        job: The ledger.

    Raises:
        SinkError: Kafka refuses or does not answer.
    """
    topic, settings = cfg.history_topic, cfg.kafka_settings()
    info = describe_created(make_admin(settings), [topic], broker_addresses(settings))[topic]
    return job.record(HISTORY_KEY, {"topic": topic, "id": info.id})


def record_history_id(cfg: ConnectorConfig, job: JobLedger, ledger: LedgerState) -> None:
    """Record which topic is the history, unless the ledger says so already.

    Args:
        cfg: The connector's configuration.
        job: The ledger.
        ledger: The ledger's content.

    Raises:
        SinkError: Kafka refuses or does not answer.
    """
    recorded = ledger.other_records.get(HISTORY_KEY)
    if recorded is None or recorded["topic"] != cfg.history_topic:
        job.commit([history_id_record(cfg, job)])
