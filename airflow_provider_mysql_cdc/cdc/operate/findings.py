"""Check source and Kafka before a job: what would fail is an error before Spark starts, the rest is a warning."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.preflight import preflight
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SinkAuthorizationError, SinkError
from airflow_provider_mysql_cdc.cdc.formats import record_topics
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.finding import WARNING, Finding, error_finding, raise_first_error
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.schema.table_findings import table_findings
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses
from airflow_provider_mysql_cdc.cdc.sink.record_writer import transactional_id
from airflow_provider_mysql_cdc.cdc.sink.request_limit import broker_settings
from airflow_provider_mysql_cdc.cdc.sink.topic_settings import (
    HISTORY_RULE,
    LEDGER_RULE,
    allow_command,
    allowed_operations,
    durability_warnings,
    require_settings,
    validate_topics,
)
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo, TopicSpec, broker_ids, describe_topics, topic_config
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter


def source_findings(
    conn: MySqlConnection, cfg: ConnectorConfig, *, snapshot: bool, state: StoredState | None = None
) -> list[Finding]:
    """Return what a person should know of the source before a job, errors first.

    Args:
        conn: An open connection of the configured account.
        cfg: The connector's configuration.
        snapshot: Whether tables will be read, not only the binlog.
        state: The stored state of a stream with changes that are not drained.

    Raises:
        SourceError: The server cannot be asked.
    """
    settled_ms = state.history[-1].at_ms if state is not None and state.history else None
    undrained_s = None if settled_ms is None else max(0.0, time.time() - settled_ms / 1000)
    findings = preflight(conn, cfg, snapshot=snapshot, undrained_s=undrained_s)
    if snapshot:
        findings += table_findings(conn, cfg)
    return sorted(findings, key=lambda finding: finding.error is None)


def check_source(
    conn: MySqlConnection, cfg: ConnectorConfig, *, snapshot: bool, state: StoredState | None = None
) -> list[Finding]:
    """Return the warnings for a job's log.

    Args:
        conn: An open connection of the configured account.
        cfg: The connector's configuration.
        snapshot: Whether tables will be read, not only the binlog.
        state: The stored state of the stream.

    Raises:
        CdcError: Server, account or lists are not fit for the job.
    """
    findings = source_findings(conn, cfg, snapshot=snapshot, state=state)
    raise_first_error(findings)
    return findings


def log_warnings(warnings: Iterable[Finding], log: Log) -> None:
    """Log one line for each warning.

    Args:
        warnings: From ``check_source``.
        log: Receives one line of text.
    """
    for finding in warnings:
        log(f"WARNING: {finding.what} ({finding.why}); {finding.fix}")


MAX_TOPICS = 20
"""Topics of tables that are checked; the settings of the others come from the same properties."""
MAX_TOPICS_OF_JOB = 5
"""The same in a job, which each of them costs a request."""
PROBE = "preflight"
"""Writer name of the transactional id that is tried; no job has it, so none is fenced."""
_INIT_TIMEOUT_S = 15.0
_SHORT_RETENTION_MS = 24 * 3600 * 1000
_WRITE = ("DESCRIBE", "WRITE")
_OWN = (*_WRITE, "READ", "DESCRIBE_CONFIGS")


@dataclass(frozen=True, slots=True)
class _Cluster:
    """Hold what Kafka says about itself and the stream's topics."""

    cfg: ConnectorConfig
    admin: Any
    brokers: int
    settings: Mapping[str, str]
    topics: Mapping[str, TopicInfo]
    specs: Mapping[str, TopicSpec]

    @property
    def own_topics(self) -> tuple[str, str]:
        """The ledger and the schema history."""
        return self.cfg.ledger_topic, self.cfg.history_topic


def kafka_findings(cfg: ConnectorConfig, metadata: Any, tables: list[str]) -> list[Finding]:
    """Return what Kafka would refuse, or what may lose records, errors first.

    Args:
        cfg: The connector's configuration.
        metadata: From ``topics.cluster_metadata``.
        tables: Topics of captured tables.

    Raises:
        SinkError: Kafka cannot be asked.
    """
    specs = {
        cfg.ledger_topic: kafka_clients.ledger(cfg).topic_spec(),
        cfg.history_topic: record_topics.history_topic_spec(cfg),
        **_output_topics(cfg, tables[:MAX_TOPICS]),
    }
    cluster = _describe(cfg, make_admin(cfg.kafka_settings()), specs, len(metadata.brokers))
    findings = [finding for rule in _RULES for finding in rule(cluster)]
    return sorted(findings, key=lambda finding: finding.error is None)


def topic_warnings(cfg: ConnectorConfig, tables: Iterable[str]) -> list[Finding]:
    """Return what may lose records in the topics of a job, for its log; what Kafka refuses, the job itself reports.

    Args:
        cfg: The connector's configuration.
        tables: Topics of tables, those with the most records first.
    """
    admin = make_admin(cfg.kafka_settings())
    specs = _output_topics(cfg, list(tables)[:MAX_TOPICS_OF_JOB])
    try:
        cluster = _describe(cfg, admin, specs, len(broker_ids(admin)))
    except SinkError as error:  # perhaps of a topic that this job does not write
        return [
            Finding(WARNING, "the settings of topics were not checked", str(error), "see the error of the job, if any")
        ]
    return [f for rule in (_replicas, _existing_topics) for f in rule(cluster) if f.error is None]


def _output_topics(cfg: ConnectorConfig, tables: Iterable[str]) -> dict[str, TopicSpec]:
    if cfg.chain is not None:
        return {}  # known once a record comes out of the transforms
    side_topics = [cfg.route_topic(name).topic for name in record_topics.side_topics(cfg)]
    return {
        **dict.fromkeys(side_topics, record_topics.side_topic_spec(cfg)),
        **{topic: record_topics.table_topic_spec(cfg, topic) for topic in tables},
    }


def _describe(cfg: ConnectorConfig, admin: Any, specs: Mapping[str, TopicSpec], brokers: int) -> _Cluster:
    topics = describe_topics(admin, specs, broker_addresses(cfg.kafka_settings()))
    return _Cluster(cfg, admin, brokers, broker_settings(admin), topics, specs)


def _transactions(cluster: _Cluster) -> Iterator[Finding]:
    """Try a transactional producer with a transactional id and a timeout like those of a job."""
    cfg, settings = cluster.cfg, cluster.cfg.kafka_settings()
    timeout_ms = cfg[F.TRANSACTION_TIMEOUT_MS]
    name = transactional_id(cfg.topic_prefix, PROBE)
    try:
        with TransactionalWriter(settings, name, transaction_timeout_ms=timeout_ms) as writer:
            writer.init(_INIT_TIMEOUT_S)
    except SinkError as error:
        yield error_finding(error)


def _missing_topics(cluster: _Cluster) -> Iterator[Finding]:
    """Ask the brokers whether they would create the topics that do not exist (CreateTopics with validate_only)."""
    missing = {name: spec for name, spec in cluster.specs.items() if name not in cluster.topics}
    for error in validate_topics(make_admin(cluster.cfg.kafka_settings("admin")), missing):
        yield error_finding(error)


def _operations(cluster: _Cluster) -> Iterator[Finding]:
    """Compare the account's operations on existing topics with those that a job needs."""
    for topic, allowed in allowed_operations(cluster.admin, cluster.topics).items():
        verified = cluster.cfg[F.TOPIC_SETTINGS_VERIFIED]
        needed = _OWN if topic in cluster.own_topics else _WRITE
        lacking = [n for n in needed if n not in allowed and not (verified and n == "DESCRIBE_CONFIGS")]
        if lacking:
            names = [name.title().replace("_", "") for name in lacking]
            yield error_finding(
                SinkAuthorizationError(
                    f"the account may not {', '.join(names)} a topic of the stream",
                    where=f"topic {topic}",
                    why="the broker lists the operations that the account may do, and these are not among them",
                    remedy=allow_command(cluster.cfg.kafka_settings(), topic, lacking),
                )
            )


def _replicas(cluster: _Cluster) -> Iterator[Finding]:
    """Look for topics to which no record can be written, or whose records one broker's disk holds alone."""
    default_factor = _number(cluster.settings.get("default.replication.factor"))
    default_isr = _number(cluster.settings.get("min.insync.replicas"))
    for topic, spec in cluster.specs.items():
        if topic in cluster.topics:
            continue
        factor = spec.replication if spec.replication > 0 else default_factor
        isr = _number(spec.config.get("min.insync.replicas")) or default_isr
        if factor and isr and isr > factor:
            yield _too_few_replicas(topic, factor, isr)
        elif factor == 1 and cluster.brokers > 1:
            yield Finding(
                WARNING,
                f"topic {topic} will be created with one replica on a cluster of {cluster.brokers} brokers",
                "its records are lost with that broker's disk",
                "set topic.creation.default.replication.factor",
            )


def _existing_topics(cluster: _Cluster) -> Iterator[Finding]:
    """Check the settings of topics that exist."""
    rules = dict(zip(cluster.own_topics, (LEDGER_RULE, HISTORY_RULE), strict=True))
    for topic, info in cluster.topics.items():
        try:
            if topic in rules:
                verified = cluster.cfg[F.TOPIC_SETTINGS_VERIFIED]
                config = require_settings(cluster.admin, topic, rules[topic], verified=verified) or {}
            else:
                config = topic_config(cluster.admin, topic) or {}
        except SinkError as error:
            yield error_finding(error)
            continue
        isr = _number(config.get("min.insync.replicas"))
        if isr and info.replicas and isr > info.replicas:
            yield _too_few_replicas(topic, info.replicas, isr)
        for line in durability_warnings(topic, info, config, cluster.brokers):
            yield Finding(WARNING, line, "records that are committed are expected to stay", "change the topic")
        retention = _number(config.get("retention.ms"))
        if topic not in rules and "delete" in config.get("cleanup.policy", "") and 0 < retention < _SHORT_RETENTION_MS:
            yield Finding(
                WARNING,
                f"topic {topic} keeps its records for {retention // 1000} s (retention.ms)",
                "a consumer that is down for longer misses changes, and needs a new snapshot",
                "raise retention.ms of the topic (topic.creation.default.retention.ms for new ones)",
            )


def _too_few_replicas(topic: str, factor: int, isr: int) -> Finding:
    return error_finding(
        SinkError(
            "no record can be written to a topic",
            where=f"topic {topic}",
            why=f"min.insync.replicas is {isr}, and it has {factor} replica(s); records are written with acks=all",
            remedy="raise topic.creation.default.replication.factor, or lower min.insync.replicas of topic or brokers",
        )
    )


def _number(text: str | None) -> int:
    try:
        return int(text or 0)
    except ValueError:
        return 0


_RULES: tuple[Callable[[_Cluster], Iterator[Finding]], ...] = (
    _transactions,
    _missing_topics,
    _operations,
    _replicas,
    _existing_topics,
)
