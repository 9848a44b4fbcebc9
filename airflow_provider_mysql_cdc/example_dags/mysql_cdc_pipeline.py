"""DAG ``mysql_cdc_pipeline``: snapshot when there is no offset yet, then drain."""

from airflow_provider_mysql_cdc.dag_factory.stream_dags import FORM_STREAM, pipeline_dag
from airflow_provider_mysql_cdc.operators.dag_params import schedule

dag = pipeline_dag(FORM_STREAM, schedule("pipeline_schedule", None))
