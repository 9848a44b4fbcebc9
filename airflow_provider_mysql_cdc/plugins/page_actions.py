"""What the buttons of a pipeline's page do: calls of Airflow's own REST API, which decides who may do it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airflow_provider_mysql_cdc.plugins.pipeline_runs import ACTIVE_STATES
from airflow_provider_mysql_cdc.plugins.pipelines import Pipeline
from airflow_provider_mysql_cdc.plugins.serialized_tasks import CONN_ARGUMENT, PipelineTask

TRIGGERED = {"adhoc_snapshot": "tables", "verify": None, "snapshot": None, "drain": None, "signal": "signal"}
"""Kinds of tasks that a button starts, and the field of the trigger form that it fills in, without which there is no
button: a DAG of somebody's own may send another signal."""
PAUSED_KINDS = frozenset({"drain"})
"""Kinds whose DAG a button pauses: the stream stands still, and what is committed is kept."""

Rights = Mapping[str, Mapping[str, bool]]


def pipeline_actions(
    pipeline: Pipeline, dags: Mapping[str, Mapping[str, Any]], runs: Iterable[Mapping[str, Any]], rights: Rights
) -> dict[str, Any]:
    """Return what the user may do with a pipeline.

    Args:
        pipeline: The pipeline.
        dags: Its DAGs, by id; one that Airflow no longer has is left out.
        runs: Its newest runs.
        rights: What the user may do with each DAG (``page_access.dag_rights``).
    """
    tasks = [task for task in pipeline.tasks if task.dag_id in dags and not dags[task.dag_id]["stale"]]
    return {
        "trigger": [_trigger(task) for task in tasks if _has_button(task) and rights[task.dag_id]["trigger"]],
        "pause": [
            {"dag_id": dag_id, "paused": dags[dag_id]["paused"]}
            for dag_id in sorted({task.dag_id for task in tasks if task.kind in PAUSED_KINDS})
            if rights[dag_id]["pause"]
        ],
        "end": [
            {"dag_id": run["dag_id"], "run_id": run["run_id"]}
            for run in runs
            if run["state"] in ACTIVE_STATES and rights[run["dag_id"]]["end"]
        ],
    }


def _has_button(task: PipelineTask) -> bool:
    field = TRIGGERED.get(task.kind, "")
    return field is None or field in task.form


def _trigger(task: PipelineTask) -> dict[str, Any]:
    """Return how a run is started; a DAG whose form chooses the connection is told which one."""
    conf = {CONN_ARGUMENT: task.conn_id} if task.chosen_by_run else {}
    return {"kind": task.kind, "dag_id": task.dag_id, "conf": conf, "field": TRIGGERED[task.kind]}
