"""The form fields of a backfill, and the operator arguments that they and the run's data interval make."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from airflow.sdk import Param

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.operators.dag_params import reading_params

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
