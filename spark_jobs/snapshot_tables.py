"""Take a snapshot of the captured tables: ``spark-submit snapshot_tables.py SPEC.json``.

A repeated snapshot of an active stream is read by a drain, so specs of drains are passed to this application too.
"""

from airflow_provider_mysql_cdc.spark.jobs import run_job
from airflow_provider_mysql_cdc.spark.main import main

if __name__ == "__main__":
    main(run_job)
