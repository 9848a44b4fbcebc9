"""Drain many streams at the same time: ``spark-submit drain_fleet.py SPEC.json``."""

from airflow_provider_mysql_cdc.cdc.fleet.fleet_driver import reporting_fleet_error
from airflow_provider_mysql_cdc.spark.jobs import run_fleet_job
from airflow_provider_mysql_cdc.spark.main import main

if __name__ == "__main__":
    main(run_fleet_job, reporting=reporting_fleet_error)
