"""What importing a DAG file costs: Airflow's DAG processor does it again and again."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit.cases import for_each

ROOT = Path(__file__).resolve().parents[3]
DAGS = sorted((ROOT / "airflow_provider_mysql_cdc" / "example_dags").glob("mysql_cdc_*.py"))
HEAVY = ["pyspark", "pandas", "pymysql", "confluent_kafka", "pymysqlreplication", "pyarrow"]

CODE = """
import json, runpy, sys
import airflow.sdk
from airflow.sdk import DAG
before = set(sys.modules)
found = {{}}
for path in {paths!r}:
    scope = runpy.run_path(path)
    (dag,) = (value for value in scope.values() if isinstance(value, DAG))
    found[dag.dag_id] = {{
        "schedule": getattr(dag.timetable, "expression", None),
        "max_active_runs": dag.max_active_runs,
        "catchup": dag.catchup,
        "tasks": dag.task_ids,
        "loaded": sorted(set({heavy!r}) & set(sys.modules)),
        "core": sorted(m for m in sys.modules if m.startswith("airflow_provider_mysql_cdc.cdc.")),
    }}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def dags(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    """Import all DAG files in one new process and return what they define."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    env |= {"AIRFLOW_HOME": str(tmp_path_factory.mktemp("airflow")), "PYTHONPATH": str(ROOT)}
    code = CODE.format(paths=[str(path) for path in DAGS], heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, dict[str, object]] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def test_the_dags_are_there_under_their_file_names(dags: dict[str, dict[str, object]]) -> None:
    assert (
        set(dags)
        == {
            "mysql_cdc_snapshot",
            "mysql_cdc_drain",
            "mysql_cdc_pipeline",
            "mysql_cdc_reset_offset",
            "mysql_cdc_adhoc_snapshot",
            "mysql_cdc_backfill",
            "mysql_cdc_verify",
            "mysql_cdc_send_signal",
            "mysql_cdc_import_debezium",
        }
        == {p.stem for p in DAGS}
    )


def test_importing_a_dag_file_loads_no_driver_client_or_spark(dags: dict[str, dict[str, object]]) -> None:
    for dag in dags.values():
        assert dag["loaded"] == []


def test_importing_a_dag_file_loads_of_the_core_at_most_errors_and_properties(
    dags: dict[str, dict[str, dict[str, object]]],
) -> None:
    """The connection form is made from the properties, and Airflow loads it with every installed provider."""
    light = ("errors", "config", "model")
    for dag in dags.values():
        assert [m for m in dag["core"] if m.split(".")[2] not in light] == []


def test_only_one_run_at_a_time_and_no_catching_up(dags: dict[str, dict[str, object]]) -> None:
    for dag in dags.values():
        assert (dag["max_active_runs"], dag["catchup"]) == (1, False)


def test_only_the_drain_and_the_backfill_are_scheduled_by_default(dags: dict[str, dict[str, object]]) -> None:
    assert {name: dag["schedule"] for name, dag in dags.items() if dag["schedule"]} == {
        "mysql_cdc_drain": "*/5 * * * *",
        "mysql_cdc_backfill": "0 0 * * *",  # does nothing until a Variable names tables
    }


def test_the_pipeline_snapshots_before_it_drains(dags: dict[str, dict[str, object]]) -> None:
    assert dags["mysql_cdc_pipeline"]["tasks"] == ["snapshot", "drain"]


@for_each("path", DAGS, ids=lambda p: p.stem)
def test_a_dag_file_uses_airflow_only_through_its_sdk(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("airflow."):
            assert node.module == "airflow.sdk"
