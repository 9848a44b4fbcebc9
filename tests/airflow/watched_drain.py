"""A drain that an asset watcher starts."""

from __future__ import annotations

from airflow.sdk import DAG, Asset, AssetWatcher

from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator
from airflow_provider_mysql_cdc.triggers.watch import MySqlBinlogWatchTrigger

watch = MySqlBinlogWatchTrigger(mysql_cdc_conn_id="mysql_cdc_default", poll_interval=2)
changes = Asset("changes_of_a_test", watchers=[AssetWatcher(name="binlog", trigger=watch)])

with DAG(dag_id="watched_drain_of_a_test", schedule=[changes], max_active_runs=1) as dag:
    MySqlCdcDrainOperator(task_id="drain", retries=0)
