"""What the DAGs of one stream share: their ids, the arguments of their operators, and what their forms leave open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from airflow.sdk import Param

from airflow_provider_mysql_cdc.operators.backfill_params import BACKFILL_VARIABLE
from airflow_provider_mysql_cdc.operators.dag_params import DEFAULT_ARGS, connection_params, operator_arguments


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
