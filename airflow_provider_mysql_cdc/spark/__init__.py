"""Runs the core's jobs on Spark: imports pyspark and the core, never Airflow."""
