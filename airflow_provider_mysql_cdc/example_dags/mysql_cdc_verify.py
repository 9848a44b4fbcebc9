"""DAG ``mysql_cdc_verify``: compare tables with their topics, and repair differences."""

from airflow_provider_mysql_cdc.dag_factory.stream_dags import FORM_STREAM, verify_dag
from airflow_provider_mysql_cdc.operators.dag_params import schedule

dag = verify_dag(FORM_STREAM, schedule("verify_schedule", None))
