"""Make the DAGs of many streams that one task drains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import DAG

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.dag_factory.pipeline import (
    NONE,
    USUAL_KINDS,
    captured,
    cdc_pipeline,
    check_dag_arguments,
    check_names,
    check_texts,
    dag_tags,
)
from airflow_provider_mysql_cdc.dag_factory.stream_dags import Stream, fleet_drain_dag
from airflow_provider_mysql_cdc.operators.dag_params import DEFAULT_ARGS, writers_param

FLEET_KINDS = tuple(kind for kind in USUAL_KINDS if kind != "drain")
"""The DAGs that each stream of a fleet has of its own."""
STREAM_SETTINGS = frozenset(
    {"mysql_cdc_conn_id", "tables", "properties", "offset_asset", "replica_conn_id", "verify_schedule", "backfill"}
    | {"dags", "tags"}
)
"""Arguments of ``cdc_pipeline`` that a stream of a fleet may have of its own."""


def cdc_fleet(
    name: str,
    streams: Mapping[str, Mapping[str, Any] | str],
    *,
    schedule: Any = None,
    spark_conn_id: str = "spark_cdc",
    kafka_conn_id: str | None = None,
    schema_registry_conn_id: str | None = None,
    offset_conn_id: str | None = None,
    properties: Mapping[str, Any] = NONE,
    writers: int | None = None,
    dags: Sequence[str] = FLEET_KINDS,
    operator_arguments: Mapping[str, Any] = NONE,
    fleet_arguments: Mapping[str, Any] = NONE,
    default_args: Mapping[str, Any] = NONE,
    dag_arguments: Mapping[str, Any] = NONE,
    tags: str | Sequence[str] = (),
) -> dict[str, DAG]:
    """Make one DAG that drains many streams, and the other DAGs of each stream.

    ``<name>_drain`` drains all streams in one Spark application (``MySqlCdcFleetDrainOperator``). Each stream has the
    other DAGs of ``cdc_pipeline`` under its own name, with the same offset asset and alias of asset events as there: a
    pipeline becomes a stream of a fleet, and a pipeline again, under the same name and keeps its offset.

    Args:
        name: What the id of the fleet's DAG begins with.
        streams: By name, the connection of type ``mysql_cdc``, or arguments of ``cdc_pipeline`` that are the stream's
            own (``STREAM_SETTINGS``). ``properties`` of a stream win over those of the fleet.
        schedule: Of the fleet's DAG, as for a DAG.
        spark_conn_id: Connection of type ``spark``.
        kafka_conn_id: Connection of type ``kafka``; None when the stream's connection names Kafka.
        schema_registry_conn_id: Connection of type ``schema_registry``, for Avro.
        offset_conn_id: Connection of a database that stores the offsets.
        properties: Connector properties of all streams, under their Debezium names; no secrets.
        writers: Spark tasks of each stream that decode and write in parallel; None for the property's value.
        dags: Which DAGs each stream has (``FLEET_KINDS``).
        operator_arguments: Arguments of all operators that submit Spark jobs, such as ``conf`` or ``deferrable``.
        fleet_arguments: Arguments of the fleet's operator alone, such as ``master`` or ``skip_when_nothing_new``.
        default_args: Airflow's default arguments of all tasks, beside or in place of the package's own.
        dag_arguments: Arguments of all DAGs, such as ``start_date`` or ``access_control``.
        tags: Tags of all DAGs, or a single one, beside the package's own and the names.

    Returns:
        The DAGs by id.

    Raises:
        ConfigError: An argument is unknown or wrong; the text names the fleet or the stream, and the argument.
    """
    check_texts(name, {"name": name, "spark_conn_id": spark_conn_id}, what="fleet")
    check_names(name, "dags", dags, FLEET_KINDS, what="fleet")
    check_dag_arguments(name, dag_arguments, what="fleet")
    settings = _stream_settings(name, streams)
    shared: dict[str, Any] = {
        "spark_conn_id": spark_conn_id,
        "kafka_conn_id": kafka_conn_id,
        "schema_registry_conn_id": schema_registry_conn_id,
        "offset_conn_id": offset_conn_id,
    }
    own_tags = [tags] if isinstance(tags, str) else list(tags)
    made: dict[str, DAG] = {}
    for stream, given in settings.items():
        stream_tags = given.get("tags", ())
        more = [stream_tags] if isinstance(stream_tags, str) else list(stream_tags)
        own = {
            "dags": dags,
            **given,
            "properties": {**properties, **_own_properties(given)},
            "tags": [name, *own_tags, *more],
            "operator_arguments": operator_arguments,
            "default_args": default_args,
            "dag_arguments": dag_arguments,
        }
        made |= cdc_pipeline(stream, **shared, **own)
    operator = {
        **shared,
        "mysql_cdc_conn_ids": [given["mysql_cdc_conn_id"] for given in settings.values()],
        "stream_arguments": _stream_arguments(settings, properties),
        **operator_arguments,
        **fleet_arguments,
    }
    fleet = Stream(
        name=name,
        texts={"streams": _streams_text(settings), "connection": spark_conn_id},
        default_args={**DEFAULT_ARGS, **default_args},
        dag={"tags": dag_tags(name, own_tags), **dag_arguments},
    )
    drain = fleet_drain_dag(fleet, schedule, operator, writers_param(writers))
    if drain.dag_id in made:
        raise ConfigError(
            "a stream of the fleet has a DAG of the same id as the fleet",
            where=f"fleet {name}: {drain.dag_id}",
            remedy="give the fleet another name than its streams",
        )
    return made | {drain.dag_id: drain}


def _stream_settings(fleet: str, streams: Any) -> dict[str, dict[str, Any]]:
    """Return the own arguments of each stream by its name.

    Raises:
        ConfigError: There are none, or those of a stream are wrong.
    """
    if not isinstance(streams, Mapping) or not streams:
        raise ConfigError(
            "the streams of the fleet are not a mapping of names to connections",
            where=f"fleet {fleet}: streams",
            why=f"it is {streams!r}"[:200],
            remedy="write name: connection, or name: {mysql_cdc_conn_id: connection, ...}, at least one",
        )
    settings: dict[str, dict[str, Any]] = {}
    for stream, given in streams.items():
        place = f"{fleet}: streams.{stream}"
        if not isinstance(given, (str, Mapping)):
            raise ConfigError(
                "the arguments of the stream are neither a connection nor a mapping",
                where=f"fleet {place}",
                why=f"it is {given!r}"[:200],
                remedy="write name: connection, or name: {mysql_cdc_conn_id: connection, ...}",
            )
        own = {"mysql_cdc_conn_id": given} if isinstance(given, str) else dict(given)
        check_names(place, "arguments", own, STREAM_SETTINGS, what="fleet")
        check_names(place, "dags", own.get("dags") or (), FLEET_KINDS, what="fleet")
        check_texts(place, {"name": stream, "mysql_cdc_conn_id": own.get("mysql_cdc_conn_id")}, what="fleet")
        settings[stream] = {argument: value for argument, value in own.items() if value is not None}
    _check_connections(fleet, settings)
    return settings


def _check_connections(fleet: str, settings: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse two streams of one connection: the operator knows its streams by their connections.

    Raises:
        ConfigError: There are such streams.
    """
    by_connection: dict[str, list[str]] = {}
    for stream, given in settings.items():
        by_connection.setdefault(given["mysql_cdc_conn_id"], []).append(stream)
    if same := {conn_id: names for conn_id, names in by_connection.items() if len(names) > 1}:
        raise ConfigError(
            "streams of the fleet have the same connection",
            where=f"fleet {fleet}: " + "; ".join(f"{conn_id}: {', '.join(names)}" for conn_id, names in same.items()),
            why="each connection is a stream of its own, with its own topic.prefix",
            remedy="make a connection for each stream",
        )


def _own_properties(given: Mapping[str, Any]) -> Mapping[str, Any]:
    return given.get("properties") or NONE


def _stream_arguments(
    settings: Mapping[str, Mapping[str, Any]], properties: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return what the operator gets for each stream, by its connection."""
    return {
        given["mysql_cdc_conn_id"]: {
            "properties": captured(stream, given.get("tables", ()), {**properties, **_own_properties(given)}),
            "offset_asset": given.get("offset_asset") or f"mysql_cdc_offsets_{stream}",
            "asset_alias": f"mysql_cdc_{stream}",
            "pipeline": stream,
        }
        for stream, given in settings.items()
    }


def _streams_text(settings: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the list of streams in the page of the fleet's DAG."""
    return "\n".join(f"* `{stream}`: connection `{given['mysql_cdc_conn_id']}`" for stream, given in settings.items())
