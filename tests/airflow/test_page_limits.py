"""What the page must not do to Airflow's API server: run code, hold its database, or break with one DAG."""

from __future__ import annotations

import gc
import resource
from collections import ChainMap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from kit import tiers
from page_site import add_bundle, bearer, connection_of_team, define_connection, forget_dags, store_dags
from test_page_routes import VIEWER, read

from airflow_provider_mysql_cdc.cdc.operate.schema_history import StructureRecord
from airflow_provider_mysql_cdc.dag_factory import cdc_pipeline
from airflow_provider_mysql_cdc.plugins import page_access, page_app, pipeline_status, pipelines
from airflow_provider_mysql_cdc.plugins.mysql_cdc_page import MySqlCdcPagePlugin
from airflow_provider_mysql_cdc.plugins.pipeline_status import PipelineReading
from airflow_provider_mysql_cdc.plugins.pipelines import PipelineTask
from airflow_provider_mysql_cdc.plugins.status_cache import StatusCache

pytestmark = pytest.mark.usefixtures("metadata_db")

SHOP = "/mysql-cdc/api/pipeline?conn_id=mysql_shop"
PART = "/mysql-cdc/api/pipeline{}?conn_id=mysql_shop"


@pytest.fixture(autouse=True)
def no_dags(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(pipeline_status, "KAFKA_TIMEOUT_S", 0.2)
    page_app.STATUS._entries.clear()
    define_connection(monkeypatch, "mysql_shop", "shop")
    yield
    forget_dags()


@pytest.mark.parametrize(
    "setting", ["plugin.library.paths", "ssl.engine.location", "sasl.kerberos.kinit.cmd", "ssl.providers"]
)
def test_a_dag_runs_no_code_in_the_api_server(api: TestClient, setting: str) -> None:
    properties = {f"kafka.{setting}": "/nowhere/library.so"}
    store_dags(cdc_pipeline("shop", mysql_cdc_conn_id="mysql_shop", properties=properties, dags=["drain"]))
    reading = read(api, SHOP)["reading"]
    assert set(reading["unread"]) == {"configuration"}
    assert reading["unread"]["configuration"]["where"] == setting


def test_a_request_that_waits_holds_no_connection_of_airflow_s_database(
    api: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow import settings
    from sqlalchemy import event

    held, while_reading = [0], list[int]()

    def note(change: int) -> Any:
        def changed(*_: Any) -> None:
            held[0] += change

        return changed

    def read_slowly(_: PipelineTask) -> PipelineReading:
        while_reading.append(held[0])
        return PipelineReading({"unread": {}, "state": "unknown"})

    store_dags(cdc_pipeline("shop", mysql_cdc_conn_id="mysql_shop", dags=["drain"]))
    listeners = [("checkout", note(1)), ("checkin", note(-1))]
    for name, act in listeners:
        event.listen(settings.engine.pool, name, act)
    try:
        for part in ("", "/status", "/tables", "/history"):
            monkeypatch.setattr(page_app, "STATUS", StatusCache(read_slowly))
            assert api.get(PART.format(part), headers=bearer(*VIEWER)).status_code == 200
    finally:
        for name, act in listeners:
            event.remove(settings.engine.pool, name, act)
    assert while_reading == [0, 0, 0, 0]


def test_one_dag_in_an_unknown_shape_does_not_hide_the_others(api: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    read_tasks = pipelines.pipeline_tasks
    monkeypatch.setattr(page_access, "CATALOG", pipelines.DagCatalog())

    def of_another_airflow(dag_id: str, data: Any) -> Any:
        if dag_id == "odd_drain":
            data = {"dag": {"params": {"a": 1}}}  # pairs in this Airflow
        return read_tasks(dag_id, data)

    monkeypatch.setattr(pipelines, "pipeline_tasks", of_another_airflow)
    store_dags(cdc_pipeline("odd", mysql_cdc_conn_id="mysql_odd", dags=["drain"]))
    store_dags(cdc_pipeline("shop", mysql_cdc_conn_id="mysql_shop", dags=["drain"]))
    found = read(api, "/mysql-cdc/api/pipelines")
    assert [row["conn_id"] for row in found["pipelines"]] == ["mysql_shop"]


def test_a_page_that_cannot_be_made_leaves_airflow_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [app["url_prefix"] for app in MySqlCdcPagePlugin().fastapi_apps] == ["/mysql-cdc"]

    def fail() -> None:
        raise ImportError("of another Airflow")

    monkeypatch.setattr(page_app, "create_app", fail)
    assert MySqlCdcPagePlugin().fastapi_apps == []


@pytest.mark.parametrize(
    "named",
    [
        {"offset_conn_id": "store_north"},
        {"kafka_conn_id": "store_north"},
        {"properties": {"schema_registry_conn_id": "store_north"}},
    ],
)
def test_no_argument_of_a_dag_opens_another_team_s_connection(
    api: TestClient, monkeypatch: pytest.MonkeyPatch, named: dict[str, Any]
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
    add_bundle("of-the-north", "north")
    add_bundle("of-the-south", "south")
    with connection_of_team("store_north", "postgres", "north"):
        store_dags(cdc_pipeline("spy", mysql_cdc_conn_id="mysql_shop", dags=["drain"], **named), "of-the-south")
        assert api.get(SHOP, headers=bearer(*VIEWER, ["south"])).status_code == 403
        store_dags(cdc_pipeline("own", mysql_cdc_conn_id="mysql_shop", dags=["drain"], **named), "of-the-north")
        assert api.get(SHOP, headers=bearer(*VIEWER, ["north"])).status_code == 200


PIPELINES, TABLES = tiers.many((50, 1_000), (100, 5_000))


@pytest.mark.days("even")
def test_many_requests_for_many_tables_take_no_more_memory_than_some(
    api: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scrapes and lists read all pipelines, and people look at some with all their tables."""
    now = [0.0]

    def read_status(task: PipelineTask) -> PipelineReading:
        captured = [f"{task.conn_id}.t{n:04}" for n in range(1_000)]
        status: dict[str, Any] = {"topic.prefix": task.conn_id, "at_ms": 1, "active": False, "lag": {}, "batch": {}}
        status["metrics"] = {"streaming": {"CapturedTables": captured}}
        return PipelineReading({"unread": {}, "state": "behind", "status": status, "points": []})

    def read_tables(task: PipelineTask) -> PipelineReading:
        names = [f"{task.conn_id}.t{n:04}" for n in range(TABLES)]
        written = [{"table": name, "records": n, "verdict": "equal"} for n, name in enumerate(names[:1_000])]
        structures = {name: StructureRecord(n, n) for n, name in enumerate(names)}
        return PipelineReading({"unread": {}, "tables": written, "structures": structures})

    made = [cdc_pipeline(f"s{n:02}", mysql_cdc_conn_id=f"mysql_{n:02}", dags=["drain"]) for n in range(PIPELINES)]
    others = read(api, "/mysql-cdc/api/pipelines")["total"]
    store_dags(dict(ChainMap(*made)))
    monkeypatch.setattr(page_app, "STATUS", StatusCache(read_status, clock=lambda: now[0]))
    monkeypatch.setattr(page_app, "TABLES", StatusCache(read_tables, clock=lambda: now[0]))
    headers = bearer(*VIEWER)

    def visit(first: int) -> int:
        """Ask as a scraper and three people do; return the memory of this process in bytes."""
        now[0] += 100.0  # what was read before is read again, and forgotten after ten minutes
        assert api.get("/mysql-cdc/metrics", headers=headers).status_code == 200
        assert read(api, "/mysql-cdc/api/pipelines")["total"] == PIPELINES + others
        for number in range(first, first + 3):
            seen: set[str] = set()
            path = f"/mysql-cdc/api/pipeline/tables?conn_id=mysql_{number:02}"
            for offset in range(0, TABLES, 1_000):
                seen |= {row["table"] for row in read(api, f"{path}&offset={offset}&limit=100")["tables"]}
            assert len(seen) == TABLES // 10 and read(api, path)["total"] == TABLES, "the unwritten too"
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    before = max(visit(3 * turn) for turn in range(8))
    after = max(visit(3 * turn) for turn in range(8, 16))
    kept = {name: len(getattr(page_app, name)._entries) for name in ("STATUS", "TABLES")}
    print(f"{before / 1e6:.0f} MB, then {after / 1e6:.0f} MB; kept {kept}")
    assert kept["TABLES"] <= 21, "what nobody has asked for in ten minutes is forgotten"
    assert after < before + 30_000_000
