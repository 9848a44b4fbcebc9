"""The Python environment of Spark's drivers and executors as one archive: the core and what it needs, no Airflow."""
