"""A run that is triggered by hand starts the DAG's schedule; its log and its form say so."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_mysql_cdc.operators.dag_params import DEFAULT_ARGS, drain_params


@pytest.mark.parametrize(
    ("run_type", "interval", "said"),
    [("manual", "*/5 * * * *", True), ("scheduled", "*/5 * * * *", False), ("manual", None, False)],
)
def test_a_run_by_hand_of_a_scheduled_dag_says_that_the_schedule_runs(
    caplog: pytest.LogCaptureFixture, run_type: str, interval: str | None, said: bool
) -> None:
    from airflow.utils.types import DagRunType

    dag = SimpleNamespace(dag_id="mysql_cdc_drain", params={}, schedule=interval)
    context: dict[str, Any] = {"dag": dag, "params": {}, "dag_run": SimpleNamespace(run_type=DagRunType(run_type))}
    with caplog.at_level(logging.WARNING):
        DEFAULT_ARGS["pre_execute"](context)
    assert ("mysql_cdc_drain is not paused, so it also runs on its schedule (*/5 * * * *)" in caplog.text) == said


def test_the_form_of_a_scheduled_drain_says_that_triggering_may_start_the_schedule() -> None:
    note = "if triggering it unpauses it, the schedule starts too"
    described = [drain_params(interval)["run_for_minutes"].dump()["description"] for interval in ("*/5 * * * *", None)]
    assert note in described[0] and note not in described[1]
