"""DAG ``mysql_cdc_adhoc_snapshot``: read tables again while the stream continues."""

from airflow_provider_mysql_cdc.dag_factory.stream_dags import FORM_STREAM, adhoc_snapshot_dag

dag = adhoc_snapshot_dag(FORM_STREAM)
