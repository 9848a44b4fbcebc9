"""Deferred sensors in pairs: of each the second one looks once an hour when nobody shares its poll."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_mysql_cdc.sensors.binlog import MySqlBinlogSensor
from airflow_provider_mysql_cdc.sensors.incremental import MySqlIncrementalSnapshotSensor

# Airflow 3.3 fails a task whose trigger fires before its scheduler has read that the first part of the task has ended
# ("reported that the task instance finished with state success, but the task instance's state attribute is queued").
AGAIN = {"retries": 3, "retry_delay": timedelta(seconds=1)}

with DAG(dag_id="waits_of_a_test", schedule=None, max_active_tasks=4, default_args=AGAIN) as dag:
    for name, every_s in (("quick", 2.0), ("patient", 3600.0)):
        MySqlBinlogSensor(
            task_id=f"binlog_{name}", bytes_behind=1_000_000, deferrable=True, poke_interval=every_s, timeout=7200
        )
        MySqlIncrementalSnapshotSensor(task_id=f"snapshot_{name}", deferrable=True, poke_interval=every_s, timeout=7200)
