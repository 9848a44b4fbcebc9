"""Find out of a DAG, as Airflow has stored it, which pipelines its tasks work for, and with which arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

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
