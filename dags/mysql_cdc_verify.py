"""The package's DAG ``mysql_cdc_verify``, for a DAG folder."""

from airflow_provider_mysql_cdc.example_dags.mysql_cdc_verify import dag

__all__ = ["dag"]
