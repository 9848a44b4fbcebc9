"""Who ends the driver of a deferred task, and who must not: triggers, timeouts, clearings and deaths, one by one."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferralTimeout
from fakes import connections, install
from kit.spark_cluster import command, wait_until

from airflow_provider_mysql_cdc.cdc.errors import SourceAuthError, SourceConnectionError
from airflow_provider_mysql_cdc.hooks import kill_application as application_end
from airflow_provider_mysql_cdc.hooks import submission as submissions
from airflow_provider_mysql_cdc.hooks.submission import STATE_KEY, Submission
from airflow_provider_mysql_cdc.operators import detached_driver
from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator
from airflow_provider_mysql_cdc.triggers import job, task_state
from airflow_provider_mysql_cdc.triggers.job import FREE_POLLS, NO_HOLDER, UNKNOWN_POLLS, MySqlCdcJobTrigger

OWNER = "d/r/drain/-1"
END_RUN = "airflow_provider_mysql_cdc.cdc.operate.end_run"
NAME = f"mysql-cdc-drain-of-{os.getpid()}"
NOW = 1_700_000_000.0
"""The source server's time, which is not this host's."""


class Ended:
    """Note what is ended, and say who holds the lock."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, int | None]] = []
        self.drivers: list[Any] = []
        self.holders: list[int | None] = []

    def end_run(self, cfg: Any, owner: str, log: Any, only: int | None = None) -> bool:
        """Stand in for ``end_run``."""
        self.runs.append((owner, only))
        return True

    def holder_of(self, cfg: Any, owner: str) -> int | None:
        """Return the holders one after the other, the last one for ever."""
        return self.holders.pop(0) if len(self.holders) > 1 else self.holders[0]


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ended:
    """Put the fakes in place."""
    connections(monkeypatch, kafka_conn_id="kafka_cdc")
    install(monkeypatch, tmp_path)
    found = Ended()
    monkeypatch.setattr(f"{END_RUN}.end_run", found.end_run)
    monkeypatch.setattr(f"{END_RUN}.lock_connection", found.holder_of)
    monkeypatch.setattr(f"{END_RUN}.server_time", lambda cfg: NOW)
    monkeypatch.setattr(submissions, "kill_in_cluster", found.drivers.append)
    monkeypatch.setattr(detached_driver, "DRIVER_POLL_S", 0.01)
    return found


@pytest.fixture
def driver() -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that has a driver's name on its command line, in a group of its own."""
    code = "import time; time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code, "--name", NAME], start_new_session=True) as process:
        try:
            # Linux lets the parent go on before the new program's command line can be read.
            wait_until(lambda: NAME.encode() in command(process.pid), 30, "the process has no name")
            yield process
        finally:
            process.kill()


def submission(pid: int = 0, host: str = "", **more: Any) -> Submission:
    given = {"run": f"{OWNER}#0", "at": NOW - 60, **more}
    return Submission("j", NAME, host or socket.gethostname(), "/nowhere/o", pid, **given)


def context(made: Submission | None = None, cleared: int = 0) -> dict[str, Any]:
    """Return what Airflow would give; the store holds what an earlier try has started."""
    store = {STATE_KEY: made.to_json()} if made is not None else {}
    keeps = SimpleNamespace(get=store.get, set=store.__setitem__)
    task = SimpleNamespace(retries=1)
    ti = SimpleNamespace(
        dag_id="d", run_id="r", task_id="drain", map_index=-1, max_tries=1 + cleared, try_number=1, task=task
    )
    return {"ti": ti, "task_state_store": keeps}


def operator(**arguments: Any) -> MySqlCdcDrainOperator:
    return MySqlCdcDrainOperator(task_id="drain", deferrable=True, **arguments)


def follow_earlier(given: dict[str, Any], followed: list[Any] | None = None) -> None:
    """Look for a driver of an earlier try as the operator does; one that would be followed is noted."""
    task, seen = operator(), [] if followed is None else followed
    spark = SimpleNamespace(defer=seen.append)
    cfgs: Any = [SimpleNamespace(source_address=lambda: "127.0.0.1:3306")]
    found = detached_driver.DetachedDriver(cfgs, given, spark, task._driver_handle, task.log.info)
    found.follow_earlier()


# -- a task's process that is told to end -----------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["running", "deferred", None, "up_for_retry", "queued"])
def test_a_process_whose_task_goes_on_leaves_the_driver_to_the_next_try(
    ended: Ended, driver: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    """A scheduler that began again gives the task to another try, and Airflow ends the process of this one."""
    monkeypatch.setattr(detached_driver, "state_of", lambda ti: state)
    task = operator()
    task._driver_handle.follow(context()["ti"], submission(driver.pid))
    task.on_kill()
    assert driver.poll() is None and ended.drivers == []
    task._driver_handle.raise_if_killed()


@pytest.mark.parametrize("state", ["failed", "success", "skipped", "restarting", task_state.UNKNOWN])
def test_a_process_whose_task_was_ended_ends_the_driver_of_an_earlier_try_too(
    ended: Ended, driver: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    monkeypatch.setattr(detached_driver, "state_of", lambda ti: state)
    task = operator()
    task._driver_handle.follow(context()["ti"], submission(driver.pid, cluster={"tag": "t"}))
    task.on_kill()
    assert driver.wait(10) and ended.drivers == [{"tag": "t"}]
    with pytest.raises(Exception, match="the task was killed"):
        task._driver_handle.raise_if_killed()


def test_the_driver_ends_when_the_time_is_over_before_the_deferral(
    ended: Ended, driver: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow says that the task is running then; what it calls is the same."""
    from airflow.sdk.execution_time.timeout import timeout

    monkeypatch.setattr(detached_driver, "state_of", lambda ti: "running")
    ended.holders = [None]
    task, given = operator(master="local[1]"), context(submission(driver.pid))
    monkeypatch.setattr(task, "_check_spark", lambda: None)
    monkeypatch.setattr(task, "_config_and_store", lambda context: (None, None))
    with pytest.raises(BaseException, match="Timeout") as caught, timeout(1):
        task.execute(given)
    assert type(caught.value).__name__ == "AirflowTaskTimeout"
    task.on_kill()
    assert driver.wait(10)


# -- the time of a deferral is over ------------------------------------------------------------------------------------


def test_the_driver_ends_when_the_time_is_over_while_the_task_is_deferred(
    ended: Ended, driver: subprocess.Popen[bytes]
) -> None:
    task = operator(execution_timeout=timedelta(seconds=5))
    given = context(submission(driver.pid, cluster={"tag": "t"}))
    with pytest.raises(TaskDeferralTimeout):
        task.resume_execution("__fail__", {"error": "Trigger timeout"}, given)
    assert ended.runs == [(OWNER, None)] and ended.drivers == [{"tag": "t"}]
    assert driver.wait(10)


def test_a_trigger_that_has_failed_ends_no_driver(ended: Ended, driver: subprocess.Popen[bytes]) -> None:
    with pytest.raises(Exception, match="Trigger failure"):
        operator().resume_execution("__fail__", {"error": "Trigger failure"}, context(submission(driver.pid)))
    assert ended.runs == [] and driver.poll() is None


# -- later tries -------------------------------------------------------------------------------------------------------


def test_a_task_that_was_cleared_ends_what_is_left_of_it(ended: Ended, driver: subprocess.Popen[bytes]) -> None:
    """Its new parameters count: nothing of an older driver is followed."""
    ended.holders = [7]
    follow_earlier(context(submission(driver.pid), cleared=2))
    assert ended.runs == [(OWNER, None)] and driver.wait(10)


def test_what_died_before_it_could_tell_the_process_is_found_by_its_name(driver: subprocess.Popen[bytes]) -> None:
    assert submission().find_pid() == driver.pid
    assert submission(host="elsewhere").find_pid() is None
    driver.kill()
    driver.wait()
    assert submission().find_pid() is None and not submission().may_start()


def test_a_driver_that_may_be_starting_on_another_host_is_waited_for(
    ended: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed: list[Any] = []
    forgotten: list[Any] = []
    monkeypatch.setattr(submissions, "core_api", lambda: None)
    monkeypatch.setattr(submissions, "delete_secret", lambda api, *names: forgotten.append(names))
    ended.holders = [None, None, None, 7]
    follow_earlier(context(submission(host="elsewhere", cluster={"secret": "s", "namespace": "n"})), followed)
    assert [made.host for made in followed] == ["elsewhere"]
    assert forgotten == [("n", "s")], "its task died before it could delete what the driver has read"


@pytest.mark.parametrize("more", [{"at": NOW - submissions.START_TIMEOUT_S - 1}, {"worked": True}])
def test_a_driver_that_should_be_running_by_now_or_has_been_is_not_waited_for(ended: Ended, more: Any) -> None:
    ended.holders = [None]
    followed: list[Any] = []
    follow_earlier(context(submission(host="elsewhere", **more)), followed)
    assert followed == []


def test_the_wait_for_a_driver_on_another_host_ends_although_the_server_s_clock_was_set_back(
    ended: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended.holders = [None]
    passed = iter(range(0, 1200, 60))
    clock = SimpleNamespace(monotonic=lambda: next(passed), sleep=lambda seconds: None)
    monkeypatch.setattr(detached_driver, "time", clock)
    follow_earlier(context(submission(host="elsewhere", at=NOW + 36_000)))


def test_a_process_that_has_a_driver_s_number_by_chance_is_not_taken_for_it(tmp_path: Path) -> None:
    mine = submission(os.getpid())
    assert mine.find_pid() is None and not mine.may_start()
    mine.kill()
    lines: list[Any] = []
    assert submission(host="elsewhere").relay_output(lambda *parts: lines.append(parts)) is None
    assert lines == [("The driver's output is on host %s, file %s.", "elsewhere", "/nowhere/o")]


# -- what Airflow says -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [-1, 3])
def test_airflow_is_asked_for_the_task_s_state(monkeypatch: pytest.MonkeyPatch, index: int) -> None:
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=index)
    key = "t" if index < 0 else "t_3"
    for answer, told in (({"r": {key: "failed"}}, "failed"), ({"r": {key: None}}, None), ({}, task_state.UNKNOWN)):
        monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", lambda answer=answer, **_: answer)
        assert task_state.state_of(ti) == told
    answered = threading.Event()
    late = {"r": {key: "failed"}}
    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", lambda **_: late if answered.wait(60) else {})
    assert task_state.state_of(ti, 0.01) == task_state.UNKNOWN
    answered.set()


# -- the trigger -------------------------------------------------------------------------------------------------------


def trigger(made: Any = None) -> MySqlCdcJobTrigger:
    return MySqlCdcJobTrigger(
        submission=made,
        owner="d/r/t/-1",
        mysql_cdc_conn_id="mysql_cdc_default",
        kafka_conn_id=None,
        properties={},
        poll_interval=1.0,
    )


def test_the_trigger_fires_when_the_lock_stays_free_or_is_unknown_for_long() -> None:
    found = trigger()
    assert [found.evaluate(look) for look in (7, NO_HOLDER, 7, None, NO_HOLDER)] == [None] * 5
    assert found.evaluate(NO_HOLDER) == {"ended": True, "shown": 0}
    assert FREE_POLLS == 2
    found = trigger()
    assert [found.evaluate(None) for _ in range(UNKNOWN_POLLS - 1)] == [None] * (UNKNOWN_POLLS - 1)
    assert found.evaluate(None) == {"ended": True, "shown": 0}


def test_the_trigger_goes_on_while_the_server_cannot_be_asked_and_ends_when_it_never_can(
    ended: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(error: Exception) -> Any:
        def holder_of(*_: Any) -> int:
            raise error

        return holder_of

    name = "airflow_provider_mysql_cdc.cdc.operate.end_run.lock_connection"
    monkeypatch.setattr(name, fails(SourceConnectionError("the server does not answer")))
    cfg: Any = None
    assert trigger().read(cfg) is None
    monkeypatch.setattr(name, fails(SourceAuthError("access denied")))
    with pytest.raises(SourceAuthError):
        trigger().read(cfg)


def test_the_trigger_s_arguments_hold_no_secret_and_create_it_again(ended: Ended) -> None:
    path, arguments = trigger().serialize()
    assert path == "airflow_provider_mysql_cdc.triggers.job.MySqlCdcJobTrigger"
    assert "pa55" not in json.dumps(arguments)
    assert MySqlCdcJobTrigger(**arguments).serialize() == (path, arguments)


def test_a_person_who_ends_the_task_ends_the_driver_and_no_other(
    ended: Ended, driver: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that was cleared may have a new driver by then."""
    monkeypatch.setattr(job, "state_of", lambda ti, timeout_s: "running")
    found = trigger(submission(driver.pid, cluster={"tag": "t"}).to_json())
    found.task_instance = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1)
    asyncio.run(found.on_kill())
    assert driver.wait(10) and ended.drivers == [{"tag": "t"}]
    found.evaluate(7)
    asyncio.run(found.on_kill())
    assert ended.runs == [("d/r/t/-1", None), ("d/r/t/-1", 7)]


@pytest.mark.parametrize(
    ("state", "only"), [("failed", None), ("skipped", None), (None, 7), ("queued", 7), (task_state.UNKNOWN, 7)]
)
def test_the_driver_of_a_task_that_has_ended_is_ended_behind_a_connection_that_broke_too(
    ended: Ended, monkeypatch: pytest.MonkeyPatch, state: str | None, only: int | None
) -> None:
    """It holds its lock with another connection then; only a task that goes on can have another driver."""
    monkeypatch.setattr(job, "state_of", lambda ti, timeout_s: state)
    found = trigger()
    found.task_instance = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1)
    for holder in (7, NO_HOLDER, 9):
        found.evaluate(holder)
    asyncio.run(found.on_kill())
    assert ended.runs == [("d/r/t/-1", only)]


def test_a_triggerer_that_has_lost_its_triggers_to_another_one_ends_no_driver(
    ended: Ended, driver: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "state_of", lambda ti, timeout_s: "deferred")
    found = trigger(submission(driver.pid).to_json())
    found.task_instance = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1)
    asyncio.run(found.on_kill())
    assert ended.runs == [] and driver.poll() is None


def test_the_triggerer_does_not_import_spark_s_provider() -> None:
    """It takes ten seconds of a busy host, in which no trigger runs; Airflow gives ``on_kill`` thirty."""
    for module in (job, task_state, submissions, application_end, application_end.kubernetes_secret):
        assert "hooks.spark_submit" not in Path(module.__file__ or "").read_text()


def test_a_driver_on_kubernetes_ends_with_the_deferred_task(ended: Ended, monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[Any] = []
    monkeypatch.setattr(submissions, "kill_in_cluster", application_end.kill_in_cluster)
    monkeypatch.setattr(application_end, "delete_driver_pod", lambda *names: gone.append(names))
    monkeypatch.setattr(application_end.kubernetes_secret, "core_api", lambda: None)
    monkeypatch.setattr(application_end.kubernetes_secret, "delete_secret", lambda api, *names: gone.append(names[:2]))
    cluster = {"pod": "p", "namespace": "n", "secret": "s"}
    asyncio.run(trigger(submission(host="elsewhere", cluster=cluster).to_json()).on_kill())
    assert gone == [("n", "p"), ("n", "s")] and ended.runs
