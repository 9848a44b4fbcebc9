"""Who may see and do what: each route depends on Airflow's own user, and so does each button.

Who may see what: every route depends on Airflow's own user, and shows only pipelines of DAGs that the user may read.

The page is a mounted application, so Airflow's own filters, which look for the auth manager in the application of the
request, do not work here; the auth manager is asked as they ask it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails, DagAccessEntity, DagDetails
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.models import Connection
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException, Query, status

from airflow_provider_mysql_cdc.plugins.pipeline_runs import ACTIVE_STATES
from airflow_provider_mysql_cdc.plugins.pipelines import (
    CONN_ARGUMENT,
    DagCatalog,
    Pipeline,
    PipelineTask,
    readable_pipelines,
)

CATALOG = DagCatalog()
"""What this process has read of the stored DAGs."""
FORBIDDEN = "No DAG that you may read uses this connection."
NOT_CHECKED = "A check says what its connections are, and you may not read all of these."

may_read_dags = requires_access_dag(method="GET")


def visible_pipelines(
    user: GetUserDep, session: SessionDep, _: Annotated[None, Depends(may_read_dags)]
) -> dict[str, Pipeline]:
    """Return the pipelines that the user may see, by connection.

    Args:
        user: Airflow's user; without one the answer is 401.
        session: Of the metadata database.
    """
    dag_ids = get_auth_manager().get_authorized_dag_ids(user=user, method="GET", session=session)

    def with_runs(chosen: Sequence[str]) -> list[str]:
        rights = dag_rights(user, session, chosen)
        return [dag_id for dag_id in chosen if rights[dag_id]["runs"]]

    found = readable_pipelines(CATALOG, session, dag_ids, with_runs)
    # A request that waits for a source must not hold one of the few connections that Airflow's own API needs.
    session.rollback()
    return found


ConnId = Annotated[str, Query(max_length=250)]
"""A parameter, not a part of the path: ids of connections may have slashes and dots (Airflow's own rule)."""
VisiblePipelines = Annotated[dict[str, Pipeline], Depends(visible_pipelines)]


def visible_pipeline(conn_id: ConnId, pipelines: VisiblePipelines) -> Pipeline:
    """Return one pipeline; one that the user may not see and one that does not exist get the same answer.

    Args:
        conn_id: Its connection.
        pipelines: Those that the user may see.

    Raises:
        HTTPException: 403.
    """
    if (pipeline := pipelines.get(conn_id)) is None:
        raise HTTPException(status.HTTP_403_FORBIDDEN, FORBIDDEN)
    return pipeline


VisiblePipeline = Annotated[Pipeline, Depends(visible_pipeline)]


def may_check(pipeline: Pipeline, user: Any, session: Any) -> bool:
    """Return whether a user may have the servers of a pipeline checked: who may read all its connections.

    Args:
        pipeline: The pipeline.
        user: Airflow's user.
        session: Of the metadata database.
    """
    ids, manager = pipeline.main_task.conn_ids, get_auth_manager()
    teams = Connection.get_conn_id_to_team_name_mapping(ids, session=session)
    wanted = (ConnectionDetails(conn_id=conn_id, team_name=teams.get(conn_id)) for conn_id in ids)
    return all(manager.is_authorized_connection(method="GET", details=details, user=user) for details in wanted)


def checked_pipeline(pipeline: VisiblePipeline, user: GetUserDep, session: SessionDep) -> Pipeline:
    """Return a pipeline whose servers the user may have checked.

    Args:
        pipeline: The pipeline.
        user: Airflow's user.
        session: Of the metadata database.

    Raises:
        HTTPException: 403.
    """
    if not may_check(pipeline, user, session):
        raise HTTPException(status.HTTP_403_FORBIDDEN, NOT_CHECKED)
    session.rollback()  # a pool of connections is not held while servers are asked
    return pipeline


CheckedPipeline = Annotated[Pipeline, Depends(checked_pipeline)]


def working_dags(pipeline: Pipeline, session: Any) -> tuple[str, ...]:
    """Return all DAGs that work for a pipeline, also those that are hidden from the user.

    What jobs have ended with stands in the ledger, whichever DAG's log it comes from.

    Args:
        pipeline: The pipeline, as the user may see it.
        session: Of the metadata database.
    """
    return readable_pipelines(CATALOG, session, None).get(pipeline.conn_id, pipeline).dag_ids


def dag_rights(user: Any, session: Any, dag_ids: Iterable[str]) -> dict[str, dict[str, bool]]:
    """Return what the user may do with DAGs, by id: read runs and logs, start and end runs, and pause the DAG.

    Airflow's own API decides when a button is pressed; this only decides which buttons are shown.

    Args:
        user: Airflow's user.
        session: Of the metadata database.
        dag_ids: The DAGs.
    """
    manager, ids = get_auth_manager(), list(dag_ids)
    teams = DagModel.get_dag_id_to_team_name_mapping(ids, session=session)

    def may(dag_id: str, method: str, entity: Any = None) -> bool:
        details = DagDetails(id=dag_id, team_name=teams.get(dag_id))
        return bool(manager.is_authorized_dag(method=method, access_entity=entity, details=details, user=user))

    return {
        dag_id: {
            "runs": may(dag_id, "GET", DagAccessEntity.RUN),
            "logs": may(dag_id, "GET", DagAccessEntity.TASK_LOGS),
            "trigger": may(dag_id, "POST", DagAccessEntity.RUN),
            "end": may(dag_id, "PUT", DagAccessEntity.RUN),
            "pause": may(dag_id, "PUT"),
        }
        for dag_id in ids
    }


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


_BATCH = ("error", "owner")
_ERROR = ("where", "why", "owner")
_LISTS: Mapping[str, tuple[str, ...]] = {"errors": _ERROR, "scans": ("reason",), "requests": ("reason",)}
"""Lists of a report, and what of their entries may have statements, conditions or names of other DAGs."""


def without_log_texts(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report without such texts; what happened, and what to do, is left.

    Args:
        report: What was read of a pipeline.
    """
    found = dict(report)
    if isinstance(status := found.get("status"), Mapping) and isinstance(batch := status.get("batch"), Mapping):
        found["status"] = {**status, "batch": _without(batch, _BATCH)}
    if isinstance(inner := found.get("report"), Mapping):
        lists = {name: [_without(each, hidden) for each in inner.get(name) or ()] for name, hidden in _LISTS.items()}
        found["report"] = {**inner, **lists}
    return found


def without_examples(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report of a verification without values of rows, what its errors say, and whose run it was.

    Args:
        report: What was read of the last verification.
    """
    tables = {name: _without(table, ("examples", "unknown")) for name, table in report.get("tables", {}).items()}
    return {name: value for name, value in report.items() if name != "run"} | {"tables": tables}


def _without(entry: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in names}
