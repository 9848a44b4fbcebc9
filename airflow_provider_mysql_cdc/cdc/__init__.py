"""The pure core: imports neither Airflow nor Spark."""
