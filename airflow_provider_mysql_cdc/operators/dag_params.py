"""What this provider's DAGs have in common: trigger form, templates and defaults of their tasks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.common.compat.sdk import conf
from airflow.sdk import Param

PROPERTIES_VARIABLE = "mysql_cdc_properties"
"""Airflow Variable with connector properties (JSON) for all DAGs of this provider."""

DEFAULT_ARGS: dict[str, Any] = {
    "owner": "mysql-cdc",
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
                "One regular expression for database.table per line (table.include.list); empty: as the connection "
                "says. The drain must capture the same tables: it has no rows from before for others."
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
                "Take a new snapshot although an offset is stored already; every row is written once more. Refused "
                "while changes are not drained. To read tables again beside the stream use mysql_cdc_adhoc_snapshot."
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
