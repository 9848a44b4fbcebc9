"""A real Airflow: its REST API, scheduler and triggerer, and this provider's DAGs in them."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
from demolib import family
from kit import tiers
from kit.connect_server import RunningServer
from kit.incremental_rig import FLAT, books
from kit.records import payload
from kit.signals import send
from kit.sql import execute
from live_airflow import ATTACHED, CLUSTER, DEFERRED, LATE, RETRIED, WAITS, WATCHED, LiveAirflow
from live_streams import STREAMS, streams_of
from pipelinelib.pipeline import Pipeline
from real_servers import files_with
from statsd_server import StatsdServer

from airflow_provider_mysql_cdc.assets.mysql_cdc import table_uri
from airflow_provider_mysql_cdc.cdc.operate.end_run import any_driver_running, driver_running
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec, ensure_topics

pytestmark = [pytest.mark.stack, pytest.mark.days("even")]
DB = "live_airflow"
SIGNALS = f"CREATE TABLE {DB}.signals (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048) NULL)"
DAYS = range(1, 5)
TIMES = ("00:00:00", "12:30:00", "23:59:59.999999")


@pytest.fixture(scope="module")
def source(stack: Any) -> Iterator[Any]:
    """Return a connection; the database has rows of ``orders`` at the edges of some days."""
    conn = pymysql.connect(
        host=stack.mysql_host,
        port=stack.mysql_port,
        user=stack.root_user,
        password=stack.root_password,
        autocommit=True,
        ssl_disabled=True,
    )
    hours = [f"({day * 100 + n}, '2026-11-0{day} {at}')" for day in DAYS for n, at in enumerate(TIMES)]
    execute(
        conn,
        "SET time_zone = '+00:00'",
        f"DROP DATABASE IF EXISTS {DB}",
        f"CREATE DATABASE {DB}",
        f"CREATE TABLE {DB}.orders (id INT PRIMARY KEY, updated_at TIMESTAMP(6) NOT NULL)",
        f"INSERT INTO {DB}.orders VALUES {', '.join(hours)}",
        f"CREATE TABLE {DB}.customers (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO {DB}.customers VALUES (1, 1), (2, 2), (3, 3)",
        f"CREATE TABLE {DB}.other (b LONGBLOB)",
        SIGNALS,
        f"GRANT INSERT, DELETE ON {DB}.signals TO {stack.cdc_user}",
    )
    yield conn
    execute(conn, f"REVOKE INSERT, DELETE ON {DB}.signals FROM {stack.cdc_user}", f"DROP DATABASE {DB}")
    conn.close()


@pytest.fixture(scope="module")
def pipeline(stack: Any, source: Any) -> Pipeline:
    """Return the stream, behind its first snapshot."""
    prefix = f"live{os.getpid()}-{int(time.time())}"
    found = Pipeline(
        FLAT
        | {
            "topic.prefix": prefix,
            "database.hostname": stack.mysql_host,
            "database.port": str(stack.mysql_port),
            "database.user": stack.cdc_user,
            "database.password": stack.cdc_password,
            "database.ssl.mode": "disabled",
            "database.include.list": DB,
            "table.include.list": rf"{DB}\.orders,{DB}\.customers",
            "kafka.bootstrap.servers": stack.kafka,
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "1",
            "signal.data.collection": f"{DB}.signals",
            "signal.enabled.channels": "source,kafka",
            "signal.kafka.topic": f"{prefix}-signals",
        }
    )
    found.snapshot()
    ensure_topics(make_admin(found.cfg.kafka_settings()), {f"{prefix}-signals": TopicSpec(1, 1)})
    return found


@pytest.fixture(scope="module")
def live(pipeline: Pipeline) -> Iterator[LiveAirflow]:
    """Return a running Airflow for the stream."""
    folder = Path(tempfile.mkdtemp(prefix=f"mysql-cdc-airflow-{os.environ['MYSQL_CDC_SUITE']}-live-"))
    airflow = LiveAirflow(folder / "home")
    try:
        airflow.open(pipeline.properties)
        yield airflow
    finally:
        airflow.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def stored(live: LiveAirflow) -> None:
    """Let Airflow learn from the ledger where the stream stands; without an offset there is nothing to wait for."""
    assert live.end_of("mysql_cdc_snapshot", live.trigger("mysql_cdc_snapshot")) == "success"


def read_rows(pipeline: Pipeline, table: str) -> list[int]:
    """Return the ids of all rows that were read, in their order."""
    values = [payload(record.value) for record in pipeline.records(table)]
    return [value["after"]["id"] for value in values if value and value["op"] == "r"]


ADHOC = "mysql_cdc_adhoc_snapshot"
BEHIND = "airflow.mysql_cdc.lag.bytes"
ORDERS, CUSTOMERS = f"{DB}.orders", f"{DB}.customers"


@pytest.mark.req("EX-12")
def test_wrong_values_are_refused_before_anything_starts_with_their_field(
    live: LiveAirflow, pipeline: Pipeline
) -> None:
    """Some by the REST API, some by the task, which knows the server and who may send SQL."""
    for field, form in (
        ("chunk_size", {"tables": [ORDERS], "chunk_size": 0}),
        ("chunk_size", {"tables": [ORDERS], "chunk_size": "many"}),
        ("tables", {}),
        ("tables", {"tables": "orders"}),
        ("kind", {"tables": [ORDERS], "kind": "both"}),
        ("channel", {"tables": [ORDERS], "channel": "jmx"}),
    ):
        told = live.refusal(ADHOC, **form)
        assert ": 400 " in told and f"Invalid input for param {field}" in told
    forms = {
        f"tables: '{DB}.ordrs'": {"tables": [ORDERS, f"{DB}.ordrs"]},
        "signal.trusted.channels": {"tables": [ORDERS], "channel": "kafka", "condition": "id < 9"},
        "Where: conditon (did you mean condition?)": {"tables": [ORDERS], "conditon": "id < 9"},
    }
    runs = {told: live.trigger(ADHOC, **form) for told, form in forms.items()}
    for told, run_id in runs.items():
        assert live.end_of(ADHOC, run_id) == "failed"
        assert told in live.log_of(run_id)
    assert live.jobs() == [] and books(pipeline).requests == {}


def test_airflow_serves_the_forms_in_groups_with_stars_only_where_a_value_is_needed(live: LiveAirflow) -> None:
    fields = live.form_of("mysql_cdc")
    assert next(iter(fields)) == "topic.prefix" and {field["schema"]["section"] for field in fields.values()} >= {
        "Kafka"
    }
    assert all("null" in field["schema"]["type"] for field in fields.values())
    form = live.call("GET", f"dags/{ADHOC}/details")["params"]
    starred = {name for name, field in form.items() if "null" not in field["schema"]["type"]}
    assert starred == {"tables", "mysql_cdc_conn_id", "spark_conn_id"}
    assert form["kind"]["schema"]["values_display"]["null"] == "(empty: incremental)"


@pytest.mark.exhaustive
def test_a_deadline_that_a_run_misses_calls_the_notifier_in_the_triggerer(live: LiveAirflow) -> None:
    """As in docs/alarms/watch_streams.py, with a shorter interval."""
    run_id = live.trigger(LATE)

    def alarm() -> list[str]:
        lines = (live.home / "standalone.log").read_text().splitlines()
        return [line for line in lines if f"a run of {LATE} is late" in line]

    try:
        (line, *_) = live.wait_for(alarm, "the alarm of the deadline")
    finally:
        live.call("PATCH", f"dags/{LATE}/dagRuns/{run_id}", {"state": "failed"})
    assert "deadline: mysql_cdc_default" in line or "mysql_cdc_default" in line


@pytest.mark.req("INC-02", "EX-13", "EX-15")
def test_a_snapshot_is_asked_for_over_each_channel(live: LiveAirflow, pipeline: Pipeline, source: Any) -> None:
    execute(source, f"UPDATE {CUSTOMERS} SET v = 9 WHERE id = 2", f"DELETE FROM {ORDERS} WHERE id = 100")
    before = read_rows(pipeline, "customers")
    over_source = live.trigger(ADHOC, tables=[CUSTOMERS], channel="source", condition="id <= 2", chunk_size=1)
    over_kafka = live.trigger(ADHOC, tables=[CUSTOMERS], channel="kafka", kind="blocking")
    again = live.trigger("mysql_cdc_snapshot", tables=[rf"{DB}\.orders"], again=True)
    for dag_id, run_id, rows in (
        (ADHOC, over_source, {CUSTOMERS: 2}),
        (ADHOC, over_kafka, {CUSTOMERS: 3}),
        ("mysql_cdc_snapshot", again, {ORDERS: 11}),
    ):
        assert live.end_of(dag_id, run_id) == "success", live.log_of(run_id)
        assert live.result(dag_id, run_id, "snapshot")["rows"] == rows
    assert sorted(read_rows(pipeline, "customers")[len(before) :]) == [1, 1, 2, 2, 3]
    told = [payload(record.value) for record in pipeline.records("customers")]
    assert [value["after"]["v"] for value in told if value and value["op"] == "u"] == [9]
    deleted = [payload(record.value) for record in pipeline.records("orders")]
    assert [value["before"]["id"] for value in deleted if value and value["op"] == "d"] == [100]
    requests = books(pipeline).requests
    assert [request.verdict for request in requests.values()] == ["accepted"] * 3


@pytest.mark.exhaustive
@pytest.mark.usefixtures("stored")
@pytest.mark.req("EX-13", "EX-15")
def test_deferred_sensors_share_a_poll_in_the_triggerer(live: LiveAirflow, pipeline: Pipeline, source: Any) -> None:
    """The patient ones see what the quick ones' poll brings; alone they would look in an hour."""
    signal = json.dumps({"type": "incremental", "data-collections": [CUSTOMERS]})
    send(pipeline.cfg, "execute-snapshot", signal, "asked-for-by-a-test")
    run_id = live.trigger(WAITS)
    live.wait_deferred(WAITS, run_id)
    execute(source, f"INSERT INTO {DB}.other VALUES (REPEAT('x', 2000000))")
    pipeline.drain()
    assert live.end_of(WAITS, run_id) == "success"
    assert {t["task_id"]: t["state"] for t in live.tasks(WAITS, run_id)} == {
        f"{what}_{who}": "success" for what in ("binlog", "snapshot") for who in ("quick", "patient")
    }


@pytest.mark.usefixtures("stored")
def test_a_deferred_drain_works_without_its_task_and_ends_with_it(
    live: LiveAirflow, pipeline: Pipeline, source: Any
) -> None:
    """Its task holds no worker meanwhile; a person who ends the task ends the driver, over the triggerer."""
    for number, seconds in ((50, 3), (51, 900)):
        execute(source, f"INSERT INTO {CUSTOMERS} VALUES ({number}, 0)")
        jobs = len(live.jobs())
        go = live.spark / f"go-{number}"
        fault = {"point": "writer.mid_batch", "action": "wait", "until": str(go), "fired": f"{go}-fired"}
        says = "logged in with" if seconds == 3 else ""
        run_id = live.trigger(DEFERRED, seconds=seconds, fault=json.dumps(fault), says=says)
        live.wait_deferred(DEFERRED, run_id)
        if says:
            line = f"[mysql-cdc] {says} ***"
            live.wait_for(
                lambda run=run_id, line=line: line in live.shown_log(DEFERRED, run, "drain"), "the driver's line"
            )
            assert live.tasks(DEFERRED, run_id)[0]["state"] == "deferred"
            assert set(live.links(DEFERRED, run_id, "drain")) == {"Pipeline", "Spark UI"}
        go.touch()
        owner = f"{DEFERRED}/{run_id}/drain/-1"
        if seconds == 3:
            assert live.end_of(DEFERRED, run_id) == "success", live.log_of(run_id)
            assert live.result(DEFERRED, run_id, "drain")["tables"] == {CUSTOMERS: 1}
            lines = [line for line in live.shown_log(DEFERRED, run_id, "drain") if "[mysql-cdc]" in line]
            assert lines.count(line) == 1 and len(set(lines)) == len(lines) > 2
            assert " done: 1 records" in lines[-1]
            found = live.links(DEFERRED, run_id, "drain")
            assert found["Pipeline"].endswith("/mysql-cdc/#/pipelines/mysql_cdc_default")
            assert found["Spark UI"] == "http://10.0.0.9:4040" and "Runbook" not in found
        else:
            live.wait_for(lambda owner=owner: driver_running(pipeline.cfg, owner), "the driver")
            # Airflow tells a trigger of it that runs, not one that waits for a triggerer.
            following = f"Following the driver of {owner}"
            live.wait_for(lambda line=following, run=run_id: line in logs_of(live, run), "a trigger at work")
            path = f"dags/{DEFERRED}/dagRuns/{run_id}/taskInstances/drain"
            live.call("PATCH", path, {"new_state": "failed"})
            live.wait_for(lambda owner=owner: not driver_running(pipeline.cfg, owner), "the end of the driver")
        assert live.jobs()[jobs:] == [owner]
    told = live.call("GET", "assets/events?limit=100&order_by=-timestamp")["asset_events"]
    settings = pipeline.cfg.connection_settings()
    uri = table_uri(settings.host, pipeline.cfg.topic_prefix, DB, "customers", settings.port)
    mine = [event["extra"] for event in told if event["uri"] == uri and event["source_dag_id"] == DEFERRED]
    assert [extra["records"] for extra in mine] == [1]


def logs_of(live: LiveAirflow, run_id: str) -> str:
    """Return what workers and triggerer have written about a run's tasks."""
    files = [path for path in live.home.rglob("*.log*") if f"run_id={run_id}" in str(path)]
    return "".join(path.read_text() for path in files)


@pytest.mark.exhaustive
def test_a_scheduler_that_ends_is_begun_again(live: LiveAirflow) -> None:
    """SQLite ends one now and then; no test waits for it in vain."""
    assert live.kill("airflow scheduler")
    run_id = live.trigger("mysql_cdc_snapshot")
    assert live.end_of("mysql_cdc_snapshot", run_id) == "success", live.log_of(run_id)


BACKFILL = "mysql_cdc_backfill"


@pytest.mark.exhaustive
@pytest.mark.req("EX-12")
def test_each_interval_of_a_backfill_is_a_snapshot_of_its_rows_one_at_a_time(
    live: LiveAirflow, pipeline: Pipeline
) -> None:
    """From the command line with two runs at once, then over the REST API."""
    before, scans = len(read_rows(pipeline, "orders")), set(books(pipeline).scans)
    form = {"tables": [ORDERS], "column": "updated_at"}
    days = ("--from-date", "2026-11-02", "--to-date", "2026-11-03", "--max-active-runs", "2")
    live.backfill("--dag-id", BACKFILL, *days, "--dag-run-conf", json.dumps(form))
    runs = live.wait_for(lambda: ended(live, 2), "the backfill of two days")
    assert sorted(read_rows(pipeline, "orders")[before:]) == [day * 100 + n for day in (2, 3) for n in range(3)]
    body = {"dag_id": BACKFILL, "from_date": "2026-11-04T00:00:00Z", "to_date": "2026-11-04T00:00:00Z"}
    live.post_backfill({**body, "max_active_runs": 1, "run_backwards": False, "dag_run_conf": form})
    runs = live.wait_for(lambda: ended(live, 3), "the backfill of one day")
    assert sorted(read_rows(pipeline, "orders")[before + 6 :]) == [400, 401, 402]
    made = [scan for order, scan in books(pipeline).scans.items() if order not in scans]
    assert [(str(scan.table), scan.kind, scan.rows) for scan in made] == [(ORDERS, "incremental", 3)] * 3
    times = sorted(
        (task["start_date"], task["end_date"])
        for run in runs
        for task in live.tasks(BACKFILL, run["dag_run_id"])
        if task["task_id"] == "snapshot"
    )
    assert len(times) == 3
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(times))


def ended(live: LiveAirflow, number: int) -> list[dict[str, Any]]:
    """Return the runs of backfills when so many have succeeded; none before."""
    runs = live.call("GET", f"dags/{BACKFILL}/dagRuns?limit=50")["dag_runs"]
    found = [run for run in runs if run["run_type"] == "backfill"]
    assert not [run for run in found if run["state"] == "failed"], live.log_of(found[0]["dag_run_id"])
    return found if [run["state"] for run in found] == ["success"] * number else []


def test_a_driver_outlives_the_deaths_of_its_tasks_the_triggerer_and_the_scheduler(
    live: LiveAirflow, pipeline: Pipeline, source: Any
) -> None:
    """Each is ended with SIGKILL, before and after the deferral; what starts again follows the one driver there is."""
    # It settles what a driver that was ended has left.
    live.end_of("mysql_cdc_snapshot", live.trigger("mysql_cdc_snapshot"))
    execute(source, f"INSERT INTO {CUSTOMERS} VALUES (60, 0), (61, 0)")
    before, fired, go = len(live.drivers()), live.spark / "fired", live.spark / "go"
    fault = {"point": "writer.mid_batch", "action": "wait", "until": str(go), "fired": str(fired)}
    live.hold.touch()
    run_id = live.trigger(RETRIED, seconds=0, fault=json.dumps(fault))
    # The driver starts. The new scheduler gives the task to another try, and ends the old one's process, if it lives.
    live.wait_for(lambda: live.drivers()[before:], "a driver")
    assert live.kill("airflow scheduler")
    live.begin("scheduler")
    waits = f"may be starting on {socket.gethostname()}"
    live.wait_for(lambda: waits in logs_of(live, run_id), "a second try that waits for the driver")
    kill_task(live, run_id)
    live.wait_for(lambda: logs_of(live, run_id).count(waits) == 2, "a third try that waits for the driver")
    live.hold.unlink()
    # It works, and the task is deferred.
    following = "Following the driver of"
    live.wait_for(lambda: fired.exists() and following in logs_of(live, run_id), "a deferred task")
    assert live.kill("airflow triggerer") and live.kill("airflow scheduler")
    live.begin("triggerer")
    live.begin("scheduler")
    live.wait_for(lambda: logs_of(live, run_id).count(following) == 2, "a new triggerer that follows the driver")
    # It has ended, and the task that learns so is ended once more.
    go.touch()
    live.wait_for(lambda: live.tasks(RETRIED, run_id)[0]["state"] == "running", "the end of the deferral")
    kill_task(live, run_id)
    assert live.end_of(RETRIED, run_id) == "success", live.log_of(run_id)
    result = live.result(RETRIED, run_id, "drain")
    assert (result["tables"], result["batches"]) == ({CUSTOMERS: 2}, 1)
    values = [payload(record.value) for record in pipeline.records("customers")]
    assert sorted(v["after"]["id"] for v in values if v and v["op"] == "c" and v["after"]["id"] in (60, 61)) == [60, 61]
    (driver,) = live.drivers()[before:]
    assert live.jobs()[-1] == f"{RETRIED}/{run_id}/drain/-1" and not family.shown(driver)


def kill_task(live: LiveAirflow, run_id: str) -> None:
    """End the process that carries out a run's task with SIGKILL."""
    title = f"airflow worker -- {live.tasks(RETRIED, run_id)[0]['id']}"

    def found() -> list[int]:
        return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and title in family.shown(int(p.name))]

    for pid in live.wait_for(found, "the task's process"):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.spark
@pytest.mark.exhaustive
def test_no_job_is_doubled_or_left_where_triggerers_die_and_stop(
    live: LiveAirflow, pipeline: Pipeline, source: Any, connect_server: RunningServer, tmp_path: Path
) -> None:
    """The driver of each task waits before it reports, while one triggerer is killed and the next one stopped."""
    streams = streams_of(live, pipeline, connect_server)
    execute(source, f"INSERT INTO {CUSTOMERS} VALUES (701, 0), (702, 0)")
    before, go, runs = driver_outputs(live), tmp_path / "go", dict[str, str]()
    for dag_id in STREAMS:
        fault = {"point": "driver.before_outcome", "action": "wait", "until": str(go), "fired": str(tmp_path / dag_id)}
        runs[dag_id] = live.trigger(dag_id, fault=json.dumps(fault))

    def followed(times: int) -> None:
        for dag_id, run_id in runs.items():
            what = f"{dag_id}: triggerer {times} follows the driver"
            live.wait_for(lambda r=run_id: logs_of(live, r).count("Following the driver of") >= times, what)

    live.wait_for(lambda: all((tmp_path / dag_id).exists() for dag_id in STREAMS), "the drivers' work")
    followed(1)
    outputs = driver_outputs(live) - before
    for times, sign in ((2, signal.SIGKILL), (3, signal.SIGTERM)):
        live.end("airflow triggerer", sign)
        live.begin("triggerer")
        followed(times)
    assert driver_outputs(live) - before == outputs and len(outputs) == len(STREAMS), "a driver for each task"
    go.touch()
    for dag_id, run_id in runs.items():
        assert live.end_of(dag_id, run_id) == "success", live.log_of(run_id)
        result = live.result(dag_id, run_id, "drain")
        topics = {f"{streams[name].cfg.topic_prefix}.{CUSTOMERS}": 2 for name in STREAMS[dag_id]}
        assert result["complete"] and result["counts"] == topics
    for dag_id, names in STREAMS.items():
        for name in names:
            values = [payload(record.value) for record in streams[name].records("customers")]
            assert [v["after"]["id"] for v in values if v and v["op"] == "c"] == [701, 702]
        owner = f"{dag_id}/{runs[dag_id]}/drain/-1"
        assert not any_driver_running([streams[name].cfg for name in names], owner)
    assert not driver_outputs(live) - before


def driver_outputs(live: LiveAirflow) -> set[str]:
    """Return the files with the output of drivers that work for deferred tasks."""
    return {path.name for path in (live.home / "logs" / "mysql_cdc").glob("driver-*.log")}


@pytest.mark.exhaustive
def test_an_asset_watcher_starts_a_drain_for_each_change_and_none_for_work_that_is_done(
    live: LiveAirflow, pipeline: Pipeline, source: Any
) -> None:
    pipeline.drain()
    statsd = StatsdServer()
    live.kill("airflow triggerer")
    live.begin("triggerer", statsd.settings())  # of tasks no metrics come there
    live.set_paused(WATCHED, paused=False)
    try:
        for number in tiers.many((80,), (80, 81)):
            execute(source, f"INSERT INTO {CUSTOMERS} VALUES ({number}, 0)")
            live.wait_for(lambda number=number: number in created_by_drains(pipeline), "a run that the watcher starts")
            live.wait_for(lambda: statsd.values.get(BEHIND) == "0|g", "the lag that the triggerer sends")
            time.sleep(8)  # some polls that find nothing, unless another test works on the server
    finally:
        live.set_paused(WATCHED, paused=True)
        statsd.stop()
    assert statsd.values["airflow.mysql_cdc.watch.requests"] == "1|c"
    runs = live.runs(WATCHED)
    assert runs and {run["run_type"] for run in runs} == {"asset_triggered"}
    for run in runs:
        assert live.end_of(WATCHED, run["dag_run_id"]) == "success", live.log_of(run["dag_run_id"])
        assert live.result(WATCHED, run["dag_run_id"], "drain")["batches"] == 1, "no run finds nothing to do"


def created_by_drains(pipeline: Pipeline) -> set[int]:
    """Return the ids of all customers with an event of their creation."""
    values = [payload(record.value) for record in pipeline.records("customers")]
    return {value["after"]["id"] for value in values if value and value["op"] == "c"}


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize("dag_id", [ATTACHED, CLUSTER, DEFERRED])
@pytest.mark.exhaustive(but="attached")
def test_the_log_of_a_failed_task_ends_with_four_lines_for_whom_it_wakes(
    live: LiveAirflow, pipeline: Pipeline, source: Any, dag_id: str
) -> None:
    if dag_id == ATTACHED:  # the others read the same statement: the stream does not move past it
        text = "SET SESSION binlog_format = 'STATEMENT'", f"UPDATE {CUSTOMERS} SET v = 1 WHERE id = 1"
        execute(source, *text, "SET SESSION binlog_format = 'ROW'")
    run_id = live.trigger(dag_id)
    assert live.end_of(dag_id, run_id) == "failed"
    path = max(live.home.rglob(f"*/run_id={run_id}/task_id=drain/*.log"), key=lambda log: log.stat().st_mtime)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    errors = [record for record in records if record["level"] in ("error", "critical")]
    print(path.read_text())
    assert len(errors) == 1 and [r["event"] for r in records if "::" not in r["event"]][-1] == errors[0]["event"]
    lines = errors[0]["event"].replace("\n    ", " ").splitlines()
    assert [line.split(": ")[0] for line in lines] == ["SourceSettingError", "Where", "Why", "What to do"]
    assert lines[0].endswith(" was logged as text. A retry will not help.")
    whole = path.read_text()
    assert live.links(dag_id, run_id, "drain")["Runbook"].endswith("/runbook.md#sourcesettingerror")
    assert whole.count("logged as text") == 1 and "Traceback" not in whole and "error_detail" not in whole


def test_nothing_that_airflow_keeps_of_all_this_holds_a_password(live: LiveAirflow, pipeline: Pipeline) -> None:
    """Of the tests above: metadata database with XComs, rendered fields and triggers, logs, drivers' outputs."""
    assert files_with(pipeline.cfg.topic_prefix, live.home), "where results stand nobody has looked"
    assert files_with(pipeline.properties["database.password"], live.home) == []
