"""Writers that live from batch to batch of a ``run_for``, on a real server: what they go through, and who follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer
from kit.records import compacted, duplicates, payload
from kit.signals import send
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc.binlog.dump import client_uuid
from airflow_provider_mysql_cdc.cdc.binlog.position import current_offset
from airflow_provider_mysql_cdc.cdc.commit.ledger import Ledger
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import WRITERS_KEY
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.drain import drain_driver, drain_writer
from airflow_provider_mysql_cdc.cdc.errors import RecordTooLargeError
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, compare_offsets
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter

MORE = {
    "cdc.id.header": "true",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "topic.creation.default.partitions": "3",
    "poll.interval.ms": "50",
    "drain.writers": "2",
    "drain.small.batch.bytes": "0",
    "heartbeat.interval.ms": "1",
    "provide.transaction.metadata": "true",
    "incremental.snapshot.chunk.size": "10",
}
Step = Callable[[], object]


class Stages(ThreadRunner):
    """Run tasks as threads, and note their names."""

    def __init__(self) -> None:
        super().__init__(4)
        self.names: list[str] = []

    def run(self, task: Any, count: int, arguments: Any, *, barrier: bool) -> Any:
        self.names.append(task.__name__)
        return super().run(task, count, arguments, barrier=barrier)


class LivingRun:
    """A drain with ``run_for`` of which each batch is that of one step.

    Attributes:
        stages: The stages, by the names of their tasks.
        dumps: The starts of the dump connections.
        inits: Transactional ids, each time that a writer took one over.
        epochs: Epochs of the batches.
    """

    def __init__(self, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pipeline, self.runner = pipeline, Stages()
        self.dumps: list[Any] = []
        self.inits: list[str] = []
        self.epochs: list[int] = []
        self._monkeypatch = monkeypatch
        self._note(drain_writer, "open_stream", lambda settings, start, **_: self.dumps.append(start))
        self._note(TransactionalWriter, "init", lambda sink, *_: self.inits.append(sink.transactional_id))
        self._note(
            drain_driver, "_complete_batch", lambda cfg, conn, job, made, *_: self.epochs.append(made.plan.epoch)
        )

    def _note(self, owner: Any, name: str, note: Callable[..., object]) -> None:
        function = getattr(owner, name)

        def noted(*args: Any, **more: Any) -> Any:
            note(*args, **more)
            return function(*args, **more)

        self._monkeypatch.setattr(owner, name, noted)

    def run(self, *steps: Step) -> None:
        """Make a batch of each step, the first of which is logged before the run begins."""
        left, plan_next = list(steps[1:]), drain_driver._next_plan

        def plan_step(*args: Any) -> Any:
            if not left:
                return None
            left.pop(0)()
            made = plan_next(*args)
            assert made is not None, "the step logs something"
            return made

        self._monkeypatch.setattr(drain_driver, "_next_plan", plan_step)
        steps[0]()
        spec = replace(self.pipeline.prepare("drain").spec, run_for_s=600)
        run_drain(spec, self.runner, self.pipeline.log)
        assert self.pipeline.settle().complete

    @property
    def stages(self) -> list[str]:
        return self.runner.names


@pytest.fixture
def pipeline(properties: dict[str, str], root: Any, database: str) -> Pipeline:
    made = Pipeline(properties | MORE | {"table.exclude.list": f"{database}[.]zz_not_captured"})
    execute(
        root,
        f"CREATE TABLE `{database}`.a (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO `{database}`.a VALUES {','.join(f'({n}, 0)' for n in range(30))}",
        f"CREATE TABLE `{database}`.zz_not_captured (id INT)",
    )
    made.snapshot()
    return made


def changing(root: Any, database: str, *statements: str) -> Step:
    return lambda: execute(root, f"UPDATE `{database}`.a SET v = v + 1", *statements)


def check(pipeline: Pipeline, root: Any, database: str, *tables: str) -> None:
    """Every event exactly once, and the topic compacted equals the table."""
    for table in tables:
        records = pipeline.records(table)
        assert duplicates(records) == []
        names = [r[0] for r in rows(root, f"SHOW COLUMNS FROM `{database}`.`{table}`")]
        expected = [dict(zip(names, row, strict=True)) for row in rows(root, f"SELECT * FROM `{database}`.`{table}`")]
        found = compacted(records).values()
        assert sorted(found, key=lambda v: v["id"]) == sorted(expected, key=lambda v: v["id"])


def test_writers_live_through_plain_batches_and_a_broken_dump(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take over their ids once, and read one dump; a new one is opened only where the old one broke."""

    def kill_dumps() -> None:
        cfg = pipeline.cfg
        uuids = {client_uuid(cfg.topic_prefix, cfg.server_id(n)) for n in range(2)}
        variables = "SELECT t.processlist_id, v.variable_value FROM performance_schema.user_variables_by_thread v"
        threads = rows(root, f"{variables} JOIN performance_schema.threads t USING (thread_id)")
        ours = [connection for connection, value in threads if value is not None and value.decode() in uuids]
        execute(root, *(f"KILL {connection}" for connection in set(ours)))

    run, change = LivingRun(pipeline, monkeypatch), changing(root, database)
    rotated = changing(root, database, "FLUSH BINARY LOGS")
    run.run(change, change, rotated, change, lambda: (kill_dumps(), change()), change)
    prefix = pipeline.properties["topic.prefix"]
    assert run.stages == ["writer_task"] and len(run.epochs) == 6
    assert len(run.dumps) == 4, "one of each writer, and again where it was killed"
    # The driver fences both before the first batch; then each takes its own over.
    assert [run.inits.count(f"{prefix}.{n}") for n in range(2)] == [2, 2]
    check(pipeline, root, database, "a")
    assert len(pipeline.records("a")) == 30 + 6 * 30
    transactions = [payload(r.value) for r in pipeline.read(f"{prefix}.transaction")]
    assert [t["status"] for t in transactions] == ["BEGIN", "END"] * 6
    heartbeats = pipeline.read(f"__debezium-heartbeat.{prefix}")
    assert len(heartbeats) >= 6


def test_other_writers_follow_a_change_of_structures_and_other_tasks(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, change = LivingRun(pipeline, monkeypatch), changing(root, database)
    alter = f"ALTER TABLE `{database}`.a ADD COLUMN w INT DEFAULT 7", f"UPDATE `{database}`.a SET w = 8"
    create = f"CREATE TABLE `{database}`.b (id INT PRIMARY KEY)", f"INSERT INTO `{database}`.b VALUES (1)"
    inserts = [changing(root, database, f"INSERT INTO `{database}`.b VALUES ({n})") for n in (2, 3)]

    def ask() -> None:
        send(pipeline.cfg, "execute-snapshot", {"data-collections": [f"{database}.a"]})
        change()

    run.run(change, changing(root, database, *alter), change, changing(root, database, *create), *inserts, ask, change)
    writers = [number for number, name in enumerate(run.stages) if name == "writer_task"]
    assert writers == [0, 1, 2, len(run.stages) - 1], "behind an altered table, behind a new one, behind windows"
    assert set(run.stages[3:-1]) == {"run_window_task"}
    check(pipeline, root, database, "a", "b")


def test_a_record_that_needs_smaller_batches_lets_the_writers_live(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch begins again under the same id, which is taken over once more."""
    produce, refused = TransactionalWriter.produce, list[str]()

    def refuse_once(sink: Any, topic: str, *record: Any) -> None:
        if topic == pipeline.table_topic("a") and run.epochs[1:] and not refused:
            refused.append(sink.transactional_id)
            sink.abort()
            raise RecordTooLargeError("a batch of records is too large", where=topic)
        produce(sink, topic, *record)

    monkeypatch.setattr(TransactionalWriter, "produce", refuse_once)
    monkeypatch.setattr(TransactionalWriter, "shrink_batches", lambda sink: sink.renew() or 1000)
    pipeline.properties |= {"drain.writers": "1"}
    run, change = LivingRun(pipeline, monkeypatch), changing(root, database)
    run.run(change, change, change)
    assert run.stages == ["writer_task"]
    assert refused and len(run.dumps) == 2
    assert len(pipeline.records("a")) == 30 + 3 * 30


def test_other_writers_follow_where_the_driver_fences_them_to_read_the_ledger(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open transaction hides the end of the ledger, as while a broker is late with its marker."""
    run, change = LivingRun(pipeline, monkeypatch), changing(root, database)
    prefix, servers = pipeline.properties["topic.prefix"], pipeline.properties["kafka.bootstrap.servers"]
    other = Producer({"bootstrap.servers": servers, "transactional.id": f"of another program on {prefix}"})

    def hide() -> None:
        other.init_transactions(30)
        other.begin_transaction()
        other.produce(pipeline.cfg.ledger_topic, key=WRITERS_KEY.encode(), value=encode({"count": 2}))
        other.flush(30)
        change()

    fence = Ledger._fence

    def show(ledger: Ledger, writers: Any) -> None:
        fence(ledger, writers)
        if len(run.epochs) == 3 and not shown:
            shown.append(True)
            other.abort_transaction(30)

    shown: list[bool] = []
    monkeypatch.setattr(Ledger, "_fence", show)
    run.run(change, change, hide, change)
    assert shown and run.stages == ["writer_task"] * 2 and len(run.epochs) == 4
    check(pipeline, root, database, "a")


@pytest.mark.req("STRM-33")
def test_transactions_of_others_make_no_batch_until_the_run_ends_or_something_of_ours_is_logged(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batches that come read all of them, whatever was behind the offset."""
    pipeline.properties["provide.transaction.metadata"] = "false"
    others = [f"INSERT INTO `{database}`.zz_not_captured VALUES ({n})" for n in range(3)]
    begun, looks, logged = list[Any](), list[int](), list[BinlogOffset]()
    complete, look = drain_driver._complete_batch, drain_driver.new_end

    def complete_batch(cfg: Any, conn: Any, job: Any, made: Any, *more: Any) -> Any:
        begun.append(made.plan)
        return complete(cfg, conn, job, made, *more)

    def look_on(*args: Any) -> Any:
        looks.append(len(begun))
        if statements := steps.get(len(looks), ()):
            execute(root, *statements)
            logged.append(current_offset(root))
        return look(*args)

    steps = {
        **{n: others for n in range(2, 8)},
        8: [*others, f"UPDATE `{database}`.a SET v = v + 1 WHERE id < 3"],
        **{n: others for n in range(10, 14)},
    }
    monkeypatch.setattr(drain_driver, "_complete_batch", complete_batch)
    monkeypatch.setattr(drain_driver, "new_end", look_on)
    execute(root, f"UPDATE `{database}`.a SET v = v + 1")
    run_drain(replace(pipeline.prepare("drain").spec, run_for_s=4.0), Stages(), pipeline.log)
    # Behind a batch with records nobody looks whose transactions are new.
    assert looks.index(2) == 2 and looks.index(3) == 8 and looks.index(4) == 10
    assert len(looks) > 14 and len(begun) == 5, "one more at the end of the run"
    assert pipeline.settle().complete and (state := pipeline.store.load()) is not None
    assert state.committed is not None and compare_offsets(state.committed, logged[-1]) >= 0
    check(pipeline, root, database, "a")
    assert len(pipeline.records("a")) == 30 + 30 + 3
