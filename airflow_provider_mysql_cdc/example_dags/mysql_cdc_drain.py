"""DAG ``mysql_cdc_drain``: drain the binlog into Kafka, on a schedule."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_mysql_cdc.operators.dag_params import (
    DEFAULT_ARGS,
    connection_params,
    drain_params,
    operator_arguments,
    properties_param,
    schedule,
)
from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator

DOC = """
### Drain the MySQL binlog into Kafka

Reads the binlog from the stored offset to its current end and writes every change as a Debezium event, exactly once;
then moves the offset. Runs every five minutes as long as it is not paused; `[mysql_cdc] drain_schedule` changes that
(`none`: only by hand). **Trigger** unpauses the DAG and so starts the schedule.

Needs the connections `mysql_cdc_default` (type MySQL CDC) and `spark_cdc` (type Spark, for example host `local[2]`).
"""

INTERVAL = schedule("drain_schedule", "*/5 * * * *")

with DAG(
    dag_id="mysql_cdc_drain",
    schedule=INTERVAL,
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULT_ARGS,
    params={**drain_params(INTERVAL), **properties_param(), **connection_params()},
    tags=["mysql", "cdc", "kafka"],
    doc_md=DOC,
) as dag:
    MySqlCdcDrainOperator(task_id="drain", **operator_arguments(drain=True))
