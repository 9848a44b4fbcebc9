"""Two drivers of one owner at once: an Airflow retry while the older attempt still waits, is frozen, or comes late.

The older driver is held at a named point; the newer one runs to its end (or is held in turn), then the older goes on.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from kit.records import duplicates, payload
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.errors import CdcError, FencedError, RunInProgressError
from airflow_provider_mysql_cdc.cdc.faults import FaultRaised
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_driver import run_snapshot

JOBS: dict[str, Callable[..., Any]] = {"snapshot": run_snapshot, "drain": run_drain}
SLOTS = "waiting for slots"
WAIT_S = 60.0
ROWS = 400


@dataclass
class Attempt:
    """A driver in a thread, which stops where it is told to until it is let go.

    Args:
        spec: The job.
        point: A fault point, or ``SLOTS`` for the moment before its tasks start.
    """

    spec: JobSpec
    point: str | None = None
    lines: list[str] = field(default_factory=list)
    held: threading.Event = field(default_factory=threading.Event)
    free: threading.Event = field(default_factory=threading.Event)
    threads: set[threading.Thread] = field(default_factory=set)
    error: BaseException | None = None

    def start(self) -> Attempt:
        if self.point is None:
            self.free.set()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        return self

    def _run(self) -> None:
        _own.attempt = self
        try:
            JOBS[self.spec.mode](self.spec, Tasks(self), self.lines.append)
        except BaseException as error:
            self.error = error

    def passes(self, point: str) -> None:
        if point == self.point and not self.free.is_set():
            self.held.set()
            assert self.free.wait(WAIT_S)

    def wait_held(self) -> None:
        assert self.held.wait(WAIT_S), (self.point, self.error, self.lines)

    def go_on(self) -> BaseException | None:
        self.free.set()
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive()
        return self.error


class Tasks(ThreadRunner):
    """Run the tasks of an attempt."""

    def __init__(self, attempt: Attempt) -> None:
        super().__init__(3)
        self._attempt = attempt

    def run(self, task: Callable[[int, Any], Any], count: int, arguments: Any, *, barrier: bool) -> list[Any]:
        self._attempt.passes(SLOTS)

        def mine(index: int, given: Any) -> Any:
            _own.attempt = self._attempt
            return task(index, given)

        return super().run(mine, count, arguments, barrier=barrier)


_own = threading.local()
OPENER = "cdc-stage"


@pytest.fixture(autouse=True)
def points(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Attempt]]:
    """Let attempts stop at fault points; the thread that opens the view belongs to the attempt that was held last."""
    known: list[Attempt] = []

    def passed(fault: dict[str, Any], name: str, writer: int | None) -> None:
        found = getattr(_own, "attempt", None)
        if found is None and threading.current_thread().name == OPENER:
            found = next((a for a in known if a.point == name and not a.held.is_set()), None)
        if found is not None:
            found.passes(name)

    monkeypatch.setenv("MYSQL_CDC_FAULT", "{}")
    monkeypatch.setattr(faults, "_pass", passed)
    yield known
    for attempt in known:
        attempt.free.set()


@pytest.fixture
def pipeline(properties: dict[str, str], root: Any, database: str) -> Pipeline:
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v VARCHAR(60))")
    insert(root, database, 0, ROWS)
    execute(root, f"ANALYZE TABLE `{database}`.t")
    return Pipeline(
        properties
        | {
            "cdc.id.header": "true",
            "snapshot.chunk.rows": "50",
            "snapshot.parallelism": "2",
            "drain.writers": "2",
            "drain.small.batch.bytes": "0",
            "topic.creation.default.partitions": "2",
            "commit.bytes": "1024",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
        }
    )


def insert(root: Any, database: str, first: int, last: int) -> None:
    execute(root, f"INSERT INTO `{database}`.t VALUES " + ",".join(f"({i}, 'row {i}')" for i in range(first, last)))


def interrupt_snapshot(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a snapshot die after some chunks, so that both attempts read the rest."""

    def die(fault: dict[str, Any], name: str, writer: int | None) -> None:
        if name == "snapshot.after_chunk":
            raise FaultRaised(name)

    with monkeypatch.context() as patch:
        patch.setattr(faults, "_pass", die)
        with pytest.raises(FaultRaised):
            pipeline.snapshot()


def check(pipeline: Pipeline, root: Any, database: str) -> None:
    """Each row is read once, or streamed once; a window may read one that was streamed before it."""
    records = pipeline.records("t")
    assert duplicates(records) == []
    seen = Counter((payload(r.key)["id"], payload(r.value)["op"]) for r in records)
    expected = {i for (i,) in rows(root, f"SELECT id FROM `{database}`.t")}
    assert {i: n for i, n in seen.items() if n > 1} == {}
    assert {i for i, _ in seen} == expected
    changes = [payload(r.value) for r in pipeline.read(pipeline.properties["topic.prefix"])]
    # A snapshot describes the tables of other databases too, whatever else stands on the server; one of which nothing
    # was committed begins again, and describes them again.
    described = sum("CREATE TABLE" in c["ddl"] for c in changes if c["databaseName"] == database)
    assert described == 1 + any("begins again" in line for line in pipeline.lines)


def prepare(kind: str, pipeline: Pipeline, root: Any, database: str) -> None:
    if kind == "drain":
        pipeline.snapshot()
        insert(root, database, ROWS, ROWS + 200)


def finish(newer: Attempt, pipeline: Pipeline) -> None:
    """Let the newer attempt go on; if the older one has opened a view or a window, the next try reads the rest."""
    error = newer.go_on()
    if error is not None:
        assert isinstance(error, CdcError) and error.can_retry, (error, newer.lines)
        assert pipeline.snapshot().complete


def fenced(error: BaseException | None) -> FencedError:
    assert isinstance(error, FencedError), repr(error)
    return error


AFTER = {
    "snapshot": [
        SLOTS,
        "writer.before_init",
        "snapshot.view_open",
        "writer.before_commit",
        "snapshot.before_books",
    ],
    "drain": [SLOTS, "writer.before_init", "writer.before_commit", "writer.after_commit", "driver.before_outcome"],
}
AFTER_CASES = [(kind, point) for kind, points in AFTER.items() for point in points]
WHILE = [SLOTS, "writer.before_init", "writer.after_init", "writer.before_commit"]
# A newer attempt reads nothing where the older one has opened its view: that is the next try's.
WHILE_CASES = [(kind, point) for kind in ("snapshot", "drain") for point in WHILE[: 3 if kind == "snapshot" else 4]]


@pytest.mark.req("FAULT-01")
@pytest.mark.parametrize(("kind", "point"), AFTER_CASES, ids=["-".join(c) for c in AFTER_CASES])
@pytest.mark.exhaustive(but="snapshot-writer.before_commit")
def test_an_older_attempt_that_goes_on_after_the_newer_one_ended_adds_nothing(
    kind: str, point: str, pipeline: Pipeline, root: Any, database: str, points: list[Attempt]
) -> None:
    prepare(kind, pipeline, root, database)
    spec = pipeline.prepare(kind).spec
    older, newer = Attempt(spec, point), Attempt(spec)
    points.append(older)
    older.start().wait_held()
    finish(newer.start(), pipeline)
    assert pipeline.settle().complete
    fenced(older.go_on())
    assert pipeline.settle().complete
    pipeline.drain()
    check(pipeline, root, database)


@pytest.mark.req("FAULT-01")
@pytest.mark.parametrize(("kind", "point"), WHILE_CASES, ids=["-".join(c) for c in WHILE_CASES])
@pytest.mark.exhaustive(but="drain-writer.after_init")
def test_an_older_attempt_that_goes_on_while_the_newer_one_works_adds_nothing(
    kind: str, point: str, pipeline: Pipeline, root: Any, database: str, points: list[Attempt]
) -> None:
    prepare(kind, pipeline, root, database)
    spec = pipeline.prepare(kind).spec
    older, newer = Attempt(spec, point), Attempt(spec, "writer.before_commit")
    points += [older, newer]
    older.start().wait_held()
    newer.start().wait_held()
    fenced(older.go_on())
    error = newer.go_on()
    if point == "writer.before_init":
        # Between its comparison and its taking over: it takes the id, finds out, and the newer one has to run again.
        assert fenced(error).can_retry
        finish(Attempt(spec).start(), pipeline)
    else:
        assert error is None, (error, newer.lines)
    assert pipeline.settle().complete
    pipeline.drain()
    check(pipeline, root, database)


@pytest.mark.req("FAULT-01")
@pytest.mark.parametrize("point", [SLOTS, "writer.before_commit", "incremental.before_commit"])
@pytest.mark.exhaustive(but="incremental")
def test_two_attempts_read_the_rest_of_one_interrupted_snapshot(
    point: str,
    pipeline: Pipeline,
    root: Any,
    database: str,
    points: list[Attempt],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interrupt_snapshot(pipeline, monkeypatch)
    insert(root, database, ROWS, ROWS + 10)
    spec = pipeline.prepare("snapshot").spec
    older, newer = Attempt(spec, point), Attempt(spec)
    points.append(older)
    older.start().wait_held()
    finish(newer.start(), pipeline)
    fenced(older.go_on())
    assert pipeline.settle().complete
    pipeline.drain()
    check(pipeline, root, database)


@pytest.mark.req("FAULT-01", "TOPIC-07")
def test_a_run_that_is_refused_does_not_fence_the_one_at_work(pipeline: Pipeline, root: Any, database: str) -> None:
    """A slow commit hides the end of the ledger; only a run of the same owner may take its writer for a dead one's."""
    prepare("drain", pipeline, root, database)
    job, cfg = pipeline.prepare("drain"), pipeline.cfg
    ledger, settings = kafka_clients.ledger(cfg), cfg.connection_settings()
    with run_lock.hold_run_lock(settings, cfg.topic_prefix, pipeline.owner):
        ledger.begin(job.plan)
        with contextlib.closing(kafka_clients.record_writer(cfg, 0)) as slow:
            slow.init()
            slow.produce(ledger.topic, b"outcome", encode({"epoch": 1, "ok": True, "counts": {}}), 0)
            slow._kafka.producer.flush(10)
            other = Pipeline(pipeline.properties, pipeline.store, owner="another/run/task/-1")
            for run in (other.drain, other.snapshot, other.settle):
                with pytest.raises(RunInProgressError) as caught:
                    run()
                assert caught.value.can_retry
            slow.commit()
            slow.produce(ledger.topic, b"outcome", encode({"epoch": 1, "ok": True, "counts": {}}), 0)
            slow._kafka.producer.flush(10)
            pipeline.prepare("drain")
            with pytest.raises(FencedError):
                slow.commit()
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    check(pipeline, root, database)


def test_an_attempt_that_comes_after_the_end_changes_nothing(pipeline: Pipeline, root: Any, database: str) -> None:
    late = [pipeline.prepare("snapshot").spec]
    assert Attempt(late[0]).start().go_on() is None
    before = pipeline.records("t")
    assert Attempt(late[0]).start().go_on() is None
    assert pipeline.settle().complete
    insert(root, database, ROWS, ROWS + 10)
    late.append(pipeline.prepare("drain").spec)
    assert Attempt(late[1]).start().go_on() is None
    assert Attempt(late[1]).start().go_on() is None
    refused = Attempt(late[0]).start().go_on()
    assert isinstance(refused, CdcError) and refused.can_retry
    assert pipeline.settle().complete
    assert len(before) == ROWS
    check(pipeline, root, database)
