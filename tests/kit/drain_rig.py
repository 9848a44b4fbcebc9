"""A writer of a drain over a stream, a clock and a Kafka that a test makes up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.binlog.position import LocalGtids
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain import committer as committer_module
from airflow_provider_mysql_cdc.cdc.drain import drain_writer as writer_module
from airflow_provider_mysql_cdc.cdc.drain.drain_writer_factory import create_writer
from airflow_provider_mysql_cdc.cdc.drain.table_route import RouteSettings
from airflow_provider_mysql_cdc.cdc.drain.table_routes import TableRoutes
from airflow_provider_mysql_cdc.cdc.drain.topic_shares import TopicShares
from airflow_provider_mysql_cdc.cdc.drain.writer_context import WriterContext
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from kit.memory_kafka import MemoryKafka, MemoryWriter

GIVEN = {
    "topic.prefix": "p",
    "database.hostname": "localhost",
    "database.user": "u",
    "database.password": "x",
    "kafka.bootstrap.servers": "localhost:9092",
    "heartbeat.interval.ms": "5000",
    "commit.interval.ms": "10000",
    "transaction.timeout.ms": "30000",
}
PASSED_OVER: Any = SimpleNamespace(type=-1)
START, END = BinlogOffset("b.000001", 4), BinlogOffset("b.000001", 9999)


def routes_of(
    cfg: ConnectorConfig,
    plan: BatchPlan,
    writer: int = 0,
    formats: RecordFormats | None = None,
    side_records: list[SideRecord] | None = None,
) -> TableRoutes:
    """Return the routes of a writer without signals, snapshot filters or windows."""
    shares = TopicShares(cfg, plan, writer, [] if side_records is None else side_records)
    return TableRoutes(RouteSettings.for_writer(cfg, formats), shares)


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


class Rig:
    """One writer over a stream that a test makes up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, resume: ResumePosition | None = None, **given: str) -> None:
        self.clock, self.kafka = Clock(), MemoryKafka()
        monkeypatch.setattr(committer_module, "time", self.clock)
        self.sink = MemoryWriter(self.kafka, "p.0")
        self.sink.init()
        plan = BatchPlan(1, "drain", START, END, 1)
        marker = resume and Marker(1, 0, START, END, resume)
        cfg = ConnectorConfig.from_properties(GIVEN | given)
        context = WriterContext(cfg, plan, 0, SchemaState(), self.sink, {}, resume_marker=marker)  # type: ignore[arg-type]
        self.writer = create_writer(context)
        self._monkeypatch = monkeypatch

    def run(self, events: Callable[[Callable[[], None]], Iterator[Any]]) -> None:
        def open_stream(*_: Any, on_wait: Callable[[], None], **__: Any) -> Any:
            made = {"close": lambda: None, "server_version": "9.7.4", "reached": None, "local_gtids": LocalGtids()}
            return SimpleNamespace(events=lambda *_: events(on_wait), **made)

        self._monkeypatch.setattr(writer_module, "open_stream", open_stream)
        self.writer.run()

    def markers(self) -> list[dict[str, Any]]:
        return [json.loads(r.value or b"")["reached"] for r in self.kafka.committed("ledger.p")]
