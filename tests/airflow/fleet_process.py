"""Run one drain of a fleet, or of a single stream, in a process of its own: ``fleet_process.py ARGUMENTS.json``.

The file names the operator, the DAG's id, the operator's arguments and where the result goes; with ``run_id`` it is
another attempt of the task of that run.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.models.dagrun import DagRun
from airflow.sdk import DAG
from airflow_home import run_dag

from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator
from airflow_provider_mysql_cdc.operators.fleet import MySqlCdcFleetDrainOperator

OPERATORS = {"fleet": MySqlCdcFleetDrainOperator, "drain": MySqlCdcDrainOperator}


def main(file: str) -> None:
    """Run the task, and write how it ended."""
    given: dict[str, Any] = json.loads(Path(file).read_text())
    with DAG(dag_id=given["dag_id"], schedule=None) as dag:
        OPERATORS[given["operator"]](task_id="drain", retry_delay=timedelta(0), **given["arguments"])
    DagRun.generate_run_id = lambda **_: given["run_id"]
    run = run_dag(dag)
    (ti,) = run.get_task_instances()
    Path(given["result"]).write_text(json.dumps({"state": ti.state, "result": ti.xcom_pull(task_ids="drain")}))


if __name__ == "__main__":
    main(sys.argv[1])
