"""DAG ``mysql_cdc_backfill``: read the rows of a data interval again, table by table."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, CronDataIntervalTimetable, Variable, get_current_context, task

from airflow_provider_mysql_cdc.operators.dag_params import (
    BACKFILL_VARIABLE,
    DEFAULT_ARGS,
    backfill_arguments,
    backfill_params,
    connection_params,
    operator_arguments,
    properties_param,
    reading_arguments,
    schedule,
)
from airflow_provider_mysql_cdc.operators.incremental import MySqlCdcIncrementalSnapshotOperator

DOC = """
### Read the rows of each data interval again

Each run is an incremental snapshot of the rows whose *column* is in its data interval
(`updated_at >= start AND updated_at < end`), one task for each table, one task at a time. Use *Backfill* in the UI, or

    airflow backfill create --dag-id mysql_cdc_backfill --from-date 2026-11-01 --to-date 2026-11-07 \\
        --dag-run-conf '{"tables": ["shop.orders"], "column": "updated_at"}'

Airflow runs a backfill only while the DAG is not paused. Then the schedule (`[mysql_cdc] backfill_schedule`, daily)
also creates runs: they read the tables in the Airflow Variable `mysql_cdc_backfill`
(`{"tables": [...], "column": "...", "time_zone": "..."}`) and do nothing without it. A run that is triggered by hand
with a logical date has the last whole interval before it (at 11:00 with `@hourly`: 10:00 to 11:00).

**Time zones.** The interval is compared in UTC, which is exact for TIMESTAMP whatever the server's time zone. DATETIME
has no time zone; enter the one in which the application writes. In the hour that is repeated when daylight saving time
ends, DATETIME values are ambiguous.

Rows that a later change has moved out of the interval are not read, because the stream contains that change. Create an
index on the column; without one, each interval reads the whole table.
"""
interval = schedule("backfill_schedule", "@daily")

with DAG(
    dag_id="mysql_cdc_backfill",
    schedule=CronDataIntervalTimetable(interval, timezone="UTC") if interval else None,
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULT_ARGS,
    params={**backfill_params(), **properties_param(), **connection_params()},
    tags=["mysql", "cdc", "kafka"],
    doc_md=DOC,
) as dag:

    @task
    def choose() -> list[dict[str, str]]:
        """Return table and condition of each snapshot of this run."""
        context: Any = get_current_context()
        stored = Variable.get(BACKFILL_VARIABLE, default={}, deserialize_json=True)
        bounds = (context.get("data_interval_start"), context.get("data_interval_end"))
        return backfill_arguments(context["params"], stored, bounds)

    # A backfill has its own max_active_runs, so the task itself limits itself to one at a time.
    MySqlCdcIncrementalSnapshotOperator.partial(
        task_id="snapshot", max_active_tis_per_dag=1, **reading_arguments(), **operator_arguments()
    ).expand_kwargs(choose())
