"""kill -9 of the driver at the edges of the commit protocol: the retry ends with every event exactly once.

Each test names a fault point (cdc/faults.py) and fails when the fault did not fire. On Spark the tasks are processes
that outlive their driver for a moment; elsewhere they are threads of the process that is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.incremental_rig import Writer, ask_for, books, check_exact, reads
from kit.records import compacted, duplicates, payload
from kit.signals import send
from kit.sql import execute, rows
from kit.table_rig import filled
from pipelinelib.pipeline import Pipeline
from pipelinelib.submit import submit_command, submit_env

pytestmark = [pytest.mark.fault, pytest.mark.spark]

ROWS = 3000
Run = Callable[..., "subprocess.CompletedProcess[str]"]
PROPERTIES = {
    "cdc.id.header": "true",
    "drain.writers": "3",
    "drain.small.batch.bytes": "0",
    "topic.creation.default.partitions": "3",
    "commit.bytes": "65536",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
}


def load(root: Any, database: str) -> None:
    execute(
        root,
        f"CREATE TABLE `{database}`.hot (id INT PRIMARY KEY, v VARCHAR(100))",
        f"CREATE TABLE `{database}`.cold (a INT, b VARCHAR(20), n INT, PRIMARY KEY (a, b))",
        f"INSERT INTO `{database}`.cold VALUES (1, 'x', 0), (2, 'y', 0)",
    )


def change(root: Any, database: str) -> None:
    """Make a batch: inserts, updates, deletes, a key change, DDL in between."""
    for start in range(0, ROWS, 500):
        values = ",".join(f"({i}, 'value of row {i}')" for i in range(start, start + 500))
        execute(root, f"INSERT INTO `{database}`.hot VALUES {values}")
    execute(
        root,
        f"UPDATE `{database}`.hot SET v = CONCAT(v, '!') WHERE id % 3 = 0",
        f"ALTER TABLE `{database}`.cold ADD COLUMN extra INT DEFAULT 7",
        f"UPDATE `{database}`.cold SET n = n + 1, extra = a",
        f"UPDATE `{database}`.hot SET id = id + 100000 WHERE id < 50",
        f"DELETE FROM `{database}`.hot WHERE id % 5 = 0 AND id < 100000",
    )


def check(pipeline: Pipeline, root: Any, database: str) -> None:
    """Every event exactly once, in order per key, and the topic compacted equals the table."""
    for table, key in (("hot", "id"), ("cold", "a, b")):
        records = pipeline.records(table)
        assert duplicates([r for r in records]) == []
        cursor = rows(root, f"SELECT * FROM `{database}`.`{table}` ORDER BY {key}")
        names = [r[0] for r in rows(root, f"SHOW COLUMNS FROM `{database}`.`{table}`")]
        expected = [dict(zip(names, row, strict=True)) for row in cursor]
        found = sorted(compacted(records).values(), key=lambda v: [v[k.strip()] for k in key.split(",")])
        assert found == expected
    # 3000 inserts, 1000 updates, 50 key changes of 3 records, deletes of 2 records.
    deleted = sum(1 for i in range(50, ROWS) if i % 5 == 0)
    hot = [r for r in pipeline.records("hot")]
    assert len(hot) == ROWS + 1000 + 50 * 3 + deleted * 2
    changes = pipeline.read(pipeline.properties["topic.prefix"])
    assert sum("ADD COLUMN extra" in payload(r.value)["ddl"] for r in changes) == 1


PROCESS, SPARK = Pipeline.in_process, Pipeline.on_spark
# Who is killed where, and who goes on.
FAULTS: list[tuple[str, dict[str, Any], Run, Run]] = [
    ("plan.after_store", {}, PROCESS, PROCESS),
    ("writer.mid_batch", {"writer": 0}, SPARK, SPARK),
    # The one that owns the table with thousands of rows; who that is follows from what earlier batches wrote.
    ("writer.before_commit", {"nth": 2}, SPARK, PROCESS),
    ("writer.after_commit", {"writer": 0, "nth": 2}, PROCESS, PROCESS),
    ("writer.done", {"writer": 1}, PROCESS, PROCESS),
    ("driver.before_outcome", {}, PROCESS, PROCESS),
]


@pytest.mark.req("STRM-03", "STRM-04", "STRM-11", "FAULT-10")
@pytest.mark.halves
@pytest.mark.parametrize(("point", "more", "run", "retry"), FAULTS, ids=[f[0] for f in FAULTS])
def test_kill_driver_then_retry_is_exactly_once(
    point: str, more: dict[str, Any], run: Run, retry: Run, pipeline: Pipeline, root: Any, database: str, tmp_path: Path
) -> None:
    load(root, database)
    pipeline.snapshot()
    change(root, database)
    fired = tmp_path / "fired"
    fault = {"point": point, "action": "kill-driver", "fired": str(fired), **more}
    first = run(pipeline, "drain", tmp_path, fault=fault)
    assert fired.exists(), f"the fault never fired:\n{first.stdout}\n{first.stderr[-2000:]}"
    assert first.returncode != 0
    second = retry(pipeline, "drain", tmp_path) if not pipeline.settle().complete else None
    if second is not None:
        assert second.returncode == 0, second.stdout + second.stderr[-3000:]
    assert pipeline.settle().complete
    check(pipeline, root, database)


@pytest.mark.req("STRM-33", "FAULT-10")
@pytest.mark.exhaustive(but="^a (writer with records|driver)")
@pytest.mark.halves
@pytest.mark.parametrize(
    ("point", "action", "run"),
    [
        ("takeover.after_plan", "kill-driver", PROCESS),
        ("driver.before_outcome", "kill-driver", SPARK),
        ("writer.before_commit", "kill-self", SPARK),
        ("writer.after_commit", "kill-self", SPARK),
    ],
    ids=["a plan in force", "a driver between two batches", "a writer with records", "a writer behind its marker"],
)
def test_kill_of_a_run_whose_writers_live_is_exactly_once(
    point: str, action: str, run: Run, pipeline: Pipeline, root: Any, database: str, tmp_path: Path, stack: Any
) -> None:
    """Driver or Python worker ends in the third batch; the writers were started for the first one."""
    pipeline.properties |= {"drain.writers": "1", "poll.interval.ms": "100"}
    execute(root, *filled(database, "a", count=200))
    pipeline.snapshot()
    execute(root, f"UPDATE `{database}`.a SET v = v + 1")
    writer = Writer(stack, database, ["a"], 200, seed=7)
    writer.start()
    fired = tmp_path / "fired"
    try:
        fault = {"point": point, "action": action, "nth": 3, "fired": str(fired)}
        first = run(pipeline, "drain", tmp_path, fault=fault, run_for_s=60)
    finally:
        writer.stop()
    assert fired.exists(), f"the fault never fired:\n{first.stdout}\n{first.stderr[-2000:]}"
    assert first.returncode != 0
    if not pipeline.settle().complete:
        second = PROCESS(pipeline, "drain", tmp_path)
        assert second.returncode == 0, second.stdout
        assert pipeline.settle().complete
    pipeline.drain()
    assert duplicates(pipeline.records("a")) == []
    check_exact(pipeline, root, "a")


@pytest.mark.halves
@pytest.mark.parametrize(
    ("point", "run"),
    [
        ("plan.after_store", PROCESS),
        ("snapshot.view_open", PROCESS),
        ("snapshot.after_chunk", SPARK),
    ],
    ids=["plan.after_store", "snapshot.view_open", "snapshot.after_chunk"],
)
def test_kill_driver_during_snapshot_keeps_finished_chunks(
    point: str, run: Run, pipeline: Pipeline, root: Any, database: str, tmp_path: Path
) -> None:
    pipeline.properties["snapshot.chunk.rows"] = "500"
    load(root, database)
    change(root, database)
    execute(root, f"ANALYZE TABLE `{database}`.hot")
    fired = tmp_path / "fired"
    fault = {"point": point, "action": "kill-driver", "fired": str(fired)}
    first = run(pipeline, "snapshot", tmp_path, fault=fault)
    assert fired.exists(), f"the fault never fired:\n{first.stdout}\n{first.stderr[-2000:]}"
    # Between the attempts the tables change, in finished chunks and in others.
    execute(root, f"UPDATE `{database}`.hot SET v = 'between' WHERE id % 7 = 0")
    second = PROCESS(pipeline, "snapshot", tmp_path)
    assert second.returncode == 0, second.stdout + second.stderr[-3000:]
    assert pipeline.settle().complete
    execute(root, f"UPDATE `{database}`.hot SET v = 'after' WHERE id % 11 = 0")
    pipeline.drain()
    records = pipeline.records("hot")
    reads = [payload(r.key)["id"] for r in records if payload(r.value) and payload(r.value)["op"] == "r"]
    assert len(reads) == len(set(reads)), "a row was read twice"
    assert duplicates(records) == []
    # No event goes back behind what the key's snapshot row already showed.
    last: dict[int, str] = {}
    for record in records:
        value = payload(record.value)
        before, after = value["before"], value["after"]
        # A window reads rows after their first events: they have then what the events left.
        known = before if value["op"] == "u" else after
        if after["id"] in last:
            assert last[after["id"]] == known["v"], (after, before)
        last[after["id"]] = after["v"]
    expected = dict(rows(root, f"SELECT id, v FROM `{database}`.hot"))
    assert last == expected


@pytest.mark.req("INC-17")
def test_kill_driver_before_a_key_range_of_an_ad_hoc_snapshot_is_committed(
    pipeline: Pipeline, root: Any, database: str, tmp_path: Path
) -> None:
    pipeline.properties["incremental.snapshot.chunk.size"] = "10"
    load(root, database)
    change(root, database)
    pipeline.snapshot()
    ask_for(pipeline, ["hot", "cold"])
    execute(root, f"UPDATE `{database}`.hot SET v = 'before' WHERE id % 7 = 0")
    fired = tmp_path / "fired"
    fault = {"point": "incremental.before_commit", "action": "kill-driver", "nth": 3, "fired": str(fired)}
    first = SPARK(pipeline, "drain", tmp_path, fault=fault)
    assert fired.exists(), f"the fault never fired:\n{first.stdout}\n{first.stderr[-2000:]}"
    execute(root, f"UPDATE `{database}`.hot SET v = 'between' WHERE id % 5 = 1")
    second = PROCESS(pipeline, "drain", tmp_path)
    assert second.returncode == 0, second.stdout
    assert pipeline.settle().complete
    assert {scan.state for scan in books(pipeline).scans.values()} == {"done"}
    for table in ("hot", "cold"):
        check_exact(pipeline, root, table)
        assert set(reads(pipeline, table).values()) == {1}
    assert sum(reads(pipeline, "hot").values()) == rows(root, f"SELECT COUNT(*) FROM `{database}`.hot")[0][0]


@pytest.mark.halves
@pytest.mark.parametrize(
    ("point", "nth"),
    [
        ("signals.before_commit", 1),
        ("incremental.before_commit", 2),
        ("incremental.after_commit", 2),
        ("incremental.before_books", 1),
    ],
)
def test_kill_driver_during_an_ad_hoc_snapshot_keeps_each_notification_once(
    point: str, nth: int, pipeline: Pipeline, root: Any, database: str, tmp_path: Path
) -> None:
    topic = pipeline.properties["topic.prefix"] + ".notes"
    pipeline.properties |= {
        "incremental.snapshot.chunk.size": "10",
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": topic,
    }
    load(root, database)
    change(root, database)
    pipeline.snapshot()
    tables = [f"{database}.hot", f"{database}.cold"]
    send(pipeline.cfg, "execute-snapshot", {"data-collections": tables}, "ad-hoc")
    fired = tmp_path / "fired"
    fault = {"point": point, "action": "kill-driver", "nth": nth, "fired": str(fired)}
    first = PROCESS(pipeline, "drain", tmp_path, fault=fault)
    assert fired.exists(), f"the fault never fired:\n{first.stdout}\n{first.stderr[-2000:]}"
    second = PROCESS(pipeline, "drain", tmp_path)
    assert second.returncode == 0, second.stdout
    pipeline.settle()
    notes = [payload(r.value) for r in pipeline.read(topic) if payload(r.value)["id"] == "ad-hoc"]
    types = [note["type"] for note in notes]
    assert (types[0], types[-1]) == ("STARTED", "COMPLETED") and len(set(map(str, notes))) == len(notes)
    assert types.count("STARTED") == types.count("COMPLETED") == 1
    of_type: dict[str, list[tuple[str, str]]] = {}
    for note in notes[1:-1]:
        data = note["additional_data"]
        table = data.get("scanned_collection") or data["current_collection_in_progress"]
        of_type.setdefault(note["type"], []).append((table, data.get("last_processed_key", "")))
    assert sorted(of_type.pop("TABLE_SCAN_COMPLETED")) == sorted((table, "") for table in tables)
    # Those of a window that was killed before it wrote its state are left out.
    progress = of_type.pop("IN_PROGRESS", [])
    assert len(set(progress)) == len(progress) and (len(progress) > 2 or point == "incremental.before_books")
    assert not of_type
    assert sum(reads(pipeline, "hot").values()) == rows(root, f"SELECT COUNT(*) FROM `{database}`.hot")[0][0]


def test_frozen_writer_of_an_older_attempt_is_fenced(
    pipeline: Pipeline, root: Any, database: str, tmp_path: Path
) -> None:
    """A zombie that wakes up after the retry has finished cannot add anything."""
    load(root, database)
    pipeline.snapshot()
    change(root, database)
    fired = tmp_path / "fired"
    fault = {"point": "writer.before_commit", "action": "stop-self", "writer": 1, "fired": str(fired)}
    job = pipeline.prepare("drain")
    child = subprocess.Popen(
        submit_command(job.spec, tmp_path),
        env=submit_env(fault),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 120
        while not fired.exists():
            assert time.monotonic() < deadline and child.poll() is None, child.stdout and child.stdout.read()
            time.sleep(0.2)
        time.sleep(1)
        second = pipeline.in_process("drain", tmp_path)
        assert second.returncode == 0, second.stdout
        assert pipeline.settle().complete
        with contextlib.suppress(ProcessLookupError):  # a driver that was fenced meanwhile has ended its tasks
            os.kill(int(fired.read_text()), signal.SIGCONT)
        output, _ = child.communicate(timeout=120)
        assert child.returncode != 0, output
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    check(pipeline, root, database)
