"""DAG ``mysql_cdc_snapshot``: read the captured tables once and store the offset."""

from airflow_provider_mysql_cdc.dag_factory.stream_dags import FORM_STREAM, snapshot_dag

dag = snapshot_dag(FORM_STREAM)
