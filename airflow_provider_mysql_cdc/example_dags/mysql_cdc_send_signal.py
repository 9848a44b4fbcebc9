"""DAG ``mysql_cdc_send_signal``: pause, resume and stop ad-hoc snapshots."""

from airflow_provider_mysql_cdc.dag_factory.stream_dags import FORM_STREAM, send_signal_dag

dag = send_signal_dag(FORM_STREAM)
