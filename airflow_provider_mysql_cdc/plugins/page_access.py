"""Who may see what: every route depends on Airflow's own user, and shows only pipelines of DAGs that the user may read.

The page is a mounted application, so Airflow's own filters, which look for the auth manager in the application of the
request, do not work here; the auth manager is asked as they ask it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails, DagAccessEntity, DagDetails
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.models import Connection
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException, Query, status

from airflow_provider_mysql_cdc.plugins.pipelines import DagCatalog, Pipeline, readable_pipelines

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
