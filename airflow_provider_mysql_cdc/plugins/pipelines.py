"""The pipelines of an Airflow: those that its stored DAGs work for, with who may see them."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from airflow_provider_mysql_cdc.plugins.pipeline_runs import chosen_runs

CONN_ARGUMENT = "mysql_cdc_conn_id"
CONNS_ARGUMENT = "mysql_cdc_conn_ids"
OWN_ARGUMENT = "stream_arguments"
REGISTRY_ARGUMENT = "schema_registry_conn_id"
TEMPLATE_MARK = "{{"
KINDS = {
    "MySqlCdcDrainOperator": "drain",
    "MySqlCdcFleetDrainOperator": "drain",
    "MySqlCdcSnapshotOperator": "snapshot",
    "MySqlCdcIncrementalSnapshotOperator": "adhoc_snapshot",
    "MySqlCdcVerifyOperator": "verify",
    "MySqlCdcResetOffsetOperator": "reset_offset",
    "MySqlCdcSignalOperator": "signal",
}
"""What a task does, by its operator."""
MAPPED_KINDS = {"adhoc_snapshot": "backfill"}
"""What mapped tasks do, where it is something else."""


@dataclass(frozen=True, slots=True)
class PipelineTask:
    """Describe a task that works for a pipeline.

    Args:
        conn_id: The pipeline: its connection of type ``mysql_cdc``.
        dag_id: The task's DAG.
        task_id: The task.
        kind: What it does, from ``KINDS``; ``other`` for sensors and operators of others.
        chosen_by_run: Whether the DAG's trigger form chooses the connection, so that a run must name it.
        conn_field: The field of the form that chooses it; empty where none does.
        form_conn_id: The connection that the form has unless somebody chooses another.
        kafka_conn_id: Its connection of type ``kafka``; empty where the first connection names Kafka.
        registry_conn_id: Its connection of type ``schema_registry``; empty for none.
        offset_conn_id: Its connection of the offset database; empty for the state of an asset.
        offset_asset: Name of the asset whose state has the offset; empty where it has none.
        properties: Connector properties in the DAG file.
        variables: Whether an Airflow Variable has further ones.
        form: Fields of the DAG's trigger form.
    """

    conn_id: str
    dag_id: str
    task_id: str
    kind: str
    chosen_by_run: bool = False
    conn_field: str = ""
    form_conn_id: str = ""
    kafka_conn_id: str = ""
    registry_conn_id: str = ""
    offset_conn_id: str = ""
    offset_asset: str = ""
    properties: Mapping[str, Any] = field(default_factory=dict)
    variables: bool = False
    form: tuple[str, ...] = ()

    @property
    def conn_ids(self) -> tuple[str, ...]:
        """All connections that the task names."""
        named = (self.kafka_conn_id, self.registry_conn_id, self.offset_conn_id, self.properties.get(REGISTRY_ARGUMENT))
        return (self.conn_id, *(str(conn_id) for conn_id in named if conn_id))


def pipeline_tasks(dag_id: str, data: Mapping[str, Any]) -> tuple[PipelineTask, ...]:
    """Return the tasks of a DAG that work for pipelines, once for each pipeline.

    Args:
        dag_id: The DAG.
        data: The DAG as Airflow stores it (``SerializedDagModel.data``).
    """
    dag = data.get("dag", {})
    params = {name: _plain(param) for name, param in dag.get("params") or ()}
    tasks = (_plain(task) for task in dag.get("tasks") or ())
    return tuple(found for task in tasks for found in _tasks(dag_id, task, params))


def _tasks(dag_id: str, task: Mapping[str, Any], params: Mapping[str, Any]) -> Iterator[PipelineTask]:
    mapped = bool(task.get("_is_mapped"))
    arguments = {**task, **task["partial_kwargs"]} if mapped else task
    kind = KINDS.get(str(task.get("task_type")), "other")
    layers = _layers(arguments.get("properties"))
    named = [(text, conn_id) for text in _named(arguments) for conn_id in _values(text, params)]
    for text, conn_id in named:
        own = _own_arguments(arguments, conn_id)
        layered = (*layers, _layer(own.get("properties")))
        yield PipelineTask(
            conn_id,
            dag_id,
            str(task.get("task_id")),
            MAPPED_KINDS.get(kind, kind) if mapped else kind,
            chosen_by_run=TEMPLATE_MARK in text,
            conn_field=_field(text, params) or "" if TEMPLATE_MARK in text else "",
            form_conn_id=_default(text, params),
            kafka_conn_id=_value(arguments.get("kafka_conn_id"), params),
            registry_conn_id=_value(arguments.get(REGISTRY_ARGUMENT), params),
            offset_conn_id=_value(arguments.get("offset_conn_id"), params),
            offset_asset=str(own.get("offset_asset") or _offset_asset(arguments.get("inlets"))),
            properties={name: value for layer in layered for name, value in layer.items()},
            variables="var.json" in str(arguments.get("properties")),
            form=tuple(params),
        )


def _named(arguments: Mapping[str, Any]) -> list[str]:
    """Return the connections that an operator names: one, or those of a fleet, as a list or its JSON text."""
    conn_ids = arguments.get(CONNS_ARGUMENT) or [arguments.get(CONN_ARGUMENT)]
    if isinstance(conn_ids, str):
        with suppress(ValueError):  # a template, whose result no stored DAG has
            conn_ids = json.loads(conn_ids)
    return [name for name in conn_ids if isinstance(name, str) and name] if isinstance(conn_ids, list) else []


def _own_arguments(arguments: Mapping[str, Any], conn_id: str) -> Mapping[str, Any]:
    """Return what only one stream of a fleet has."""
    by_connection = arguments.get(OWN_ARGUMENT)
    own = by_connection.get(conn_id) if isinstance(by_connection, Mapping) else None
    return own if isinstance(own, Mapping) else {}


def _plain(value: Any) -> Any:
    """Return a value without the marks of its type with which Airflow stores it."""
    if isinstance(value, Mapping):
        if "__var" in value:
            return _plain(value["__var"])
        return {name: _plain(member) for name, member in value.items()}
    return [_plain(member) for member in value] if isinstance(value, (list, tuple)) else value


def _values(text: str, params: Mapping[str, Any]) -> list[str]:
    """Return the values that an argument can have: itself, or those that the trigger form offers for it."""
    if TEMPLATE_MARK not in text:
        return [text]
    name = _field(text, params)
    if name is None:
        return []
    param = params[name]
    offered = (param.get("schema") or {}).get("enum") or [param.get("default")]
    return [value for value in offered if isinstance(value, str) and value]


def _field(text: str, params: Mapping[str, Any]) -> str | None:
    """Return the field of the form that a template takes a value from."""
    return next((name for name in params if f"params.{name} " in text or f"params.{name}}}" in text), None)


def _default(text: str, params: Mapping[str, Any]) -> str:
    """Return the value that a field of the form has before somebody changes it."""
    name = _field(text, params) if TEMPLATE_MARK in text else None
    default = params[name].get("default") if name is not None else None
    return default if isinstance(default, str) else ""


def _value(text: Any, params: Mapping[str, Any]) -> str:
    """Return the value that an argument has unless a run chooses another."""
    return next(iter(_values(text, params)), "") if isinstance(text, str) else ""


def _layers(properties: Any) -> list[Mapping[str, Any]]:
    """Return the layers of properties that are known without a run."""
    layers = properties if isinstance(properties, list) else [properties]
    found = [_layer(layer) for layer in layers]
    return [{k: v for k, v in layer.items() if TEMPLATE_MARK not in str(v)} for layer in found]


def _layer(layer: Any) -> Mapping[str, Any]:
    if isinstance(layer, str) and TEMPLATE_MARK not in layer:
        try:
            layer = json.loads(layer)
        except ValueError:
            return {}
    return layer if isinstance(layer, Mapping) else {}


def _offset_asset(inlets: Any) -> str:
    names = (inlet.get("name") for inlet in inlets or () if isinstance(inlet, Mapping))
    return next((name for name in names if isinstance(name, str) and name), "")


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
