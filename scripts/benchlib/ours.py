"""Snapshots by this provider beside the stream, on Spark, with the steps of MySqlCdcIncrementalSnapshotOperator."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kit import Pipeline, submit_command, submit_env

from airflow_provider_mysql_cdc.cdc.incremental.status import SnapshotStatus, status_in
from airflow_provider_mysql_cdc.cdc.operate.around_job import prepare_drain
from airflow_provider_mysql_cdc.cdc.operate.asked_snapshot import look_at_ledger, over, snapshot_data
from airflow_provider_mysql_cdc.cdc.operate.send_signal import send_signal
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import read_topic_committed
from benchlib.figures import Measured, written
from benchlib.process_tree import Sample, usage, watch
from benchlib.source import DATABASE, TABLE, Source, signal_table


def properties(source: Source, kafka: str, prefix: str, more: Mapping[str, str]) -> dict[str, str]:
    """Return the connector's properties; what Debezium is given as well is the same.

    Args:
        source: The server.
        kafka: Bootstrap servers.
        prefix: ``topic.prefix``.
        more: Further properties.
    """
    return {
        "topic.prefix": prefix,
        "database.hostname": source.host,
        "database.port": str(source.port),
        "database.user": source.user,
        "database.password": source.password,
        "database.include.list": DATABASE,
        "kafka.bootstrap.servers": kafka,
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "1",
        "snapshot.mode": "no_data",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "signal.data.collection": f"{DATABASE}.{signal_table('ours')}",
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": f"{prefix}-notes",
        **more,
    }


@dataclass
class Ours:
    """Take an incremental snapshot with this provider.

    Args:
        pipeline: The stream.
        cores: Spark's ``local[N]``.
        samples: What the processes of all its jobs had used.
        beside_s: CPU seconds of this process for planning and looking, which an Airflow task does.
        jobs: Number of Spark jobs.
        status: How the snapshot stands.
    """

    pipeline: Pipeline
    cores: int
    samples: list[Sample] = field(default_factory=list)
    beside_s: float = 0.0
    jobs: int = 0
    status: SnapshotStatus | None = None

    def measure(self) -> Measured:
        """Let the stream find its place, ask for the snapshot, and measure until the ledger says that it is done."""
        self.pipeline.snapshot()
        self.run([f"{DATABASE}.{TABLE}"])
        load = os.getloadavg()[0]
        records = read_topic_committed(self.pipeline.cfg.kafka_settings(), self.pipeline.table_topic(TABLE))
        wrote = written((record.key, record.value) for record in records)
        return Measured("this provider", wrote, usage(self.samples), self.beside_s, load)

    def run(self, tables: Sequence[str]) -> None:
        """Ask for tables, and run drains until they are read.

        Args:
            tables: Names ``database.table``, or regular expressions.
        """
        cfg, store, begun = self.pipeline.cfg, self.pipeline.store, time.process_time()
        asked = send_signal(cfg, "execute-snapshot", snapshot_data(tables), channel="source")
        while True:
            job = prepare_drain(cfg, store, self.pipeline.owner, self.pipeline.log, even_empty=True)
            assert job is not None
            self.beside_s += time.process_time() - begun
            self._submit(job.spec)
            begun = time.process_time()
            self.pipeline.settle()
            self.status = status_in(look_at_ledger(cfg), asked)
            if over(self.status, asked):
                self.beside_s += time.process_time() - begun
                return

    def _submit(self, spec: object) -> None:
        """Run one Spark job as the operator does, and sample its processes."""
        with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("w+") as log:
            process = subprocess.Popen(
                submit_command(spec, Path(folder), cores=self.cores),
                env=submit_env(),
                cwd=folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            self.samples += watch(process.pid, lambda: process.poll() is not None)
            log.seek(0)
            lines = log.read()
        self.jobs += 1
        self.pipeline.lines += lines.splitlines()
        if process.returncode:
            raise RuntimeError(f"the Spark job ended with code {process.returncode}:\n{lines}")
