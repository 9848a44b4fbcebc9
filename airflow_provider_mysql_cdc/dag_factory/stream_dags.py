"""Make the DAGs of a stream, one function for each kind, and what they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from airflow.sdk import DAG, CronDataIntervalTimetable, Param, Variable, get_current_context, task

from airflow_provider_mysql_cdc.dag_factory.dag_docs import FLEET_PAGE, PAGES
from airflow_provider_mysql_cdc.operators.dag_forms import (
    BACKFILL_VARIABLE,
    backfill_arguments,
    backfill_params,
    import_arguments,
    import_params,
    signal_arguments,
    signal_params,
    verify_arguments,
    verify_params,
)
from airflow_provider_mysql_cdc.operators.dag_params import (
    DEFAULT_ARGS,
    adhoc_arguments,
    adhoc_params,
    again_param,
    connection_params,
    drain_params,
    operator_arguments,
    properties_param,
    reading_arguments,
    reset_params,
    tables_param,
)
from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator
from airflow_provider_mysql_cdc.operators.fleet import MySqlCdcFleetDrainOperator
from airflow_provider_mysql_cdc.operators.import_debezium import MySqlCdcImportDebeziumOperator
from airflow_provider_mysql_cdc.operators.incremental import MySqlCdcIncrementalSnapshotOperator
from airflow_provider_mysql_cdc.operators.reset import MySqlCdcResetOffsetOperator
from airflow_provider_mysql_cdc.operators.signal import MySqlCdcSignalOperator
from airflow_provider_mysql_cdc.operators.snapshot import MySqlCdcSnapshotOperator
from airflow_provider_mysql_cdc.operators.verify import MySqlCdcVerifyOperator


@dataclass(frozen=True, kw_only=True)
class Stream:
    """A stream as its DAGs see it.

    Without ``fixed`` the trigger form chooses connections and a Variable has properties, as in the DAGs that come with
    this package. With it, both are in the DAG file, and a form leaves open only what a run does.

    Attributes:
        name: What the ids of its DAGs begin with.
        fixed: The connections, by operator argument, and ``properties``; None when the form chooses them.
        spark: Arguments of the operators that submit Spark jobs, such as ``conf`` or ``deferrable``.
        texts: What the DAGs' pages say that differs by stream (``dag_docs.PAGES``).
        default_args: Airflow's default arguments of all tasks.
        dag: Further arguments of each DAG.
    """

    name: str
    fixed: Mapping[str, Any] | None = None
    spark: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    default_args: Mapping[str, Any] = field(default_factory=lambda: DEFAULT_ARGS)
    dag: Mapping[str, Any] = field(default_factory=dict)

    def dag_id(self, kind: str) -> str:
        """Return the id of one of its DAGs.

        Args:
            kind: A key of ``dag_docs.PAGES``.
        """
        return f"{self.name}_{kind}"

    def params(self, *, spark: bool = True) -> dict[str, Param]:
        """Return the form fields that choose connections; none when they are fixed.

        Args:
            spark: Whether the task submits a Spark job.
        """
        return connection_params(spark=spark) if self.fixed is None else {}

    def arguments(self, *, tables: bool = False, drain: bool = False, spark: bool = True) -> dict[str, Any]:
        """Return the arguments of an operator.

        Args:
            tables: Whether the form's tables are what the task captures.
            drain: Whether the task is a drain.
            spark: Whether the task submits a Spark job.
        """
        arguments = operator_arguments(tables=tables, drain=drain, spark=spark)
        if self.fixed is not None:
            # The first layer of the form's is the Variable of the DAGs that come with this package.
            layers = [self.fixed["properties"], *arguments["properties"][1:]]
            known = {name: value for name, value in self.fixed.items() if spark or name != "spark_conn_id"}
            arguments |= known | {"properties": layers}
        return arguments | (dict(self.spark) if spark else {})


FORM_STREAM = Stream(
    name="mysql_cdc",
    texts=MappingProxyType(
        {
            "connections": "Needs the connections `mysql_cdc_default` (type MySQL CDC) and `spark_cdc` (type Spark, "
            "for example host `local[2]`)",
            "drain_schedule": " `[mysql_cdc] drain_schedule` changes it (`none`: only by hand).",
            "verify_schedule": " `[mysql_cdc] verify_schedule` sets a schedule.",
            "backfill_schedule": "Then the schedule (`[mysql_cdc] backfill_schedule`, daily) also creates runs: they "
            f"read the tables in the Airflow Variable `{BACKFILL_VARIABLE}` "
            '(`{"tables": [...], "column": "...", "time_zone": "..."}`) and do nothing without it.',
        }
    ),
)
"""The stream of the DAGs that come with this package: whatever the form chooses."""


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
