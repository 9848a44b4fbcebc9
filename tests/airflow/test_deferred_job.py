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
from cluster_apis import served
from fake_driver import Driver
from fakes import PASSWORD, FakeOutcome
from kubernetes import client

from airflow_provider_mysql_cdc.hooks import kubernetes_secret
from airflow_provider_mysql_cdc.operators import detached_driver
from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator
from airflow_provider_mysql_cdc.operators.incremental import MySqlCdcIncrementalSnapshotOperator
from airflow_provider_mysql_cdc.triggers.job import MySqlCdcJobTrigger

pytestmark = pytest.mark.usefixtures("metadata_db")


@pytest.fixture
def driver(fakes: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Driver:
    found = Driver(fakes[0], tmp_path)
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.operate.end_run.lock_connection", found.holder_of)
    monkeypatch.setattr(detached_driver, "DRIVER_POLL_S", 0.1)
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
    assert "The task is deferred until it has ended" in log
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


def test_on_a_cluster_the_driver_is_followed_by_its_lock_too(
    fakes: Any, driver: Driver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """spark-submit is only beside it: what the driver needs travels with the application, and a kill finds it."""
    submitted: list[dict[str, Any]] = []
    real = MySqlCdcJobTrigger.__init__

    def noted(self: Any, **arguments: Any) -> None:
        submitted.append(arguments["submission"])
        real(self, **arguments)

    monkeypatch.setattr(MySqlCdcJobTrigger, "__init__", noted)
    run = drain("deferred_in_cluster", master="yarn", deploy_mode="cluster")
    assert run.state == "success" and driver.starts() == 1
    assert fakes[0].record["spec"]["properties"]["database.password"] == PASSWORD
    assert submitted[0]["cluster"] == {"tag": "mysql-cdc-0123456789abcdef", "address": ""}
    assert submitted[0]["worked"] and submitted[0]["run"] == f"deferred_in_cluster/{run.run_id}/drain/-1#0"
    assert PASSWORD not in json.dumps(submitted)


def test_on_kubernetes_the_secret_goes_when_the_task_is_deferred(
    fakes: Any, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    with served() as api:
        core = client.CoreV1Api(client.ApiClient(client.Configuration(host=api.address)))
        monkeypatch.setattr(kubernetes_secret, "core_api", lambda: core)
        look = driver.holder_of
        name = "airflow_provider_mysql_cdc.cdc.operate.end_run.lock_connection"
        monkeypatch.setattr(name, lambda *args: (seen.append(list(api.secrets)), look(*args))[1])
        run = drain("deferred_on_kubernetes", master="k8s://https://one:443", deploy_mode="cluster")
        assert run.state == "success" and driver.starts() == 1
        # There until the driver is running, and no longer.
        assert ["mysql-cdc-0123456789abcdef"] in seen and seen[-1] == [] and api.secrets == {}


class WorkerDies(MySqlCdcDrainOperator):
    """The worker is gone between the driver's first step and the deferral."""

    def _defer(self, *args: Any, **more: Any) -> None:
        if type(self).died:
            super()._defer(*args, **more)
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


def test_a_later_try_waits_for_a_driver_that_is_starting(
    fakes: Any, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker is gone before the driver, which is starting, holds its lock."""
    driver.is_seen(3)  # twice by the second try, and by the trigger
    submit, look = detached_driver.DetachedDriver.submit, detached_driver._is_driver_running
    tries: list[Any] = []

    def gone(cfg: Any, owner: str) -> bool:
        raise AirflowException("the worker is gone")

    def submit_once(self: Any, spec: Any) -> Any:
        assert not tries, "a second driver"
        tries.append(spec)
        monkeypatch.setattr(detached_driver, "_is_driver_running", gone)
        try:
            return submit(self, spec)
        finally:
            monkeypatch.setattr(detached_driver, "_is_driver_running", look)

    monkeypatch.setattr(detached_driver.DetachedDriver, "submit", submit_once)
    assert drain("deferred_worker_dies_earlier").state == "success"
    assert driver.starts() == 1 and len(tries) == 1


@pytest.mark.parametrize(
    ("arguments", "executor", "why"),
    [
        ({}, "KubernetesExecutor", "its workers end with their task"),
        ({"master": "yarn", "deploy_mode": "cluster"}, "KubernetesExecutor", ""),
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
def test_it_is_not_deferred_by_default_if_it_cannot_be(
    fakes: Any, driver: Driver, monkeypatch: pytest.MonkeyPatch, given: Any
) -> None:
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "True")
    driver.is_seen(0)
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "KubernetesExecutor")
    run = drain(f"deferred_by_default_{given}", deferrable=given)
    assert run.state == "success"
    assert driver.looks == []


def test_an_adhoc_snapshot_cannot_be_deferred() -> None:
    with pytest.raises(TypeError, match="MySqlIncrementalSnapshotSensor"):
        MySqlCdcIncrementalSnapshotOperator(task_id="x", tables="a.b", deferrable=True)
