"""The topics a batch writes into: their partition counts, and whether they are those of the batches before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.topic_records import KnownTopic, changed_error, differences, topic_record
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.formats import wiring
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import brokers
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo, all_partition_counts, describe_made, describe_topics


def ready_topics(
    cfg: ConnectorConfig, job: JobLedger, plan: BatchPlan, ledger: LedgerState, state: SchemaState, log: Log
) -> None:
    """Create the topics that are missing, once it is certain that nobody took away or changed one that was there.

    A snapshot of which nothing is committed takes the topics as they are, and says what was changed: it fills them.

    Args:
        cfg: The connector's configuration.
        job: The ledger.
        plan: The batch or snapshot, in force.
        ledger: What the ledger holds.
        state: The tables at its start.
        log: Takes one line of text.

    Raises:
        TopicChangedError: A topic was deleted, made anew or given more partitions.
        ConfigError: Two tables would share a topic.
        SinkError: Kafka refuses.
    """
    needed = job.wanted_topics(state)
    admin, at = make_admin(cfg.kafka_settings()), brokers(cfg.kafka_settings())
    found = describe_topics(admin, {*needed, *ledger.topics}, at)
    changed = differences(ledger.topics, found, needed, plan)
    takes = plan.kind == "snapshot" and not ledger.begun()
    if changed and not takes:
        raise changed_error(changed, plan, begun=ledger.begun())
    for topic, text in changed.items():
        log(f"topic {topic}: {text}; the new snapshot takes it as it is")
    missing = [topic for topic in needed if topic not in found]
    job.create_topics({topic: needed[topic] for topic in missing})
    if missing:
        found = {**found, **describe_made(admin, missing, at)}
        if changed := differences({}, found, missing, plan):
            raise changed_error(changed, plan, begun=ledger.begun())
    _learn(job, cfg.ledger_topic, plan, ledger.topics, found, needed, log)


def _learn(
    job: JobLedger,
    ledger_topic: str,
    plan: BatchPlan,
    known: Mapping[str, KnownTopic],
    found: Mapping[str, TopicInfo],
    needed: Mapping[str, object],
    log: Log,
) -> None:
    """Write down the topics that are new or no longer what they were, and forget those that nobody needs or has."""
    records = []
    for topic in needed:
        now = KnownTopic(found[topic].partitions, found[topic].id, plan.epoch)
        if topic not in known or known[topic].difference(found[topic]):
            records.append(topic_record(ledger_topic, topic, now))
    for topic in known.keys() - needed.keys():
        if text := known[topic].difference(found.get(topic)):
            log(f"topic {topic}, of a table that is gone or no longer captured: {text}")
            now_is = found.get(topic)
            after = None if now_is is None else KnownTopic(now_is.partitions, now_is.id, known[topic].epoch)
            records.append(topic_record(ledger_topic, topic, after))
    if records:
        job.commit(records)


def is_elsewhere(cfg: ConnectorConfig) -> bool:
    """Return whether tables may have topics whose names do not begin with the prefix: by transforms or dispatchers."""
    return bool(cfg.families.transforms.routers) or (cfg.ticdc and bool(cfg[F.DISPATCHERS]))


def topic_partitions(cfg: ConnectorConfig, tables: Iterable[TableId] = ()) -> dict[str, int]:
    """Return the partition count of every topic of the prefix, and of those elsewhere to which tables go.

    Args:
        cfg: The connector's configuration.
        tables: The captured tables; only looked at when their topics may be elsewhere.
    """
    prefix = cfg[F.TOPIC_PREFIX] + "."
    counts = all_partition_counts(make_admin(cfg.kafka_settings()))
    others = set(_topics(cfg, tables)) if is_elsewhere(cfg) else set()
    return {topic: count for topic, count in counts.items() if topic.startswith(prefix) or topic in others}


def _topics(cfg: ConnectorConfig, tables: Iterable[TableId]) -> Iterator[str]:
    for table in filter(cfg.captures, tables):
        with suppress(ConfigError):  # no dispatcher fits it, which is told when it is read or written
            yield wiring.topic_of(cfg, table)
