"""The workloads by an earlier commit of this provider, from the start of spark-submit to its end."""

from __future__ import annotations

import os

from benchlib.earlier_commit import COMMIT, Worker, export_commit
from benchlib.ground import WorkloadRun
from benchlib.process_tree import Usage
from benchlib.run import Run
from benchlib.source import DATABASE
from benchlib.spark_job import properties
from benchlib.topics import delete_topics_and_wait


class EarlierCommit:
    """Drain or snapshot rows that are there.

    Args:
        entry: What is measured.
    """

    def __init__(self, entry: WorkloadRun) -> None:
        self._entry = entry
        self._files = export_commit(entry.folder.parent.parent / f"tree-{COMMIT}")
        self._workers: list[Worker] = []

    def store_position(self) -> None:
        """Read structures and position, for each run."""
        self._workers = [self._worker(number) for number in range(self._entry.repeat)]

    def run(self, number: int) -> Run:
        """Run one job.

        Args:
            number: Which run.

        Raises:
            RuntimeError: It failed, or wrote another number of records than there are rows.
        """
        entry, workload = self._entry, self._entry.workload
        result = self._workers[number].run(entry.ground.cores)
        counts, load = result["counts"], os.getloadavg()[0]
        topics = [f"{entry.prefix(number)}.{DATABASE}.{name}" for name in workload.names]
        # That commit counts a snapshot's rows by chunk; each row is a record.
        records = sum(counts.values() if workload.snapshot else (counts.get(topic, 0) for topic in topics))
        delete_topics_and_wait(entry.ground.kafka, topics)
        if records != workload.rows:
            raise RuntimeError(f"{workload.name}: {workload.rows} rows were written, and {records} records came")
        return Run(workload.name, entry.side.name, records, Usage(**result["used"]), float(result["beside_s"]), load)

    def _worker(self, number: int) -> Worker:
        entry, workload, ground = self._entry, self._entry.workload, self._entry.ground
        settings = properties(ground.source, ground.kafka, entry.prefix(number)) | workload.properties(ground.registry)
        return Worker(self._files, entry.folder, "snapshot" if workload.snapshot else "drain", settings)
