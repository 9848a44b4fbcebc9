"""What a verification asks the brokers about the topics that it compares: their bounds and their settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.drain.drain_driver import BatchContext
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topic_settings import CommittedEnds, committed_ends
from airflow_provider_mysql_cdc.cdc.sink.topics import end_offsets_of_topics, topic_config
from airflow_provider_mysql_cdc.cdc.verify.compare.judged_kinds import (
    TopicFacts,
    chooses_partition_by_key,
    deletes_old_records,
    shows_whole_rows,
)
from airflow_provider_mysql_cdc.cdc.verify.compare.suspects import Bounds
from airflow_provider_mysql_cdc.cdc.verify.history.key_history import HistoryRules
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import ComparedTable


@dataclass(frozen=True, slots=True)
class ComparedTopics:
    """Ask about the topics of the tables that are compared after a batch."""

    context: BatchContext

    def bounds(self, topics: Iterable[str]) -> dict[str, Bounds]:
        """Return first offset and end of topics' partitions; none of those that the stream has not written to yet."""
        topics = sorted(topics)
        admin = make_admin(self.context.cfg.kafka_settings())
        found = end_offsets_of_topics(admin, self._partitions(topics), stable=True)
        return {topic: found.get(topic, {}) for topic in topics}

    def committed(self, topics: Iterable[str]) -> CommittedEnds:
        """Return the bounds up to which records are committed, and which topics have hidden records before that."""
        return committed_ends(make_admin(self.context.cfg.kafka_settings()), self._partitions(sorted(topics)))

    def _partitions(self, topics: Iterable[str]) -> dict[str, range]:
        recorded = self.context.job.latest().topics
        return {topic: range(recorded[topic].partitions) for topic in topics if topic in recorded}

    def facts(self, topic: str, bounds: Bounds, *, has_other_keys: bool) -> TopicFacts:
        """Return what decides which events a topic still has."""
        lost = sum(first for first, _ in bounds.values())
        wanted = bool(bounds) and (lost or has_other_keys)
        config = topic_config(make_admin(self.context.cfg.kafka_settings()), topic) if wanted else None
        compacts = config is not None and "compact" in config.get("cleanup.policy", "")
        return TopicFacts(lost, config is None or deletes_old_records(config), has_other_keys and compacts)

    def history_rules(self, tables: Collection[ComparedTable]) -> dict[int, HistoryRules]:
        """Return what holds for the events of each table that have the row's key."""
        cfg, rules, named = self.context.cfg, dict[int, HistoryRules](), _named_by_key(tables)
        for compared in tables:
            told = compared.number in named and not cfg.is_ticdc
            tombstones, complete = cfg[F.TOMBSTONES_ON_DELETE] and told, self._is_complete(compared.topic)
            whole, together = shows_whole_rows(cfg, compared.table), chooses_partition_by_key(cfg, compared)
            rules[compared.number] = HistoryRules(bool(tombstones), complete, cfg.is_ticdc, whole, together)
        return rules

    def judged_tombstones(self, tables: Collection[ComparedTable]) -> frozenset[str]:
        """Return the topics whose keys may be those of several rows, in which tombstones are behind deletes."""
        if self.context.cfg.is_ticdc:
            return frozenset()
        named = _named_by_key(tables)
        told = {c.number for c in tables if c.own_key and (c.alone or (c.name_in_key and c.number in named))}
        topics = {c.topic for c in tables if c.identity.key_fields and c.number not in told}
        return frozenset(topic for topic in topics if self._is_complete(topic))

    def _is_complete(self, topic: str) -> bool:
        """Return whether no record between others is lost, as by compaction."""
        if topic not in self.context.job.latest().topics:
            return True
        config = topic_config(make_admin(self.context.cfg.kafka_settings()), topic)
        return config is not None and "compact" not in config.get("cleanup.policy", "")


def _named_by_key(tables: Collection[ComparedTable]) -> frozenset[int]:
    """Return the tables whose records say by their keys which table they are of: a tombstone says its key alone."""
    sharing, names = Counter(c.topic for c in tables), Counter((c.topic, c.name_in_key) for c in tables)
    return frozenset(
        c.number for c in tables if sharing[c.topic] == 1 or (c.name_in_key and names[c.topic, c.name_in_key] == 1)
    )
