"""Is the schema history the topic that the stream has written? The ledger remembers Kafka's id of it.

A history that was deleted and made anew, by hand or by a broker that creates topics by itself, is empty: with it, every
table is unknown. Rows of unknown tables stop a drain, or are left out where the configuration says so.
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
from airflow_provider_mysql_cdc.cdc.sink.topics import describe_created, describe_topics, end_offsets

_REBUILD_REMEDY = "rebuild the history: snapshot.mode=recovery and mysql_cdc_snapshot"
_RESTART_SNAPSHOT_REMEDY = (
    "give the snapshot up (mysql_cdc_reset_offset with current) and take it again (mysql_cdc_snapshot with again=true)"
)


def history_difference(cfg: ConnectorConfig, ledger: LedgerState | None) -> str:
    """Return what is wrong with the history topic, compared with what the ledger remembers; empty when nothing is.

    Args:
        cfg: The connector's configuration.
        ledger: What the ledger holds.

    Raises:
        SinkError: Kafka refuses or does not answer.
    """
    recorded = ledger.other_records.get(HISTORY_KEY) if ledger is not None else None
    if recorded is None:
        return ""
    topic, admin = cfg.history_topic, make_admin(cfg.kafka_settings())
    current = describe_topics(admin, [topic], broker_addresses(cfg.kafka_settings())).get(topic)
    if current is None:
        return "it was deleted"
    if recorded["topic"] == topic:
        changed = None not in (recorded["id"], current.id) and recorded["id"] != current.id
        return "it was deleted and made anew" if changed else ""
    first, end = end_offsets(admin, topic, [0])[0]
    return "" if end > first else f"it is empty, and the stream has written {recorded['topic']} until now"


def require_recorded_history(cfg: ConnectorConfig, ledger: LedgerState | None, *, snapshot: bool = False) -> None:
    """Check that the history topic is the one that the stream has written.

    Args:
        cfg: The connector's configuration.
        ledger: What the ledger holds.
        snapshot: Whether it is an unfinished snapshot that would go on with it.

    Raises:
        SchemaError: It is another one.
        SinkError: Kafka refuses or does not answer.
    """
    if problem := history_difference(cfg, ledger):
        raise SchemaError(
            "the schema history is lost",
            where=f"topic {cfg.history_topic}",
            why=f"{problem}; the structures of the tables stood in it",
            remedy="find out who did it; then " + (_RESTART_SNAPSHOT_REMEDY if snapshot else _REBUILD_REMEDY),
        )


def history_id_record(cfg: ConnectorConfig, job: JobLedger) -> SideRecord:
    """Return the ledger record that says which topic is the history; the topic exists.

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
    """Write down which topic is the history, where the ledger does not say so yet.

    Args:
        cfg: The connector's configuration.
        job: The ledger.
        ledger: What it holds.

    Raises:
        SinkError: Kafka refuses or does not answer.
    """
    recorded = ledger.other_records.get(HISTORY_KEY)
    if recorded is None or recorded["topic"] != cfg.history_topic:
        job.commit([history_id_record(cfg, job)])
