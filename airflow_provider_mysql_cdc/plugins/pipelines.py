"""The pipelines of an Airflow: the connections that its DAGs work for, with who may see them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from airflow_provider_mysql_cdc.plugins.pipeline_runs import chosen_runs
from airflow_provider_mysql_cdc.plugins.serialized_tasks import CONN_ARGUMENT, PipelineTask, pipeline_tasks

log = logging.getLogger(__name__)

DAGS_IN_ONE_QUERY = 200
"""Stored DAGs that one query reads; each is some 15 kB."""
CONFIG_ORDER = ("drain", "snapshot", "adhoc_snapshot", "backfill", "verify", "signal", "reset_offset", "other")
"""Whose arguments describe a pipeline: the first kind that it has."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Describe a pipeline as a user may see it.

    Args:
        conn_id: Its connection of type ``mysql_cdc``.
        tasks: Tasks that work for it, of DAGs that the user may read.
    """

    conn_id: str
    tasks: tuple[PipelineTask, ...]

    @property
    def main_task(self) -> PipelineTask:
        """The task whose arguments describe the pipeline."""
        return min(self.tasks, key=lambda task: (CONFIG_ORDER.index(task.kind), task.chosen_by_run, task.dag_id))

    @property
    def forms(self) -> dict[str, tuple[str, str]]:
        """Field of the trigger form that chooses the connection, and the form's default, by DAG."""
        return {task.dag_id: (task.conn_field, task.form_conn_id) for task in self.tasks if task.conn_field}

    @property
    def dag_ids(self) -> tuple[str, ...]:
        """Its DAGs, in order."""
        return tuple(sorted({task.dag_id for task in self.tasks}))


def group_tasks(tasks: Iterable[PipelineTask]) -> dict[str, Pipeline]:
    """Return the pipelines of tasks by their connection, in order.

    Args:
        tasks: The tasks.
    """
    grouped: dict[str, list[PipelineTask]] = {}
    for task in tasks:
        grouped.setdefault(task.conn_id, []).append(task)
    return {conn_id: Pipeline(conn_id, tuple(grouped[conn_id])) for conn_id in sorted(grouped)}


@dataclass(slots=True)
class DagCatalog:
    """Remember what the stored DAGs say of pipelines; a DAG is read once for each of its versions.

    Args:
        reads: Number of stored DAGs that were read, for tests.
    """

    reads: int = 0
    _by_hash: dict[tuple[str, str], tuple[PipelineTask, ...]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def tasks(self, session: Any, dag_ids: Collection[str] | None) -> list[PipelineTask]:
        """Return the tasks that work for pipelines, of some DAGs.

        Args:
            session: Of the metadata database.
            dag_ids: The DAGs; None for all.
        """
        with self._lock:
            stored = {(dag_id, dag_hash): id_ for id_, dag_id, dag_hash in _latest(session)}
            self._by_hash = {key: tasks for key, tasks in self._by_hash.items() if key in stored}
            chosen = [key for key in stored if dag_ids is None or key[0] in dag_ids]
            missing = [key for key in chosen if key not in self._by_hash]
            for start in range(0, len(missing), DAGS_IN_ONE_QUERY):
                keys = missing[start : start + DAGS_IN_ONE_QUERY]
                self._by_hash |= dict.fromkeys(keys, ()) | self._read(session, [stored[key] for key in keys])
            return [task for key in chosen for task in self._by_hash[key]]

    def _read(self, session: Any, ids: list[Any]) -> dict[tuple[str, str], tuple[PipelineTask, ...]]:
        from airflow.models.serialized_dag import SerializedDagModel
        from sqlalchemy import Text, cast, or_, select

        # A database of any size has few DAGs of this provider; what does not name its argument stays where it is.
        data, packed = SerializedDagModel._data, SerializedDagModel._data_compressed
        names = or_(packed.isnot(None), cast(data, Text).contains(CONN_ARGUMENT))
        query = select(SerializedDagModel).where(SerializedDagModel.id.in_(ids), names)
        rows = list(session.scalars(query))
        self.reads += len(rows)
        return {(row.dag_id, row.dag_hash): _stored_tasks(row) for row in rows}


def _stored_tasks(row: Any) -> tuple[PipelineTask, ...]:
    """Return the tasks of a stored DAG; none of one that is stored in another shape, so that the others are shown."""
    try:
        return pipeline_tasks(row.dag_id, row.data or {})
    except (AttributeError, KeyError, TypeError, ValueError):
        log.exception("The DAG %s is not shown on the page MySQL CDC: it is stored in an unknown shape", row.dag_id)
        return ()


def _latest(session: Any) -> list[tuple[Any, str, str]]:
    """Return id, DAG and digest of the newest version of each DAG."""
    from airflow.models.dag_version import DagVersion
    from airflow.models.serialized_dag import SerializedDagModel
    from sqlalchemy import func, select

    newest = (
        select(DagVersion.dag_id, func.max(DagVersion.version_number).label("number"))
        .join(SerializedDagModel, SerializedDagModel.dag_version_id == DagVersion.id)
        .group_by(DagVersion.dag_id)
        .subquery()
    )
    query = (
        select(SerializedDagModel.id, SerializedDagModel.dag_id, SerializedDagModel.dag_hash)
        .join(DagVersion, SerializedDagModel.dag_version_id == DagVersion.id)
        .join(newest, (DagVersion.dag_id == newest.c.dag_id) & (DagVersion.version_number == newest.c.number))
    )
    return [(row[0], str(row[1]), str(row[2])) for row in session.execute(query)]


def readable_pipelines(
    catalog: DagCatalog,
    session: Any,
    dag_ids: Collection[str] | None,
    with_runs: Callable[[Sequence[str]], Collection[str]] = tuple,
) -> dict[str, Pipeline]:
    """Return the pipelines of DAGs, without tasks whose team may not use the connection.

    Args:
        catalog: What the stored DAGs say.
        session: Of the metadata database.
        dag_ids: The DAGs, those that a user may read; None for all.
        with_runs: Returns those of some DAGs whose runs the user may read.
    """
    tasks = catalog.tasks(session, dag_ids)
    tasks += _chosen_tasks(session, tasks, with_runs)
    if tasks and _multi_team():
        tasks = _without_other_teams(session, tasks)
    return group_tasks(tasks)


def _chosen_tasks(
    session: Any, tasks: Sequence[PipelineTask], with_runs: Callable[[Sequence[str]], Collection[str]]
) -> list[PipelineTask]:
    """Return tasks of the connections that recent runs have chosen in the forms of their DAGs.

    What such a run says beside it is that of the form's default. A run that has failed may have named no connection.
    """
    forms = {task.dag_id: task for task in tasks if task.conn_field}
    if not forms:
        return []
    fields = {dag_id: (task.conn_field, task.form_conn_id) for dag_id, task in forms.items()}
    readable = with_runs(sorted(fields))
    runs = chosen_runs(session, {dag_id: fields[dag_id] for dag_id in readable}, datetime.now(UTC))
    known = {(task.dag_id, task.conn_id) for task in tasks}
    chosen = [key for key, run in runs.items() if key not in known and run["state"] != "failed"]
    return [
        replace(task, conn_id=conn_id)
        for dag_id, conn_id in chosen
        for task in tasks
        if task.dag_id == dag_id and task.conn_id == forms[dag_id].conn_id
    ]


def _multi_team() -> bool:
    from airflow.configuration import conf

    return bool(conf.getboolean("core", "multi_team", fallback=False))


def _without_other_teams(session: Any, tasks: list[PipelineTask]) -> list[PipelineTask]:
    """Leave out tasks that name the connection of another team: the page would read it for them."""
    from airflow.models import Connection
    from airflow.models.dag import DagModel

    dag_teams = DagModel.get_dag_id_to_team_name_mapping(sorted({t.dag_id for t in tasks}), session=session)
    conn_ids = sorted({conn_id for task in tasks for conn_id in task.conn_ids})
    conn_teams = Connection.get_conn_id_to_team_name_mapping(conn_ids, session=session)

    def allowed(task: PipelineTask) -> bool:
        return all(conn_teams.get(conn_id) in (None, dag_teams.get(task.dag_id)) for conn_id in task.conn_ids)

    return [task for task in tasks if allowed(task)]
