"""Make the usual DAGs of one stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from airflow.sdk import DAG

from airflow_provider_mysql_cdc.cdc.errors import DAG_KINDS, ConfigError
from airflow_provider_mysql_cdc.dag_factory.stream_dags import (
    TAGS,
    Stream,
    adhoc_snapshot_dag,
    backfill_dag,
    drain_dag,
    import_debezium_dag,
    reset_offset_dag,
    send_signal_dag,
    snapshot_dag,
    verify_dag,
)
from airflow_provider_mysql_cdc.operators.common import parse_seconds
from airflow_provider_mysql_cdc.operators.dag_params import DEFAULT_ARGS, drain_params

NONE: Mapping[str, Any] = MappingProxyType({})

KINDS = DAG_KINDS
"""The DAGs that a pipeline can have."""
USUAL_KINDS = tuple(kind for kind in KINDS if kind != "import_debezium")
"""Those that it has unless it says which."""

BACKFILL_SETTINGS = frozenset({"tables", "column", "time_zone", "schedule"})
MAX_TAG_LENGTH = 100
OWN_DAG_ARGUMENTS = frozenset({"dag_id", "schedule", "params", "catchup", "max_active_runs", "default_args", "tags"})
"""Arguments of a DAG that a pipeline sets itself, or has an argument of its own for."""


def cdc_pipeline(
    name: str,
    *,
    mysql_cdc_conn_id: str,
    schedule: Any = None,
    tables: Sequence[str] | str = (),
    spark_conn_id: str = "spark_cdc",
    kafka_conn_id: str | None = None,
    schema_registry_conn_id: str | None = None,
    offset_conn_id: str | None = None,
    replica_conn_id: str | None = None,
    offset_asset: str | None = None,
    properties: Mapping[str, Any] = NONE,
    run_for: timedelta | float = 0,
    writers: int | None = None,
    verify_schedule: Any = None,
    backfill: Mapping[str, Any] = NONE,
    dags: Sequence[str] = USUAL_KINDS,
    operator_arguments: Mapping[str, Any] = NONE,
    default_args: Mapping[str, Any] = NONE,
    dag_arguments: Mapping[str, Any] = NONE,
    tags: str | Sequence[str] = (),
) -> dict[str, DAG]:
    """Make the DAGs of a stream; Airflow finds them by itself when a DAG file calls this at its top level.

    The ids are ``<name>_snapshot``, ``<name>_drain``, ``<name>_adhoc_snapshot``, ``<name>_backfill``,
    ``<name>_verify``, ``<name>_send_signal`` and ``<name>_reset_offset``. Connections and properties are those of the
    call: whoever triggers a run chooses what it does, not where. Only drain, verification and backfill have schedules.
    The tasks' asset events come through the alias ``mysql_cdc_<name>``, so that Airflow shows each DAG with the assets
    of its own stream.

    Args:
        name: What the ids begin with.
        mysql_cdc_conn_id: Connection of type ``mysql_cdc``.
        schedule: Of the drain, as for a DAG.
        tables: Captured tables, each an entry as in ``table.include.list``; none for what the connection says.
        spark_conn_id: Connection of type ``spark``.
        kafka_conn_id: Connection of type ``kafka``; None when the first connection names Kafka.
        schema_registry_conn_id: Connection of type ``schema_registry``, for Avro.
        offset_conn_id: Connection of a database that stores the offset.
        replica_conn_id: Connection of a replica that verifications read.
        offset_asset: Name of the asset whose state stores the offset; None for ``mysql_cdc_offsets_<name>``. A stream
            that other DAGs have drained before keeps theirs (``mysql_cdc_offsets`` unless they name one).
        properties: Connector properties, under their Debezium names; no secrets.
        run_for: How long one Spark session drains batch after batch, as timedelta or seconds; 0 drains one batch.
        writers: Spark tasks that decode and write in parallel; None for the property's value.
        verify_schedule: Of the verification.
        backfill: ``tables``, ``column``, ``time_zone`` and ``schedule`` (a cron expression) of scheduled backfills.
        dags: Which of the DAGs to make (``KINDS``); without it all but ``import_debezium``, which is needed once.
        operator_arguments: Arguments of all operators that submit Spark jobs, such as ``conf`` or ``deferrable``.
        default_args: Airflow's default arguments of all tasks, beside or in place of the package's own.
        dag_arguments: Arguments of all DAGs, such as ``start_date`` or ``access_control``.
        tags: Tags of all DAGs, or a single one, beside the package's own and the name.

    Returns:
        The DAGs by id.

    Raises:
        ConfigError: An argument is unknown or wrong; the text names the pipeline and the argument.
    """
    check_texts(name, {"name": name, "mysql_cdc_conn_id": mysql_cdc_conn_id, "spark_conn_id": spark_conn_id})
    check_names(name, "dags", dags, KINDS)
    check_names(name, "backfill", backfill, BACKFILL_SETTINGS)
    check_dag_arguments(name, dag_arguments)
    connections = {
        "mysql_cdc_conn_id": mysql_cdc_conn_id,
        "spark_conn_id": spark_conn_id,
        "kafka_conn_id": kafka_conn_id,
        "schema_registry_conn_id": schema_registry_conn_id,
        "offset_conn_id": offset_conn_id,
        "offset_asset": offset_asset or f"mysql_cdc_offsets_{name}",
        "asset_alias": f"mysql_cdc_{name}",
    }
    stream = Stream(
        name=name,
        fixed={**connections, "properties": captured(name, tables, properties)},
        spark=operator_arguments,
        texts=_texts(mysql_cdc_conn_id, spark_conn_id, backfill),
        default_args={**DEFAULT_ARGS, **default_args},
        dag={"tags": dag_tags(name, tags), **dag_arguments},
    )
    form = drain_params(schedule if isinstance(schedule, str) else None, parse_seconds(run_for) / 60, writers)
    settings = {key: value for key, value in backfill.items() if key != "schedule"}
    replica = {"replica_conn_id": replica_conn_id} if replica_conn_id else {}
    makers: Mapping[str, Callable[[], DAG]] = {
        "snapshot": lambda: snapshot_dag(stream),
        "drain": lambda: drain_dag(stream, schedule, form),
        "adhoc_snapshot": lambda: adhoc_snapshot_dag(stream),
        "backfill": lambda: backfill_dag(stream, backfill.get("schedule"), settings),
        "verify": lambda: verify_dag(stream, verify_schedule, replica),
        "send_signal": lambda: send_signal_dag(stream),
        "reset_offset": lambda: reset_offset_dag(stream),
        "import_debezium": lambda: import_debezium_dag(stream),
    }
    return {dag.dag_id: dag for dag in (makers[kind]() for kind in dict.fromkeys(dags))}


def dag_tags(name: str, tags: str | Sequence[str]) -> list[str]:
    """Return the tags of a DAG, cut where they are longer than Airflow takes.

    Args:
        name: Of the pipeline or fleet.
        tags: Its own tags, or a single one.
    """
    given = (*TAGS, name, *([tags] if isinstance(tags, str) else tags))
    return [*dict.fromkeys(tag[:MAX_TAG_LENGTH] for tag in given)]


def check_dag_arguments(name: str, dag_arguments: Mapping[str, Any], *, what: str = "pipeline") -> None:
    """Refuse arguments of a DAG that are set otherwise.

    Args:
        name: Of the pipeline or fleet.
        dag_arguments: The arguments.
        what: What it is, for the error.

    Raises:
        ConfigError: There is one.
    """
    if own := sorted(OWN_DAG_ARGUMENTS & dag_arguments.keys()):
        raise ConfigError(
            f"the {what} sets these arguments of its DAGs itself",
            where=f"{what} {name}: dag_arguments: {', '.join(own)}",
            remedy=f"use the arguments schedule, verify_schedule, backfill, default_args and tags of the {what}",
        )


def check_texts(name: Any, given: Mapping[str, Any], *, what: str = "pipeline") -> None:
    """Refuse what is no text, or empty.

    Args:
        name: Of the pipeline or fleet.
        given: Arguments by name.
        what: What it is, for the error.

    Raises:
        ConfigError: There is one.
    """
    for argument, value in given.items():
        if not isinstance(value, str) or not value:
            raise ConfigError(
                f"{argument} is not a text that has a letter",
                where=f"{what} {name}: {argument}",
                why=f"it is {value!r}",
                remedy="write it in quotes, and not empty",
            )


def check_names(name: str, argument: str, given: Any, known: Any, *, what: str = "pipeline") -> None:
    """Refuse names that are not known.

    Args:
        name: Of the pipeline or fleet.
        argument: The argument that has the names.
        given: The names.
        known: Those that are known.
        what: What it is, for the error.

    Raises:
        ConfigError: There is one; the text names it, and the one that it resembles.
    """
    names = sorted(known)
    for unknown in (entry for entry in given if entry not in known):
        guess = get_close_matches(str(unknown), names, 1)
        raise ConfigError(
            f"{argument} has no {unknown!r}" + (f" (did you mean {guess[0]}?)" if guess else ""),
            where=f"{what} {name}: {argument}",
            remedy=f"use {', '.join(names)}",
        )


def captured(name: str, tables: Sequence[str] | str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties with the tables among them.

    Args:
        name: Of the pipeline.
        tables: The captured tables.
        properties: The properties.

    Raises:
        ConfigError: The tables are named twice, or are no list of texts.
    """
    chosen = [tables] if isinstance(tables, str) else tables
    if not isinstance(chosen, Sequence) or not all(isinstance(table, str) for table in chosen):
        raise ConfigError(
            "the captured tables are not a list of names",
            where=f"pipeline {name}: tables",
            why=f"it is {chosen!r}",
            remedy="use entries of table.include.list: [shop.orders, shop.customers]",
        )
    if chosen and "table.include.list" in properties:
        raise ConfigError(
            "the captured tables are named twice",
            where=f"pipeline {name}: tables and properties: table.include.list",
            remedy="leave one of them out",
        )
    return {**properties, **({"table.include.list": ",".join(chosen)} if chosen else {})}


def _texts(mysql_cdc_conn_id: str, spark_conn_id: str, backfill: Mapping[str, Any]) -> Mapping[str, str]:
    scheduled = (
        f"Then the schedule (`{backfill['schedule']}`) also creates runs, which read the tables in the DAG file."
        if backfill.get("schedule")
        else "**This DAG has no schedule, and so no data intervals: Airflow refuses a backfill of it.** Give the "
        'pipeline a schedule, as `backfill={"schedule": "@daily"}`, or trigger the ad-hoc snapshot with a condition.'
    )
    return MappingProxyType(
        {
            "connections": f"Uses the connections `{mysql_cdc_conn_id}` (type MySQL CDC) and `{spark_conn_id}` (Spark)",
            "drain_schedule": "",
            "verify_schedule": "",
            "backfill_schedule": scheduled,
        }
    )
