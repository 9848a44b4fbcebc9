"""What this provider's DAGs share: the fields of their trigger forms, templates and default arguments."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from typing import Any

from airflow.providers.common.compat.sdk import conf
from airflow.sdk import Param

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.operators.task_error import airflow_error

log = logging.getLogger(__name__)

PROPERTIES_VARIABLE = "mysql_cdc_properties"
"""Airflow Variable with connector properties (JSON) for all DAGs of this provider."""


ADVANCED = "More settings"
"""Group of the fields that most runs leave as they are; Airflow has one named Advanced Options itself."""
TIMEOUT_MINUTES = 360
"""Minutes after which an ad-hoc snapshot fails, if the form says nothing."""


def choice(title: str, values: Mapping[str, str], **more: Any) -> Param:
    """Return a form field that is a list of values to choose from; it may be empty, which means the first one.

    Args:
        title: Its label.
        values: The values with their meaning.
        more: Further members of its schema.
    """
    first = next(iter(values))
    shown = {value: f"{value}: {meaning}" for value, meaning in values.items()}
    return Param(
        first,
        type=["string", "null"],
        enum=[*values, None],
        values_display={**shown, "null": f"(empty: {first})"},
        title=title,
        **more,
    )


def reject_unknown_fields(context: Any) -> None:
    """Fail a task whose run was triggered with a field that its form does not have; Airflow ignores such fields.

    Args:
        context: The task's context; this is a ``pre_execute`` hook.

    Raises:
        AirflowFailException: There is such a field; the text names it.
    """
    form_fields = set(context["dag"].params)
    unknown = sorted(set(context["params"]) - form_fields)
    if unknown:
        guesses = {name: get_close_matches(name, form_fields, 1) for name in unknown}
        suggestions = (f"{name} (did you mean {found[0]}?)" if found else name for name, found in guesses.items())
        error = ConfigError(
            "the DAG run was triggered with a field that the form does not have",
            where=", ".join(suggestions),
            remedy=f"trigger the DAG again with fields among {', '.join(sorted(form_fields))}; nothing was started",
        )
        raise airflow_error(error)


def check_run(context: Any) -> None:
    """Check the fields of a run, and say of one that was triggered by hand that scheduled runs follow it.

    The trigger form of Airflow unpauses a DAG unless its box is cleared, and a paused DAG starts no run.

    Args:
        context: The task's context; this is a ``pre_execute`` hook.

    Raises:
        AirflowFailException: There is a field that the form does not have.
    """
    reject_unknown_fields(context)
    interval = getattr(context["dag"], "schedule", None)
    if interval and str(getattr(context.get("dag_run"), "run_type", "")).endswith("manual"):
        log.warning(
            "This run was triggered by hand. %s is not paused, so it also runs on its schedule (%s) from now on; pause "
            "the DAG if that is not wanted.",
            context["dag"].dag_id,
            interval,
        )


DEFAULT_ARGS: dict[str, Any] = {
    "owner": "mysql-cdc",
    "pre_execute": check_run,
    "retries": 3,
    "retry_delay": timedelta(seconds=30),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=10),
}


def connection_params(*, spark: bool = True, allowed: Mapping[str, Sequence[str]] | None = None) -> dict[str, Param]:
    """Return the form fields that choose connections.

    Args:
        spark: Whether the task submits a Spark job.
        allowed: The connections that a run may choose, by field, the default first, as in
            ``{"kafka_conn_id": ["kafka_shop"]}``. Fields that it does not name accept any connection that fits.
    """
    section = "Connections"
    fields = {
        "mysql_cdc_conn_id": Param(
            "mysql_cdc_default", type="string", section=section, title="MySQL CDC connection", minLength=1
        ),
        "spark_conn_id": Param("spark_cdc", type="string", section=section, title="Spark connection", minLength=1),
        "kafka_conn_id": Param(
            None,
            type=["null", "string"],
            section=section,
            title="Kafka connection",
            description="If empty, the MySQL CDC connection names the Kafka connection or holds its settings.",
        ),
        "schema_registry_conn_id": Param(
            None,
            type=["null", "string"],
            section=section,
            title="Schema registry connection",
            description="Required for Avro keys or values. If empty, the MySQL CDC connection names it.",
        ),
        "offset_conn_id": Param(
            None,
            type=["null", "string"],
            section=section,
            title="Offset database connection",
            description="Database that stores the offset. If empty, Airflow's asset state stores it.",
        ),
    }
    for name, conn_ids in (allowed or {}).items():
        fields[name] = Param(conn_ids[0], **{**fields[name].schema, "type": "string", "enum": list(conn_ids)})
    return fields if spark else {name: field for name, field in fields.items() if name != "spark_conn_id"}


def properties_param() -> dict[str, Param]:
    """Return the form field for any other connector property."""
    return {
        "properties": Param(
            {},
            type=["object", "null"],
            section=ADVANCED,
            title="Connector properties",
            description=(
                "Connector properties for this run, under their Debezium names. They override the connection and the "
                f"Airflow Variable {PROPERTIES_VARIABLE}. Only what is captured and how: a run may not set hosts, "
                "accounts, TLS, files, classes, topics or SQL, nor secrets, which Airflow would store and show."
            ),
        )
    }


def tables_param() -> dict[str, Param]:
    """Return the form field that chooses tables."""
    return {
        "tables": Param(
            [],
            type=["array", "null"],
            items={"type": "string"},
            title="Tables",
            description=(
                "One regular expression for database.table per line, as in table.include.list. If empty, the "
                "connection's table.include.list applies. A first snapshot captures only these tables, and the drain "
                "must capture the same ones. With Snapshot again, the tables that the stream captures do not change."
            ),
        )
    }


def again_param(adhoc_dag: str = "mysql_cdc_adhoc_snapshot") -> dict[str, Param]:
    """Return the form field that requests a new snapshot.

    Args:
        adhoc_dag: Id of the DAG that reads tables while the stream continues.
    """
    return {
        "again": Param(
            False,
            type=["boolean", "null"],
            title="Snapshot again",
            description=(
                "Read the tables although an offset is stored already, and write every row again. The stream is "
                "drained to the end of the binlog first and waits while the tables are read. To read tables while the "
                f"stream continues, use {adhoc_dag}."
            ),
        )
    }


def drain_params(interval: str | None = None, minutes: float = 0, writers: int | None = None) -> dict[str, Param]:
    """Return the form fields of a drain.

    Args:
        interval: The DAG's schedule, which a run by hand starts if it unpauses the DAG; None for none.
        minutes: Default of the time for which one Spark session drains.
        writers: Default of the number of writers; None for the configured one.
    """
    note = (
        f" This DAG is scheduled ({interval}): if triggering it unpauses it, the schedule starts too; pause the DAG "
        "again if that is not wanted."
        if interval
        else ""
    )
    return {
        "run_for_minutes": Param(
            minutes,
            type=["number", "null"],
            minimum=0,
            title="Run for (minutes)",
            description=f"How long one Spark session drains batch after batch; 0 drains one batch.{note}",
        ),
        **writers_param(writers),
    }


def writers_param(writers: int | None = None) -> dict[str, Param]:
    """Return the form field of the number of writers.

    Args:
        writers: Its default; None for the configured number.
    """
    return {
        "writers": Param(
            writers,
            type=["null", "integer"],
            minimum=1,
            maximum=64,
            section=ADVANCED,
            title="Writers",
            description="Spark tasks that decode and write in parallel. If empty, drain.writers applies.",
        )
    }


def adhoc_params() -> dict[str, Param]:
    """Return the form fields of an ad-hoc snapshot."""
    return {
        "tables": Param(
            [],
            type="array",
            items={"type": "string", "minLength": 1},
            minItems=1,
            title="Tables",
            description='One database.table or regular expression per line. Write a name with a dot as "db"."t.x".',
        ),
        "condition": Param(
            None,
            type=["null", "string"],
            title="Condition",
            description="SQL condition as in a WHERE clause; only rows that meet it are read. It runs with the "
            "privileges of the connection's account.",
        ),
        "kind": choice(
            "Kind",
            {"incremental": "reads while the stream continues", "blocking": "pauses the stream until they are read"},
        ),
        **channel_param(),
        "surrogate_key": Param(
            None,
            type=["null", "string"],
            section=ADVANCED,
            title="Surrogate key",
            description="Column that divides the tables into chunks in place of the primary key.",
        ),
        **reading_params(),
    }


def channel_param() -> dict[str, Param]:
    """Return the form field that chooses how a signal is sent."""
    return {
        "channel": choice(
            "Channel",
            {
                "airflow": "a record of the ledger",
                "source": "a row of signal.data.collection",
                "kafka": "a record of signal.kafka.topic",
            },
            description="Where the signal is written.",
            section=ADVANCED,
        ),
    }


def reading_params() -> dict[str, Param]:
    """Return the form fields for the chunk size and the timeout of an ad-hoc snapshot."""
    return {
        "chunk_size": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            maximum=2**31 - 1,
            section=ADVANCED,
            title="Chunk size (rows)",
            description="incremental.snapshot.chunk.size of the drains that this task runs. If empty, the configured "
            "value applies.",
        ),
        "timeout_minutes": Param(
            TIMEOUT_MINUTES,
            type=["number", "null"],
            exclusiveMinimum=0,
            title="Timeout (minutes)",
            description="Then the task fails; rows that were read are kept, and the next drain continues. If empty, "
            f"{TIMEOUT_MINUTES}.",
        ),
    }


def adhoc_arguments() -> dict[str, Any]:
    """Return the arguments of ``MySqlCdcIncrementalSnapshotOperator`` that read the form of ``adhoc_params``."""
    return {
        "tables": "{{ params.tables | tojson }}",
        "condition": "{{ params.condition or '' }}",
        "kind": "{{ params.kind or 'incremental' }}",
        "channel": "{{ params.channel or 'airflow' }}",
        "surrogate_key": "{{ params.surrogate_key or '' }}",
        **reading_arguments(),
    }


def reading_arguments() -> dict[str, Any]:
    """Return the operator arguments that read the form of ``reading_params``."""
    return {
        "chunk_size": "{{ params.chunk_size or '' }}",
        "timeout": f"{{{{ (params.timeout_minutes or {TIMEOUT_MINUTES}) * 60 }}}}",
    }


def reset_params() -> dict[str, Param]:
    """Return the form fields of a reset of the offset."""
    return {
        "offset": Param(
            "stored",
            type="string",
            minLength=1,
            title="Offset",
            description=(
                "stored: keep the stored offset and only discard the unfinished batch. current: the end of the binlog. "
                "earliest: the first position that the server still has. Or file:position, a transaction boundary, or "
                "the GTID set that was executed up to the position."
            ),
        ),
        "confirm": Param(
            "", type="string", title="Confirm", description="Type the stream's topic.prefix to confirm the reset."
        ),
    }


def operator_arguments(*, tables: bool = False, drain: bool = False, spark: bool = True) -> dict[str, Any]:
    """Return the operator arguments that read the form.

    Args:
        tables: Whether the DAG has ``tables_param``.
        drain: Whether the task is a drain and the DAG has ``drain_params``.
        spark: Whether the task submits a Spark job.
    """
    layers = [
        f"{{{{ var.json.get('{PROPERTIES_VARIABLE}', {{}}) | tojson }}}}",
        "{{ (params.properties or {}) | tojson }}",
    ]
    if tables:
        layers.append("{{ {'table.include.list': (params.tables or []) | join(',')} | tojson }}")
    arguments: dict[str, Any] = {
        "mysql_cdc_conn_id": "{{ params.mysql_cdc_conn_id }}",
        "kafka_conn_id": "{{ params.kafka_conn_id or '' }}",
        "schema_registry_conn_id": "{{ params.schema_registry_conn_id or '' }}",
        "offset_conn_id": "{{ params.offset_conn_id or '' }}",
        "properties": layers,
    }
    if spark:
        arguments["spark_conn_id"] = "{{ params.spark_conn_id }}"
    if drain:
        arguments |= {"run_for": "{{ (params.run_for_minutes or 0) * 60 }}", "writers": "{{ params.writers or '' }}"}
    return arguments


def schedule(option: str, default: str | None) -> str | None:
    """Return a DAG's schedule from ``[mysql_cdc] <option>``; ``none`` means not scheduled.

    Args:
        option: Name of the option.
        default: Cron expression when the option is not set, or None.
    """
    value = str(conf.get("mysql_cdc", option, fallback="") or default or "")
    return None if value.strip().lower() in ("", "none") else value.strip()
