"""DAG ``mysql_cdc_import_debezium``: go on from the offset of a Debezium connector."""

from airflow_provider_mysql_cdc.dag_factory.stream_dags import FORM_STREAM, import_debezium_dag

dag = import_debezium_dag(FORM_STREAM)
