"""Deferred sensors in pairs: of each the second one looks once an hour when nobody shares its poll."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_mysql_cdc.sensors.binlog import MySqlBinlogSensor
from airflow_provider_mysql_cdc.sensors.incremental import MySqlIncrementalSnapshotSensor

with DAG(dag_id="waits_of_a_test", schedule=None, max_active_tasks=4) as dag:
    for name, every_s in (("quick", 2.0), ("patient", 3600.0)):
        MySqlBinlogSensor(
            task_id=f"binlog_{name}", bytes_behind=1_000_000, deferrable=True, poke_interval=every_s, timeout=7200
        )
        MySqlIncrementalSnapshotSensor(task_id=f"snapshot_{name}", deferrable=True, poke_interval=every_s, timeout=7200)
