"""The Python environment of Spark's drivers and executors as one archive: the core and its packages, no Airflow."""
