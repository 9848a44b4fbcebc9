"""Drain the binlog: ``spark-submit drain_binlog.py SPEC.json``."""

from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.spark.main import main

if __name__ == "__main__":
    main(run_drain)
