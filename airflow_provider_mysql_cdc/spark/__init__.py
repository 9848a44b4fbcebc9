"""The core's jobs on Spark; this package imports pyspark and the core, never Airflow."""
