"""The forms of backfills, verifications, take-overs and signals, and the operators' arguments that read them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from airflow.sdk import Param

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.operators.dag_params import (
    ADVANCED,
    channel_param,
    choice,
    operator_arguments,
    reading_params,
)

BACKFILL_VARIABLE = "mysql_cdc_backfill"
"""Airflow Variable (JSON) with tables, column and time_zone of scheduled runs of the backfill DAG."""
MAX_COLUMN_NAME_LENGTH = 64
"""Longest column name in MySQL, in characters."""

DataInterval = tuple[datetime | None, datetime | None]


def backfill_params(settings: Mapping[str, Any] | None = None) -> dict[str, Param]:
    """Return the form fields of a backfill.

    Args:
        settings: What scheduled runs read, from the DAG file; None when the Variable says it.
    """
    place = f"the Airflow Variable {BACKFILL_VARIABLE}" if settings is None else "the DAG file"
    return {
        "tables": Param(
            [],
            type=["array", "null"],
            items={"type": "string", "minLength": 1},
            title="Tables",
            description=(
                "One database.table per line; each becomes a task of its own. If empty, the tables that "
                f"{place} names are read; if it names none, the run does nothing."
            ),
        ),
        "column": Param(
            None,
            type=["null", "string"],
            title="Column",
            description=f"Column with the time of a row. If empty, the column in {place}, or updated_at.",
        ),
        "time_zone": Param(
            None,
            type=["null", "string"],
            title="Time zone of the column",
            description=(
                "For TIMESTAMP use UTC, whatever the server's time zone. DATETIME has no time zone; enter the one in "
                f"which the application writes. If empty, the zone in {place}, or UTC."
            ),
        ),
        **reading_params(),
    }


def backfill_arguments(
    params: Mapping[str, Any], variable: Mapping[str, Any], interval: DataInterval
) -> list[dict[str, str]]:
    """Return the arguments that differ by table: its name, and the condition on its rows.

    Args:
        params: The form of ``backfill_params``.
        variable: The Variable ``mysql_cdc_backfill``; the form wins.
        interval: Start and end of the run's data interval; None for a run without one.

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
    """Return the SQL condition for the rows of a data interval, start included and end excluded.

    The tables are read with ``time_zone='+00:00'``, so a TIMESTAMP is compared in UTC whatever the server's time zone.
    A DATETIME is compared as it was written.

    Args:
        column: The column, without quotes.
        interval: Its start and end.
        time_zone: Time zone of the column's values.

    Raises:
        ConfigError: There is no interval, no such time zone, or MySQL allows no such column name.
    """
    from airflow_provider_mysql_cdc.cdc.model.table import quote_name

    start, end = interval
    if start is None or end is None:
        raise ConfigError(
            "the run has no data interval",
            where="data_interval_start, data_interval_end",
            remedy='give the DAG a schedule with data intervals (backfill={"schedule": "@daily"} of cdc_pipeline, '
            "[mysql_cdc] backfill_schedule for mysql_cdc_backfill); then run a backfill, or trigger it with a logical "
            "date",
        )
    if not column.strip() or len(column) > MAX_COLUMN_NAME_LENGTH or "\0" in column:
        raise ConfigError(
            "MySQL allows no such column name", where=f"column={column!r}", remedy="enter the name of a column"
        )
    try:
        zone = ZoneInfo(time_zone)
    except (KeyError, ValueError, OSError) as error:
        raise ConfigError(
            "unknown time zone", where=f"time_zone={time_zone!r}", remedy="use an IANA name such as Europe/Berlin"
        ) from error
    low, high = (at.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S.%f") for at in (start, end))
    name = quote_name(column.strip())
    return f"{name} >= '{low}' AND {name} < '{high}'"


EXAMPLES = 10
"""Examples of each kind for one table, if the form says nothing."""
MAX_EXAMPLES = 100
"""Most examples of each kind for one table; ``cdc.verify.report.verify_result.MAX_EXAMPLES``."""


def verify_params() -> dict[str, Param]:
    """Return the form fields of a verification."""
    return {
        "tables": Param(
            [],
            type=["array", "null"],
            items={"type": "string", "minLength": 1},
            title="Tables",
            description="One database.table or regular expression per line. If empty, all captured tables.",
        ),
        "sample_percent": Param(
            100,
            type=["number", "null"],
            exclusiveMinimum=0,
            maximum=100,
            title="Sample (percent)",
            description="Share of the keys that is compared; 100, or nothing, compares all. The same keys are in each "
            "sample.",
        ),
        "repair": choice(
            "Repair",
            {
                "no": "only reports",
                "dry-run": "also counts what a repair would write",
                "yes": "writes missing and differing rows again and deletes ghosts",
            },
            description="A repair writes up to repair.max.rows rows.",
        ),
        "show_values": Param(
            True,
            type=["boolean", "null"],
            title="Show values",
            description="Show values of rows in the report. Values of masked and hashed columns are never shown.",
        ),
        "history": Param(
            False,
            type=["boolean", "null"],
            title="Check the history of each key",
            description="Also check the events of each key one after the other: doubled, out of order or missing ones, "
            "and deletes without a tombstone. It takes more time and memory.",
        ),
        "examples": Param(
            EXAMPLES,
            type=["integer", "null"],
            minimum=0,
            maximum=MAX_EXAMPLES,
            title="Examples",
            description=f"Examples of each kind of difference in the report, per table. If empty, {EXAMPLES}.",
        ),
        "fail_on_difference": Param(
            False,
            type=["boolean", "null"],
            title="Fail on differences",
            description="Fail the task if differences are left, or a table or rows of it could not be judged; "
            "otherwise it succeeds, and its result has the counts.",
        ),
    }


def verify_arguments() -> dict[str, Any]:
    """Return the arguments of ``MySqlCdcVerifyOperator`` that read the form of ``verify_params``."""
    return {
        "tables": "{{ (params.tables or []) | tojson }}",
        "sample_percent": "{{ params.sample_percent or 100 }}",
        "repair": "{{ params.repair or 'no' }}",
        "show_values": "{{ params.show_values is not false }}",
        "history": "{{ params.history or false }}",
        "examples": f"{{{{ {EXAMPLES} if params.examples is none else params.examples }}}}",
        "fail_on_difference": "{{ params.fail_on_difference or false }}",
    }


def import_params() -> dict[str, Param]:
    """Return the form fields of a take-over from a Debezium connector."""
    return {
        "dry_run": Param(
            True,
            type=["boolean", "null"],
            title="Dry run",
            description="Only say what would be done: where the stream would begin, what it would leave out, what to "
            "set. Nothing is written.",
        ),
        "confirm": Param(
            None,
            type=["null", "string"],
            title="Confirm",
            description="Without a dry run: type the connector's topic.prefix to confirm the take-over.",
        ),
        "connect_conn_id": _optional(
            "Kafka Connect connection",
            "Connection of type HTTP to the REST interface of Kafka Connect. If empty, offset and topics must not move "
            "for some seconds, and the topic of the offsets is needed.",
        ),
        "offsets_topic": _optional(
            "Topic of the offsets",
            "offset.storage.topic of the worker. If empty, Kafka Connect is asked for the offset (3.6 and later).",
        ),
        "connector_name": _optional("Connector name", "If empty, the name in the connector's JSON.", section=ADVANCED),
        "debezium_history_topic": _optional(
            "Topic of the connector's schema history",
            "If empty, schema.history.internal.kafka.topic of the connector's JSON.",
            section=ADVANCED,
        ),
        "trust_offset": Param(
            False,
            type=["boolean", "null"],
            section=ADVANCED,
            title="Trust the offset",
            description="Take the offset as it is where records do not say their place, as behind a transform: right "
            "if the connector was stopped and not killed.",
        ),
        "ignore_dumps": Param(
            False,
            type=["boolean", "null"],
            section=ADVANCED,
            title="Ignore other readers of the binlog",
            description="Without Kafka Connect: somebody else reads the binlog under the connector's account.",
        ),
    }


def _optional(title: str, description: str, **more: Any) -> Param:
    return Param(None, type=["null", "string"], title=title, description=description, **more)


def import_arguments() -> dict[str, Any]:
    """Return the arguments of ``MySqlCdcImportDebeziumOperator`` that read the form of ``import_params``."""
    flags = {name: f"{{{{ params.{name} or false }}}}" for name in ("trust_offset", "ignore_dumps")}
    texts = ("confirm", "connect_conn_id", "offsets_topic", "connector_name", "debezium_history_topic")
    # An empty box is a dry run: what writes has to be said.
    dry_run = "{{ params.dry_run is not false }}"
    return {"dry_run": dry_run, **flags, **{name: f"{{{{ params.{name} or '' }}}}" for name in texts}}


SIGNALS = {
    "pause-snapshot": "reads no further rows until resume-snapshot",
    "resume-snapshot": "continues where it was paused",
    "stop-snapshot": "ends it; rows that were read stay in their topics",
}
"""Types of signals that a run can send, with what they do."""
STOPPED_TABLES = "{{ ({'type': 'incremental', 'data-collections': params.tables} if params.tables else {}) | tojson }}"


def signal_params() -> dict[str, Param]:
    """Return the form fields of a signal to the ad-hoc snapshots of a stream."""
    return {
        "signal": choice("Signal", SIGNALS),
        "tables": Param(
            [],
            type=["array", "null"],
            items={"type": "string", "minLength": 1},
            title="Tables",
            description="Only for stop-snapshot: the tables that are not read further, one database.table or regular "
            'expression per line. Write a name with a dot as "db"."t.x". If empty, all.',
        ),
        **channel_param(),
    }


def signal_arguments() -> dict[str, Any]:
    """Return the arguments of ``MySqlCdcSignalOperator`` that read the form of ``signal_params``."""
    needed = ("mysql_cdc_conn_id", "kafka_conn_id", "schema_registry_conn_id", "properties")
    connections = operator_arguments(spark=False)
    return {
        "signal_type": f"{{{{ params.signal or '{next(iter(SIGNALS))}' }}}}",
        "data": STOPPED_TABLES,
        "channel": "{{ params.channel or 'airflow' }}",
        **{name: connections[name] for name in needed},
    }
