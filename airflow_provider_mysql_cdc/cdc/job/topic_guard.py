"""Check and create the topics that a batch writes, and check that ledger and schema history are the recorded,
durable ones.

Topics of tables keep their partition counts, their ids and their ends. Those that get records are checked again before
the records become visible (``drain.committer``) and when the batch is complete: a producer writes into a topic that was
deleted and created again without an error, and what it had written before is gone.

The schema history is told by Kafka's topic id in the ledger. One that was deleted and created again, by hand or by a
broker that creates topics automatically, is empty, so every table is unknown. Rows of unknown tables stop a drain, or
are left out where the configuration says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from typing import Any

from confluent_kafka.admin import AdminClient

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import ENDS_KEY, HISTORY_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import MISSING_TIMEOUT_S, LedgerState
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
from airflow_provider_mysql_cdc.cdc.errors import (
    PREVENT_LOSS,
    CdcError,
    ConfigError,
    RecordsLostError,
    SchemaError,
    SinkError,
)
from airflow_provider_mysql_cdc.cdc.formats import record_topics
from airflow_provider_mysql_cdc.cdc.job.checked_topics import CheckedTopics
from airflow_provider_mysql_cdc.cdc.job.job_ledger import MAX_ENDS, JobLedger
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.history import require_own_history
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses
from airflow_provider_mysql_cdc.cdc.sink.topic_settings import (
    HISTORY_RULE,
    LEDGER_RULE,
    durability_warnings,
    require_settings,
)
from airflow_provider_mysql_cdc.cdc.sink.topics import (
    TopicInfo,
    TopicSpec,
    all_partition_counts,
    broker_ids,
    describe_created,
    describe_topics,
    end_offsets,
    last_offsets_of_topics,
)

_MAX_LISTED = 10
_METADATA_DELAY_S, _METADATA_TRIES = 1.0, 5
"""Seconds between, and number of, further questions about a topic that the stream has written to."""


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
        RecordsLostError: A topic ends before where an earlier batch has left its end.
        ConfigError: Two tables would share a topic.
        SinkError: Kafka refuses.
    """
    if job.checked_topics is not None and job.checked_topics.suffice(plan, state, ledger.topics):
        return
    checked_at = time.monotonic()
    # Behind a chain a topic is known once a record goes there; all that ever got one must still be the same.
    required = job.required_topics(state) if cfg.chain is None else _topics_behind_chain(cfg, ledger)
    admin, broker_list = make_admin(cfg.kafka_settings()), broker_addresses(cfg.kafka_settings())
    expected = required.keys() & ledger.topics.keys()
    current = _describe_recorded(admin, {*required, *ledger.topics}, expected, broker_list)
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
    if not accepts_changes:
        _require_kept_ends(admin, ledger, current)
    topics = _record_topics(job, cfg.ledger_topic, plan, ledger.topics, current, required, log)
    job.checked_topics = CheckedTopics(state, topics, checked_at)


def note_topic_ends(cfg: ConnectorConfig, job: JobLedger, ledger: LedgerState, counts: Mapping[str, int]) -> None:
    """Note where the topics end to which a batch has written; the outcome records it.

    Args:
        cfg: The connector's configuration.
        job: The ledger.
        ledger: Its content at the end of the batch.
        counts: Records by topic.
    """
    if written := job.ends_due(counts):
        job.note_topic_ends(_topic_ends(cfg, ledger, written))


def _topic_ends(cfg: ConnectorConfig, ledger: LedgerState, counts: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """Return the id and the ends of the partitions of each topic."""
    written = sorted((topic for topic, n in counts.items() if n and topic in ledger.topics), key=counts.__getitem__)
    known = {t: ledger.topics[t] for t in written[-MAX_ENDS:] if ledger.topics[t].id is not None}
    admin = make_admin(cfg.kafka_settings())
    with suppress(CdcError):  # the batch is complete, and its ends are compared for safety only
        found = last_offsets_of_topics(admin, {topic: range(of.partitions) for topic, of in known.items()})
        return {t: {"id": known[t].id, "ends": [end for _, end in sorted(found[t].items())]} for t in known}
    return {}


def _require_kept_ends(admin: AdminClient, ledger: LedgerState, current: Mapping[str, TopicInfo]) -> None:
    """Check that topics end where earlier batches have left them, or later.

    A replica that is behind and becomes the leader all the same (unclean election) takes their ends back. A broker that
    has just restarted may say so for a moment.
    """
    ends = {
        topic: dict(enumerate(recorded["ends"]))
        for topic, recorded in ledger.other_records.get(ENDS_KEY, {}).get("topics", {}).items()
        if topic in current and current[topic].id == recorded["id"]
    }
    deadline = time.monotonic() + MISSING_TIMEOUT_S
    while True:
        found = last_offsets_of_topics(admin, {topic: sorted(of) for topic, of in ends.items()})
        lost = [
            f"{topic}, partition {p}: it ended at {end}, and ends at {found[topic][p]}"
            for topic, of in ends.items()
            for p, end in of.items()
            if found[topic][p] < end
        ]
        if not lost:
            return
        if time.monotonic() >= deadline:
            break
        time.sleep(_METADATA_DELAY_S)
    raise RecordsLostError(
        "topics have lost records that Kafka had confirmed",
        where="; ".join(lost[:_MAX_LISTED])
        + (f"; and {len(lost) - _MAX_LISTED} more" if len(lost) > _MAX_LISTED else ""),
        why="a broker that lacked them became the leader (unclean election, or a lost disk)",
        remedy=f"{PREVENT_LOSS}. Then run DAG mysql_cdc_reset_offset with offset=stored, which accepts the topics as "
        "they are, and mysql_cdc_verify with repair=yes, which writes again what is missing",
    )


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
    current = _describe_recorded(admin, recorded.keys(), recorded.keys(), broker_list)
    changed = {t: text for t, known in recorded.items() if (text := known.difference(current.get(t)))}
    if changed:
        raise topics_changed_error(changed, plan, has_commits=has_commits)


def _describe_recorded(
    admin: AdminClient, topics: Collection[str], expected: Set[str], broker_list: str
) -> dict[str, TopicInfo]:
    """Return the topics that exist; one that is expected and that a broker does not know is asked for again.

    The one that answers may be behind the others: it hung, or the topic was created a moment ago.
    """
    current = describe_topics(admin, topics, broker_list)
    for _ in range(_METADATA_TRIES):
        if not (missing := expected - current.keys()):
            break
        time.sleep(_METADATA_DELAY_S)
        current = {**current, **describe_topics(admin, missing, broker_list)}
    return current


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


def require_durable_topics(cfg: ConnectorConfig, log: Log) -> None:
    """Check the settings of both topics, if they exist, and warn about records that a broker failure would lose.

    Args:
        cfg: The connector's configuration.
        log: Receives one line of text.

    Raises:
        SinkError: A topic would lose records with its settings.
        ForeignLedgerError, SchemaError: A topic would lose records, and has those of others (TOPIC-08).
        SinkAuthorizationError: The account may not read the settings, and they are not declared as verified.
    """
    admin = make_admin(cfg.kafka_settings())
    rules = {cfg.ledger_topic: LEDGER_RULE, cfg.history_topic: HISTORY_RULE}
    owner_checks: dict[str, Callable[[], object]] = {
        cfg.ledger_topic: lambda: kafka_clients.ledger(cfg).peek(),
        cfg.history_topic: lambda: require_own_history(cfg, sample=True),
    }
    topics = describe_topics(admin, rules, broker_addresses(cfg.kafka_settings()))
    nodes = len(broker_ids(admin)) if topics else 0
    for topic, info in topics.items():
        try:
            config = require_settings(admin, topic, rules[topic], verified=cfg[F.TOPIC_SETTINGS_VERIFIED])
        except SinkError:
            owner_checks[topic]()  # the remedy would change the settings of others
            raise
        for line in durability_warnings(topic, info, config or {}, nodes):
            log(f"WARNING: {line}")
