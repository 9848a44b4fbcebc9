"""Whatever ends a job at a Spark Connect server while a writer is about to commit, the next attempt is exact.

The writer waits in front of its commit (a fault of the server's Python workers), and goes on when the next attempt has
finished: what it does then is fenced.
"""

from __future__ import annotations

import json
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.connect_server import RunningServer, running_server
from kit.spark_cluster import RunningCluster, command, kill, parent, wait_until
from kit.sql import execute
from kit.table_rig import check_chain, filled
from pipelinelib.pipeline import Pipeline
from pipelinelib.submit import ROOT, over_connect, start_connect
from test_driver_kills import PROPERTIES, change, check, load

from airflow_provider_mysql_cdc.cdc.operate.settle import settle_offset

pytestmark = [pytest.mark.fault, pytest.mark.spark]
__all__ = ["PROPERTIES"]


class HeldServer:
    """A server whose writers wait in front of a commit, once each time it is asked for."""

    def __init__(self, server: RunningServer, fired: Path, until: Path) -> None:
        self.server, self._fired, self._until = server, fired, until
        fired.touch()

    def hold_next(self) -> None:
        """Let the next writer wait."""
        self._until.unlink(missing_ok=True)
        self._fired.unlink()

    def holder(self) -> int:
        """Wait until a writer waits; return its process id."""
        wait_until(lambda: self._fired.exists() and self._fired.read_text(), 120, "no writer came to its commit")
        return int(self._fired.read_text())

    def release(self) -> None:
        """Let the writer go on."""
        self._until.touch()


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeldServer]:
    folder = tmp_path_factory.mktemp("held")
    fired, until = folder / "fired", folder / "until"
    fault = {"point": "writer.before_commit", "action": "wait", "fired": str(fired), "until": str(until)}
    # Spark kills the Python worker of a task that it has cancelled, by default two seconds later.
    conf = {"spark.python.task.killTimeout": "600s"}
    with running_server(env={"MYSQL_CDC_FAULT": json.dumps(fault)}, conf=conf) as server:
        yield HeldServer(server, fired, until)


class Attempt:
    """A driver whose writer waits, and what it speaks with."""

    def __init__(self, server: RunningServer, driver: subprocess.Popen[str], session: str, task: int) -> None:
        self.server, self.driver, self.session, self.task = server, driver, session, task

    def client(self) -> Any:
        """Return another client of the same session."""
        from pyspark.sql.connect.session import SparkSession

        self._other = SparkSession(f"{self.server.address};session_id={self.session}")
        return self._other.client


def restart(attempt: Attempt) -> None:
    attempt.server.kill()
    attempt.server.start()


ENDS: dict[str, tuple[Callable[[Attempt], Any], int, str]] = {
    "the client is killed": (lambda a: a.driver.kill(), -signal.SIGKILL, ""),
    "the client is asked to end": (lambda a: a.driver.terminate(), 75, ""),
    "the operation is interrupted": (lambda a: a.client().interrupt_all(), 75, "server has cancelled this job"),
    "the session is ended": (lambda a: a.client().release_session(), 75, "has ended|has cancelled this job"),
    "the task is killed": (lambda a: kill(a.task), 75, "Spark lost a task of this job"),
    "the server is killed and restarted": (restart, 75, "has ended|cannot be reached"),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("end", ENDS)
def test_the_next_attempt_is_exact(
    held: HeldServer, pipeline: Pipeline, root: Any, database: str, tmp_path: Path, end: str
) -> None:
    load(root, database)
    pipeline.snapshot()
    change(root, database)
    act, code, says = ENDS[end]
    held.hold_next()
    session = str(uuid.uuid4())
    spec = pipeline.prepare("drain").spec
    with start_connect(spec, tmp_path, f"{held.server.address};session_id={session}") as driver:
        try:
            attempt = Attempt(held.server, driver, session, held.holder())
            logged = len(held.server.log())
            act(attempt)
            output, _ = driver.communicate(timeout=120)
        finally:
            driver.kill()
    assert driver.returncode == code, output
    assert says == "" or any(text in output for text in says.split("|")), output

    if end == "the client is asked to end":
        assert "Asked to cancel jobs with tag" in held.server.log()[logged:]
    done = over_connect(pipeline.prepare("drain").spec, tmp_path, held.server.address)
    assert done.returncode == 0, done.stdout
    lives_on = bool(command(attempt.task))
    held.release()
    if lives_on:
        wait_until(lambda: not command(attempt.task), 90, "the writer of the first attempt goes on")
    assert settle_offset(pipeline.cfg, pipeline.store, pipeline.log).complete
    check(pipeline, root, database)
    assert lives_on == (end not in ("the task is killed", "the server is killed and restarted"))


def finish(held: HeldServer, pipeline: Pipeline, folder: Path, *kinds: str) -> None:
    """Run jobs at the server; a snapshot that was interrupted has its rest read by drains."""
    for kind in kinds:
        done = over_connect(pipeline.prepare(kind).spec, folder, held.server.address)
        assert done.returncode == 0, done.stdout
        assert settle_offset(pipeline.cfg, pipeline.store, pipeline.log).complete


@pytest.mark.exhaustive
def test_what_is_left_of_a_snapshot_is_read_beside_its_living_tasks(
    held: HeldServer, pipeline: Pipeline, root: Any, database: str, tmp_path: Path
) -> None:
    pipeline.properties |= {"snapshot.parallelism": "2", "snapshot.chunk.rows": "50"}
    execute(root, *filled(database, "a", "b", count=150), f"ANALYZE TABLE `{database}`.a, `{database}`.b")
    held.hold_next()
    with start_connect(pipeline.prepare("snapshot").spec, tmp_path, held.server.address) as driver:
        task = held.holder()
        execute(root, f"UPDATE `{database}`.a SET v = 5 WHERE id < 70", f"DELETE FROM `{database}`.b WHERE id > 140")
        driver.kill()
    finish(held, pipeline, tmp_path, "snapshot")
    assert command(task), "the task of the first attempt has ended before"
    held.release()
    wait_until(lambda: not command(task), 90, "the task of the first attempt goes on")
    execute(root, f"UPDATE `{database}`.b SET v = 6")
    finish(held, pipeline, tmp_path, "drain")
    for table in ("a", "b"):
        check_chain(pipeline, root, database, table)


@pytest.mark.exhaustive
def test_a_writer_that_lives_from_batch_to_batch_is_fenced(
    held: HeldServer, pipeline: Pipeline, root: Any, database: str, tmp_path: Path
) -> None:
    """Its operation is interrupted in a later batch, and its Python worker lives on."""
    execute(root, *filled(database, "a", count=50))
    pipeline.snapshot()
    update = f"UPDATE `{database}`.a SET v = %s WHERE id < %s"
    execute(root, update % (1, 7))
    session = str(uuid.uuid4())
    spec = replace(pipeline.prepare("drain").spec, run_for_s=300)
    with start_connect(spec, tmp_path, f"{held.server.address};session_id={session}") as driver:
        try:
            wait_until(lambda: len(pipeline.records("a")) == 50 + 7, 120, "the first batch is not committed")
            held.hold_next()
            execute(root, update % (2, 9))
            attempt = Attempt(held.server, driver, session, held.holder())
            attempt.client().interrupt_all()
            output, _ = driver.communicate(timeout=120)
        finally:
            driver.kill()
    assert driver.returncode == 75 and "server has cancelled this job" in output, output
    execute(root, update % (3, 12))
    finish(held, pipeline, tmp_path, "drain", "drain")
    assert command(attempt.task), "the writer has ended before"
    held.release()
    wait_until(lambda: not command(attempt.task), 90, "the writer of the first attempt goes on")
    check_chain(pipeline, root, database, "a")


@pytest.mark.exhaustive
def test_an_executor_that_dies_is_replaced(
    spark_cluster: RunningCluster, pipeline: Pipeline, root: Any, database: str, tmp_path: Path
) -> None:
    """The server runs on a standalone cluster: Spark begins the writers again, and the driver notices nothing."""
    fired = tmp_path / "fired"
    fault = {"point": "writer.before_commit", "action": "wait", "fired": str(fired), "until": str(tmp_path / "never")}
    conf = {
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.executorEnv.MYSQL_CDC_FAULT": json.dumps(fault),
    }
    load(root, database)
    pipeline.snapshot()
    change(root, database)
    with running_server(master=spark_cluster.master, conf=conf) as server:
        with start_connect(pipeline.prepare("drain").spec, tmp_path, server.address) as driver:
            try:
                wait_until(lambda: fired.exists() and fired.read_text(), 120, "no writer came to its commit")
                executor = parent(parent(int(fired.read_text())))
                assert b"CoarseGrainedExecutorBackend" in command(executor)
                kill(executor)
                output, _ = driver.communicate(timeout=180)
            finally:
                driver.kill()
        assert driver.returncode == 0, output
    spark_cluster.wait_idle()
    assert settle_offset(pipeline.cfg, pipeline.store, pipeline.log).complete
    check(pipeline, root, database)
