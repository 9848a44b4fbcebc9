"""One drain or snapshot by this provider on Spark, from the start of spark-submit to its end."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from kit import Pipeline

from benchlib.process_tree import usage
from benchlib.result import Run
from benchlib.source import Source
from benchlib.spark_job import NAME, properties, run_job
from benchlib.workload import Workload


def pipeline(source: Source, kafka: str, workload: Workload, prefix: str, more: Mapping[str, str]) -> Pipeline:
    """Return a pipeline with the settings that Debezium is given as well.

    Args:
        source: The server.
        kafka: Bootstrap servers.
        workload: The workload.
        prefix: ``topic.prefix``.
        more: Further properties.
    """
    own = {
        "table.include.list": workload.table,
        "snapshot.mode": "initial_only" if workload.snapshot else "no_data",
        **workload.ours,
        **more,
    }
    return Pipeline(properties(source, kafka, prefix, schemas=workload.schemas) | own)


def measure(found: Pipeline, workload: Workload, cores: int) -> Run:
    """Run one job on Spark and return what it used.

    Args:
        found: The pipeline; of a drain it has found its place before.
        workload: The workload.
        cores: Spark's ``local[N]``.
    """
    begun = time.process_time()
    job = found.prepare("snapshot" if workload.snapshot else "drain")
    used = usage(run_job(job.spec, cores)[0])
    outcome = found.settle()
    records = outcome.counts.get(found.table_topic(workload.shape.name), 0)
    beside = time.process_time() - begun
    return Run(workload.name, NAME, records, used, beside_s=beside, load=os.getloadavg()[0])
