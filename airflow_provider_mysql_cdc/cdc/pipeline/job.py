"""What every job's driver does in Kafka: fence older attempts, write the plan and the outcome, create topics."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.emit.topics import schema_change_topic, table_topics
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.pipeline import wiring
from airflow_provider_mysql_cdc.cdc.sink.api import Headers
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.ledger import PLANNER
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec, ensure_topics
from airflow_provider_mysql_cdc.cdc.state.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.state.plan import (
    CHUNK_PREFIX,
    OUTCOME_KEY,
    SNAPSHOT_KEY,
    BatchPlan,
    encode,
)

SideRecord = tuple[str, bytes | None, bytes | None]
VIEW_KEY = "view"


class JobLedger:
    """Write the driver's records of the ledger, each in a Kafka transaction of its own.

    Opening it takes over the driver's transactional id, so an older driver can no longer plan or report.

    Args:
        cfg: The connector's configuration.
    """

    def __init__(self, cfg: ConnectorConfig) -> None:
        self._cfg = cfg
        self._ledger = wiring.ledger(cfg)
        self._ledger.ensure()
        self._writer = wiring.record_writer(cfg, PLANNER)
        self._writer.init()

    def __enter__(self) -> JobLedger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._writer.close()

    def read(self) -> LedgerState:
        """Read the ledger as read_committed consumers see it."""
        return self._ledger.read() or LedgerState()

    def begin(self, plan: BatchPlan) -> LedgerState:
        """Put the plan in force: afterwards nobody but writers of this plan can add anything (``sink.takeover``).

        Args:
            plan: The plan of this job.

        Returns:
            The ledger with the plan in it.

        Raises:
            OffsetConflictError: The ledger holds another plan.
        """
        return self._ledger.begin(plan, self._writer)

    def put(self, key: str, value: dict[str, Any]) -> None:
        """Write one key in a transaction of its own."""
        self.commit([self.record(key, value)])

    def record(self, key: str, value: dict[str, Any]) -> SideRecord:
        """Return a ledger record, to be committed together with others."""
        return ledger_record(self._cfg, key, value)

    def commit(self, records: Sequence[SideRecord], headers: Mapping[str, Headers] = MappingProxyType({})) -> None:
        """Produce records, each to partition 0, and commit them as one transaction.

        Args:
            records: Topic, key, value of each.
            headers: Headers of the records of a topic, by topic.
        """
        for topic, key, value in records:
            self._writer.produce(topic, key, value, 0, headers.get(topic))
        self._writer.commit()

    def write_outcome(
        self, plan: BatchPlan, *, counts: dict[str, int] | None = None, error: CdcError | None = None
    ) -> None:
        """Write how the batch ended; the operator reads it in every deploy mode.

        Args:
            plan: The batch.
            counts: Records per topic, when the batch is complete.
            error: What went wrong otherwise.
        """
        outcome = {
            "epoch": plan.epoch,
            "kind": plan.kind,
            "ok": error is None,
            "error": None if error is None else error.to_json(),
            "counts": counts or {},
            "ts_ms": time.time_ns() // 1_000_000,
        }
        try:
            self.put(OUTCOME_KEY, outcome)
        except CdcError:
            if error is None:
                raise
            # The error itself goes to the caller; Kafka may be the very thing that is broken.

    def ensure_topics(self, state: SchemaState) -> None:
        """Create the topics of all captured tables and of schema changes and history, where they are missing.

        Args:
            state: The tables.

        Raises:
            ConfigError: Two tables would share a topic, and no transform says so (FAULT-32).
        """
        cfg = self._cfg
        tables = [t for t in state.tables if cfg.captures(t)]
        named = table_topics(
            cfg[F.TOPIC_PREFIX], tables, reserved=wiring.reserved_topics(cfg), route=lambda t: cfg.route(t).topic
        )
        specs = {topic: wiring.table_topic(cfg) for topic in named.values()}
        replication = cfg[F.TOPIC_CREATION_REPLICATION_FACTOR]
        # SCH-05, SCH-06: one partition, kept for ever.
        specs[cfg.history_topic] = TopicSpec(
            1, replication, {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
        )
        for side in wiring.side_topics(cfg):
            if cfg[F.INCLUDE_SCHEMA_CHANGES] or side != schema_change_topic(cfg[F.TOPIC_PREFIX]):
                specs.setdefault(cfg.route(side).topic, TopicSpec(1, replication))
        ensure_topics(make_admin(cfg.kafka_settings()), specs)


def ledger_record(cfg: ConnectorConfig, key: str, value: dict[str, Any]) -> SideRecord:
    """Return a ledger record (topic, key, value)."""
    return cfg.ledger_topic, key.encode(), encode(value)


__all__ = ["CHUNK_PREFIX", "SNAPSHOT_KEY", "VIEW_KEY", "JobLedger", "ledger_record"]
