"""The task runner at a Spark Connect server, and its session; the tasks are those of kit/sample_tasks.py."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit import sample_tasks
from kit.connect_server import RunningServer
from kit.spark_cluster import parent

from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError, StateError
from airflow_provider_mysql_cdc.cdc.job.job_spec import ConnectSettings
from airflow_provider_mysql_cdc.cdc.job.task_runner import Shuffle
from airflow_provider_mysql_cdc.spark import cluster_slots, connect_client, connect_main, connect_session
from airflow_provider_mysql_cdc.spark.connect_channel import ServerAddress, load_parts
from airflow_provider_mysql_cdc.spark.connect_client import ConnectClient
from airflow_provider_mysql_cdc.spark.connect_main import ConnectRunner
from airflow_provider_mysql_cdc.spark.connect_session import ConnectSession, session_family

pytestmark = [pytest.mark.spark]
Open = Callable[..., ConnectSession]


@pytest.fixture
def open_session(connect_server: RunningServer) -> Iterator[Open]:
    """Return what opens a session, which ends with the test."""
    opened: list[ConnectSession] = []

    def open_(url: str = connect_server.address, stream: str = "", **conf: str) -> ConnectSession:
        settings = ConnectSettings(url, {name.replace("_", "."): value for name, value in conf.items()})
        opened.append(ConnectSession(settings, stream))
        return opened[-1]

    yield open_
    for session in opened:
        session.close()


@pytest.mark.days("odd")
def test_tasks_return_their_results_in_order_with_and_without_a_barrier(open_session: Open) -> None:
    runner = ConnectRunner(open_session())
    assert runner.slots(3) == 4
    assert runner.endpoint.host == "127.0.0.1"
    for count, barrier in ((4, True), (6, False)):
        results = runner.run(sample_tasks.echo, count, {"value": b"\0x"}, barrier=barrier)
        assert [(index, value) for index, value, _ in results] == [(i, b"\0x") for i in range(count)]
    assert ConnectRunner(open_session(spark_mysqlcdc_slots="7")).slots() == 7


def test_the_error_of_a_task_is_whole_and_that_of_another_version_is_named(
    open_session: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = ConnectRunner(open_session())
    with pytest.raises(StateError, match="a task of a test fails") as failure:
        runner.run(sample_tasks.fail, 2, {"length": 20_000}, barrier=True)
    assert failure.value.why == "é" * 20_000 and failure.value.can_retry
    monkeypatch.setattr(connect_main, "ResultFunction", _another_version)
    with pytest.raises(ConfigError, match=r"different versions.*the driver has 0\.0\.9"):
        runner.run(sample_tasks.echo, 1, {"value": 1}, barrier=False)


def test_a_server_neither_ends_quiet_tasks_nor_shows_their_variables(
    open_session: Open, connect_server: RunningServer
) -> None:
    """The tests' server is set to both (kit/connect_server.py)."""
    runner = ConnectRunner(open_session())
    arguments = {"text": "drowssap a fo esrever eht", "seconds": 6}
    with pytest.raises(Exception, match="a mistake in a task, 25") as failure:
        runner.run(sample_tasks.fail_late, 1, arguments, barrier=False)
    assert "the reverse of a password" not in f"{failure.value} {connect_server.log()}"


def _another_version(task: Any, arguments: Any) -> Any:
    from airflow_provider_mysql_cdc.spark.connect_tasks import ResultFunction

    return ResultFunction(task, arguments, "0.0.9")


@pytest.mark.exhaustive
def test_blocks_reach_their_buckets_in_little_memory(open_session: Open) -> None:
    """Every other bucket gets 600 blocks of 64 KB from each of two tasks: 77 MB in all."""
    runner = ConnectRunner(open_session())
    found = runner.run_shuffled(
        sample_tasks.blocks, 2, {"count": 100, "buckets": 12}, Shuffle(12, sample_tasks.count_blocks)
    )
    assert [(count, tasks, buckets) for count, tasks, buckets, _ in found[::2]] == [(200, {0, 1}, 1)] * 6
    assert [count for count, *_ in found[1::2]] == [0] * 6
    larger = runner.run_shuffled(
        sample_tasks.blocks, 2, {"count": 3000, "buckets": 2}, Shuffle(2, sample_tasks.count_blocks)
    )
    assert larger[0][0] == 6000  # 393 MB in one bucket
    assert larger[0][3] < found[0][3] + 60, "a bucket is held in memory"


@pytest.mark.exhaustive
def test_two_threads_run_tasks_at_once_and_each_sees_its_own_progress(open_session: Open, tmp_path: Path) -> None:
    runner, results = ConnectRunner(open_session()), []
    arguments = {"file": str(tmp_path / "go")}
    living = threading.Thread(
        target=lambda: results.append(runner.run(sample_tasks.wait_for_file, 2, arguments, barrier=False))
    )
    living.start()
    assert len(runner.run(sample_tasks.echo, 2, {"value": 1}, barrier=True)) == 2
    assert living.is_alive() and not results
    (tmp_path / "go").touch()
    living.join(60)
    assert results == [[0, 1]]


def test_a_barrier_with_more_tasks_than_slots_ends_with_a_named_error(
    open_session: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark itself would wait for ten minutes; the operation is ended, so that nothing starts later."""
    monkeypatch.setattr(connect_main, "BARRIER_START_S", 1.0)
    monkeypatch.setattr(cluster_slots, "POLL_S", 0.3)
    monkeypatch.setattr(cluster_slots, "FIRST_WARNING_S", 0.6)
    lines: list[str] = []
    runner = ConnectRunner(open_session(), lines.append)
    with pytest.raises(StateError, match="Spark has fewer slots than this job has tasks") as failure:
        runner.run(sample_tasks.echo, 5, {"value": 1}, barrier=True)
    assert failure.value.can_retry
    assert any("no task of this job is reported as running" in line for line in lines)
    assert failure.value.why == "5 tasks must run at the same time, and it has 4 slot(s)"


@pytest.mark.days("even")
def test_tasks_that_have_started_and_not_reported_do_not_lack_slots(
    open_session: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The server says nothing of the stage, as while a Python worker is still importing on a busy machine."""
    monkeypatch.setattr(connect_main, "BARRIER_START_S", 0.3)
    monkeypatch.setattr(cluster_slots, "POLL_S", 0.1)
    monkeypatch.setitem(connect_session._SESSION_CONF, "spark.connect.progress.reportInterval", "-1")
    uncounted = {"spark_sql_leafNodeDefaultParallelism": "2", "spark_mysqlcdc_slots": "4"}
    for number, conf in enumerate(({}, uncounted)):
        runner, go = ConnectRunner(open_session(**conf)), tmp_path / str(number)
        assert runner.slots() == 4
        threading.Timer(1.5, go.touch).start()
        assert runner.run(sample_tasks.wait_for_file, 4, {"file": str(go)}, barrier=True) == [0, 1, 2, 3]


def test_a_session_that_the_server_has_ended_is_replaced_between_two_jobs(
    open_session: Open, monkeypatch: pytest.MonkeyPatch, connect_server: RunningServer
) -> None:
    session = open_session()
    runner = ConnectRunner(session)
    first = session.client.session_id
    session.client.release_session()
    with pytest.raises(StateError, match="the session at the Spark Connect server has ended"):
        runner.run(sample_tasks.echo, 1, {"value": 1}, barrier=False)
    monkeypatch.setattr(connect_session, "IDLE_CHECK_S", -1.0)
    assert len(runner.run(sample_tasks.echo, 1, {"value": 1}, barrier=False)) == 1
    assert session.client.session_id != first


def end_sessions(server: RunningServer, ids: Iterable[str]) -> None:
    """Open and end sessions at the server."""
    parts, address = load_parts(), ServerAddress.parse(server.address)
    for id_ in ids:
        client = ConnectClient(parts, address, id_)
        client.settings("spark.master")
        client.release_session()
        client.close()


@pytest.mark.days("even")
def test_a_stream_runs_on_however_many_of_its_sessions_have_ended(
    open_session: Open, connect_server: RunningServer, tmp_path: Path
) -> None:
    """A server remembers ended sessions by number, for good on a quiet one; a drain a day ends one a day."""
    stream = f"stream-{tmp_path}"
    family = session_family(ConnectSettings(connect_server.address), stream)
    end_sessions(connect_server, (str(uuid.uuid5(family, str(number))) for number in range(130)))
    session = open_session(stream=stream)
    assert len(ConnectRunner(session).run(sample_tasks.echo, 1, {"value": 1}, barrier=False)) == 1
    ids = [session.client.session_id, open_session(stream=stream).client.session_id]
    assert ids == [str(uuid.uuid5(family, "130"))] * 2, "its jobs share the session"
    session.client.release_session()
    assert open_session(stream=stream).client.session_id == str(uuid.uuid5(family, "131"))


def test_a_session_that_the_address_names_stays_and_is_not_waited_for_when_it_has_ended(
    open_session: Open, connect_server: RunningServer
) -> None:
    id_ = str(uuid.uuid4())
    url = f"{connect_server.address};session_id={id_}"
    for _ in range(2):
        session = open_session(url)
        assert session.client.session_id == id_
        session.close()
    end_sessions(connect_server, [id_])
    for stream in ("", "stream"):
        with pytest.raises(ConfigError, match=r"names has ended.*remove session_id") as failure:
            open_session(url, stream)
        assert not failure.value.can_retry


@pytest.mark.exhaustive
def test_the_jobs_of_a_stream_share_a_session_and_its_python_workers(open_session: Open, tmp_path: Path) -> None:
    """A server starts a daemon for each session, which stays; an ended session is followed by the stream's next one."""
    stream = f"stream-{tmp_path}"
    found: list[tuple[str, int]] = []
    for conf in ({}, {}, {"spark_sql_shuffle_partitions": "3"}):
        session = open_session(stream=stream, **conf)
        worker = ConnectRunner(session).run(sample_tasks.echo, 1, {"value": 1}, barrier=False)[0][2]
        found.append((session.client.session_id, parent(worker)))
        session.close()
    assert found[0] == found[1], "the second job has another session, or another daemon"
    assert found[2][0] != found[0][0] and found[2][1] != found[0][1], "another setting needs another session"
    ended = open_session(stream=stream)
    ended.client.release_session()
    again = open_session(stream=stream)
    assert again.client.session_id not in {id_ for id_, _ in found}
    assert again.client.session_id == open_session(stream=stream).client.session_id


def test_what_a_server_does_not_take_is_named(
    open_session: Open, connect_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connect_client.OPENING_RETRIES, "max_retries", 2)
    monkeypatch.setitem(connect_client.RETRIES, "max_retries", "no number: the patience of a job is not asked for")
    for conf, error, what in (
        ({"spark_executor_memory": "2g"}, ConfigError, "cannot have this setting"),
        ({"url": connect_server.address.replace(connect_server.token, "another")}, ConfigError, "refuses the client"),
        ({"url": "sc://localhost:9"}, StateError, "cannot be reached"),
    ):
        with pytest.raises(error, match=what) as failure:
            open_session(**conf)
        assert isinstance(failure.value, CdcError) and "another" not in failure.value.message()
    with pytest.raises(ConfigError, match=r"spark\.mysqlcdc\.slots.*'many'"):
        ConnectRunner(open_session(spark_mysqlcdc_slots="many")).slots()
    monkeypatch.setattr(connect_session, "OLDEST_SERVER", (99, 0))
    with pytest.raises(
        ConfigError, match=r"Spark of this Spark Connect server is too old.*it is 4\.\d+.*Spark 99\.0 or newer"
    ):
        open_session()
