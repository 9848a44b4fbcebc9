"""Run snapshots and drains of one topic.prefix as the operators do, in this process or on Spark."""

from __future__ import annotations

import functools
import subprocess
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import prepare_drain
from airflow_provider_mysql_cdc.cdc.operate.prepare_job import PreparedJob
from airflow_provider_mysql_cdc.cdc.operate.prepare_snapshot import prepare_snapshot
from airflow_provider_mysql_cdc.cdc.operate.settle import JobOutcome, settle_offset
from airflow_provider_mysql_cdc.cdc.operate.snapshot_job import run_snapshot
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.sink.topics import all_partition_counts
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_records import read_verify_result
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import VerifyRequest, VerifyResult
from airflow_provider_mysql_cdc.cdc.verify.verify_driver import run_verify
from pipelinelib.stand_ins import MemoryOffsetStore, ThreadRunner
from pipelinelib.submit import start_process, submit
from pipelinelib.topics import READER


@dataclass
class Pipeline:
    """Run jobs of one topic.prefix as the operators do, in this process or on Spark."""

    properties: dict[str, str]
    store: OffsetStore = field(default_factory=MemoryOffsetStore)
    slots: int = 3
    owner: str = "test/run/task/-1"
    lines: list[str] = field(default_factory=list)

    @property
    def cfg(self) -> ConnectorConfig:
        """Return the checked configuration of the properties."""
        return _checked(tuple(self.properties.items()))

    def log(self, line: str) -> None:
        """Keep a line that a job or an operator's part has logged."""
        self.lines.append(line)

    def snapshot(self, **kwargs: Any) -> JobOutcome:
        """Prepare, run and settle a snapshot in this process."""
        job = prepare_snapshot(self.cfg, self.store, self.owner, self.log, **kwargs)
        if job is None:  # an interrupted one had read everything, and is finished
            return settle_offset(self.cfg, self.store, self.log)
        {"drain": run_drain, "snapshot": run_snapshot}[job.spec.mode](job.spec, ThreadRunner(self.slots), self.log)
        return settle_offset(self.cfg, self.store, self.log)

    def drain(self) -> JobOutcome | None:
        """Prepare, run and settle a drain in this process; None when there was nothing to drain."""
        job = prepare_drain(self.cfg, self.store, self.owner, self.log)
        if job is None:
            return None
        run_drain(job.spec, ThreadRunner(self.slots), self.log)
        return settle_offset(self.cfg, self.store, self.log)

    def verify(self, request: VerifyRequest | None = None) -> VerifyResult:
        """Drain and verify in this process, and settle; return what was found."""
        spec = self.verify_spec(request)
        run_verify(spec, ThreadRunner(self.slots), self.log)
        return self.verify_result(spec.run)

    def verify_spec(self, request: VerifyRequest | None = None) -> JobSpec:
        """Prepare a verification."""
        job = prepare_drain(self.cfg, self.store, self.owner, self.log, even_empty=True)
        assert job is not None, self.lines
        options = (request or VerifyRequest()).to_json()
        return replace(job.spec, mode="verify", options=options, run=str(uuid.uuid4()))

    def verify_result(self, run: str) -> VerifyResult:
        """Settle a verification, and return what it found."""
        settle_offset(self.cfg, self.store, self.log)
        with kafka_clients.ledger(self.cfg) as ledger:
            state = ledger.read()
        result = None if state is None else read_verify_result(state, run)
        assert result is not None, self.lines
        return result

    def snapshot_is_refused(self) -> bool:
        """Return whether preparing a snapshot finds that none is needed."""
        return prepare_snapshot(self.cfg, self.store, self.owner, self.log) is None

    def prepare(self, kind: str) -> PreparedJob:
        """Prepare a job of a kind, ``drain`` or ``snapshot``."""
        prepare = prepare_drain if kind == "drain" else prepare_snapshot
        job = prepare(self.cfg, self.store, self.owner, self.log)
        assert job is not None, self.lines
        return job

    def on_spark(
        self, kind: str, tmp_path: Path, *, fault: dict[str, Any] | None = None, cores: int = 3, run_for_s: float = 0
    ) -> subprocess.CompletedProcess[str]:
        """Prepare a job, submit it with spark-submit, and return the finished process (settle is up to the caller)."""
        job = self.prepare(kind)
        return submit(replace(job.spec, run_for_s=run_for_s), tmp_path, fault=fault, cores=cores)

    def in_process(
        self, kind: str, tmp_path: Path, *, fault: dict[str, Any] | None = None, run_for_s: float = 0
    ) -> subprocess.CompletedProcess[str]:
        """Prepare a job, run it without Spark in a process of its own, and return that (settle is up to the caller)."""
        spec = replace(self.prepare(kind).spec, run_for_s=run_for_s)
        child = start_process(spec, tmp_path, fault=fault, slots=self.slots)
        output, _ = child.communicate(timeout=300)
        return subprocess.CompletedProcess(child.args, child.returncode, output, "")

    def settle(self) -> JobOutcome:
        """Settle the last job: move the stored offset to what Kafka holds."""
        return settle_offset(self.cfg, self.store, self.log)

    def topics(self) -> dict[str, int]:
        """Return the topics of this prefix and their numbers of partitions."""
        prefix = self.properties["topic.prefix"]
        counts = all_partition_counts(make_admin(self.cfg.kafka_settings()))
        return {t: n for t, n in counts.items() if t.startswith(prefix + ".")}

    def read(self, topic: str) -> list[TopicRecord]:
        """Return all committed records of a topic."""
        return READER.read(self.cfg.kafka_settings(), topic)

    def table_topic(self, table: str) -> str:
        """Return the topic of a table of the only database."""
        return f"{self.properties['topic.prefix']}.{self.properties['database.include.list']}.{table}"

    def records(self, table: str) -> list[TopicRecord]:
        """Return all committed records of a table."""
        return self.read(self.table_topic(table))


@functools.lru_cache(maxsize=64)
def _checked(properties: tuple[tuple[str, str], ...]) -> ConnectorConfig:
    """Return the configuration of properties, which a test asks for again and again."""
    return ConnectorConfig.from_properties(dict(properties))
