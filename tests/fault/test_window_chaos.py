"""Snapshots that are interrupted and windows, while rows and structures of their tables change and jobs end anywhere.

Each seed draws the changes, the statements, the signals over three channels, and the points at which jobs end.
``CHAOS_SEEDS`` sets how many seeds are run (1 without it).
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql
import pytest
from confluent_kafka import Producer
from kit.incremental_rig import books
from kit.records import duplicates, payload
from kit.signals import send
from kit.sql import execute, rows
from kit.window_rig import SIGNALS, connection, same_as_table
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.errors import CdcError

pytestmark = [pytest.mark.exhaustive, pytest.mark.fault]
SEEDS = range(int(os.environ.get("CHAOS_SEEDS", "1")))
ROWS = 240
MOST_DRAINS = 60
TABLES = {
    "a": "id INT PRIMARY KEY, v INT",
    "b": "k VARCHAR(9) COLLATE utf8mb4_0900_ai_ci, n INT, v INT, PRIMARY KEY (n, k)",
    "c": "id BIGINT UNSIGNED, v INT, UNIQUE KEY (v), PRIMARY KEY (id)",
}
KEYLESS = "w"
COLUMNS = {"a": "id, v", "b": "k, n, v", "c": "id, v"}
POINTS = {
    "snapshot": ("snapshot.view_open", "snapshot.chunk_read", "snapshot.after_chunk", "snapshot.scans_queued"),
    "drain": (
        *("plan.after_store", "writer.before_commit", "writer.after_commit", "driver.before_outcome"),
        *("incremental.view_open", "incremental.stretch_read", "incremental.before_commit") * 2,
        *("incremental.after_commit", "incremental.before_books", "signals.before_commit") * 2,
    ),
}


class Changes(threading.Thread):
    """Run random statements until it is stopped; those that the table's structure does not allow are passed over.

    Args:
        stack: The servers.
        draw: Returns the next statement.
        pause_s: Seconds between two.
    """

    def __init__(self, stack: Any, draw: Callable[[], str], pause_s: float) -> None:
        super().__init__(daemon=True)
        self._stack, self._draw, self._pause_s = stack, draw, pause_s
        self._ending = threading.Event()
        self.errors: list[BaseException] = []
        self.done = 0

    def run(self) -> None:
        """Run statements."""
        conn = connection(self._stack)
        with conn, conn.cursor() as cursor:
            while not self._ending.wait(self._pause_s):
                try:
                    cursor.execute(self._draw())
                    self.done += 1
                except pymysql.err.IntegrityError:
                    pass  # the key is there already
                except pymysql.MySQLError as error:
                    if error.args[0] not in (1205, 1213):  # lock wait timeout, deadlock
                        self.errors.append(error)

    def stop(self) -> None:
        """Stop, and fail if a statement failed."""
        self._ending.set()
        self.join(30)
        assert not self.errors, self.errors[:3]


def fill(db: str) -> list[str]:
    """Return the statements that make the tables."""
    numbers = range(ROWS)
    values = {
        "a": ",".join(f"({n}, {n})" for n in numbers),
        "b": ",".join(f"('Key{n % 5}', {n}, {n})" for n in numbers),
        "c": ",".join(f"({n * 10}, {n})" for n in numbers),
    }
    made = [f"CREATE TABLE `{db}`.{name} ({body})" for name, body in TABLES.items()]
    made += [f"INSERT INTO `{db}`.{name} VALUES {found}" for name, found in values.items()]
    made += [f"CREATE TABLE `{db}`.{KEYLESS} (v INT)"]
    return [*made, f"INSERT INTO `{db}`.{KEYLESS} VALUES " + ",".join(f"({n % 40})" for n in numbers)]


def change(rng: random.Random, db: str) -> str:
    """Return a statement that changes rows, often those that others changed."""
    n, m, wide = rng.randrange(ROWS + 30), rng.randrange(ROWS + 30), rng.randrange(10**8)
    a, b, c, w = (f"`{db}`.{name}" for name in (*TABLES, KEYLESS))
    return rng.choice(
        [
            f"INSERT INTO {a} (id, v) VALUES ({n}, 1) ON DUPLICATE KEY UPDATE v = v + 1",
            f"UPDATE {a} SET v = v + 1 WHERE id BETWEEN {n} AND {n + 9}",
            f"UPDATE IGNORE {a} SET id = {m} WHERE id = {n}",
            f"DELETE FROM {a} WHERE id = {n}",
            f"REPLACE INTO {a} (id, v) VALUES ({n}, {m})",
            f"UPDATE {b} SET v = v + 1, k = UPPER(k) WHERE n = {n}",
            f"UPDATE IGNORE {b} SET n = {m}, k = 'kéy1' WHERE n = {n}",
            f"DELETE FROM {b} WHERE n = {n}",
            f"INSERT IGNORE INTO {b} (k, n, v) VALUES ('KEY{m % 5}', {n}, {m})",
            f"REPLACE INTO {c} (id, v) VALUES ({n * 10}, {wide})",
            f"UPDATE IGNORE {c} SET id = id + 5 WHERE id = {n * 10}",
            f"DELETE FROM {c} WHERE id > {n * 10} LIMIT 2",
            f"INSERT INTO {w} (v) VALUES ({n % 40}), ({m % 40})",
            f"DELETE FROM {w} WHERE v = {n % 40} LIMIT 1",
            f"UPDATE {w} SET v = v + 1 WHERE v = {m % 40} LIMIT 1",
        ]
    )


class Structures:
    """Draw statements that change structures and let each row be known by its key and ``v``.

    Args:
        rng: Draws them.
        db: The database.
    """

    def __init__(self, rng: random.Random, db: str) -> None:
        self._rng, self._db, self._count = rng, db, 0
        self._added: dict[str, list[str]] = {name: [] for name in TABLES}

    def next(self) -> str:
        """Return the next statement."""
        rng, self._count = self._rng, self._count + 1
        name, new = rng.choice(list(TABLES)), f"x{self._count}"
        table, added = f"`{self._db}`.{name}", self._added[name]
        kinds = {
            "add": f"ALTER TABLE {table} ADD COLUMN {new} INT DEFAULT {self._count}",
            "first": f"ALTER TABLE {table} ADD COLUMN {new} VARCHAR(9) NOT NULL DEFAULT 'é' FIRST",
            "modify": f"ALTER TABLE {table} MODIFY v {rng.choice(('INT', 'BIGINT', 'BIGINT NOT NULL'))}",
            "index": f"ALTER TABLE {table} ADD INDEX {new} (v)",
            "comment": f"ALTER TABLE {table} COMMENT '{new}'",
            "rebuild": f"ALTER TABLE {table} ENGINE=InnoDB",
            "renames": f"RENAME TABLE {table} TO `{self._db}`.away, `{self._db}`.away TO {table}",
        }
        if added:
            kinds["drop"] = f"ALTER TABLE {table} DROP COLUMN {added[0]}"
            kinds["rename"] = f"ALTER TABLE {table} RENAME COLUMN {added[-1]} TO {new}"
        kind = rng.choice(list(kinds))
        if kind == "drop":
            added.pop(0)
        if kind == "rename":
            added.pop()
        if kind in ("add", "first", "rename"):
            added.append(new)
        return kinds[kind]


class Signals:
    """Send signals over a channel that is drawn.

    Args:
        rng: Draws them.
        pipeline: The stream.
        db: The database.
        root: A connection.
    """

    def __init__(self, rng: random.Random, pipeline: Pipeline, db: str, root: Any) -> None:
        self._rng, self._pipeline, self._db, self._root, self._count = rng, pipeline, db, root, 0

    def ask(self) -> None:
        """Ask for a snapshot of some tables, stop one, or hold and release all."""
        rng = self._rng
        names = [f"{self._db}.{name}" for name in rng.sample(list(TABLES), rng.randrange(1, 4))]
        kind = rng.choice(("execute-snapshot",) * 6 + ("stop-snapshot", "pause-snapshot", "resume-snapshot"))
        data: dict[str, Any] = {"data-collections": names, "type": rng.choice(("incremental",) * 3 + ("blocking",))}
        if kind == "execute-snapshot" and rng.random() < 0.3:
            data["additional-conditions"] = [{"data-collection": names[0], "filter": "v % 2 = 0"}]
        if kind != "execute-snapshot":
            data = {"type": "incremental"}
        self.send(kind, data)

    def send(self, kind: str, data: dict[str, Any]) -> None:
        """Send one signal."""
        self._count += 1
        channel, id_ = self._rng.choice(("source", "kafka", "airflow")), f"s{self._count}"
        text, cfg = json.dumps(data), self._pipeline.cfg
        if channel == "source":
            with self._root.cursor() as cursor:
                cursor.execute(f"INSERT INTO `{self._db}`.signals VALUES (%s, %s, %s)", (id_, kind, text))
        elif channel == "kafka":
            properties = self._pipeline.properties
            producer = Producer({"bootstrap.servers": properties["kafka.bootstrap.servers"]})
            value = json.dumps({"id": id_, "type": kind, "data": data})
            producer.produce(properties["signal.kafka.topic"], value, properties["topic.prefix"])
            assert producer.flush(30) == 0
        else:
            send(cfg, kind, data, id_)


def run(pipeline: Pipeline, job: str, rng: random.Random, fired: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a job that ends at a point which is drawn, if it passes it."""
    fault = {"point": rng.choice(POINTS[job]), "action": "raise", "nth": rng.choice((1, 1, 2, 3)), "fired": str(fired)}
    fired.unlink(missing_ok=True)
    with monkeypatch.context() as patch:
        patch.setattr(faults, "_passed", {})
        patch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
        try:
            pipeline.snapshot() if job == "snapshot" else pipeline.drain()
        except faults.FaultRaised:
            assert fired.exists()
        except CdcError as error:
            assert error.can_retry, error


def finish(pipeline: Pipeline, end: tuple[str, int]) -> None:
    """Take the snapshot, then drain until no scan is left and the stream has passed the last change.

    Args:
        pipeline: The stream.
        end: File and position after the last change; others may go on to write to the same server.
    """
    jobs, errors = [pipeline.snapshot, *[pipeline.drain] * MOST_DRAINS], list[CdcError]()
    while jobs and len(errors) < 5:
        try:
            found = jobs[0]()
        except CdcError as error:  # a statement of the database server's other users may take long
            assert error.can_retry, error
            errors.append(error)
            continue
        jobs.pop(0)
        state = pipeline.store.load()
        at = state.committed if state is not None and state.pending is None else None
        is_drained = found is None or (at is not None and (at.file, at.pos) >= end)
        if len(jobs) < MOST_DRAINS and is_drained and all(scan.ended for scan in books(pipeline).scans.values()):
            return
    pytest.fail("\n".join(["scans do not come to an end", *map(str, errors), *pipeline.lines[-30:]]))


def values_of_keyless(pipeline: Pipeline) -> list[int]:
    """Return the rows that the topic of the table without a key leaves."""
    left: dict[int, int] = {}
    reading = False
    # A tombstone follows each delete; equal rows that were read have one identity.
    changes = [(r, value) for r in pipeline.records(KEYLESS) if (value := payload(r.value)) is not None]
    assert duplicates([r for r, value in changes if value["op"] != "r"]) == []
    for _, value in changes:
        if value["op"] == "r" and not reading:  # all rows are read: those that earlier events told of are among them
            left.clear()
        reading = value["op"] == "r"
        for part, sign in (("before", -1), ("after", 1)):
            if value[part] is not None:
                left[value[part]["v"]] = left.get(value[part]["v"], 0) + sign
    return sorted(v for v, count in left.items() for _ in range(count))


@pytest.mark.req("INC-17", "INC-20", "SNAP-26")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", SEEDS)
def test_topics_equal_tables_whatever_happens(
    properties: dict[str, str],
    root: Any,
    database: str,
    stack: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    rng, prefix = random.Random(seed), properties["topic.prefix"]
    execute(root, *fill(database), SIGNALS.format(database))
    execute(root, f"GRANT INSERT, DELETE ON `{database}`.signals TO {properties['database.user']}")
    chaotic = {
        "cdc.id.header": "true",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "table.include.list": ",".join(f"{database}.{name}" for name in (*TABLES, KEYLESS)),
        "signal.enabled.channels": "source,kafka,airflow",
        "signal.data.collection": f"{database}.signals",
        "signal.kafka.topic": f"{prefix}.asks",
        "incremental.snapshot.chunk.size": rng.choice(("2", "5", "20")),
        "snapshot.chunk.rows": rng.choice(("20", "60")),
        "topic.creation.default.partitions": rng.choice(("1", "3")),
        "drain.small.batch.bytes": "0",
    }
    pipeline = Pipeline(properties | chaotic, slots=rng.choice((1, 2, 3)))
    rng_rows, rng_structures = random.Random(f"{seed}/rows"), random.Random(f"{seed}/structures")
    structures = Structures(rng_structures, database)
    threads = (Changes(stack, lambda: change(rng_rows, database), 0.02), Changes(stack, structures.next, 0.7))
    for thread in threads:
        thread.start()
    fired, signals = tmp_path / "fired", Signals(rng, pipeline, database, root)
    try:
        for _ in range(rng.randrange(1, 4)):
            run(pipeline, "snapshot", rng, fired, monkeypatch)
        for _ in range(3):
            for _ in range(rng.randrange(3)):
                signals.ask()
            # A drain before the snapshot's view is taken would find no offset.
            state = pipeline.store.load()
            job = "drain" if state is not None and state.committed is not None else "snapshot"
            run(pipeline, job, rng, fired, monkeypatch)
    finally:
        for thread in threads:
            thread.stop()
    signals.send("resume-snapshot", {"type": "incremental"})
    time.sleep(0.1)
    ((file, position, *_),) = rows(root, "SHOW BINARY LOG STATUS")
    finish(pipeline, (file, position))
    for name, columns in COLUMNS.items():
        same_as_table(pipeline, root, name, columns)
    expected = sorted(v for (v,) in rows(root, f"SELECT v FROM `{database}`.{KEYLESS}"))
    assert values_of_keyless(pipeline) == expected
    print(f"seed {seed}: {[t.done for t in threads]} statements, {len(books(pipeline).requests)} requests")
