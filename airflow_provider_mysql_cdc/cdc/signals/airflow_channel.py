"""Signals from Airflow: a record in the ledger, where the driver finds it between two batches."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, LedgerMissingError
from airflow_provider_mysql_cdc.cdc.signals.signal import SignalRefused, build_signal, read_action
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.plain_writer import write_plain
from airflow_provider_mysql_cdc.cdc.sink.topics import partition_counts

_KEY_NAMESPACE = uuid.UUID("7c5a4a5e-94e5-4f0b-8f0a-0d9a4a5b7c11")


def send(cfg: ConnectorConfig, type_: str, data: Mapping[str, Any] | str = "", id_: str | None = None) -> str:
    """Let a signal wait in the ledger; return its id.

    The record is no part of a transaction: it neither waits for a drain that is at work nor disturbs it. While a signal
    waits, another one of the same id takes its place, so a repeated attempt of the caller adds nothing.

    Args:
        cfg: The connector's configuration.
        type_: Type of the signal, ``execute-snapshot`` for example.
        data: Its parameters, or their JSON text.
        id_: Its id; one is made when None.

    Raises:
        ConfigError: Nobody could carry it out.
        LedgerMissingError: There is no ledger topic, so no job that could take it.
        SinkConnectionError: Kafka did not answer in time; the signal may wait all the same.
        SinkError: Kafka refuses.
    """
    id_ = id_ or str(uuid.uuid4())
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    signal = build_signal(id_, type_, text, "airflow")
    try:
        read_action(signal, frozenset())
    except SignalRefused as refused:
        raise ConfigError(
            "the signal cannot be carried out",
            where=f"signal {signal.id}, type {signal.type}",
            why=refused.reason,
            remedy="correct it; nothing was sent",
        ) from None
    _require_ledger(cfg)
    key = signal.ledger_key(uuid.uuid5(_KEY_NAMESPACE, id_).hex)
    write_plain(cfg.kafka_settings(), [(cfg.ledger_topic, key.encode(), encode(signal.to_json()))])
    return id_


def _require_ledger(cfg: ConnectorConfig) -> None:
    if cfg.ledger_topic not in partition_counts(make_admin(cfg.kafka_settings()), [cfg.ledger_topic]):
        raise LedgerMissingError(
            "the signal has nowhere to wait: the ledger topic does not exist",
            where=f"topic {cfg.ledger_topic}",
            why="no snapshot and no drain of this topic.prefix has run yet, or the topic was deleted",
            remedy="run mysql_cdc_snapshot or mysql_cdc_drain first, or correct topic.prefix and ledger.topic",
        )
