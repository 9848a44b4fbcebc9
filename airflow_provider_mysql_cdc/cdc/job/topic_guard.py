"""Check and create the topics that a batch writes: their partition counts, and that they are the same as before.

Those that get records are checked again before the records become visible (``drain.written_topics``) and when the batch
is complete: a producer writes into a topic that was deleted and created again without an error, and what it had written
before is gone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import OTHERS_LABEL, BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.topic_records import (
    RecordedTopic,
    topic_differences,
    topic_record,
    topics_changed_error,
)
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.formats import record_topics
from airflow_provider_mysql_cdc.cdc.job.checked_topics import CheckedTopics
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses
from airflow_provider_mysql_cdc.cdc.sink.topics import (
    TopicInfo,
    TopicSpec,
    all_partition_counts,
    describe_created,
    describe_topics,
)

_METADATA_DELAY_S = 1.0
"""Seconds after which every broker knows of a topic that was created in the batch."""


def prepare_topics(
    cfg: ConnectorConfig, job: JobLedger, plan: BatchPlan, ledger: LedgerState, state: SchemaState, log: Log
) -> None:
    """Create the topics that are missing, after checking that none of the existing ones was deleted or changed.

    A snapshot of which nothing is committed uses the topics as they are and logs what was changed, because it fills
    them again. Where the run has checked the same topics a moment ago, only those that get records are checked again.

    Args:
        cfg: The connector's configuration.
        job: The ledger.
        plan: The batch or snapshot, in force.
        ledger: The ledger.
        state: The tables at its start.
        log: Takes one line of text.

    Raises:
        TopicChangedError: A topic was deleted, created again or given more partitions.
        ConfigError: Two tables would share a topic.
        SinkError: Kafka refuses.
    """
    if job.checked_topics is not None and job.checked_topics.suffice(plan, state, ledger.topics):
        return
    checked_at = time.monotonic()
    # Behind a chain a topic is known once a record goes there; all that ever got one must still be the same.
    required = job.required_topics(state) if cfg.chain is None else _topics_behind_chain(cfg, ledger)
    admin, broker_list = make_admin(cfg.kafka_settings()), broker_addresses(cfg.kafka_settings())
    current = describe_topics(admin, {*required, *ledger.topics}, broker_list)
    changed = topic_differences(ledger.topics, current, required, plan)
    accepts_changes = plan.kind == "snapshot" and not ledger.has_commits()
    if changed and not accepts_changes:
        raise topics_changed_error(changed, plan, has_commits=ledger.has_commits())
    for topic, text in changed.items():
        log(f"topic {topic}: {text}; the new snapshot uses it as it is")
    missing = [topic for topic in required if topic not in current]
    job.create_topics({topic: required[topic] for topic in missing})
    if missing:
        current = {**current, **describe_created(admin, missing, broker_list)}
        if changed := topic_differences({}, current, missing, plan):
            raise topics_changed_error(changed, plan, has_commits=ledger.has_commits())
    topics = _record_topics(job, cfg.ledger_topic, plan, ledger.topics, current, required, log)
    job.checked_topics = CheckedTopics(state, topics, checked_at)


def _topics_behind_chain(cfg: ConnectorConfig, ledger: LedgerState) -> dict[str, TopicSpec]:
    return {topic: record_topics.table_topic_spec(cfg, topic) for topic in ledger.topics}


def require_written_topics(
    cfg: ConnectorConfig, ledger: LedgerState, plan: BatchPlan, counts: Mapping[str, int]
) -> None:
    """Check that the topics to which a batch has written are still the same, before it is reported as complete.

    Args:
        cfg: The connector's configuration.
        ledger: The ledger at the end of the batch, with the topics as they were when the batch found or created them.
        plan: The batch or snapshot.
        counts: Records by topic.

    Raises:
        TopicChangedError: A topic was deleted, created again or given more partitions.
        SinkError: Kafka refuses.
    """
    # With very many topics the counts name only the largest.
    everything = OTHERS_LABEL in counts or cfg.chain is not None
    written = ledger.topics if everything else {topic for topic, n in counts.items() if n}
    recorded = {topic: ledger.topics[topic] for topic in sorted(written) if topic in ledger.topics}
    require_same_topics(cfg, recorded, plan, has_commits=False)


def require_same_topics(
    cfg: ConnectorConfig, recorded: Mapping[str, RecordedTopic], plan: BatchPlan, *, has_commits: bool
) -> None:
    """Check that topics are as they were recorded.

    Args:
        cfg: The connector's configuration.
        recorded: The topics.
        plan: The batch or snapshot.
        has_commits: Whether a part of it is committed that a person who accepts the topics writes a second time.

    Raises:
        TopicChangedError: A topic was deleted, created again or given more partitions.
        SinkError: Kafka refuses.
    """
    if not recorded:
        return
    admin, broker_list = make_admin(cfg.kafka_settings()), broker_addresses(cfg.kafka_settings())
    current = describe_topics(admin, recorded, broker_list)
    if missing := recorded.keys() - current.keys():
        time.sleep(_METADATA_DELAY_S)
        current = {**current, **describe_topics(admin, missing, broker_list)}
    changed = {t: text for t, known in recorded.items() if (text := known.difference(current.get(t)))}
    if changed:
        raise topics_changed_error(changed, plan, has_commits=has_commits)


def _record_topics(
    job: JobLedger,
    ledger_topic: str,
    plan: BatchPlan,
    recorded: Mapping[str, RecordedTopic],
    current: Mapping[str, TopicInfo],
    required: Mapping[str, object],
    log: Log,
) -> dict[str, RecordedTopic]:
    """Record the topics that are new or changed, and delete the records of topics that are neither needed nor there."""
    updates: dict[str, RecordedTopic | None] = {}
    for topic in required:
        if topic not in recorded or recorded[topic].difference(current[topic]):
            updates[topic] = RecordedTopic(current[topic].partitions, current[topic].id, plan.epoch)
    for topic in recorded.keys() - required.keys():
        if text := recorded[topic].difference(current.get(topic)):
            log(f"topic {topic} of a table that was dropped or is no longer captured: {text}")
            info = current.get(topic)
            updates[topic] = None if info is None else RecordedTopic(info.partitions, info.id, recorded[topic].epoch)
    if updates:
        job.commit([topic_record(ledger_topic, topic, update) for topic, update in updates.items()])
    return {topic: known for topic, known in {**recorded, **updates}.items() if known is not None}


def has_routed_topics(cfg: ConnectorConfig) -> bool:
    """Return whether transforms or dispatchers may give tables topics whose names do not begin with the prefix."""
    return bool(cfg.families.transforms.routers) or (cfg.is_ticdc and bool(cfg[F.DISPATCHERS]))


def topic_partitions(cfg: ConnectorConfig, tables: Iterable[TableId] = ()) -> dict[str, int]:
    """Return the partition count of every topic of the prefix, and of other topics to which tables are routed.

    Args:
        cfg: The connector's configuration.
        tables: The captured tables; needed only when their topics may have other names.
    """
    prefix = cfg[F.TOPIC_PREFIX] + "."
    counts = all_partition_counts(make_admin(cfg.kafka_settings()))
    routed_topics = set(_table_topics(cfg, tables)) if has_routed_topics(cfg) else set()
    return {topic: count for topic, count in counts.items() if topic.startswith(prefix) or topic in routed_topics}


def _table_topics(cfg: ConnectorConfig, tables: Iterable[TableId]) -> Iterator[str]:
    for table in filter(cfg.captures, tables):
        with suppress(ConfigError):  # no dispatcher matches it, which is reported when it is read or written
            yield record_topics.table_topic_name(cfg, table)
