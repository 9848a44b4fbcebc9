"""Ad-hoc snapshots of a running stream by this provider, on Spark, with the steps of
MySqlCdcIncrementalSnapshotOperator.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import SnapshotStatus, snapshot_status
from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import prepare_drain
from airflow_provider_mysql_cdc.cdc.operate.send_signal import peek_ledger, send_signal, snapshot_done, snapshot_signal
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import read_topic_committed
from benchlib import spark_job
from benchlib.process_tree import Sample, usage
from benchlib.run import Measured, count_written
from benchlib.source import DATABASE, TABLE, MySqlSource, signal_table

RATE = 100.0
"""Changes a second during the snapshot, each in its own transaction."""


def properties(source: MySqlSource, kafka: str, prefix: str, more: Mapping[str, str]) -> dict[str, str]:
    """Return the connector's properties; those that Debezium has too are the same."""
    return {
        **spark_job.properties(source, kafka, prefix),
        "signal.data.collection": f"{DATABASE}.{signal_table('ours')}",
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": f"{prefix}-notes",
        **more,
    }


@dataclass
class ProviderIncrementalSnapshot:
    """Take an incremental snapshot with this provider.

    Args:
        samples: What the processes of all its jobs had used.
        beside_s: CPU seconds of this process for planning and looking, which an Airflow task does.
        jobs: Number of Spark jobs.
        native: Whether the native kernel decodes where it is installed.
        native_rows: Rows that it has decoded.
    """

    pipeline: Pipeline
    cores: int
    samples: list[Sample] = field(default_factory=list)
    beside_s: float = 0.0
    jobs: int = 0
    status: SnapshotStatus | None = None
    native: bool = True
    native_rows: int = 0

    def measure(self) -> Measured:
        """Let the stream store its start position, send the signal, and measure until the ledger says that it is
        done.
        """
        self.pipeline.snapshot()
        self.run([f"{DATABASE}.{TABLE}"])
        load = os.getloadavg()[0]
        records = read_topic_committed(self.pipeline.cfg.kafka_settings(), self.pipeline.table_topic(TABLE))
        wrote = count_written((record.key, record.value) for record in records)
        return Measured(spark_job.NAME, wrote, usage(self.samples), self.beside_s, load)

    def run(self, tables: Sequence[str]) -> None:
        """Ask for tables, and run drains until they are read."""
        cfg, store, begun = self.pipeline.cfg, self.pipeline.store, time.process_time()
        signal = snapshot_signal(cfg, tables, channel="source")
        send_signal(cfg, signal)
        while True:
            job = prepare_drain(cfg, store, self.pipeline.owner, self.pipeline.log, even_empty=True)
            assert job is not None
            self.beside_s += time.process_time() - begun
            self._submit(job.spec)
            begun = time.process_time()
            outcome = self.pipeline.settle()
            self.native_rows += outcome.tally.native.rows if outcome.tally else 0
            self.status = snapshot_status(peek_ledger(cfg), signal.id)
            if snapshot_done(self.status, signal.id):
                self.beside_s += time.process_time() - begun
                return

    def _submit(self, spec: object) -> None:
        """Run one Spark job as the operator does, and sample its processes."""
        samples, lines = spark_job.run_job(spec, self.cores, native=self.native)
        self.samples += samples
        self.jobs += 1
        self.pipeline.lines += lines.splitlines()
