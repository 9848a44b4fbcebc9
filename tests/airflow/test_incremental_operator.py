"""MySqlCdcIncrementalSnapshotOperator: asked once, driven to the end, and what may happen on the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow_home import run_dag
from fakes import FakeOutcome, FakePipeline, FakeStream, FakeSubmit, connections, install

from airflow_provider_mysql_cdc.cdc.errors import OffsetConflictError, RunInProgressError, SinkConnectionError
from airflow_provider_mysql_cdc.cdc.incremental.scan_updates import record_refusal, set_paused, stop_scans
from airflow_provider_mysql_cdc.cdc.operate.send_signal import parse_tables, signal_id, task_signal_id
from airflow_provider_mysql_cdc.operators import adhoc_snapshot as asking
from airflow_provider_mysql_cdc.operators.common import generation_of
from airflow_provider_mysql_cdc.operators.incremental import MySqlCdcIncrementalSnapshotOperator

pytestmark = pytest.mark.usefixtures("metadata_db")
Run = Callable[..., Any]


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[FakeSubmit, FakePipeline, FakeStream]:
    connections(monkeypatch)
    monkeypatch.setattr(asking, "LEDGER_POLL_S", 0.01)
    submit, pipeline = install(monkeypatch, tmp_path)
    stream = FakeStream(monkeypatch)
    pipeline.settled = stream.drain
    return submit, pipeline, stream


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Run:
    """Run one task in a DAG of its own and return the task instance."""

    def go(operator: Any = MySqlCdcIncrementalSnapshotOperator, **more: Any) -> Any:
        name = "".join(c if c.isalnum() else "_" for c in request.node.name)
        with DAG(dag_id=name, schedule=None) as dag:
            given = {"tables": ["shop.orders"], "retries": 1, "retry_delay": timedelta(0), "kafka_conn_id": "kafka_cdc"}
            operator(task_id="again", **given | more)
        return run_dag(dag).get_task_instance("again")

    return go


def log_of(capfd: pytest.CaptureFixture[str]) -> str:
    return "".join(capfd.readouterr())


def test_it_asks_once_and_drains_until_the_tables_are_read(fakes: Any, run: Run) -> None:
    submit, pipeline, stream = fakes
    ti = run(tables=["shop.orders", "shop.customers"], condition="id < 9", surrogate_key="code", chunk_size=50)
    assert ti.state == "success"
    result = ti.xcom_pull(task_ids="again")
    (signal,) = stream.sent
    assert result["rows"] == {"shop.orders": 7, "shop.customers": 7}
    assert (result["state"], result["signal_id"]) == ("done", signal.id)
    assert result["offset"] == {"file": "binlog.000002", "pos": 157}
    assert (signal.type, signal.channel, len(signal.id)) == ("execute-snapshot", "airflow", 40)
    assert json.loads(signal.data) == {
        "type": "incremental",
        "data-collections": ["shop.orders", "shop.customers"],
        "additional-conditions": [
            {"data-collection": "shop.orders", "filter": "id < 9"},
            {"data-collection": "shop.customers", "filter": "id < 9"},
        ],
        "surrogate-key": "code",
    }
    assert [name for name, _ in pipeline.calls] == ["drain", "settle"] * 2
    assert pipeline.even_empty == [True, True]
    assert submit.record["spec"]["properties"]["incremental.snapshot.chunk.size"] == "50"


def test_a_retry_does_not_ask_again(fakes: Any, run: Run) -> None:
    _, pipeline, stream = fakes
    pipeline.outcome = FakeOutcome(complete=False, error=SinkConnectionError("no broker answers"))

    def drain() -> None:
        stream.drain()
        pipeline.outcome = FakeOutcome() if len(pipeline.planned()) > 1 else pipeline.outcome

    pipeline.settled = drain
    ti = run()
    assert (ti.state, ti.try_number) == ("success", 2)
    assert len(stream.sent) == 1


def test_the_task_of_an_interrupted_snapshot_fails_when_no_table_that_is_left_can_be_read(
    fakes: Any, run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    _, pipeline, stream = fakes

    def drain() -> None:
        stream.drain()
        denied = [replace(scan, initial=True).unreadable("denied") for scan in stream.books.active_scans]
        stream.books = stream.books.with_scans(denied)

    pipeline.settled, stream.drains = drain, 10
    ti = run()
    assert (ti.state, ti.try_number, len(pipeline.planned())) == ("failed", 2, 2)
    assert "tables of an interrupted snapshot cannot be read" in log_of(capfd)


def test_a_task_that_is_cleared_sends_a_new_signal_once_its_snapshot_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = FakeStream(monkeypatch)
    first, second = signal_id("dag/run/task/-1"), signal_id("dag/run/task/-1", 2)
    assert first != second
    assert task_signal_id(stream.ledger(), "dag/run/task/-1", 0) == first
    stream.sent.append(SimpleNamespace(id=first, data='{"data-collections": ["shop.orders"]}', to_json=lambda: {}))  # type: ignore[arg-type]
    stream.drain()
    assert task_signal_id(stream.ledger(), "dag/run/task/-1", 2) == first, "it is still at work"
    stream.drain()
    assert task_signal_id(stream.ledger(), "dag/run/task/-1", 2) == second


@pytest.mark.parametrize(("max_tries", "retries", "times"), [(3, 3, 0), (5, 3, 2), (0, 0, 0), (0, 3, 0)])
def test_clearing_a_task_makes_it_another_time(max_tries: int, retries: int, times: int) -> None:
    ti = SimpleNamespace(max_tries=max_tries, task=SimpleNamespace(retries=retries))
    assert generation_of({"ti": ti}) == times


@pytest.mark.parametrize(
    ("given", "tables"),
    [
        ("shop.orders", ["shop.orders"]),
        ('["shop.orders", "shop.x"]', ["shop.orders", "shop.x"]),
        ("[a-z]+.orders", ["[a-z]+.orders"]),
        (("a.b",), ["a.b"]),
    ],
)
def test_tables_come_as_one_name_a_list_or_rendered_text(given: Any, tables: list[str]) -> None:
    assert parse_tables(given) == tables


@pytest.mark.parametrize(
    "arguments",
    [
        {"tables": []},
        {"tables": ["shop.(orders"]},
        {"kind": "both"},
        {"channel": "mail"},
        {"channel": "source"},
        {"channel": "kafka", "condition": "1=1", "properties": {"signal.enabled.channels": "kafka"}},
        {"chunk_size": 0},
        {"timeout": "soon"},
    ],
    ids=str,
)
def test_wrong_values_end_the_task_before_anything_starts(fakes: Any, run: Run, arguments: dict[str, Any]) -> None:
    submit, pipeline, stream = fakes
    ti = run(**arguments)
    assert (ti.state, ti.try_number) == ("failed", 1)
    assert (stream.sent, pipeline.calls, submit.record) == ([], [], None)


def test_a_table_that_is_not_captured_ends_the_task_before_anything_starts(
    fakes: Any, run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    submit, pipeline, stream = fakes
    stream.unknown = {"shop.ordrs"}
    ti = run(tables=["shop.orders", "shop.ordrs"])
    assert (ti.state, ti.try_number) == ("failed", 1)
    assert (stream.sent, pipeline.calls, submit.record) == ([], [], None)
    assert "tables: {'shop.ordrs'}" in log_of(capfd)


@pytest.mark.parametrize("given_up", ["stopped", "refused"])
def test_a_snapshot_that_is_given_up_ends_the_task_for_good(
    fakes: Any, run: Run, capfd: pytest.CaptureFixture[str], given_up: str
) -> None:
    _, pipeline, stream = fakes

    def drain() -> None:
        (signal,) = stream.sent
        if given_up == "refused":
            stream.books = record_refusal(stream.books, signal.id, "no captured table matches shop.orders", 1)
        else:
            stream.drain()
            stream.books = stop_scans(stream.books, None)

    pipeline.settled = drain
    ti = run()
    assert (ti.state, ti.try_number) == ("failed", 1)
    told = {"refused": "no captured table matches shop.orders", "stopped": "stopped by a signal"}[given_up]
    assert told in log_of(capfd)


def test_while_another_run_drains_it_waits_and_starts_no_spark(fakes: Any, run: Run) -> None:
    """The other run takes the signal and reads the tables."""
    submit, pipeline, stream = fakes
    stream.busy = [RunInProgressError("another run is at work"), OffsetConflictError("it stored something")]
    stream.drains, look = 1, stream.ledger

    def driven_by_another() -> Any:
        if not stream.busy:
            stream.drain()
        return look()

    stream.ledger = driven_by_another  # type: ignore[method-assign]
    ti = run()
    assert ti.state == "success"
    assert ti.xcom_pull(task_ids="again")["rows"] == {"shop.orders": 7}
    assert (pipeline.calls, submit.record) == ([], None)


def test_a_driver_that_another_run_was_faster_than_is_tried_again(fakes: Any, run: Run) -> None:
    submit, pipeline, stream = fakes
    submit.set(code=75, body='print("[mysql-cdc] RunInProgressError: another run is at work.")')
    pipeline.outcome = FakeOutcome(complete=False)

    def drain() -> None:
        stream.drain()
        submit.set()
        pipeline.outcome = FakeOutcome()

    pipeline.settled = drain
    ti = run()
    assert (ti.state, ti.try_number) == ("success", 1)


def test_another_error_of_the_driver_is_not_waited_out(fakes: Any, run: Run) -> None:
    submit, pipeline, _ = fakes
    submit.set(code=78, body='print("[mysql-cdc] BinlogPurgedError: it is gone.")')
    pipeline.outcome = FakeOutcome(complete=False)
    ti = run()
    assert (ti.state, ti.try_number) == ("failed", 1)


def test_when_the_time_is_over_the_driver_is_ended_and_the_snapshot_stays_asked_for(
    fakes: Any, run: Run, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    submit, pipeline, stream = fakes
    to_its_end = tmp_path / "to-its-end"
    submit.set(body=f"import pathlib, time; time.sleep(600); pathlib.Path({str(to_its_end)!r}).touch()")
    pipeline.outcome = FakeOutcome(complete=False)
    ti = run(timeout=2)
    assert (ti.state, ti.try_number) == ("failed", 1)
    (signal,) = stream.sent
    assert not to_its_end.exists(), "the driver was not ended"
    log = log_of(capfd)
    assert "the snapshot was not finished in time" in log and "Where: timeout=2" in log
    assert f"Signal {signal.id}: what was read is kept" in log


def test_while_the_snapshot_rests_nothing_is_planned_without_need(fakes: Any, run: Run) -> None:
    _, pipeline, stream = fakes
    looks: list[int] = []
    look = stream.ledger

    def rests_for_a_while() -> Any:
        looks.append(1)
        if len(looks) == 2:
            stream.drain()
            stream.books = set_paused(stream.books, paused=True)
            pipeline.nothing = 10**6
        if len(looks) == 6:
            stream.books = set_paused(stream.books, paused=False)
            pipeline.nothing = 0
        return look()

    stream.ledger = rests_for_a_while  # type: ignore[method-assign]
    assert run().state == "success"
    assert pipeline.even_empty[:4] == [False] * 4
    assert pipeline.even_empty[4:] == [True]


def test_a_task_that_is_killed_says_what_is_left(fakes: Any, run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    submit, pipeline, stream = fakes
    assert run(pipeline.kill_while_planning(MySqlCdcIncrementalSnapshotOperator), retries=0).state == "failed"
    assert submit.record is None
    assert f"Signal {stream.sent[0].id}: what was read is kept" in log_of(capfd)


def test_in_cluster_mode_each_job_ships_its_own_spec_file(fakes: Any, run: Run) -> None:
    submit, _, _ = fakes
    assert run(master="yarn", deploy_mode="cluster", files="/etc/hosts").state == "success"
    argv = submit.record["argv"]
    shipped = argv[argv.index("--files") + 1].split(",")
    assert [Path(name).name for name in shipped] == ["hosts", "job-spec.json"]
