"""What a job ends with before its first batch, in a real ledger: told to the run that submitted it, and to no other."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

from kit.sql import execute
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc.errors import (
    CdcError,
    RunInProgressError,
    SourceConnectionError,
)
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.job.job_error import reporting_job_error
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.operate.settle import JobOutcome, settle_offset
from airflow_provider_mysql_cdc.spark.errors import named_error


def carry_out(pipeline: Pipeline, spec: JobSpec) -> JobOutcome:
    """Run a job as a driver does, and return what its operator learns."""
    with contextlib.suppress(CdcError), reporting_job_error(spec, pipeline.log, named_error):
        run_drain(spec, ThreadRunner(2), pipeline.log)
    return settle_offset(pipeline.cfg, pipeline.store, pipeline.log, spec)


def test_errors_before_and_after_a_batch_reach_the_run_that_submitted_it(
    properties: dict[str, str], root: Any, database: str
) -> None:
    pipeline = Pipeline(properties, slots=1)
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)", f"INSERT INTO `{database}`.t VALUES (1)")
    assert pipeline.snapshot().complete
    execute(root, f"INSERT INTO `{database}`.t VALUES (2)")
    spec = pipeline.prepare("drain").spec

    # The source cannot be reached: the job has no lock, no connection and no transactional id.
    nowhere = replace(spec, properties={**spec.properties, "database.port": "1"})
    outcome = carry_out(pipeline, nowhere)
    assert not outcome.complete and type(outcome.error) is SourceConnectionError and outcome.error.can_retry

    # Another run is running; its own transactional ids are left alone.
    again = replace(pipeline.prepare("drain").spec, owner="another/run/task/-1")
    with run_lock.hold_run_lock(pipeline.cfg.connection_settings(), pipeline.cfg.topic_prefix, "the/one/at/work"):
        outcome = carry_out(pipeline, again)
    assert not outcome.complete and type(outcome.error) is RunInProgressError

    # A submission that dies without a word is not told the words of the one before it.
    silent = pipeline.prepare("drain").spec
    assert silent.id != again.id and settle_offset(pipeline.cfg, pipeline.store, pipeline.log, silent).error is None

    outcome = carry_out(pipeline, silent)
    assert outcome.complete and outcome.error is None
    assert len(pipeline.records("t")) == 2
