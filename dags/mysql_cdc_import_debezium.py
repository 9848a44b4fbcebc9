"""The package's DAG ``mysql_cdc_import_debezium``, for a DAG folder."""

from airflow_provider_mysql_cdc.example_dags.mysql_cdc_import_debezium import dag

__all__ = ["dag"]
