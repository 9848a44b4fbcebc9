"""get_provider_info: what Airflow's schema accepts, what the connection form shows, and that asking costs little."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from airflow_provider_mysql_cdc.cdc.config import fields
from airflow_provider_mysql_cdc.get_provider_info import get_provider_info

ROOT = Path(__file__).resolve().parents[3]
PARTS = ("hooks", "operators", "sensors", "triggers")


@pytest.fixture(scope="module")
def info() -> dict[str, Any]:
    return get_provider_info()


@pytest.fixture
def connection_type(info: dict[str, Any]) -> dict[str, Any]:
    return next(kind for kind in info["connection-types"] if kind["connection-type"] == "mysql_cdc")


def test_it_holds_against_airflow_s_own_schema(info: dict[str, Any]) -> None:
    spec = importlib.util.find_spec("airflow")
    assert spec is not None and spec.submodule_search_locations
    schema = json.loads(Path(spec.submodule_search_locations[0], "provider_info.schema.json").read_text())
    jsonschema.validate(info, schema)


def test_it_is_plain_json(info: dict[str, Any]) -> None:
    assert json.loads(json.dumps(info)) == info


def test_the_entry_point_names_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    entry = project["entry-points"]["apache_airflow_provider"]["provider_info"]
    assert entry == f"{get_provider_info.__module__}:{get_provider_info.__name__}"


def test_every_module_and_class_it_names_can_be_imported(info: dict[str, Any], tmp_path: Path) -> None:
    modules = [m for part in PARTS for entry in info[part] for m in entry["python-modules"]]
    classes = [entry["hook-class-name"] for entry in info["connection-types"]]
    links = [link.rpartition(".") for link in info["extra-links"]]
    code = (
        "import importlib, json, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"for module, _, link in {links!r}: assert getattr(importlib.import_module(module), link)().name\n"
        "told = []\n"
        f"for name in {classes!r}:\n"
        "    module, _, cls = name.rpartition('.')\n"
        "    found = getattr(importlib.import_module(module), cls)\n"
        "    told.append([found.conn_type, found.conn_name_attr, found.hook_name])\n"
        "print(json.dumps(told))\n"
    )
    done = in_new_process(code, tmp_path)
    names = [["mysql_cdc", "mysql_cdc_conn_id"], ["schema_registry", "schema_registry_conn_id"]]
    kinds = info["connection-types"]
    assert json.loads(done) == [[*name, kind["hook-name"]] for name, kind in zip(names, kinds, strict=True)]


def test_every_module_of_the_package_that_a_dag_names_is_listed(info: dict[str, Any]) -> None:
    listed = {m for part in PARTS for entry in info[part] for m in entry["python-modules"]}
    helpers = {
        "allowed_classes",
        "arguments",
        "adhoc_snapshot",
        "asset_events",
        "dag_forms",
        "base",
        "common",
        "connections",
        "dag_params",
        "detached_driver",
        "submission",
        "extra_links",
        "task_result",
        "job_run",
        "replica_connection",
        "kill_application",
        "spec_delivery",
        "kubernetes_secret",
        "spark_settings",
        "spark_job_operator",
        "spark_python",
        "task_error",
        "task_state",
        "fleet_arguments",
        "task_lineage",
        "kafka_connect",
        "fleet_outcome",
        "fleet_plans",
        "fleet_run",
        "openlineage_facets",
        "airflow_metrics",
        "__init__",
    }
    for part in PARTS:
        for path in (ROOT / "airflow_provider_mysql_cdc" / part).glob("*.py"):
            if path.stem not in helpers:
                assert f"airflow_provider_mysql_cdc.{part}.{path.stem}" in listed


def test_asking_for_it_imports_no_airflow_driver_or_client(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from airflow_provider_mysql_cdc.get_provider_info import get_provider_info\n"
        "get_provider_info()\n"
        "heavy = {'airflow', 'pyspark', 'pandas', 'pymysql', 'confluent_kafka', 'sqlalchemy', 'pymysqlreplication'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    assert in_new_process(code, tmp_path) == "[]"


def test_the_form_offers_no_value_that_is_refused(connection_type: dict[str, Any]) -> None:
    modes = connection_type["conn-fields"]["snapshot.mode"]["schema"]["enum"]
    assert "initial" in modes
    assert not set(modes) & set(fields.BY_NAME["snapshot.mode"].refused)


def in_new_process(code: str, home: Path) -> str:
    """Run code in a new interpreter with an Airflow home of its own and return what it printed last."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    env |= {"AIRFLOW_HOME": str(home), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip().splitlines()[-1]
