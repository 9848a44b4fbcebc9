"""DAG ``mysql_cdc_reset_offset``: move the stored offset by hand."""

from __future__ import annotations

from airflow.sdk import DAG, Param

from airflow_provider_mysql_cdc.operators.dag_params import (
    DEFAULT_ARGS,
    connection_params,
    operator_arguments,
    properties_param,
)
from airflow_provider_mysql_cdc.operators.reset import MySqlCdcResetOffsetOperator

DOC = """
### Continue from another offset

Discards a batch that cannot be finished (its binlog was purged, its ledger was lost) and stores the offset from which
the next drain reads. **Events between the old and the new offset are skipped, or written again.** After skipping
events, take a new snapshot: `mysql_cdc_snapshot` with *Snapshot again*.

Pause the DAG that drains this stream first: the reset is refused while a run is active.
"""

CHOICE = {
    "offset": Param(
        "stored",
        type="string",
        minLength=1,
        title="Offset",
        description=(
            "stored: keep the stored offset and only discard the unfinished batch. current: the end of the binlog. "
            "earliest: the first position that the server still has. Or file:position, a transaction boundary, or the "
            "GTID set that was executed up to the position."
        ),
    ),
    "confirm": Param(
        "", type="string", title="Confirm", description="Type the stream's topic.prefix to confirm the reset."
    ),
}

with DAG(
    dag_id="mysql_cdc_reset_offset",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    default_args={**DEFAULT_ARGS, "retries": 0},
    params={**CHOICE, **properties_param(), **connection_params(spark=False)},
    tags=["mysql", "cdc", "kafka"],
    doc_md=DOC,
) as dag:
    MySqlCdcResetOffsetOperator(
        task_id="reset",
        offset="{{ params.offset }}",
        confirm="{{ params.confirm }}",
        **operator_arguments(spark=False),
    )
