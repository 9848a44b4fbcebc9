"""The package's DAG ``mysql_cdc_send_signal``, for a DAG folder."""

from airflow_provider_mysql_cdc.example_dags.mysql_cdc_send_signal import dag

__all__ = ["dag"]
