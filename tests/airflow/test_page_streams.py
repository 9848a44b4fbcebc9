"""The page shows what real streams do: numbers of ``mysql-cdc status``, tables, chunks, scans, errors, verdicts."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from airflow_home import run_dag
from fastapi.testclient import TestClient
from kit.signals import send
from kit.spark_cluster import wait_until
from kit.sql import execute
from kit.table_rig import filled
from page_site import bearer, forget_dags, store_dags
from pipelinelib.pipeline import Pipeline
from real_servers import define_connections
from test_page_routes import read

from airflow_provider_mysql_cdc.assets.mysql_cdc import table_uri
from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.model.clock import now_ms
from airflow_provider_mysql_cdc.cdc.operate import schema_history
from airflow_provider_mysql_cdc.cdc.operate.stream_status import read_status
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import read_topic
from airflow_provider_mysql_cdc.dag_factory import cdc_pipeline
from airflow_provider_mysql_cdc.plugins import page_app, pipeline_tables
from airflow_provider_mysql_cdc.state.asset_store import AssetOffsetStore, MetadataAccessor
from airflow_provider_mysql_cdc.state.offset_database import sql_store

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("metadata_db")]

PROPERTIES = {"snapshot.chunk.rows": "10"}
SLOTS = 1
PAGE = "/mysql-cdc/api/pipeline{}?conn_id=mysql_cdc_default"


@pytest.fixture(autouse=True)
def shop(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], stack: Any) -> Iterator[None]:
    define_connections(monkeypatch, properties, stack)
    store_dags(cdc_pipeline("shop", mysql_cdc_conn_id="mysql_cdc_default", schedule="@hourly"))
    yield
    forget_dags()


def shown(api: TestClient, part: str = "", more: str = "") -> Any:
    """Return what the page shows now."""
    for cache in page_app.CACHES:
        cache._entries.clear()
    return read(api, PAGE.format(part) + more, ("root", "ADMIN"))


def add_event(uri: str, records: int) -> None:
    """Add an asset event of a table, as a drain does."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session

    with create_session() as session:
        asset = AssetModel(name=uri, uri=uri, group="asset")
        session.add(asset)
        session.flush()
        event = AssetEvent(asset_id=asset.id, source_dag_id="shop_drain", extra={"records": records})
        event.timestamp = datetime.now(UTC)
        session.add(event)


def test_the_page_shows_the_numbers_of_the_command(
    api: TestClient, pipeline: Pipeline, root: Any, database: str
) -> None:
    execute(root, *filled(database, "t", count=5))
    assert shown(api)["reading"]["state"] == "not started"
    pipeline.snapshot()
    execute(root, f"INSERT INTO {database}.t (id) VALUES (100), (101)")
    reading = shown(api)["reading"]
    expected = read_status(pipeline.cfg).to_json()
    assert (reading["state"], reading["unread"], reading["stream"]) == ("behind", {}, pipeline.cfg.topic_prefix)
    assert reading["status"]["lag"]["bytes"] == expected["lag"]["bytes"] > 0
    assert reading["status"]["lag"]["milliseconds"] > 0 and reading["status"]["lag"]["first_change_ms"]
    pipeline.drain()
    reading = shown(api)["reading"]
    assert reading["state"] == "up to date" and reading["status"]["lag"]["milliseconds"] == 0
    assert reading["status"]["metrics"]["streaming"]["TotalNumberOfCreateEventsSeen"] == 2
    settings = pipeline.cfg.connection_settings()
    add_event(table_uri(settings.host, pipeline.cfg.topic_prefix, database, "t", settings.port), 2)
    (row,) = (r for r in shown(api, "/tables")["tables"] if r["table"] == f"{database}.t")
    assert (row["records"], row["records_day"]) == (2, 2) and row["last_change"]
    assert shown(api, "/tables", "&search=nothing")["total"] == 0
    text = api.get("/mysql-cdc/metrics", headers=bearer("bob", "USER")).text
    stream = f'{{server="{pipeline.cfg.topic_prefix}"}}'
    assert f"mysql_cdc_lag_known{stream} 1" in text
    assert f"mysql_cdc_streaming_total_number_of_create_events_seen_total{stream} 2" in text


@pytest.mark.parametrize("kept_in", ["asset", "database"])
def test_offset_and_history_come_from_the_offset_store(
    api: TestClient,
    pipeline: Pipeline,
    root: Any,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    kept_in: str,
    tmp_path: Path,
    stack: Any,
) -> None:
    prefix = pipeline.cfg.topic_prefix
    if kept_in == "database":
        value = json.dumps({"conn_type": "sqlite", "host": f"{tmp_path}/offsets.db"})
        monkeypatch.setenv("AIRFLOW_CONN_OFFSETS", value)
        forget_dags()  # Airflow stores a version of a DAG at most every 30 seconds
        store_dags(cdc_pipeline("shop", mysql_cdc_conn_id="mysql_cdc_default", offset_conn_id="offsets"))
        assert "stored" not in shown(api)["reading"] and not (tmp_path / "offsets.db").stat().st_size
    accessor = MetadataAccessor("mysql_cdc_offsets_shop") if kept_in == "asset" else None
    pipeline.store = sql_store("offsets", prefix) if accessor is None else AssetOffsetStore(accessor, prefix)
    execute(root, *filled(database, "t", count=5))
    pipeline.snapshot()
    execute(root, f"INSERT INTO {database}.t (id) VALUES (100)")
    pipeline.drain()
    stored = shown(api)["reading"]["stored"]
    assert (stored["epoch"], stored["pending"], len(stored["history"])) == (2, None, 2)
    first, second = shown(api, "/history")["points"]
    assert (first["epoch"], first["event_lag_ms"]) == (1, None)
    assert (second["epoch"], second["events"]) == (2, 1) and 0 <= second["event_lag_ms"] < 60_000
    assert all(point["until_ms"] <= point["at_ms"] for point in (first, second))
    define_connections(monkeypatch, pipeline.properties | {"kafka.bootstrap.servers": "127.0.0.1:1"}, stack)
    reading = shown(api)["reading"]
    assert set(reading["unread"]) == {"kafka"} and reading["state"] == "unknown"
    assert reading["stored"] == stored and reading["stored_lag"]["reason"].startswith("nothing new since")


def test_scans_signals_and_a_verdict_are_shown(api: TestClient, pipeline: Pipeline, root: Any, database: str) -> None:
    execute(root, *filled(database, "t", count=5))
    pipeline.snapshot()
    send(
        pipeline.cfg,
        "execute-snapshot",
        json.dumps({"type": "incremental", "data-collections": [f"{database}.t"]}),
        "s1",
    )
    assert [s["type"] for s in shown(api)["reading"]["report"]["signals"]] == ["execute-snapshot"]
    pipeline.drain()
    report = shown(api)["reading"]["report"]
    assert report["signals"] == [] and report["scans_active"] == 0
    assert [(s["table"], s["state"], s["rows"]) for s in report["scans"]] == [(f"{database}.t", "done", 5)]
    assert [r["verdict"] for r in report["requests"]] == ["accepted"]
    pipeline.verify()
    found = shown(api, "/verification")["reading"]
    assert (found["verdict"], found["tables_compared"], found["rows"], found["remedy"]) == ("equal", 1, 5, "")
    (row,) = (r for r in shown(api, "/tables")["tables"] if r["table"] == f"{database}.t")
    assert row["verdict"] == "equal"


def test_the_chunks_of_a_running_snapshot_are_shown(
    api: TestClient, pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    execute(root, *filled(database, "t", count=40))
    go, fired = tmp_path / "go", tmp_path / "fired"
    fault = {"point": "snapshot.after_chunk", "action": "wait", "nth": 2, "until": str(go), "fired": str(fired)}
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    monkeypatch.setattr(faults, "_passed", {})
    job = threading.Thread(target=pipeline.snapshot)
    job.start()
    try:
        wait_until(fired.exists, 60, "two chunks")
        assert shown(api)["reading"]["state"] == "snapshot"
        found = shown(api, "/snapshot")["reading"]
        (table,) = found["tables"]
        assert (table["table"], table["done"], table["rows"]) == (f"{database}.t", 2, 20)
        assert table["chunks"] == len(table["cells"]) >= 4 and table["cells"][:3] == [1, 1, 0]
        assert found["seconds_left"] > 0
    finally:
        go.touch()
        job.join()
    assert shown(api, "/snapshot")["reading"]["tables"] == []


def test_an_ad_hoc_snapshot_says_how_far_it_is_and_follows_signals_of_its_own_dag(
    api: TestClient,
    pipeline: Pipeline,
    root: Any,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    stack: Any,
) -> None:
    """Sixteen rows are a key range here, and the second one is held before its commit."""
    made = cdc_pipeline("shop", mysql_cdc_conn_id="mysql_cdc_default")
    pipeline.properties["incremental.snapshot.chunk.size"] = "1"
    tables = [f"{database}.{name}" for name in ("t", "u")]
    execute(root, *filled(database, "t", count=100), *filled(database, "u", count=100))
    execute(root, *(f"ANALYZE TABLE {table}" for table in tables))
    pipeline.snapshot()
    send(pipeline.cfg, "execute-snapshot", {"type": "incremental", "data-collections": tables}, "s1")

    def signal(name: str, **form: Any) -> list[str]:
        """Send a signal as the page's button does, and return the states that the next drain leaves."""
        assert run_dag(made["shop_send_signal"], {"signal": name, **form}).state == "success"
        pipeline.drain()
        return [scan["state"] for scan in sorted(shown(api)["reading"]["report"]["scans"], key=itemgetter("number"))]

    assert signal("pause-snapshot") == ["waiting", "waiting"]
    report = shown(api)["reading"]["report"]
    assert report["scans_paused"] and report["scans_seconds_left"] is None
    assert [scan["seconds_left"] for scan in report["scans"]] == [None, None]
    assert all(50 <= scan["estimate"] <= 200 for scan in report["scans"]), "of information_schema"
    with monkeypatch.context() as two_servers:
        host = pipeline.properties["database.hostname"]
        define_connections(two_servers, pipeline.properties | {"database.hostname": f"{host}:1,{host}"}, stack)
        assert [scan["estimate"] for scan in shown(api)["reading"]["report"]["scans"]] == [
            scan["estimate"] for scan in report["scans"]
        ], "of the server that answers"

    assert signal("stop-snapshot", tables=[tables[1]]) == ["waiting", "aborted"]
    go, fired = tmp_path / "go", tmp_path / "fired"
    fault = {"point": "incremental.before_commit", "action": "wait", "nth": 4, "until": str(go), "fired": str(fired)}
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    monkeypatch.setattr(faults, "_passed", {})
    assert run_dag(made["shop_send_signal"], {"signal": "resume-snapshot"}).state == "success"
    job = threading.Thread(target=pipeline.drain)
    job.start()
    try:
        wait_until(fired.exists, 60, "three key ranges")
        report = shown(api)["reading"]["report"]
        assert report["scans"][0]["rows"] == 48 and not report["scans_paused"]
        assert 0 < report["scans_seconds_left"] == report["scans"][0]["seconds_left"]
    finally:
        go.touch()
        job.join()
    assert {scan["state"] for scan in shown(api)["reading"]["report"]["scans"]} == {"done", "aborted"}


def test_the_structure_of_a_table_is_named_by_its_record_of_the_schema_history(
    api: TestClient, pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a table without rows, and from one record to the next without reading the earlier ones again."""
    monkeypatch.setattr(pipeline_tables, "KEPT", pipeline_tables._KeptStructures())
    execute(root, *filled(database, "t", count=5), f"CREATE TABLE {database}.never_written (id INT PRIMARY KEY)")
    pipeline.snapshot()

    def versions() -> dict[str, int]:
        rows = [row for row in shown(api, "/tables")["tables"] if row["structure"]]
        assert all(now_ms() - row["structure"]["at_ms"] < 600_000 for row in rows)
        return {row["table"].partition(".")[2]: row["structure"]["record"] for row in rows}

    first = versions()
    assert set(first) == {"t", "never_written"}
    execute(root, f"ALTER TABLE {database}.t ADD COLUMN w INT", f"DROP TABLE {database}.never_written")
    read_from: list[int] = []

    def noted(*arguments: Any, **more: Any) -> Any:
        read_from.append(more["since"][0])
        return read_topic(*arguments, **more)

    monkeypatch.setattr(schema_history, "read_topic", noted)
    pipeline.drain()
    second = versions()
    assert set(second) == {"t"} and second["t"] > max(first.values())
    assert versions() == second and len(read_from) == 1 and read_from[0] > max(first.values())


def test_the_page_is_there_while_the_source_is_down(
    api: TestClient, pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, stack: Any
) -> None:
    execute(root, *filled(database, "t", count=5))
    pipeline.snapshot()
    define_connections(monkeypatch, pipeline.properties | {"database.port": "1"}, stack)
    reading = shown(api)["reading"]
    assert set(reading["unread"]) == {"mysql"} and reading["state"] == "lag unknown"
    assert reading["status"]["batch"]["complete"] and stack.cdc_password not in str(reading)


def test_no_answer_of_a_real_stream_holds_its_password(
    api: TestClient, pipeline: Pipeline, root: Any, database: str, stack: Any
) -> None:
    execute(root, *filled(database, "t", count=5))
    pipeline.snapshot()
    for part in ("", "/status", "/tables", "/snapshot", "/preflight"):
        body = str(shown(api, part))
        assert stack.cdc_password not in body
    assert "reachable" in body
