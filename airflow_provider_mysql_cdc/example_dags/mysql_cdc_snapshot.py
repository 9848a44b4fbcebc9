"""DAG ``mysql_cdc_snapshot``: read the captured tables once and store the offset."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_mysql_cdc.operators.dag_params import (
    DEFAULT_ARGS,
    again_param,
    connection_params,
    operator_arguments,
    properties_param,
    tables_param,
)
from airflow_provider_mysql_cdc.operators.snapshot import MySqlCdcSnapshotOperator

DOC = """
### Snapshot MySQL tables into Kafka

Reads all captured tables in one consistent view and writes an `r` event for every row, then stores the binlog position
of that view. `mysql_cdc_drain` continues from there. Does nothing when an offset is stored already, unless a new
snapshot is requested (*Snapshot again*): then the stream is drained to the end of the binlog and waits while all or
some of the tables are read. No change is skipped, and scheduled drains are skipped meanwhile.

Needs the connections `mysql_cdc_default` (type MySQL CDC) and `spark_cdc` (type Spark, for example host `local[2]`).
"""

with DAG(
    dag_id="mysql_cdc_snapshot",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULT_ARGS,
    params={**tables_param(), **again_param(), **properties_param(), **connection_params()},
    tags=["mysql", "cdc", "kafka"],
    doc_md=DOC,
) as dag:
    MySqlCdcSnapshotOperator(
        task_id="snapshot",
        tables="{{ params.tables | tojson }}",
        again="{{ params.again }}",
        **operator_arguments(),
    )
