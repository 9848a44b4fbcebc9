"""Every code block of the pages is right: what needs no server is tried here, the rest runs in ``test_quickstart``.

Commands that would change an environment or an Airflow are parsed by the program's own parser.
"""

from __future__ import annotations

import argparse
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.cases import for_each
from kit.doc_blocks import ROOT, RUN_PAGES, Block, blocks, commands, of_all_pages

FLEET_FILE = """
from pathlib import Path
from airflow_provider_mysql_cdc.dag_factory import pipelines_from_file
pipelines_from_file(Path(__file__).with_name("fleets.yaml"))
"""
SQL_PAGES = ("docs/quickstart.md", "docs/guides/read-again.md")
"""Pages whose statements ``test_quickstart`` runs."""


def mysql_cdc(words: list[str]) -> None:
    from airflow_provider_mysql_cdc.commands.program import command_line

    command_line().parse_args(words[: words.index(">")] if ">" in words else words)


def curl(words: list[str]) -> None:
    """Requests of Kafka Connect, which ``test_take_over_debezium`` sends to a real worker."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-X", default="GET")
    for name in ("-H", "-d", "url"):
        parser.add_argument(name)
    given = parser.parse_args(words)
    connector, _, request = given.url.rpartition("/")
    assert connector == "http://connect:8083/connectors/inventory"
    assert (given.X, request, given.d is not None) in {
        ("PUT", "stop", False),
        ("GET", "status", False),
        ("PATCH", "offsets", True),
        ("PUT", "resume", False),
    }


def airflow(words: list[str]) -> argparse.Namespace:
    from airflow.cli.cli_parser import get_parser

    return get_parser().parse_args(words)


def pip(words: list[str]) -> None:
    assert words[0] == "install"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    name, airflow_version = (word for word in words[1:] if not word.startswith("--"))
    package = re.fullmatch(r"airflow-provider-mysql-cdc(?:\[(\w+)\])?", name)
    assert package is not None and (package[1] is None or package[1] in extras)
    assert re.fullmatch(r"apache-airflow==3\.3\.\d", airflow_version)


def exported(words: list[str]) -> None:
    (setting,) = words
    assert setting.startswith("AIRFLOW_CONN_")


PROGRAMS: dict[str, Callable[[list[str]], Any]] = {
    "mysql-cdc": mysql_cdc,
    "airflow": airflow,
    "curl": curl,
    "pip": pip,
    "export": exported,
}


@for_each("block", of_all_pages("sh"), ids=str)
def test_each_command_is_one(block: Block) -> None:
    found = commands(block)
    assert found
    for program, *words in found:
        if program.startswith("scripts/"):
            assert (ROOT / program).stat().st_mode & 0o100
        else:
            PROGRAMS[program](words)


def test_each_block_runs_or_says_why_not() -> None:
    languages = {"sh", "python", "sql", "json", "yaml", "ini"}
    list_of_items = re.compile(r"^(?:[*-]|\d+\.) .*?\n\n(?=\S)", re.DOTALL | re.MULTILINE)
    for page in RUN_PAGES:
        found = blocks(page)
        assert [str(block) for block in found if not block.reason and block.language not in languages] == []
        assert page in SQL_PAGES or blocks(page, "sql") == []
        text = re.sub(r"^ *```.*?^ *```$", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
        assert re.findall(r"\n\n(    \S.*)", list_of_items.sub("", text)) == [], f"{page}: fence them"


def test_each_dag_file_of_the_pages_is_read(tmp_path: Path) -> None:
    """One folder with all blocks, as Airflow reads it; a block that imports nothing of this package is no DAG file."""
    from airflow.dag_processing.dagbag import DagBag

    for block in of_all_pages("yaml"):
        found_in = yaml.safe_load(block.text)
        if "pipelines" in found_in:
            (tmp_path / "pipelines.yaml").write_text(block.text)
        if "fleets" in found_in:
            (tmp_path / "fleets.yaml").write_text(block.text)
            (tmp_path / "fleets.py").write_text(FLEET_FILE)
            assert "shards_drain" in DagBag(dag_folder=str(tmp_path / "fleets.py")).dags
    found = {}
    for block in of_all_pages("python"):
        file = tmp_path / f"{block.page.replace('/', '_').removesuffix('.md')}_{block.line}.py"
        file.write_text(block.text)
        bag = DagBag(dag_folder=str(file))
        assert bag.import_errors == {}, block
        assert bag.dags and all(dag.tasks for dag in bag.dags.values()), block
        found |= bag.dags
    assert {"shop_snapshot", "shop_drain", "orders_cdc", "orders_read_again", "north_drain"} <= found.keys()


def connection_of(words: list[str]) -> Any:
    """Return the connection that ``airflow connections add`` would store."""
    from airflow.models.connection import Connection

    arguments = airflow(words)
    name = arguments.conn_id
    if arguments.conn_uri:
        return Connection(conn_id=name, uri=arguments.conn_uri)
    if arguments.conn_json:
        return Connection.from_json(conn_id=name, value=arguments.conn_json)
    fields = {"host": "conn_host", "port": "conn_port", "login": "conn_login", "password": "conn_password"}
    values = {field: getattr(arguments, argument) for field, argument in fields.items()}
    return Connection(conn_id=name, conn_type=arguments.conn_type, extra=arguments.conn_extra, **values)


def settings_of(conn: Any) -> tuple[Any, ...]:
    extra = {name: value for name, value in conn.extra_dejson.items()}
    return conn.conn_type, conn.host, int(conn.port or 0), conn.login, conn.password, extra


def test_all_forms_of_a_connection_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.models.connection import Connection

    forms: dict[str, list[Any]] = {"mysql_shop": [], "spark_cdc": []}
    for block in blocks("docs/quickstart.md", "sh"):
        for program, *words in commands(block):
            if program == "export":
                name, _, value = words[0].removeprefix("AIRFLOW_CONN_").partition("=")
                made = Connection.from_json(value, name.lower()) if value.startswith("{") else Connection(uri=value)
                forms[name.lower()].append(settings_of(made))
            elif words[:2] == ["connections", "add"]:
                forms[words[2]].append(settings_of(connection_of(words)))
    assert [len(found) for found in forms.values()] == [4, 2]
    for name, found in forms.items():
        assert found == found[:1] * len(found), name
    assert forms["mysql_shop"][0][0] == "mysql_cdc"
    monkeypatch.setenv("AIRFLOW_CONN_MYSQL_SHOP", next(iter(_exported("MYSQL_SHOP"))))
    from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook

    assert MySqlCdcHook("mysql_shop").get_config().topic_prefix == "shop"


def _exported(name: str) -> list[str]:
    words = [words[1] for block in blocks("docs/quickstart.md", "sh") for words in commands(block)]
    return [w.partition("=")[2] for w in words if w.startswith(f"AIRFLOW_CONN_{name}=")]


def test_the_examples_have_one_set_of_connections() -> None:
    """Connections have the same ids on all pages: a reader carries one page's example over to the next."""
    known = {"mysql_cdc_default", "spark_cdc", "kafka_cdc", "offsets_db", "slack"}
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        ids = set(re.findall(r"""_conn_id['"]?\s*[=:]\s*\[?['"]?(\w+)['"]?""", text))
        ids |= set(re.findall(r"conn-id (\w+)", text))
        odd = {
            name
            for name in ids - known
            if not re.fullmatch(r"mysql_(shop|bank|north|south)|ID|kafka_(shop|test)", name)
        }
        assert odd == set(), page


def test_the_transforms_of_the_page_are_a_chain() -> None:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig

    (block,) = blocks("docs/transforms.md", "ini")
    stream = {"topic.prefix": "shop", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}
    given = dict(line.split("=", 1) for line in block.text.splitlines())
    assert ConnectorConfig.from_properties(stream | given).chain is not None


def test_json_blocks_are_documents() -> None:
    found = of_all_pages("json")
    assert len(found) > 2
    for block in found:
        assert json.loads(block.text), block
