"""Take a snapshot of the captured tables: ``spark-submit snapshot_tables.py SPEC.json``.

One that is taken again beside a stream is read behind a drain, whose spec comes here as well.
"""

from airflow_provider_mysql_cdc.spark.jobs import run_job
from airflow_provider_mysql_cdc.spark.main import main

if __name__ == "__main__":
    main(run_job)
