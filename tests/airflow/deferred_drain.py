"""A drain that is deferred while its driver works."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator

with DAG(dag_id="deferred_drain_of_a_test", schedule=None, params={"seconds": 3}) as dag:
    MySqlCdcDrainOperator(task_id="drain", deferrable=True, poll_interval=1, run_for="{{ params.seconds }}", retries=0)
