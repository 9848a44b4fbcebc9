"""DAG ``mysql_cdc_backfill``: read the rows of a data interval again, table by table."""

from airflow_provider_mysql_cdc.dag_factory.stream_dags import FORM_STREAM, backfill_dag
from airflow_provider_mysql_cdc.operators.dag_params import schedule

dag = backfill_dag(FORM_STREAM, schedule("backfill_schedule", "@daily"))
