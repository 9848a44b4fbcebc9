"""DAG ``mysql_cdc_drain``: drain the binlog into Kafka, on a schedule."""

from airflow_provider_mysql_cdc.dag_factory.stream_dags import FORM_STREAM, drain_dag
from airflow_provider_mysql_cdc.operators.dag_params import schedule

dag = drain_dag(FORM_STREAM, schedule("drain_schedule", "*/5 * * * *"))
