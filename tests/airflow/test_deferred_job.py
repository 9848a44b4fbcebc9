"""Tasks that are deferred while their driver works on its own; the lock's holder is a file here."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException
from airflow.sdk import DAG
from airflow_home import run_dag
from fakes import FakeOutcome, FakePipeline, FakeSubmit, connections, install

from airflow_provider_mysql_cdc.cdc.errors import SourceAuthError, SourceConnectionError
from airflow_provider_mysql_cdc.operators import deferring
from airflow_provider_mysql_cdc.operators.detached import Submission
from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator
from airflow_provider_mysql_cdc.operators.incremental import MySqlCdcIncrementalSnapshotOperator
from airflow_provider_mysql_cdc.triggers.job import GONE, UNKNOWN, MySqlCdcJobTrigger

pytestmark = pytest.mark.usefixtures("metadata_db")


class Driver:
    """A driver that holds its lock for a while, and what is known about it.

    Args:
        submit: Stands in for spark-submit.
        folder: Where it leaves its traces.
    """

    def __init__(self, submit: FakeSubmit, folder: Path) -> None:
        self.submit, self.lock, self.started = submit, folder / "lock", folder / "started"
        self.go, self.end = folder / "go", folder / "end"
        self.looks: list[str] = []
        self.seen = 0
        self.is_seen(2)

    def is_seen(self, times: int, code: int = 0) -> None:
        """Say how often it is seen at work before it ends; 0 means that it ends before it works."""
        self.times = times
        self.submit.set(
            code=code,
            body=f"""
import time
print(os.getpid(), file=open({str(self.started)!r}, "a"))
if {times}:
    while not os.path.exists({str(self.go)!r}):
        time.sleep(0.05)
    open({str(self.lock)!r}, "w").close()
    while not os.path.exists({str(self.end)!r}):
        time.sleep(0.05)
    os.remove({str(self.lock)!r})
""",
        )

    def at_work(self, cfg: Any, owner: str) -> bool:
        """Say what the server would; a driver that was started begins to work when somebody has asked."""
        self.looks.append(owner)
        if self.starts():
            self.go.touch()
        found = self.lock.exists()
        self.seen += found
        if self.seen >= self.times:
            self.end.touch()
        return found

    def starts(self) -> int:
        return len(self.started.read_text().splitlines()) if self.started.exists() else 0


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[FakeSubmit, FakePipeline]:
    connections(monkeypatch, kafka_conn_id="kafka_cdc")
    return install(monkeypatch, tmp_path)


@pytest.fixture
def driver(fakes: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Driver:
    found = Driver(fakes[0], tmp_path)
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.operate.end_run.at_work", found.at_work)
    monkeypatch.setattr(deferring, "LOOK_S", 0.1)
    return found


def drain(dag_id: str, kind: Any = MySqlCdcDrainOperator, **arguments: Any) -> Any:
    with DAG(dag_id, schedule=None) as dag:
        kind(
            task_id="drain",
            retries=1,
            retry_delay=timedelta(0),
            **{"deferrable": True, "poll_interval": 0.1} | arguments,
        )
    return run_dag(dag)


def test_a_task_is_deferred_while_its_driver_works_and_judged_by_the_ledger(
    fakes: Any, driver: Driver, capfd: pytest.CaptureFixture[str]
) -> None:
    submit, pipeline = fakes
    run = drain("deferred_drain")
    assert run.state == "success"
    result = run.get_task_instances()[0].xcom_pull(task_ids="drain")
    assert result["counts"] == {"shop.db.orders": 42}
    assert driver.starts() == 1
    assert set(driver.looks) == {f"deferred_drain/{run.run_id}/drain/-1"}
    assert [name for name, _ in pipeline.calls] == ["drain", "settle"]
    record = submit.record
    assert record["pgid"] == record["pid"]
    assert not [name for name in record["env"] if name.startswith("AIRFLOW")]
    assert not Path(record["argv"][-1]).parent.exists()
    log = "".join(capfd.readouterr())
    assert "the task is deferred until it has ended" in log
    assert "[mysql-cdc] batch 1: 42 records" in log
    assert list((Path(os.environ["AIRFLOW_HOME"]) / "logs" / "mysql_cdc").glob("driver-*")) == []


def test_a_driver_that_ends_before_it_works_is_judged_at_once(
    fakes: Any, driver: Driver, capfd: pytest.CaptureFixture[str]
) -> None:
    _, pipeline = fakes
    driver.is_seen(0, code=78)
    pipeline.outcome = FakeOutcome(complete=False)
    assert drain("deferred_start_fails").state == "failed"
    assert driver.starts() == 1
    log = "".join(capfd.readouterr())
    assert "Error code is: 78" in log
    assert "deferred until" not in log


def test_a_driver_that_dies_while_the_task_is_deferred_is_followed_by_a_retry(fakes: Any, driver: Driver) -> None:
    _, pipeline = fakes
    pipeline.outcome = FakeOutcome(complete=False)
    assert drain("deferred_dies").state == "failed"
    assert driver.starts() == 2
    assert [name for name, _ in pipeline.calls] == ["drain", "settle"] * 2


class WorkerDies(MySqlCdcDrainOperator):
    """The worker is gone between the driver's first step and the deferral."""

    def _defer(self, owner: str) -> None:
        if type(self).died:
            super()._defer(owner)
        type(self).died = True
        raise AirflowException("the worker is gone")

    died = False


def test_a_later_try_follows_the_driver_that_is_at_work_and_starts_none(fakes: Any, driver: Driver) -> None:
    _, pipeline = fakes
    driver.is_seen(4)  # by the first try, twice by the second, and by the trigger
    WorkerDies.died = False
    assert drain("deferred_worker_dies", WorkerDies).state == "success"
    assert driver.starts() == 1
    assert [name for name, _ in pipeline.calls] == ["drain", "settle"]


class WorkerDiesEarlier(MySqlCdcDrainOperator):
    """The worker is gone before the driver, which is starting, holds its lock."""

    died = False

    def _run_detached(self, *args: Any) -> Any:
        if type(self).died:
            raise AssertionError("a second driver")
        type(self).died = True
        real, deferring._at_work = deferring._at_work, self._gone
        try:
            return super()._run_detached(*args)
        finally:
            deferring._at_work = real

    @staticmethod
    def _gone(cfg: Any, owner: str) -> bool:
        raise AirflowException("the worker is gone")


def test_a_later_try_waits_for_a_driver_that_is_starting(fakes: Any, driver: Driver) -> None:
    driver.is_seen(3)  # twice by the second try, and by the trigger
    WorkerDiesEarlier.died = False
    assert drain("deferred_worker_dies_earlier", WorkerDiesEarlier).state == "success"
    assert driver.starts() == 1


@pytest.mark.parametrize(
    ("arguments", "executor", "why"),
    [
        ({"master": "yarn", "deploy_mode": "cluster"}, "LocalExecutor", "deploy mode cluster"),
        ({}, "KubernetesExecutor", "its workers end with their task"),
        ({}, "CeleryExecutor,KubernetesExecutor", ""),
    ],
)
def test_where_no_driver_can_outlive_its_task_deferring_is_refused_by_name(
    fakes: Any,
    driver: Driver,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: dict[str, Any],
    executor: str,
    why: str,
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", executor)
    run = drain(f"deferred_refused_{executor.replace(',', '_')}_{len(arguments)}", **arguments)
    log = "".join(capfd.readouterr())
    assert run.state == ("failed" if why else "success")
    assert driver.starts() == (0 if why else 1)
    if why:
        assert "the task cannot be deferred while Spark works" in log
        assert why in log


@pytest.mark.parametrize("given", [None, "false", ""])
def test_it_is_not_deferred_where_nobody_asks_for_it_by_name_and_it_cannot_be(
    fakes: Any, driver: Driver, monkeypatch: pytest.MonkeyPatch, given: Any
) -> None:
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "True")
    driver.is_seen(0)
    run = drain(f"deferred_by_default_{given}", deferrable=given, master="yarn", deploy_mode="cluster")
    assert run.state == "success"
    assert driver.looks == []


def test_an_adhoc_snapshot_cannot_be_deferred() -> None:
    with pytest.raises(TypeError, match="MySqlIncrementalSnapshotSensor"):
        MySqlCdcIncrementalSnapshotOperator(task_id="x", tables="a.b", deferrable=True)


# -- the trigger -------------------------------------------------------------------------------------------------------


def trigger() -> MySqlCdcJobTrigger:
    return MySqlCdcJobTrigger(
        owner="d/r/t/-1", mysql_cdc_conn_id="mysql_cdc_default", kafka_conn_id=None, properties={}, poll_interval=1.0
    )


def test_the_trigger_fires_when_the_lock_stays_free_or_nobody_can_tell_for_long() -> None:
    found = trigger()
    assert [found.judge(look) for look in (True, False, True, None, False)] == [None] * 5
    assert found.judge(False) == {"ended": True}
    assert GONE == 2
    found = trigger()
    assert [found.judge(None) for _ in range(UNKNOWN - 1)] == [None] * (UNKNOWN - 1)
    assert found.judge(None) == {"ended": True}


def test_the_trigger_goes_on_while_the_server_cannot_be_asked_and_ends_when_it_never_can(
    fakes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(error: Exception) -> Any:
        def at_work(*_: Any) -> bool:
            raise error

        return at_work

    name = "airflow_provider_mysql_cdc.cdc.operate.end_run.at_work"
    monkeypatch.setattr(name, fails(SourceConnectionError("the server does not answer")))
    cfg: Any = None
    assert trigger().read(cfg) is None
    monkeypatch.setattr(name, fails(SourceAuthError("access denied")))
    with pytest.raises(SourceAuthError):
        trigger().read(cfg)


def test_the_trigger_s_arguments_hold_no_secret_and_make_it_anew(fakes: Any) -> None:
    path, arguments = trigger().serialize()
    assert path == "airflow_provider_mysql_cdc.triggers.job.MySqlCdcJobTrigger"
    assert "pa55" not in json.dumps(arguments)
    assert MySqlCdcJobTrigger(**arguments).serialize() == (path, arguments)


def test_a_person_who_ends_the_task_ends_the_driver(fakes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    ended = []
    name = "airflow_provider_mysql_cdc.cdc.operate.end_run.end_run"
    monkeypatch.setattr(name, lambda cfg, owner, log: ended.append((cfg.topic_prefix, owner)))
    asyncio.run(trigger().on_kill())
    assert ended == [("shop", "d/r/t/-1")]


def test_a_process_that_has_a_driver_s_number_by_chance_is_not_taken_for_it(tmp_path: Path) -> None:
    import socket

    mine = Submission("j", "some-name", socket.gethostname(), os.getpid(), str(tmp_path / "o"))
    assert not mine.runs()
    assert not Submission("j", "n", "elsewhere", os.getpid(), "o").runs()
    lines: list[Any] = []
    assert Submission("j", "n", "elsewhere", 1, "o").relay(lambda *parts: lines.append(parts)) == []
    assert lines == [("The driver's output stands on %s: %s", "elsewhere", "o")]
