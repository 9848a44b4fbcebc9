"""A job's ledger over the in-memory twins."""

from __future__ import annotations

import pytest

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from kit.memory_kafka import MemoryKafka, MemoryWriter
from kit.memory_ledger import MemoryLedger

PROPERTIES = {
    "topic.prefix": "p",
    "database.hostname": "h",
    "database.user": "u",
    "kafka.bootstrap.servers": "k:1",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
}


def config(**more: str) -> ConnectorConfig:
    """Return a configuration; double underscores in names stand for dots."""
    return ConnectorConfig.from_properties(PROPERTIES | {name.replace("__", "."): v for name, v in more.items()})


def memory_job(monkeypatch: pytest.MonkeyPatch, cfg: ConnectorConfig, kafka: MemoryKafka, run: str = "") -> JobLedger:
    """Return the ledger of a job that has just been opened; older ones are fenced."""
    monkeypatch.setattr(kafka_clients, "ledger", lambda cfg: MemoryLedger(kafka, cfg.ledger_topic, cfg.topic_prefix))
    monkeypatch.setattr(
        kafka_clients, "record_writer", lambda cfg, w, **_: MemoryWriter(kafka, f"{cfg.topic_prefix}.{w}")
    )
    job = JobLedger(cfg, run)
    job._writer.init()
    return job


def transactions(kafka: MemoryKafka, topic: str) -> list[list[bytes]]:
    """Return the keys of a topic's records, by the transaction that they were committed in."""
    found: dict[int, list[bytes]] = {}
    for transaction, record in kafka.logs[topic, 0]:
        if transaction.status == "committed":
            found.setdefault(id(transaction), []).append(record.key or b"")
    return list(found.values())
