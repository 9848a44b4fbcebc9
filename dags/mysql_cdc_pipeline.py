"""The package's DAG ``mysql_cdc_pipeline``, as a DAG folder takes it in."""

from airflow_provider_mysql_cdc.example_dags.mysql_cdc_pipeline import dag

__all__ = ["dag"]
