"""Make the DAGs of a stream, one function for each kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import DAG, CronDataIntervalTimetable, Param, Variable, get_current_context, task

from airflow_provider_mysql_cdc.dag_factory.dag_docs import FLEET_PAGE, PAGES
from airflow_provider_mysql_cdc.dag_factory.stream import Stream
from airflow_provider_mysql_cdc.operators.backfill_params import (
    BACKFILL_VARIABLE,
    backfill_arguments,
    backfill_params,
)
from airflow_provider_mysql_cdc.operators.dag_params import (
    adhoc_arguments,
    adhoc_params,
    again_param,
    drain_params,
    properties_param,
    reading_arguments,
    reset_params,
    tables_param,
)
from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator
from airflow_provider_mysql_cdc.operators.fleet import MySqlCdcFleetDrainOperator
from airflow_provider_mysql_cdc.operators.import_debezium import MySqlCdcImportDebeziumOperator
from airflow_provider_mysql_cdc.operators.import_params import import_arguments, import_params
from airflow_provider_mysql_cdc.operators.incremental import MySqlCdcIncrementalSnapshotOperator
from airflow_provider_mysql_cdc.operators.reset import MySqlCdcResetOffsetOperator
from airflow_provider_mysql_cdc.operators.signal import MySqlCdcSignalOperator
from airflow_provider_mysql_cdc.operators.signal_params import signal_arguments, signal_params
from airflow_provider_mysql_cdc.operators.snapshot import MySqlCdcSnapshotOperator
from airflow_provider_mysql_cdc.operators.verify import MySqlCdcVerifyOperator
from airflow_provider_mysql_cdc.operators.verify_params import verify_arguments, verify_params

TAGS = ("mysql", "cdc", "kafka")


def snapshot_dag(stream: Stream) -> DAG:
    """Return the DAG that reads the captured tables once and stores the offset.

    Args:
        stream: Its stream.
    """
    fields = {**tables_param(), **again_param(stream.dag_id("adhoc_snapshot"))}
    with _dag(stream, "snapshot", None, fields) as dag:
        MySqlCdcSnapshotOperator(
            task_id="snapshot",
            tables="{{ (params.tables or []) | tojson }}",
            again="{{ params.again or false }}",
            **stream.arguments(),
        )
    return dag


def drain_dag(stream: Stream, schedule: Any, form: Mapping[str, Param] | None = None) -> DAG:
    """Return the DAG that drains the binlog into Kafka.

    Args:
        stream: Its stream.
        schedule: Of the DAG; None for none.
        form: The fields of ``drain_params`` with defaults of their own; None for those of the form.
    """
    fields = form or drain_params(schedule if isinstance(schedule, str) else None)
    with _dag(stream, "drain", schedule, fields) as dag:
        MySqlCdcDrainOperator(task_id="drain", **stream.arguments(drain=True))
    return dag


def fleet_drain_dag(fleet: Stream, schedule: Any, arguments: Mapping[str, Any], form: Mapping[str, Param]) -> DAG:
    """Return the DAG that drains the streams of a fleet.

    Args:
        fleet: Its name, texts and arguments of the DAG.
        schedule: Of the DAG; None for none.
        arguments: Arguments of ``MySqlCdcFleetDrainOperator``.
        form: The fields of its form.
    """
    page = FLEET_PAGE.format_map(fleet.texts)
    with DAG(
        **{**_dag_defaults(fleet, schedule), "params": dict(form), "doc_md": page, **fleet.dag},
        dag_id=fleet.dag_id("drain"),
    ) as dag:
        MySqlCdcFleetDrainOperator(task_id="drain", **{"writers": "{{ params.writers or '' }}", **arguments})
    return dag


def pipeline_dag(stream: Stream, schedule: Any) -> DAG:
    """Return the DAG that takes a snapshot when there is no offset yet, then drains.

    Args:
        stream: Its stream.
        schedule: Of the DAG; None for none.
    """
    with _dag(stream, "pipeline", schedule, {**tables_param(), **drain_params()}) as dag:
        snapshot = MySqlCdcSnapshotOperator(task_id="snapshot", **stream.arguments(tables=True))
        drain = MySqlCdcDrainOperator(task_id="drain", **stream.arguments(tables=True, drain=True))
        snapshot >> drain
    return dag


def adhoc_snapshot_dag(stream: Stream) -> DAG:
    """Return the DAG that reads tables again while the stream continues.

    Args:
        stream: Its stream.
    """
    with _dag(stream, "adhoc_snapshot", None, adhoc_params()) as dag:
        MySqlCdcIncrementalSnapshotOperator(task_id="snapshot", **adhoc_arguments(), **stream.arguments())
    return dag


def backfill_dag(stream: Stream, interval: str | None, settings: Mapping[str, Any] | None = None) -> DAG:
    """Return the DAG that reads the rows of a data interval again, table by table.

    Args:
        stream: Its stream.
        interval: Cron expression of its data intervals; None for none.
        settings: ``tables``, ``column`` and ``time_zone`` of scheduled runs; None for those of the Variable
            ``mysql_cdc_backfill``.
    """
    timetable = CronDataIntervalTimetable(interval, timezone="UTC") if interval else None
    with _dag(stream, "backfill", timetable, backfill_params(settings)) as dag:

        @task
        def choose() -> list[dict[str, str]]:
            """Return table and condition of each snapshot of this run."""
            context: Any = get_current_context()
            stored = settings
            if stored is None:
                stored = Variable.get(BACKFILL_VARIABLE, default={}, deserialize_json=True)
            bounds = (context.get("data_interval_start"), context.get("data_interval_end"))
            return backfill_arguments(context["params"], stored, bounds)

        # A backfill has its own max_active_runs, so the task itself limits itself to one at a time.
        MySqlCdcIncrementalSnapshotOperator.partial(
            task_id="snapshot",
            max_active_tis_per_dag=1,
            map_index_template="{{ task.tables }}",
            **reading_arguments(),
            **stream.arguments(),
        ).expand_kwargs(choose())
    return dag


def verify_dag(stream: Stream, schedule: Any, arguments: Mapping[str, Any] | None = None) -> DAG:
    """Return the DAG that compares tables with their topics and repairs differences.

    Args:
        stream: Its stream.
        schedule: Of the DAG; None for none.
        arguments: Further arguments of ``MySqlCdcVerifyOperator``.
    """
    with _dag(stream, "verify", schedule, verify_params()) as dag:
        MySqlCdcVerifyOperator(task_id="verify", **verify_arguments(), **stream.arguments(), **(arguments or {}))
    return dag


def send_signal_dag(stream: Stream) -> DAG:
    """Return the DAG that pauses, resumes and stops ad-hoc snapshots: it runs beside the one that reads their tables.

    Args:
        stream: Its stream.
    """
    with _dag(stream, "send_signal", None, signal_params(), spark=False) as dag:
        form = signal_arguments()
        fixed = {name: value for name, value in stream.arguments(spark=False).items() if name in form}
        MySqlCdcSignalOperator(task_id="send", **form | fixed)
    return dag


def reset_offset_dag(stream: Stream) -> DAG:
    """Return the DAG that moves the stored offset by hand.

    Args:
        stream: Its stream.
    """
    with _dag(stream, "reset_offset", None, reset_params(), spark=False) as dag:
        MySqlCdcResetOffsetOperator(
            task_id="reset",
            offset="{{ params.offset }}",
            confirm="{{ params.confirm }}",
            retries=0,
            **stream.arguments(spark=False),
        )
    return dag


def import_debezium_dag(stream: Stream) -> DAG:
    """Return the DAG that takes the stream over from a Debezium connector.

    Args:
        stream: Its stream.
    """
    with _dag(stream, "import_debezium", None, import_params(), spark=False) as dag:
        MySqlCdcImportDebeziumOperator(
            task_id="import", retries=0, **import_arguments(), **stream.arguments(spark=False)
        )
    return dag


def _dag(stream: Stream, kind: str, schedule: Any, fields: Mapping[str, Param], *, spark: bool = True) -> DAG:
    names = {other: stream.dag_id(other) for other in PAGES}
    return DAG(
        **{
            **_dag_defaults(stream, schedule),
            "params": {**fields, **properties_param(), **stream.params(spark=spark)},
            "doc_md": PAGES[kind].format_map({**names, **stream.texts}),
            **stream.dag,
        },
        dag_id=stream.dag_id(kind),
    )


def _dag_defaults(stream: Stream, schedule: Any) -> dict[str, Any]:
    return {
        "schedule": schedule,
        "catchup": False,
        "max_active_runs": 1,
        "default_args": dict(stream.default_args),
        "tags": [*TAGS],
    }
