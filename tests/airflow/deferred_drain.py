"""Drains: deferred while their driver works, with a driver in the task, and with one on a cluster."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator

PARAMS = {"seconds": 3, "fault": "", "says": ""}
COMMON = {
    "task_id": "drain",
    "deferrable": True,
    "poll_interval": 1,
    "run_for": "{{ params.seconds }}",
    "env_vars": {"MYSQL_CDC_FAULT": "{{ params.fault }}", "SAYS": "{{ params.says }}"},
    "run_arguments": ["env_vars"],
}

with DAG(dag_id="deferred_drain_of_a_test", schedule=None, params=PARAMS) as dag:
    MySqlCdcDrainOperator(**COMMON, retries=0)

with DAG(dag_id="retried_drain_of_a_test", schedule=None, params=PARAMS) as retried:
    MySqlCdcDrainOperator(**COMMON, retries=3, retry_delay=timedelta(seconds=1))

with DAG(dag_id="attached_drain_of_a_test", schedule=None) as attached:
    MySqlCdcDrainOperator(task_id="drain", retries=0)

with DAG(dag_id="cluster_drain_of_a_test", schedule=None) as cluster:
    MySqlCdcDrainOperator(task_id="drain", retries=0, master="yarn", deploy_mode="cluster")
