"""Compare tables with their topics at one position: ``spark-submit verify_topics.py SPEC.json``."""

from airflow_provider_mysql_cdc.cdc.verify.verify_driver import run_verify
from airflow_provider_mysql_cdc.spark.main import main

if __name__ == "__main__":
    main(run_verify)
