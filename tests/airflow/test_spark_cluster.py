"""Snapshot and drain on a Spark cluster: the workers' own Python, and kill -9 of what runs there.

The DAGs are those of this package; only the Spark connection names the cluster. A writer that dies in the middle of a
batch is begun again by Spark itself; a snapshot, whose tasks share one view, ends and goes on with the next try.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow_home import run_dag
from kit.records import compacted, duplicates, payload, require_chain
from kit.spark_cluster import RunningCluster, command, kill, parent, wait_until
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline
from real_servers import define_connections, load, trigger

from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.fault, pytest.mark.usefixtures("metadata_db")]

ROWS = 3000


class OnCluster:
    """One stream whose jobs run on the cluster."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cluster: RunningCluster, folder: Path) -> None:
        self._patch, self._cluster, self._folder = monkeypatch, cluster, folder

    def submit_with(self, more: dict[str, str] | None = None, *, archive: bool = False, **fault: Any) -> Path:
        """Let the next jobs run with a fault in the executors; return the file that says that it fired."""
        conf, fired = {**self._cluster.conf, **(more or {})}, self._folder / f"fired-{os.urandom(4).hex()}"
        extra: dict[str, Any] = {"conf": conf}
        if fault:
            conf["spark.executorEnv.MYSQL_CDC_FAULT"] = json.dumps({"fired": str(fired), **fault})
        if archive:
            del conf["spark.pyspark.python"]
            extra["archives"] = f"{self._cluster.archive}#environment"
        connection = {"conn_type": "spark", "host": self._cluster.master, "extra": extra}
        self._patch.setenv("AIRFLOW_CONN_SPARK_CDC", json.dumps(connection))
        return fired


@pytest.fixture
def stream(
    properties: dict[str, str], monkeypatch: pytest.MonkeyPatch, stack: Any, root: Any, database: str
) -> Pipeline:
    """Define the connections of a stream of two tables, and return what reads its topics."""
    properties |= {
        "cdc.id.header": "true",
        "drain.writers": "3",
        "drain.small.batch.bytes": "0",
        "topic.creation.default.partitions": "3",
        "commit.bytes": "65536",
        "snapshot.chunk.rows": "100",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
    }
    define_connections(monkeypatch, properties, stack)
    values = ",".join(f"({i}, 'value of row {i}')" for i in range(ROWS))
    execute(
        root,
        f"CREATE TABLE `{database}`.hot (id INT PRIMARY KEY, v VARCHAR(100))",
        f"CREATE TABLE `{database}`.cold (a INT, b VARCHAR(20), n INT, PRIMARY KEY (a, b))",
        f"INSERT INTO `{database}`.hot VALUES {values}",
        f"INSERT INTO `{database}`.cold VALUES (1, 'x', 0), (2, 'y', 0)",
        f"ANALYZE TABLE `{database}`.hot",
    )
    return Pipeline(properties)


@pytest.fixture
def on_cluster(
    monkeypatch: pytest.MonkeyPatch, spark_cluster: RunningCluster, tmp_path: Path, stream: Any
) -> Iterator[OnCluster]:
    yield OnCluster(monkeypatch, spark_cluster, tmp_path)
    # The view of a frozen task would hold up the end of the database.
    for fired in tmp_path.glob("fired-*"):
        if b"pyspark" in command(int(fired.read_text())):
            kill(int(fired.read_text()))


def change(root: Any, database: str) -> None:
    """Make a batch with updates, DDL, key changes and deletes in the order of binlog files."""
    execute(
        root,
        f"UPDATE `{database}`.hot SET v = CONCAT(v, '!') WHERE id % 3 = 0",
        f"ALTER TABLE `{database}`.cold ADD COLUMN extra INT DEFAULT 7",
        f"UPDATE `{database}`.cold SET n = n + 1, extra = a",
        f"UPDATE `{database}`.hot SET v = CONCAT(v, '?')",
        f"UPDATE `{database}`.hot SET id = id + 100000 WHERE id < 50",
        f"DELETE FROM `{database}`.hot WHERE id % 5 = 0 AND id < 100000",
    )


def check(stream: Pipeline, root: Any, database: str) -> None:
    """Each row was read once, nothing came twice, each event continues the one before, the topics equal the tables."""
    for table, key in (("hot", ["id"]), ("cold", ["a", "b"])):
        records = stream.records(table)
        assert duplicates(records) == []
        require_chain(records)
        names = [r[0] for r in rows(root, f"SHOW COLUMNS FROM `{database}`.`{table}`")]
        expected = [dict(zip(names, row, strict=True)) for row in rows(root, f"SELECT * FROM `{database}`.`{table}`")]
        place: Callable[[dict[str, Any]], list[Any]] = lambda row, key=key: [row[k] for k in key]  # noqa: E731
        found = sorted(({**dict.fromkeys(names), **row} for row in compacted(records).values()), key=place)
        assert found == sorted(expected, key=place)
    read = [payload(r.key)["id"] for r in stream.records("hot") if r.value and payload(r.value)["op"] == "r"]
    assert sorted(read) == list(range(ROWS))


@pytest.mark.exhaustive
def test_kills_in_snapshots_and_batches(
    on_cluster: OnCluster,
    stream: Pipeline,
    root: Any,
    database: str,
    spark_cluster: RunningCluster,
) -> None:
    # An executor in mid-snapshot. Its only task is frozen, so that its connections stay: Spark alone sees the loss, and
    # without a barrier, which it does not have where executors come and go (SPARK-24942), begins the task again while
    # the table goes on changing. The environment comes with the job: nothing is installed.
    elastic = {"spark.dynamicAllocation.enabled": "true"}
    frozen = on_cluster.submit_with(elastic, archive=True, point="snapshot.chunk_read", action="stop-alone", nth=2)
    seen: list[str] = []

    def change_and_kill(task: int) -> None:
        execute(root, f"UPDATE `{database}`.hot SET v = 'later' WHERE id % 2 = 0")
        seen.append(kill_executor_of(task))

    killer = after(frozen, change_and_kill)
    assert run_dag(load("mysql_cdc_snapshot"), {"properties": {"snapshot.parallelism": 1}}).state == "failed"
    killer.join(10)
    assert len(seen) == 1, "the fault never fired"
    assert last_error(stream) == "Spark started a task a second time while the view of its first attempt is open"
    assert seen[0].startswith(str(spark_cluster.folder / "worker-")) and "/environment/bin/python" in seen[0]

    # A Python worker among several, in the window that reads what is left.
    fired = on_cluster.submit_with(point="incremental.stretch_read", action="kill-self")
    assert run_dag(load("mysql_cdc_snapshot")).state == "failed"
    assert fired.exists(), "the fault never fired"
    assert last_error(stream) == "Spark lost a task of this job"
    execute(root, f"UPDATE `{database}`.hot SET v = 'between' WHERE id % 7 = 0")

    # What is left, without a barrier.
    on_cluster.submit_with(elastic)
    assert trigger("mysql_cdc_snapshot")["snapshot"]["complete"] is True
    end_frozen(frozen)

    # An executor in mid-batch: Spark begins its writers again, Airflow hears nothing of it.
    change(root, database)
    fired = on_cluster.submit_with(point="writer.before_commit", nth=2, writer=1, action="stop-alone")
    killer = after(fired, kill_executor_of)
    assert trigger("mysql_cdc_drain")["drain"]["complete"] is True
    killer.join(10)
    assert fired.exists(), "the fault never fired"
    end_frozen(fired)
    check(stream, root, database)

    # Executors whose JVM does not start; the master would start others for ever.
    execute(root, f"UPDATE `{database}`.hot SET v = CONCAT(v, '.')")
    on_cluster.submit_with({"spark.executor.extraJavaOptions": "-agentpath:/is/not/there.so"})
    assert run_dag(load("mysql_cdc_drain")).state == "failed"
    assert last_error(stream) == "the executors of this job end before they can run a task"

    # A Python worker in mid-batch.
    fired = on_cluster.submit_with(point="writer.mid_batch", writer=2, action="kill-self")
    assert trigger("mysql_cdc_drain")["drain"]["complete"] is True
    assert fired.exists(), "the fault never fired"
    check(stream, root, database)


@pytest.mark.native
@pytest.mark.exhaustive
def test_the_packed_environment_brings_the_native_kernel(
    on_cluster: OnCluster, stream: Pipeline, root: Any, database: str
) -> None:
    """Executors without an installation decode natively, also behind a kill -9; their environment can leave it out."""
    on_cluster.submit_with(archive=True)
    assert trigger("mysql_cdc_snapshot")["snapshot"]["complete"] is True
    change(root, database)
    fired = on_cluster.submit_with(archive=True, point="writer.before_commit", nth=2, writer=1, action="kill-self")
    drained = trigger("mysql_cdc_drain")["drain"]
    assert drained["complete"] is True and fired.exists(), "the fault never fired"
    assert drained["native_rows"] >= ROWS and "native_declined" not in drained, drained
    check(stream, root, database)

    execute(root, f"UPDATE `{database}`.hot SET v = CONCAT(v, '.')")
    on_cluster.submit_with({"spark.executorEnv.MYSQL_CDC_NATIVE": "off"}, archive=True)
    drained = trigger("mysql_cdc_drain")["drain"]
    assert drained["complete"] is True and "native_rows" not in drained
    check(stream, root, database)


def last_error(stream: Pipeline) -> str:
    """Return what the last job of a stream ended with, as its driver has written it into the ledger."""
    with JobLedger(stream.cfg) as job:
        outcome = job.read().outcome
    assert outcome is not None
    return str((outcome.get("error") or {}).get("what"))


def after(fired: Path, act: Callable[[int], object]) -> threading.Thread:
    """Do something, once a fault has fired, with the process that met it."""

    def watch() -> None:
        # Without the act behind it the job waits for ever: it is waited for as long as a busy machine may need.
        wait_until(lambda: fired.exists() and fired.read_text(), 600, "the fault never fired")
        act(int(fired.read_text()))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def kill_executor_of(task: int) -> str:
    """Kill the JVM above a task's Python worker; return which interpreter the worker is."""
    program = os.readlink(f"/proc/{task}/exe")
    jvm = parent(parent(task))
    assert b"CoarseGrainedExecutorBackend" in command(jvm), command(jvm)
    kill(jvm)
    return program


def end_frozen(fired: Path) -> None:
    """Let a frozen task go on, which must not add anything any more, and wait until it is gone."""
    task = int(fired.read_text())
    if command(task):
        os.kill(task, signal.SIGCONT)
        wait_until(lambda: not command(task), 60, "the frozen task does not end")
