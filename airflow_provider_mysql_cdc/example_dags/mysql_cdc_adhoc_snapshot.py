"""DAG ``mysql_cdc_adhoc_snapshot``: read tables again beside the stream."""

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

Asks for an ad-hoc snapshot (a signal) and drains until it is done: an `r` event for every row of the tables, or for
those that fulfil the condition, between the changes of the stream. What is wrong with the form (a bad expression, SQL
over a channel that is not trusted, a channel that nobody listens to) is said before anything starts.

While `mysql_cdc_drain` is at work on the same `topic.prefix`, that run reads the tables and this one waits. The signal
`stop-snapshot` (`MySqlCdcSignalOperator`) gives it up.

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
