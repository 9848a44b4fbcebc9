"""DAG ``mysql_cdc_reset_offset``: move the stored offset by hand."""

from airflow_provider_mysql_cdc.dag_factory.stream_dags import FORM_STREAM, reset_offset_dag

dag = reset_offset_dag(FORM_STREAM)
