"""The workloads by this provider on Spark, from the start of spark-submit to its end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.commit.plan import OTHERS_LABEL
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import kernel
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import VerifyRequest
from benchlib import ours
from benchlib.ground import WorkloadRun
from benchlib.lag import LagReader
from benchlib.process_tree import Sample, usage
from benchlib.run import Run, invalid_reasons
from benchlib.servers import delete_topics_and_wait
from benchlib.source import changing_rows
from benchlib.spark_job import properties, run_job


def pipeline(entry: WorkloadRun, number: int, more: Mapping[str, str] | None = None) -> Pipeline:
    """Return a pipeline with the same settings as Debezium.

    Args:
        entry: What is measured.
        number: Which run.
        more: Further properties, which count more than the workload's.
    """
    ground, workload = entry.ground, entry.workload
    own = {
        **workload.properties(ground.registry),
        **workload.ours,
        **(more or {}),
        **ground.more,
    }
    return Pipeline(properties(ground.source, ground.kafka, entry.prefix(number)) | own)


def delete_topics(pipeline_used: Pipeline) -> None:
    """Delete the tables' topics, so that the disk holds the rows of one run at a time."""
    delete_topics_and_wait(pipeline_used.properties["kafka.bootstrap.servers"], list(pipeline_used.topics()))


class Jobs:
    """Run jobs of a pipeline and add up what they cost.

    Args:
        run_spec: Runs a job and returns what its processes used; None for spark-submit.
    """

    def __init__(
        self, entry: WorkloadRun, found: Pipeline, run_spec: Callable[[Any], list[Sample]] | None = None
    ) -> None:
        self._entry, self._pipeline, self._run_spec = entry, found, run_spec or self._submit
        self._samples: list[Sample] = []
        self._beside_s = 0.0
        self._counts: dict[str, int] = {}
        self._native_rows = 0

    def run_job(self, run_for_s: float = 0.0) -> None:
        """Plan, run and settle a job.

        Args:
            run_for_s: Seconds for which it goes on with batch after batch.
        """
        begun = time.process_time()
        job = self._pipeline.prepare("snapshot" if self._entry.workload.snapshot else "drain")
        spec: Any = replace(job.spec, run_for_s=run_for_s)
        self._beside_s += time.process_time() - begun
        self.add(self._run_spec(spec))
        begun = time.process_time()
        outcome = self._pipeline.settle()
        if not outcome.complete:
            raise RuntimeError(f"{self._entry.workload.name}: the job did not finish: {outcome.error}")
        for topic, count in outcome.counts.items():
            self._counts[topic] = self._counts.get(topic, 0) + count
        self._native_rows += outcome.tally.native.rows if outcome.tally else 0
        self._beside_s += time.process_time() - begun

    def add(self, samples: Iterable[Sample]) -> None:
        """Count what processes have used."""
        self._samples += samples

    def _submit(self, spec: Any) -> list[Sample]:
        ground, native, share = self._entry.ground, self._entry.side.native, self._entry.workload.share
        return run_job(spec, ground.cores, native=native, share=share)[0]

    def run(self, lag_s: Mapping[str, float] | None = None) -> Run:
        """Return what all jobs cost."""
        load, names = os.getloadavg()[0], self._entry.workload.names
        records = sum(self._counts.get(self._pipeline.table_topic(name), 0) for name in names)
        # Of more topics than an outcome names, the topic of schema changes is the largest: the others are tables.
        records += self._counts.get(OTHERS_LABEL, 0)
        side, workload = self._entry.side.name, self._entry.workload.name
        used = usage(self._samples)
        return Run(workload, side, records, used, self._beside_s, load, self._native_rows, lag_s or {})


class ProviderStream:
    """Drain or snapshot rows that are there."""

    def __init__(self, entry: WorkloadRun) -> None:
        self._entry = entry
        self._pipelines = [pipeline(entry, number) for number in range(entry.repeat)]

    def store_position(self) -> None:
        """Read structures and position, for each run."""
        for each in () if self._entry.workload.snapshot else self._pipelines:
            each.snapshot()

    def run(self, number: int) -> Run:
        """Run one job.

        Raises:
            RuntimeError: It failed, wrote another number of records than there are rows, or used the kernel although it
                was not to.
        """
        jobs = Jobs(self._entry, self._pipelines[number])
        jobs.run_job()
        found = jobs.run()
        delete_topics(self._pipelines[number])
        workload = self._entry.workload
        if found.records != workload.records:
            raise RuntimeError(f"{workload.name}: {found.records} records came, and not {workload.records}")
        if found.native_rows and not self._entry.side.native:
            raise RuntimeError(f"{workload.name}: {found.side} decoded {found.native_rows} rows with the native kernel")
        return found


class ProviderVerification:
    """Compare a table with the topic that a snapshot has filled; only the comparison is measured."""

    def __init__(self, entry: WorkloadRun) -> None:
        self._entry = entry
        self._request = VerifyRequest(checksums=entry.workload.kind == "verify")

    def store_position(self) -> None:
        """Do nothing: the snapshot before a run finds its position."""

    def run(self, number: int) -> Run:
        """Take a snapshot, and compare.

        Raises:
            RuntimeError: It failed, found a difference, or compared another number of rows.
        """
        entry, workload = self._entry, self._entry.workload
        found, native = pipeline(entry, number), entry.side.native
        run_job(found.prepare("snapshot").spec, entry.ground.cores, native=native)
        found.settle()
        begun = time.process_time()
        spec = found.verify_spec(self._request)
        beside_s = time.process_time() - begun
        samples, _ = run_job(spec, entry.ground.cores, native=native)
        begun, load = time.process_time(), os.getloadavg()[0]
        (verdict,) = found.verify_result(spec.run).tables
        beside_s += time.process_time() - begun
        delete_topics(found)
        if not verdict.equal or (verdict.rows, verdict.records) != (workload.rows, workload.rows):
            raise RuntimeError(f"{workload.name}: the verification found something: {verdict}")
        encoded = not verdict.by_checksums and native and kernel().module is not None
        used = usage(samples)
        return Run(workload.name, entry.side.name, verdict.rows, used, beside_s, load, verdict.rows if encoded else 0)


class ProviderIncremental:
    """Read a table by an ad-hoc snapshot while it is being changed."""

    def __init__(self, entry: WorkloadRun) -> None:
        self._entry = entry

    def store_position(self) -> None:
        """Do nothing: it is found right before a run."""

    def run(self, number: int) -> Run:
        """Run drains until the table is read.

        Raises:
            RuntimeError: It failed, or rows are missing.
        """
        entry, workload = self._entry, self._entry.workload
        more = ours.properties(entry.ground.source, entry.ground.kafka, entry.prefix(number), {})
        found = pipeline(entry, number, {**more, "table.include.list": workload.included})
        with changing_rows(entry.ground.source, workload.rows, ours.RATE):
            reading = ours.ProviderIncrementalSnapshot(found, entry.ground.cores, native=entry.side.native)
            measured = reading.measure()
        delete_topics(found)
        if wrong := invalid_reasons(measured, workload.rows, ours.RATE):
            raise RuntimeError(f"{workload.name}: {'; '.join(wrong)}")
        used, beside_s, load = measured.used, measured.beside_s, measured.load
        return Run(workload.name, entry.side.name, measured.wrote.reads, used, beside_s, load, reading.native_rows)


class ProviderSteadyLoad:
    """Follow a steady load; the whole time in one job."""

    def __init__(self, entry: WorkloadRun) -> None:
        self._entry = entry

    def store_position(self) -> None:
        """Do nothing: it is found right before a run, so that no run has to read what an earlier one has."""

    def run(self, number: int) -> Run:
        """Drain while the load runs, and return the costs and the lag of a reader.

        Raises:
            RuntimeError: It failed.
        """
        entry, found, workload = self._entry, pipeline(self._entry, number), self._entry.workload
        found.snapshot()
        jobs = Jobs(entry, found)
        with ExitStack() as both:
            both.enter_context(workload.steady_load(entry.ground.source))
            lag = both.enter_context(LagReader(entry.ground.kafka, found.table_topic(workload.names[0])))
            self.follow(jobs, workload.seconds)
        delete_topics(found)
        return jobs.run(lag.seconds())

    def follow(self, jobs: Jobs, seconds: float) -> None:
        """Run jobs."""
        jobs.run_job(run_for_s=seconds)


class ProviderEachMinute(ProviderSteadyLoad):
    """Follow a steady load, with a drain every minute."""

    def follow(self, jobs: Jobs, seconds: float) -> None:
        """Run a job at the beginning of each minute; a load of less than five minutes has shorter ones."""
        begun, every = time.monotonic(), min(60.0, seconds / 5)
        for number in range(round(seconds / every)):
            time.sleep(max(0.0, begun + number * every - time.monotonic()))
            jobs.run_job()
