"""What this provider's DAGs have in common: trigger form, templates and defaults of their tasks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any
from zoneinfo import ZoneInfo

from airflow.providers.common.compat.sdk import conf
from airflow.sdk import Param

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.operators.common import airflow_error

PROPERTIES_VARIABLE = "mysql_cdc_properties"
"""Airflow Variable with connector properties (JSON) for all DAGs of this provider."""

BACKFILL_VARIABLE = "mysql_cdc_backfill"
"""Airflow Variable (JSON) with tables, column and time_zone of scheduled backfills."""
MAX_COLUMN_NAME_LENGTH = 64
"""Characters of a column's name in MySQL."""

DataInterval = tuple[datetime | None, datetime | None]


def reject_unknown_fields(context: Any) -> None:
    """End a task whose run was triggered with a field that its form does not have: Airflow passes such fields over.

    Args:
        context: The task's context; this is a ``pre_execute`` hook.

    Raises:
        AirflowFailException: There is one; the text names it.
    """
    form_fields = set(context["dag"].params)
    unknown = sorted(set(context["params"]) - form_fields)
    if unknown:
        guesses = {name: get_close_matches(name, form_fields, 1) for name in unknown}
        suggestions = (f"{name} (did you mean {found[0]}?)" if found else name for name, found in guesses.items())
        error = ConfigError(
            "the form has no such field",
            where=", ".join(suggestions),
            remedy=f"use {', '.join(sorted(form_fields))}; nothing was started",
        )
        raise airflow_error(error)


DEFAULT_ARGS: dict[str, Any] = {
    "owner": "mysql-cdc",
    "pre_execute": reject_unknown_fields,
    "retries": 3,
    "retry_delay": timedelta(seconds=30),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=10),
}


def connection_params(*, spark: bool = True) -> dict[str, Param]:
    """Return the form fields that choose connections.

    Args:
        spark: Whether the task submits a Spark job.
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
            description="Empty: the MySQL CDC connection says where Kafka is.",
        ),
        "schema_registry_conn_id": Param(
            None,
            type=["null", "string"],
            section=section,
            title="Schema registry connection",
            description="Where keys or values are Avro. Empty: the MySQL CDC connection says where the registry is.",
        ),
        "offset_conn_id": Param(
            None,
            type=["null", "string"],
            section=section,
            title="Offset database connection",
            description="Empty: the offset is kept in Airflow's asset state (Airflow 3.3 and later).",
        ),
    }
    return fields if spark else {name: field for name, field in fields.items() if name != "spark_conn_id"}


def properties_param() -> dict[str, Param]:
    """Return the form field for any other connector property."""
    return {
        "properties": Param(
            {},
            type="object",
            title="Connector properties",
            description=(
                "Properties by their Debezium names, for this run; they win over the connection and over the Airflow "
                f"Variable {PROPERTIES_VARIABLE}. No secrets: this form is stored and shown."
            ),
        )
    }


def tables_param() -> dict[str, Param]:
    """Return the form field that chooses tables."""
    return {
        "tables": Param(
            [],
            type="array",
            items={"type": "string"},
            title="Tables",
            description=(
                "One regular expression for database.table per line (as in table.include.list); empty: as the "
                "connection says. A first snapshot captures no others, and the drain must capture the same tables: it "
                "has no rows from before for others. With Snapshot again the stream captures what it did before."
            ),
        )
    }


def again_param() -> dict[str, Param]:
    """Return the form field that asks for a new snapshot."""
    return {
        "again": Param(
            False,
            type="boolean",
            title="Snapshot again",
            description=(
                "Read the tables although an offset is stored already; every row is written once more. The stream is "
                "drained to its end first, and stands while they are read. mysql_cdc_adhoc_snapshot reads beside it."
            ),
        )
    }


def drain_params() -> dict[str, Param]:
    """Return the form fields of a drain."""
    return {
        "run_for_minutes": Param(
            0,
            type="number",
            minimum=0,
            title="Run for (minutes)",
            description="Go on draining batch after batch in one Spark session; 0 drains one batch.",
        ),
        "writers": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            maximum=64,
            title="Writers",
            description="Spark tasks that decode and write in parallel; empty: as the properties say.",
        ),
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
            description='One database.table, or a regular expression for such names, per line; "db"."t.x" for a dot.',
        ),
        "condition": Param(
            None,
            type=["null", "string"],
            title="Condition",
            description="SQL that the rows have to fulfil, as behind WHERE; it runs with the rights of the account.",
        ),
        "kind": Param(
            "incremental",
            type="string",
            enum=["incremental", "blocking"],
            title="Kind",
            description="incremental reads beside the stream; blocking lets the stream wait until the tables are read.",
        ),
        "channel": Param(
            "airflow",
            type="string",
            enum=["airflow", "source", "kafka"],
            title="Channel",
            description=(
                "How the drain is asked: a record of the ledger (airflow), a row of signal.data.collection (source), "
                "a record of signal.kafka.topic (kafka)."
            ),
        ),
        "surrogate_key": Param(
            None,
            type=["null", "string"],
            title="Surrogate key",
            description="Column to cut the tables by in place of the key.",
        ),
        **reading_params(),
    }


def reading_params() -> dict[str, Param]:
    """Return the form fields that say how an ad-hoc snapshot reads, and how long."""
    return {
        "chunk_size": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            maximum=2**31 - 1,
            title="Chunk size (rows)",
            description="incremental.snapshot.chunk.size of the drains that this task runs; empty: as configured.",
        ),
        "timeout_minutes": Param(
            360,
            type="number",
            exclusiveMinimum=0,
            title="Timeout (minutes)",
            description="The task fails then; what is read is kept, and the next drain goes on with the rest.",
        ),
    }


def backfill_params() -> dict[str, Param]:
    """Return the form fields of a backfill."""
    return {
        "tables": Param(
            [],
            type="array",
            items={"type": "string", "minLength": 1},
            title="Tables",
            description=(
                "One database.table per line, each a task of its own. Empty: those of the Airflow Variable "
                f"{BACKFILL_VARIABLE}; without it the run does nothing."
            ),
        ),
        "column": Param(
            None,
            type=["null", "string"],
            title="Column",
            description=f"Column that tells the time of a row. Empty: that of {BACKFILL_VARIABLE}, or updated_at.",
        ),
        "time_zone": Param(
            None,
            type=["null", "string"],
            title="Time zone of the column",
            description=(
                "UTC for TIMESTAMP, whatever the server's zone. DATETIME has no zone: the one in which the application "
                f"writes. Empty: that of {BACKFILL_VARIABLE}, or UTC."
            ),
        ),
        **reading_params(),
    }


def adhoc_arguments() -> dict[str, Any]:
    """Return the arguments of ``MySqlCdcIncrementalSnapshotOperator`` that read the form of ``adhoc_params``."""
    return {
        "tables": "{{ params.tables | tojson }}",
        "condition": "{{ params.condition or '' }}",
        "kind": "{{ params.kind }}",
        "channel": "{{ params.channel }}",
        "surrogate_key": "{{ params.surrogate_key or '' }}",
        **reading_arguments(),
    }


def reading_arguments() -> dict[str, Any]:
    """Return the operator arguments that read the form of ``reading_params``."""
    return {
        "chunk_size": "{{ params.chunk_size or '' }}",
        "timeout": "{{ params.timeout_minutes * 60 }}",
    }


def backfill_arguments(
    params: Mapping[str, Any], variable: Mapping[str, Any], interval: DataInterval
) -> list[dict[str, str]]:
    """Return the arguments that differ from table to table: which one, and the condition on its rows.

    Args:
        params: The form of ``backfill_params``.
        variable: The Variable ``mysql_cdc_backfill``; the form wins.
        interval: Start and end of the run's data interval, which it may lack.

    Raises:
        ConfigError: The run has no data interval, or the column or its time zone cannot be used.
    """
    settings = {name: params.get(name) or variable.get(name) for name in ("tables", "column", "time_zone")}
    tables = settings["tables"] or []
    if not tables:
        return []
    condition = interval_condition(
        str(settings["column"] or "updated_at"), interval, str(settings["time_zone"] or "UTC")
    )
    return [{"tables": str(table), "condition": condition} for table in dict.fromkeys(tables)]


def interval_condition(column: str, interval: DataInterval, time_zone: str = "UTC") -> str:
    """Return SQL for the rows of a data interval: its start belongs to it, its end to the next one.

    The tables are read with ``time_zone='+00:00'``, so a TIMESTAMP compares in UTC whatever the server's zone is. A
    DATETIME compares as it was written.

    Args:
        column: The column, without quotes.
        interval: Its start and end.
        time_zone: Zone in which the column's values are to be read.

    Raises:
        ConfigError: There is no interval, no such zone, or no column of that name can exist.
    """
    from airflow_provider_mysql_cdc.cdc.model.table import quote_name

    start, end = interval
    if start is None or end is None:
        raise ConfigError(
            "the run has no data interval",
            where="data_interval_start, data_interval_end",
            remedy="use a schedule with data intervals ([mysql_cdc] backfill_schedule), or trigger with a logical date",
        )
    if not column.strip() or len(column) > MAX_COLUMN_NAME_LENGTH or "\0" in column:
        raise ConfigError("no column has this name", where=f"column={column!r}", remedy="name a column of the tables")
    try:
        zone = ZoneInfo(time_zone)
    except (KeyError, ValueError, OSError) as error:
        raise ConfigError(
            "the time zone is not known", where=f"time_zone={time_zone!r}", remedy="name one as in Europe/Berlin"
        ) from error
    low, high = (at.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S.%f") for at in (start, end))
    name = quote_name(column.strip())
    return f"{name} >= '{low}' AND {name} < '{high}'"


def operator_arguments(*, tables: bool = False, drain: bool = False, spark: bool = True) -> dict[str, Any]:
    """Return the operator arguments that read the form.

    Args:
        tables: Whether the DAG has ``tables_param``.
        drain: Whether the task is a drain and the DAG has ``drain_params``.
        spark: Whether the task submits a Spark job.
    """
    layers = [
        f"{{{{ var.json.get('{PROPERTIES_VARIABLE}', {{}}) | tojson }}}}",
        "{{ params.properties | tojson }}",
        "{{ {'schema_registry_conn_id': params.schema_registry_conn_id} | tojson }}",
    ]
    if tables:
        layers.append("{{ {'table.include.list': params.tables | join(',')} | tojson }}")
    arguments: dict[str, Any] = {
        "mysql_cdc_conn_id": "{{ params.mysql_cdc_conn_id }}",
        "kafka_conn_id": "{{ params.kafka_conn_id or '' }}",
        "offset_conn_id": "{{ params.offset_conn_id or '' }}",
        "properties": layers,
    }
    if spark:
        arguments["spark_conn_id"] = "{{ params.spark_conn_id }}"
    if drain:
        arguments |= {"run_for": "{{ params.run_for_minutes * 60 }}", "writers": "{{ params.writers or '' }}"}
    return arguments


def schedule(option: str, default: str | None) -> str | None:
    """Return a DAG's schedule from ``[mysql_cdc] <option>``; ``none`` means not scheduled.

    Args:
        option: Name of the option.
        default: Cron expression when the option is not set, or None.
    """
    value = str(conf.get("mysql_cdc", option, fallback="") or default or "")
    return None if value.strip().lower() in ("", "none") else value.strip()
