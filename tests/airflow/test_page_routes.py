"""The page "MySQL CDC" in Airflow's API server: who sees what, and what is seen while MySQL and Kafka are down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.sdk import DAG
from fastapi.testclient import TestClient
from kit.verify_results import CUSTOMERS, ORDERS, verify_result
from page_site import (
    KAFKA_PASSWORD,
    PASSWORD,
    add_bundle,
    bearer,
    connection_of_team,
    counted_queries,
    define_connection,
    forget_dags,
    store_dags,
)
from real_servers import load

from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.operate import check_setup
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_records import verdict_values
from airflow_provider_mysql_cdc.dag_factory import cdc_pipeline
from airflow_provider_mysql_cdc.operators.signal import MySqlCdcSignalOperator
from airflow_provider_mysql_cdc.plugins import page_app, pipeline_details, pipeline_status
from airflow_provider_mysql_cdc.plugins.page_urls import pipeline_url
from airflow_provider_mysql_cdc.plugins.pipeline_status import PipelineReading
from airflow_provider_mysql_cdc.plugins.status_cache import StatusCache

pytestmark = pytest.mark.usefixtures("metadata_db")

READS = (
    "/mysql-cdc/api/pipelines",
    "/mysql-cdc/api/pipeline?conn_id=mysql_shop",
    "/mysql-cdc/api/pipeline/status?conn_id=mysql_shop",
    "/mysql-cdc/api/pipeline/tables?conn_id=mysql_shop",
    "/mysql-cdc/api/pipeline/snapshot?conn_id=mysql_shop",
    "/mysql-cdc/api/pipeline/history?conn_id=mysql_shop",
    "/mysql-cdc/api/pipeline/verification?conn_id=mysql_shop",
    "/mysql-cdc/api/pipeline/preflight?conn_id=mysql_shop",
    "/mysql-cdc/metrics",
    "/mysql-cdc/",
    "/mysql-cdc/static/page.js",
)
VIEWER, USER, ROOT = ("ann", "VIEWER"), ("bob", "USER"), ("root", "ADMIN")


@pytest.fixture(autouse=True)
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Store the DAGs of one pipeline whose servers are down, and do not wait long for them."""
    monkeypatch.setattr(pipeline_status, "KAFKA_TIMEOUT_S", 0.2)
    monkeypatch.setattr(check_setup, "KAFKA_TIMEOUT_S", 0.2)
    for cache in page_app.CACHES:
        cache._entries.clear()
    define_connection(monkeypatch, "mysql_shop", "shop")
    store_dags(cdc_pipeline("shop", mysql_cdc_conn_id="mysql_shop", schedule="*/5 * * * *", tables=["shop.orders"]))
    yield
    forget_dags()


def read(api: TestClient, path: str, who: tuple[str, str] = VIEWER, teams: list[str] | None = None) -> Any:
    """Return what a user reads, when it is there."""
    deadline = time.monotonic() + 60
    while True:
        answer = api.get(path, headers=bearer(*who, teams))
        assert answer.status_code == 200, answer.text
        body = answer.json()
        if not body.get("running"):
            return body
        assert time.monotonic() < deadline, body


@pytest.mark.parametrize("path", READS)
def test_nothing_is_shown_without_a_token(api: TestClient, path: str) -> None:
    assert api.get(path).status_code == 401
    assert api.get(path, headers={"Authorization": "Bearer no-token"}).status_code == 403


@pytest.mark.parametrize("path", READS)
def test_nothing_is_shown_to_a_user_without_permissions(api: TestClient, path: str) -> None:
    assert api.get(path, headers=bearer("eve", None)).status_code == 403


def test_a_person_who_is_not_logged_in_is_led_to_the_login(api: TestClient) -> None:
    answer = api.get("/mysql-cdc/", headers={"Accept": "text/html"})
    assert answer.status_code == 401 and 'href="/auth/login?next=http%3A%2F%2Ftestserver%2Fmysql-cdc%2F"' in answer.text


def test_a_pipeline_is_found_by_the_connection_of_its_dags(api: TestClient) -> None:
    found = read(api, "/mysql-cdc/api/pipelines")
    assert (found["total"], found["all"]) == (1, 1)
    (row,) = found["pipelines"]
    assert row["conn_id"] == "mysql_shop" and row["last_run"] is None
    kinds = {kind: kind for kind in ("snapshot", "drain", "adhoc_snapshot", "backfill", "verify", "reset_offset")}
    kinds["send_signal"] = "signal"
    assert {dag["dag_id"] for dag in row["dags"]} == {f"shop_{name}" for name in kinds}
    page = read(api, "/mysql-cdc/api/pipeline?conn_id=mysql_shop")
    assert {dag["dag_id"]: dag["kind"] for dag in page["dags"]} == {
        f"shop_{name}": kind for name, kind in kinds.items()
    }
    assert pipeline_url("mysql_shop") == "/mysql-cdc/#/pipelines/mysql_shop"


def test_a_pipeline_of_another_team_is_neither_shown_nor_read(api: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
    define_connection(monkeypatch, "mysql_north", "north")
    add_bundle("of-the-north", "north")
    store_dags(cdc_pipeline("north", mysql_cdc_conn_id="mysql_north"), "of-the-north")
    for teams, expected in ((["north"], ["mysql_north", "mysql_shop"]), (["south"], ["mysql_shop"])):
        found = read(api, "/mysql-cdc/api/pipelines", VIEWER, teams)
        assert [row["conn_id"] for row in found["pipelines"]] == expected
        for part in ("", "/status", "/tables", "/snapshot", "/history", "/verification"):
            answer = api.get(f"/mysql-cdc/api/pipeline{part}?conn_id=mysql_north", headers=bearer(*VIEWER, teams))
            assert answer.status_code == (200 if "north" in teams else 403)
        metrics = api.get("/mysql-cdc/metrics", headers=bearer(*VIEWER, teams)).text
        assert ('connection="mysql_north"' in metrics) == ("north" in teams)


def test_a_dag_cannot_show_its_team_the_connection_of_another_team(
    api: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
    add_bundle("of-the-north", "north")
    add_bundle("of-the-south", "south")
    with connection_of_team("mysql_north", "mysql_cdc", "north"):
        store_dags(cdc_pipeline("spy", mysql_cdc_conn_id="mysql_north"), "of-the-south")
        path = "/mysql-cdc/api/pipeline?conn_id=mysql_north"
        assert api.get(path, headers=bearer(*VIEWER, ["south"])).status_code == 403
        store_dags(cdc_pipeline("own", mysql_cdc_conn_id="mysql_north"), "of-the-north")
        assert api.get(path, headers=bearer(*VIEWER, ["north"])).status_code == 200
        assert api.get(path, headers=bearer(*VIEWER, ["south"])).status_code == 403


def test_an_unknown_pipeline_gets_the_answer_of_one_that_is_hidden(api: TestClient) -> None:
    answer = api.get("/mysql-cdc/api/pipeline?conn_id=nowhere", headers=bearer("root", "ADMIN"))
    assert (answer.status_code, answer.json()["detail"]) == (403, "No DAG that you may read uses this connection.")


def test_while_mysql_and_kafka_are_down_the_page_says_so(api: TestClient) -> None:
    page = read(api, "/mysql-cdc/api/pipeline?conn_id=mysql_shop")
    reading = page["reading"]
    assert reading["state"] == "unknown" and reading["stream"] == "shop"
    assert set(reading["unread"]) == {"kafka"}, "the offset is not stored yet, so nothing is asked of the source"
    assert reading["unread"]["kafka"]["what"] == "Kafka does not answer" and reading["unread"]["kafka"]["remedy"]
    assert len(page["dags"]) == 7
    checked = read(api, "/mysql-cdc/api/pipeline/preflight?conn_id=mysql_shop", ROOT)["reading"]
    assert {finding["system"] for finding in checked["findings"]} == {"MySQL", "Kafka"}
    metrics = api.get("/mysql-cdc/metrics", headers=bearer(*VIEWER))
    assert 'mysql_cdc_page_pipeline_read{connection="mysql_shop"} 0' in metrics.text
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")


def test_no_answer_holds_a_password(api: TestClient) -> None:
    for path in READS[:7]:
        read(api, path)
    for path in READS:
        text = api.get(path, headers=bearer("root", "ADMIN")).text
        assert PASSWORD not in text and KAFKA_PASSWORD not in text
    assert "mysql_shop" in text or path.endswith("page.js")


def test_a_password_in_an_error_of_others_is_hidden(api: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_provider_mysql_cdc.cdc.errors import StateError

    def fail(*_: Any) -> None:
        raise StateError("the store refuses", why=f"access denied for cdc:{PASSWORD}@db")

    monkeypatch.setattr(pipeline_status, "read_store", fail)
    reading = read(api, "/mysql-cdc/api/pipeline?conn_id=mysql_shop")["reading"]
    assert reading["unread"]["offset store"]["why"] == "access denied for cdc:***@db"


def test_a_viewer_gets_no_buttons_and_a_user_those_that_airflow_lets_him_press(api: TestClient) -> None:
    actions = read(api, "/mysql-cdc/api/pipeline?conn_id=mysql_shop", VIEWER)["actions"]
    assert actions == {"trigger": [], "pause": [], "end": [], "check": False}
    actions = read(api, "/mysql-cdc/api/pipeline?conn_id=mysql_shop", USER)["actions"]
    assert {entry["kind"] for entry in actions["trigger"]} == {
        "adhoc_snapshot",
        "verify",
        "snapshot",
        "drain",
        "signal",
    }
    assert [entry["dag_id"] for entry in actions["pause"]] == ["shop_drain"]
    assert {"kind": "adhoc_snapshot", "dag_id": "shop_adhoc_snapshot", "conf": {}, "field": "tables"} in actions[
        "trigger"
    ]


def test_a_dag_of_somebody_s_own_that_sends_a_signal_gets_no_button(api: TestClient) -> None:
    """Without the field that the button fills in, a run would send whatever that DAG sends."""
    with DAG("own_signal", schedule=None) as dag:
        MySqlCdcSignalOperator(task_id="send", signal_type="stop-snapshot", mysql_cdc_conn_id="mysql_own")
    store_dags({"own_signal": dag})
    page = read(api, "/mysql-cdc/api/pipeline?conn_id=mysql_own", USER)
    assert [dag["kind"] for dag in page["dags"]] == ["signal"] and page["actions"]["trigger"] == []


def test_every_route_of_the_page_only_reads(api: TestClient) -> None:
    for path in READS:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert api.request(method, path, headers=bearer("root", "ADMIN")).status_code == 405


def test_answers_are_not_stored_and_are_not_framed_by_other_sites(api: TestClient) -> None:
    for path in READS:
        headers = api.get(path, headers=bearer(*VIEWER)).headers
        assert headers["cache-control"] == "no-store" and "frame-ancestors 'self'" in headers["content-security-policy"]
    assert api.get("/mysql-cdc/static/page_app.py", headers=bearer(*VIEWER)).status_code == 404


def test_the_page_stands_in_airflow_s_navigation(api: TestClient) -> None:
    plugins = api.get("/api/v2/plugins", headers=bearer("root", "ADMIN")).json()["plugins"]
    (plugin,) = (plugin for plugin in plugins if plugin["name"] == "mysql_cdc")
    (view,) = plugin["external_views"]
    assert (view["name"], view["href"], view["destination"]) == ("MySQL CDC", "mysql-cdc/", "nav")


def test_five_thousand_tables_are_listed_a_hundred_at_a_time(api: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables of a pipeline are no part of its page, and a part of them costs as much as few tables."""
    counts = {"few": 150, "many": 5_000}
    size = "few"

    def many(task: Any) -> PipelineReading:
        rows = [{"table": f"shop.t{n:04}", "records": n, "verdict": None} for n in range(counts[size])]
        return PipelineReading({"unread": {}, "tables": rows, "structures": {}})

    uri = "mysql-cdc://mysql.example:3306/shop"
    state = {"state": "behind", "unread": {}, "asset_uri": uri, "points": []}
    monkeypatch.setattr(page_app, "STATUS", StatusCache(lambda task: PipelineReading(state)))
    asked: dict[str, list[int]] = {}
    for size, expected in counts.items():
        cache = StatusCache(many)
        monkeypatch.setattr(page_app, "TABLES", cache)
        headers, path = bearer(*VIEWER), "/mysql-cdc/api/pipeline?conn_id=mysql_shop"
        tables_path = "/mysql-cdc/api/pipeline/tables?conn_id=mysql_shop"
        assert api.get(path, headers=headers).json()["reading"]["state"] == "behind"
        with counted_queries() as statements:
            page = api.get(path, headers=headers)
            tables = api.get(tables_path, headers=headers)
        asked[size] = [len(statements), len(page.content), len(tables.json()["tables"])]
        assert tables.json()["total"] == expected and len(tables.content) < 20_000
        cache.close()
    assert asked["few"] == asked["many"] and asked["many"][0] <= 20
    last = api.get(f"{tables_path}&search=T49&offset=90", headers=headers).json()
    assert (last["total"], len(last["tables"])) == (100, 10)
    assert api.get(f"{tables_path}&limit=101", headers=headers).status_code == 422


def test_a_hundred_pipelines_cost_as_many_queries_as_one(api: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    headers, path = bearer(*VIEWER), "/mysql-cdc/api/pipelines"
    api.get(path, headers=headers)
    with counted_queries() as few:
        assert api.get(path, headers=headers).json()["total"] == 1
    dags: dict[str, DAG] = {}
    for number in range(99):
        dags |= cdc_pipeline(f"s{number:02}", mysql_cdc_conn_id=f"mysql_{number:02}", dags=["drain", "verify"])
    store_dags(dags)
    api.get(path, headers=headers)
    with counted_queries() as many:
        answer = api.get(path, headers=headers)
    assert (answer.json()["total"], len(answer.json()["pipelines"])) == (100, page_app.PAGE_SIZE)
    assert len(many) == len(few) <= 12
    page = sum(len(api.get(p, headers=headers).content) for p in ("/mysql-cdc/", "/mysql-cdc/static/page.js"))
    assert len(answer.content) < 25_000 and page < 25_000
    assert page_app.STATUS._entries == {}, "the list asks neither a source nor Kafka"


@pytest.mark.parametrize("conn_id", ["a/b", "../x", "a%2fb", "constructor", "quo'te\"<script>", "grün"])
def test_a_connection_may_have_any_name(api: TestClient, conn_id: str) -> None:
    """Airflow allows letters, digits and ``# ! ( ) - . : / \\``; what it does not is in no DAG's way either."""
    store_dags(cdc_pipeline("odd", mysql_cdc_conn_id=conn_id, dags=["drain"]))
    for part in ("", "/status", "/tables", "/snapshot", "/history", "/verification"):
        answer = api.get(f"/mysql-cdc/api/pipeline{part}", params={"conn_id": conn_id}, headers=bearer(*VIEWER))
        assert answer.status_code == 200, (part, answer.text)
    assert (
        api.get("/mysql-cdc/api/pipeline", params={"conn_id": conn_id}, headers=bearer(*VIEWER)).json()["conn_id"]
        == conn_id
    )


def test_servers_are_checked_for_those_who_may_read_the_connections(api: TestClient) -> None:
    """A check says hosts and ports, and makes Airflow connect; Airflow's own API hides the connection of others."""
    path = "/mysql-cdc/api/pipeline/preflight?conn_id=mysql_shop"
    for who, allowed in ((VIEWER, False), (USER, False), (ROOT, True)):
        shown = read(api, "/mysql-cdc/api/pipeline?conn_id=mysql_shop", who)["actions"]["check"]
        hidden = api.get("/api/v2/connections/mysql_shop", headers=bearer(*who)).status_code == 403
        assert shown is allowed and hidden is not allowed
        assert api.get(path, headers=bearer(*who)).status_code == (200 if allowed else 403)
    assert not page_app.CHECKS._entries or read(api, path, ROOT)


def test_every_connection_of_a_pipeline_must_be_readable_for_a_check(
    api: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a registry that a property names: the check asks it."""
    properties = {"schema_registry_conn_id": "registry_of_others"}
    store_dags(cdc_pipeline("more", mysql_cdc_conn_id="mysql_more", properties=properties, dags=["drain"]))
    manager = type(get_auth_manager())
    asked: list[Any] = []

    def allows(self: Any, *, details: Any = None, **more: Any) -> bool:
        asked.append(details.conn_id)
        return details.conn_id != "registry_of_others"

    monkeypatch.setattr(manager, "is_authorized_connection", allows)
    path = "/mysql-cdc/api/pipeline/preflight?conn_id=mysql_more"
    assert api.get(path, headers=bearer(*ROOT)).status_code == 403
    assert asked == ["mysql_more", "registry_of_others"]


def test_texts_of_logs_are_for_those_who_may_read_logs(api: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = {"epoch": 3, "kind": "drain", "complete": False, "ok": False, "error": "near SECRET", "owner": "a/b/c"}
    error = {"type": "DdlParseError", "what": "unread", "where": "binlog.1:4", "why": "SECRET", "owner": "a/b/c"}
    lists = {"errors": [error], "scans": [{"table": "t", "reason": "id = SECRET"}], "requests": []}
    status = {"topic.prefix": "shop", "at_ms": 1, "active": False, "lag": {}, "batch": batch}
    report = {"unread": {}, "state": "failed", "status": status, "report": lists}
    monkeypatch.setattr(page_app, "STATUS", StatusCache(lambda task: PipelineReading(report)))
    path = "/mysql-cdc/api/pipeline{}?conn_id=mysql_shop"
    assert str(read(api, path.format(""))).count("SECRET") == 3
    listed = [api.get(p, headers=bearer(*VIEWER)).text for p in (path.format("/status"), "/mysql-cdc/api/pipelines")]
    assert not any("SECRET" in text or "a/b/c" in text for text in listed)
    manager = type(get_auth_manager())
    allows = manager.is_authorized_dag
    monkeypatch.setattr(
        manager,
        "is_authorized_dag",
        lambda self, *, access_entity=None, **more: (
            access_entity is not DagAccessEntity.TASK_LOGS and allows(self, access_entity=access_entity, **more)
        ),
    )
    text = str(read(api, path.format("")))
    assert "SECRET" not in text and "a/b/c" not in text and "unread" in text and "'epoch': 3" in text


def test_examples_of_a_verification_are_for_those_who_may_read_logs(
    api: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    define_connection(monkeypatch, "mysql_shop", "s", **{"column.mask.with.4.chars": "shop.orders.secret"})
    orders = replace(ORDERS, examples=tuple(replace(each, columns=("item", "secret")) for each in ORDERS.examples))
    values = verdict_values(build_ledger_state({}), verify_result(orders, CUSTOMERS, run="shop_verify/r/verify/-1#0"))
    ledger = build_ledger_state({key: None if value is None else encode(value) for key, value in values})
    monkeypatch.setattr(pipeline_details, "peek_ledger", lambda cfg: ledger)
    path = "/mysql-cdc/api/pipeline/verification?conn_id=mysql_shop"
    found = read(api, path)["reading"]
    assert found["sentence"] == "1 of 2 tables of s differ from their topics." and found["earlier"] == {}
    assert list(found["tables"]) == ["shop.orders", "shop.customers"] and "with repair=yes" in found["remedy"]
    assert '    topic: {"item": "old", "secret": "***"}' in found["tables"]["shop.orders"]["examples"]
    assert "s3cret" not in str(found), "of a masked column"
    manager = type(get_auth_manager())
    allows = manager.is_authorized_dag
    monkeypatch.setattr(
        manager,
        "is_authorized_dag",
        lambda self, *, access_entity=None, **more: (
            access_entity is not DagAccessEntity.TASK_LOGS and allows(self, access_entity=access_entity, **more)
        ),
    )
    hidden = read(api, path)["reading"]
    assert hidden["tables"]["shop.orders"]["findings"] == found["tables"]["shop.orders"]["findings"]
    assert not any(text in str(hidden) for text in ("old", "compacted", "shop_verify")), "not even whose run it was"


def test_a_person_who_may_read_one_dag_gets_no_texts_of_the_logs_of_the_others(
    api: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors stand in the ledger whichever DAG had them; runs, events and buttons are of the DAG that he may read."""
    error = {"type": "DdlParseError", "what": "unread", "where": "", "why": "SECRET", "owner": "shop_drain/b/c"}
    report = {"unread": {}, "state": "failed", "report": {"errors": [error], "scans": [], "requests": []}}
    monkeypatch.setattr(page_app, "STATUS", StatusCache(lambda task: PipelineReading(report)))
    only, manager = "shop_send_signal", type(get_auth_manager())
    allows = manager.is_authorized_dag
    monkeypatch.setattr(manager, "get_authorized_dag_ids", lambda self, **_: {only})
    monkeypatch.setattr(
        manager,
        "is_authorized_dag",
        lambda self, *, details=None, **more: (
            (details is None or details.id in (None, only)) and allows(self, details=details, **more)
        ),
    )
    page = read(api, "/mysql-cdc/api/pipeline?conn_id=mysql_shop", USER)
    assert [dag["dag_id"] for dag in page["dags"]] == [only]
    assert [entry["dag_id"] for entry in page["actions"]["trigger"]] == [only] and page["actions"]["pause"] == []
    assert "unread" in str(page) and "SECRET" not in str(page) and "shop_drain" not in str(page)


def test_a_run_is_shown_at_the_connection_that_its_form_has_chosen(
    api: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example DAGs work for a connection of the form: another one than its default is a pipeline of its own."""
    for conn_id, prefix in (("mysql_cdc_default", "first"), ("mysql_bank", "bank")):
        define_connection(monkeypatch, conn_id, prefix)
    store_dags({"mysql_cdc_drain": load("mysql_cdc_drain")})
    body = {"logical_date": None, "conf": {"mysql_cdc_conn_id": "mysql_bank"}}
    answer = api.post("/api/v2/dags/mysql_cdc_drain/dagRuns", json=body, headers=bearer(*USER))
    assert answer.status_code == 200, answer.text
    listed = api.get("/mysql-cdc/api/pipelines", headers=bearer(*VIEWER)).json()["pipelines"]
    last = {row["conn_id"]: row["last_run"] and row["last_run"]["dag_id"] for row in listed}
    assert last == {"mysql_bank": "mysql_cdc_drain", "mysql_cdc_default": None, "mysql_shop": None}
    for conn_id, runs in (("mysql_bank", 1), ("mysql_cdc_default", 0)):
        assert len(read(api, f"/mysql-cdc/api/pipeline?conn_id={conn_id}")["runs"]) == runs
    assert 'connection="mysql_bank"' in api.get("/mysql-cdc/metrics", headers=bearer(*VIEWER)).text
