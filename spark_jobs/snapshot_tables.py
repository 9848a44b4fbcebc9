"""Take a snapshot of the captured tables: ``spark-submit snapshot_tables.py SPEC.json``."""

from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_driver import run_snapshot
from airflow_provider_mysql_cdc.spark.main import main

if __name__ == "__main__":
    main(run_snapshot)
