"""What a pip user gets: the wheel in an environment of its own, without a checkout beside it."""

from __future__ import annotations

import email
import json
import re
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.doc_blocks import blocks
from kit.installed_package import ROOT, Installed, install

from airflow_provider_mysql_cdc.cdc.errors import NoOffsetError

PACKAGE = "airflow_provider_mysql_cdc"
THIN = sorted((ROOT / "dags").glob("*.py"))
EXAMPLES = sorted((ROOT / PACKAGE / "example_dags").glob("mysql_cdc_*.py"))

PARSE = """
import json, runpy, sys
from pathlib import Path
from airflow.sdk import DAG
from airflow_provider_mysql_cdc.hooks.spark_submit import application_path
found = {}
for path in Path(".").glob("*.py"):
    scope = runpy.run_path(str(path))
    found[path.stem] = {v.dag_id: v.task_ids for v in scope.values() if isinstance(v, DAG)}
jobs = [application_path(name) for name in ("drain_binlog.py", "snapshot_tables.py")]
print(json.dumps({"dags": found, "jobs": jobs, "loaded": sys.modules["airflow_provider_mysql_cdc"].__file__}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    return install(tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="module")
def metadata(installed: Installed) -> Any:
    with zipfile.ZipFile(installed.wheel) as wheel:
        name = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
        return email.message_from_string(wheel.read(name).decode())


@pytest.fixture(scope="module")
def parsed(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Parse a folder with the package's DAGs and one of the pages, in one process that imports Airflow."""
    folder = tmp_path_factory.mktemp("dags")
    for example in EXAMPLES:
        (folder / f"my_{example.name}").write_text(f"from {PACKAGE}.example_dags.{example.stem} import dag\n")
    for block in blocks("docs/airflow.md", "python"):
        if "with DAG(" in block.text:
            (folder / f"page_{block.line}.py").write_text(block.text)
    return json.loads(installed.code(PARSE, folder).splitlines()[-1])


def test_a_dag_folder_takes_the_package_s_dags_in_and_finds_the_spark_jobs(parsed: Any, installed: Installed) -> None:
    mine = {dag for stem, dags in parsed["dags"].items() if stem.startswith("my_") for dag in dags}
    assert mine == {example.stem for example in EXAMPLES}
    for place in (*parsed["jobs"], parsed["loaded"]):
        assert Path(place).is_relative_to(installed.folder) and Path(place).is_file()


def test_the_dags_of_a_page_parse_as_printed(parsed: Any) -> None:
    found = {
        dag: tasks for stem, dags in parsed["dags"].items() if stem.startswith("page_") for dag, tasks in dags.items()
    }
    assert found["orders_cdc"] == ["snapshot", "drain"]
    assert all(found.values()), "a DAG without tasks shows nothing"


def test_the_folder_dags_shows_what_the_package_holds() -> None:
    assert [path.name for path in THIN] == [path.name for path in EXAMPLES]
    for path in THIN:
        assert f"from {PACKAGE}.example_dags.{path.stem} import dag\n" in path.read_text()
        assert "DAG(" not in path.read_text()


def test_the_base_needs_no_spark_and_names_the_oldest_airflow(metadata: Any) -> None:
    base = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert "apache-airflow>=3.3" in base
    assert not [line for line in base if line.startswith("pyspark")]
    assert set(metadata.get_all("Provides-Extra")) >= {
        "spark",
        "postgres",
        "mysql",
        "kafka",
        "cncf-kubernetes",
        "openlineage",
    }


def test_what_an_index_shows_has_no_link_that_only_a_checkout_can_follow(metadata: Any) -> None:
    text = metadata.get_payload()
    source = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]
    assert f"Source, {source}" in metadata.get_all("Project-URL")
    links = re.findall(r"\]\(([^)]+)\)", text) + re.findall(r"^\[[^\]]+\]: (\S+)", text, re.MULTILINE)
    assert len(links) > 5
    for link in links:
        inside = re.fullmatch(rf"{source}/(?:blob|tree)/main/([^#]+)(#.*)?", link)
        assert inside and (ROOT / inside[1]).exists(), link


def test_the_commands_of_readme_name_extras_that_exist(metadata: Any) -> None:
    texts = [path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))]
    named = {
        name
        for text in texts
        for group in re.findall(r"airflow-provider-mysql-cdc\[([\w,-]+)\]", text)
        for name in group.split(",")
    }
    assert "spark" in named
    assert named <= set(metadata.get_all("Provides-Extra"))


def test_an_error_that_names_a_dag_says_where_it_comes_from() -> None:
    named = NoOffsetError("none", remedy="reset it (DAG mysql_cdc_reset_offset)")
    assert named.message() == (
        "none. What to do: reset it (DAG mysql_cdc_reset_offset) (DAGs of airflow_provider_mysql_cdc.example_dags)."
        " A retry will not help."
    )
    assert "example_dags" not in NoOffsetError("none", remedy="set mysql_cdc_conn_id").message()
    sources = [path.read_text() for path in (ROOT / PACKAGE / "cdc").rglob("*.py")]
    told = {name for text in sources for name in re.findall(r"\bmysql_cdc_(?:reset\w+|snapshot|drain)\b", text)}
    assert told and told <= {path.stem for path in EXAMPLES}
