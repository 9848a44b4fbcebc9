"""The plugin in every process of Airflow: it costs almost nothing, and its address is stable."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from airflow_provider_mysql_cdc.plugins.page_urls import pipeline_url

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[3]


def test_the_address_of_a_pipeline_is_stable_and_quoted() -> None:
    assert pipeline_url("mysql_shop") == "/mysql-cdc/#/pipelines/mysql_shop"
    assert pipeline_url("a/b ü#?") == "/mysql-cdc/#/pipelines/a%2Fb%20%C3%BC%23%3F"


def test_the_package_declares_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    entry = project["entry-points"]["airflow.plugins"]["mysql_cdc"]
    assert entry == "airflow_provider_mysql_cdc.plugins.mysql_cdc_page:MySqlCdcPagePlugin"


def test_loading_the_plugin_imports_neither_the_page_nor_a_client(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from airflow.plugins_manager import AirflowPlugin\n"
        "before = set(sys.modules)\n"
        "from airflow_provider_mysql_cdc.plugins.mysql_cdc_page import MySqlCdcPagePlugin\n"
        "plugin = MySqlCdcPagePlugin()\n"
        "new = set(sys.modules) - before\n"
        "print(plugin.external_views[0]['href'], sorted(m for m in new if 'mysql_cdc' not in m))\n"
        "print([m for m in sys.modules if m in ('confluent_kafka', 'pymysql', 'pyspark')])\n"
    )
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120, check=True
    )
    assert done.stdout.splitlines()[-2:] == ["mysql-cdc/ []", "[]"]
