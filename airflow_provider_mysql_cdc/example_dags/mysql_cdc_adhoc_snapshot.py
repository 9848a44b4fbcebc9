"""DAG ``mysql_cdc_adhoc_snapshot``: read tables again while the stream continues."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_mysql_cdc.operators.dag_params import (
    DEFAULT_ARGS,
    adhoc_arguments,
    adhoc_params,
    connection_params,
    operator_arguments,
    properties_param,
)
from airflow_provider_mysql_cdc.operators.incremental import MySqlCdcIncrementalSnapshotOperator

DOC = """
### Read tables again, without stopping the stream and without losing a change

Requests an ad-hoc snapshot with a signal and drains until it is done. It writes an `r` event for every row of the
tables, or for every row that meets the condition, between the changes of the stream. Errors in the form (an invalid
expression, SQL over an untrusted channel, a channel that is not enabled) are reported before anything starts.

While `mysql_cdc_drain` runs for the same `topic.prefix`, that run reads the tables and this one waits. The signal
`stop-snapshot` (`MySqlCdcSignalOperator`) cancels the snapshot.

Needs the connections `mysql_cdc_default` (type MySQL CDC) and `spark_cdc` (type Spark, for example host `local[2]`),
and GTIDs (`gtid_mode=ON`) or a signal table (`signal.data.collection`).
"""

with DAG(
    dag_id="mysql_cdc_adhoc_snapshot",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULT_ARGS,
    params={**adhoc_params(), **properties_param(), **connection_params()},
    tags=["mysql", "cdc", "kafka"],
    doc_md=DOC,
) as dag:
    MySqlCdcIncrementalSnapshotOperator(task_id="snapshot", **adhoc_arguments(), **operator_arguments())
