"""README's own DAG, taken out of README: its first run reads the tables, the next one brings the changes."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow_home import run_dag
from live_airflow import SUBMIT
from real_servers import define_connections, execute, operations

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("metadata_db")]
README = (Path(__file__).resolve().parents[2] / "README.md").read_text()


def printed_dag() -> DAG:
    """Return the first DAG that README prints."""
    block = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)[0]
    scope: dict[str, Any] = {}
    exec(compile(block, "README.md", "exec"), scope)
    (dag,) = (value for value in scope.values() if isinstance(value, DAG))
    for task in dag.tasks:
        task.retries = 0
    return dag


@pytest.fixture
def topic(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, properties: dict[str, str], database: str, stack: Any
) -> str:
    """Make the connections that README tells of, with a spark-submit whose tasks are threads."""
    define_connections(monkeypatch, properties, stack)
    monkeypatch.setenv("AIRFLOW_CONN_ORDERS", os.environ["AIRFLOW_CONN_MYSQL_CDC_DEFAULT"])
    spark = re.search(r'`(\{"conn_type": "spark".*?\}\})`', README)
    assert spark is not None
    monkeypatch.setenv("AIRFLOW_CONN_SPARK", spark[1])
    (tmp_path / "bin").mkdir()
    files = {name: str(tmp_path / name) for name in ("started", "drivers", "hold")}
    text = SUBMIT.format(python=sys.executable, root=str(Path(__file__).resolve().parents[2]), **files)
    for name, program in (("spark-submit", text), ("java", "#!/bin/sh\n")):
        (tmp_path / "bin" / name).write_text(program)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return f"{properties['topic.prefix']}.{database}.orders"


def test_it_runs_as_printed(root: Any, database: str, topic: str, stack: Any) -> None:
    execute(
        root, f"CREATE TABLE {database}.orders (id INT PRIMARY KEY)", f"INSERT INTO {database}.orders VALUES (1), (2)"
    )
    assert run_dag(printed_dag()).state == "success"
    assert operations(stack.kafka, topic) == {"r": 2}
    execute(root, f"INSERT INTO {database}.orders VALUES (3)")
    assert run_dag(printed_dag()).state == "success"
    assert operations(stack.kafka, topic) == {"r": 2, "c": 1}
