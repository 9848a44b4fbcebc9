"""The package's DAG ``mysql_cdc_snapshot``, for a DAG folder."""

from airflow_provider_mysql_cdc.example_dags.mysql_cdc_snapshot import dag

__all__ = ["dag"]
