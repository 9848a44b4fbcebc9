"""Deferred tasks: a fleet with spark-submit, and a fleet and a drain over Spark Connect."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator
from airflow_provider_mysql_cdc.operators.fleet import MySqlCdcFleetDrainOperator

COMMON = {
    "task_id": "drain",
    "deferrable": True,
    "poll_interval": 1,
    "retries": 0,
    "env_vars": {"MYSQL_CDC_FAULT": "{{ params.fault }}"},
    "run_arguments": ["env_vars"],
}

with DAG(dag_id="fleet_by_submit_of_a_test", schedule=None, params={"fault": ""}) as by_submit:
    MySqlCdcFleetDrainOperator(mysql_cdc_conn_ids=["live_s0", "live_s1", "live_s2"], **COMMON)

with DAG(dag_id="fleet_over_connect_of_a_test", schedule=None, params={"fault": ""}) as over_connect:
    MySqlCdcFleetDrainOperator(
        mysql_cdc_conn_ids=["live_f0", "live_f1", "live_f2"], spark_conn_id="connect_cdc", **COMMON
    )

with DAG(dag_id="drain_over_connect_of_a_test", schedule=None, params={"fault": ""}) as alone:
    MySqlCdcDrainOperator(mysql_cdc_conn_id="live_d0", spark_conn_id="connect_cdc", **COMMON)
