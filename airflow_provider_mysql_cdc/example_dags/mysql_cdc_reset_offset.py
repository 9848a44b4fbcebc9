"""DAG ``mysql_cdc_reset_offset``: move the stored offset by hand."""

from airflow_provider_mysql_cdc.dag_factory.stream import FORM_STREAM
from airflow_provider_mysql_cdc.dag_factory.stream_dags import reset_offset_dag

dag = reset_offset_dag(FORM_STREAM)
