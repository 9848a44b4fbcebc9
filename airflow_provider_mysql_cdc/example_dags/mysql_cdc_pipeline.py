"""DAG ``mysql_cdc_pipeline``: snapshot when there is no offset yet, then drain."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_mysql_cdc.operators.dag_params import (
    DEFAULT_ARGS,
    connection_params,
    drain_params,
    operator_arguments,
    properties_param,
    schedule,
    tables_param,
)
from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator
from airflow_provider_mysql_cdc.operators.snapshot import MySqlCdcSnapshotOperator

DOC = """
### MySQL to Kafka: snapshot once, then drain

The first run takes a snapshot of the captured tables; every run then drains the binlog. The snapshot task ends at once
when an offset is stored already. Not scheduled by default; `[mysql_cdc] pipeline_schedule` changes that. Use it in
place of `mysql_cdc_snapshot` and `mysql_cdc_drain`, not together with them: of two concurrent runs for one
`topic.prefix` one is refused.

Needs the connections `mysql_cdc_default` (type MySQL CDC) and `spark_cdc` (type Spark, for example host `local[2]`).
"""

with DAG(
    dag_id="mysql_cdc_pipeline",
    schedule=schedule("pipeline_schedule", None),
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULT_ARGS,
    params={**tables_param(), **drain_params(), **properties_param(), **connection_params()},
    tags=["mysql", "cdc", "kafka"],
    doc_md=DOC,
) as dag:
    snapshot = MySqlCdcSnapshotOperator(task_id="snapshot", **operator_arguments(tables=True))
    drain = MySqlCdcDrainOperator(task_id="drain", **operator_arguments(tables=True, drain=True))
    snapshot >> drain
