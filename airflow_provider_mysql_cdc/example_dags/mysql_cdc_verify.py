"""DAG ``mysql_cdc_verify``: compare tables with their topics, and repair differences."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_mysql_cdc.operators.dag_params import (
    DEFAULT_ARGS,
    connection_params,
    operator_arguments,
    properties_param,
    schedule,
)
from airflow_provider_mysql_cdc.operators.verify import MySqlCdcVerifyOperator
from airflow_provider_mysql_cdc.operators.verify_params import verify_arguments, verify_params

DOC = """
### Compare tables with their topics

Drains the binlog, then compares each topic, folded by key, with its table at one position, while the source goes on.
The task's log has the report: rows that are missing in the topic, rows that the table no longer has (ghosts), rows that
differ. *Repair* writes missing and differing rows again and deletes ghosts; begin with a dry run.

While another run of the stream is active this one is skipped. `[mysql_cdc] verify_schedule` sets a schedule.

Needs the connections `mysql_cdc_default` (type MySQL CDC) and `spark_cdc` (type Spark, for example host `local[2]`).
"""

with DAG(
    dag_id="mysql_cdc_verify",
    schedule=schedule("verify_schedule", None),
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULT_ARGS,
    params={**verify_params(), **properties_param(), **connection_params()},
    tags=["mysql", "cdc", "kafka"],
    doc_md=DOC,
) as dag:
    MySqlCdcVerifyOperator(task_id="verify", **verify_arguments(), **operator_arguments())
