"""A topic that somebody deletes or enlarges between two batches, or inside one, is found out before a batch writes."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions
from kit.incremental_rig import ask_for
from kit.records import duplicates, payload
from kit.sql import execute
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner
from pipelinelib.topics import delete_topics

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.drain import drain_driver, drain_writer
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SinkError, TopicChangedError
from airflow_provider_mysql_cdc.cdc.faults import FaultRaised
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.operate.interrupted_snapshot import finish_interrupted
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.operate.stored_offset import read_ledger
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec, describe_created, describe_topics, ensure_topics


@pytest.fixture
def pipeline(properties: dict[str, str], root: Any, database: str) -> Pipeline:
    made = Pipeline(
        properties
        | {
            "cdc.id.header": "true",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "topic.creation.default.partitions": "3",
            # A writer waits as long for a topic that was deleted, unless its client hears of that before.
            "kafka.delivery.timeout.ms": "8000",
        }
    )
    execute(
        root,
        *(f"CREATE TABLE `{database}`.{t} (id INT PRIMARY KEY, v INT)" for t in ("a", "b")),
        *(f"INSERT INTO `{database}`.{t} VALUES (1, 0), (2, 0)" for t in ("a", "b")),
    )
    made.snapshot()
    return made


def delete(pipeline: Pipeline, topic: str) -> None:
    delete_topics(pipeline.cfg.kafka_settings(), topic)


def enlarge(pipeline: Pipeline, topic: str, count: int) -> None:
    admin = make_admin(pipeline.cfg.kafka_settings())
    for future in admin.create_partitions([NewPartitions(topic, count)]).values():
        future.result(30)


def accept(pipeline: Pipeline, to: str = "stored") -> None:
    reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to=to)


def values(pipeline: Pipeline, table: str) -> list[Any]:
    found = sorted(pipeline.records(table), key=lambda r: (r.partition, r.offset))
    return sorted(payload(r.value)["after"]["v"] for r in found)


def set_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **fault: Any) -> Path:
    fired = tmp_path / f"fired-{fault['point']}"
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps({**fault, "fired": str(fired)}))
    return fired


@pytest.mark.parametrize("what", ["deleted", "made anew", "partitions"])
@pytest.mark.exhaustive(but="deleted|partitions")
def test_a_changed_topic_stops_the_drain_until_a_person_accepts_it(
    pipeline: Pipeline, root: Any, database: str, what: str
) -> None:
    topic = pipeline.table_topic("a")
    execute(root, f"UPDATE `{database}`.a SET v = 1", f"UPDATE `{database}`.b SET v = 1")
    if what == "partitions":
        enlarge(pipeline, topic, 5)
    else:
        delete(pipeline, topic)
    if what == "made anew":
        ensure_topics(make_admin(pipeline.cfg.kafka_settings()), {topic: TopicSpec(3, 1)})
    for _ in range(2):
        with pytest.raises(TopicChangedError) as caught:
            pipeline.drain()
        text = str(caught.value)
        assert f"{topic}: it " in text and "mysql_cdc_reset_offset" in text and not caught.value.can_retry
        assert pipeline.table_topic("b") not in text
    assert values(pipeline, "b") == [0, 0], "nothing was written"
    found = describe_topics(make_admin(pipeline.cfg.kafka_settings()), [topic], "")
    assert (topic in found) == (what != "deleted"), "and nothing was made anew"
    outcome = pipeline.settle()
    assert not outcome.complete and isinstance(outcome.error, TopicChangedError)
    accept(pipeline)
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    assert values(pipeline, "b") == [0, 0, 1, 1]
    assert values(pipeline, "a") == ([0, 0, 1, 1] if what == "partitions" else [1, 1])
    execute(root, f"UPDATE `{database}`.a SET v = 2")
    assert pipeline.drain() is not None, "the topic as it was accepted is the one that counts"


def recreate_at(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, place: str, module: Any = faults) -> list[str]:
    """Let another program delete and create a table's topic at a fault point; return what was created."""
    topic, created = pipeline.table_topic("a"), list[str]()

    def pass_point(name: str, *_: Any) -> None:
        if name == place and not created:
            delete(pipeline, topic)
            created.extend(ensure_topics(make_admin(pipeline.cfg.kafka_settings()), {topic: TopicSpec(3, 1)}))

    monkeypatch.setattr(module, "fault_point", pass_point)
    return created


def test_a_topic_that_is_created_again_inside_a_batch_fails_the_batch(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(root, f"UPDATE `{database}`.a SET v = 1", f"UPDATE `{database}`.b SET v = 1")
    created = recreate_at(pipeline, monkeypatch, "writer.done", drain_writer)
    with pytest.raises(TopicChangedError) as caught:
        pipeline.drain()
    text = str(caught.value)
    assert f"{created[0]}: it was deleted and created again" in text and "mysql_cdc_reset_offset" in text
    assert "a second time" not in text and not caught.value.can_retry
    assert values(pipeline, "b") == [0, 0, 1, 1] and values(pipeline, "a") == []
    execute(root, f"UPDATE `{database}`.b SET v = 2")
    with pytest.raises(TopicChangedError):
        pipeline.drain()
    accept(pipeline)
    assert pipeline.drain() is not None
    assert values(pipeline, "b") == [0, 0, 1, 1, 2, 2]


def run_and_change(pipeline: Pipeline, root: Any, monkeypatch: pytest.MonkeyPatch, what: str, *updates: str) -> None:
    """Make a run whose second batch is of some statements, before which another program changes the topic of a."""
    topic, plan_next, done = pipeline.table_topic("a"), drain_driver._next_plan, list[str]()

    def change_topic(*args: Any) -> Any:
        assert not done, "the batch that writes to it has to end the run"
        done.append(what)
        if what == "partitions":
            enlarge(pipeline, topic, 5)
        else:
            delete(pipeline, topic)
        if what == "made anew":
            ensure_topics(make_admin(pipeline.cfg.kafka_settings()), {topic: TopicSpec(3, 1)})
        execute(root, *updates)
        return plan_next(*args)

    spec = replace(pipeline.prepare("drain").spec, run_for_s=600)
    with monkeypatch.context() as patch:
        patch.setattr(drain_driver, "_next_plan", change_topic)
        try:
            run_drain(spec, ThreadRunner(pipeline.slots), pipeline.log)
        finally:
            assert done


@pytest.mark.parametrize("what", ["deleted", "made anew", "partitions"])
@pytest.mark.exhaustive(but="made anew")
def test_a_topic_that_changes_between_two_batches_of_a_run_ends_it(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The run does not describe all topics before each batch; a writer compares those that it writes to."""
    topic = pipeline.table_topic("a")
    execute(root, f"UPDATE `{database}`.a SET v = 1")
    with pytest.raises(SinkError if what == "deleted" else TopicChangedError):
        run_and_change(pipeline, root, monkeypatch, what, f"UPDATE `{database}`.a SET v = 2")
    if what != "deleted":
        assert 2 not in values(pipeline, "a"), "its records never become visible"
    pipeline.settle()
    execute(root, f"UPDATE `{database}`.b SET v = 3")
    for _ in range(2):  # also where the batch that met it is settled as complete, and the next one does not touch it
        with pytest.raises(TopicChangedError, match=re.escape(f"{topic}: it ")):
            pipeline.drain()
        assert not pipeline.settle().complete
    assert values(pipeline, "b") == [0, 0]
    accept(pipeline)
    assert pipeline.drain() is not None
    assert values(pipeline, "a") == ([0, 0, 1, 1, 2, 2] if what == "partitions" else [2, 2])
    assert values(pipeline, "b") == [0, 0, 3, 3]


@pytest.mark.parametrize("what", ["deleted", "made anew", "partitions"])
@pytest.mark.exhaustive
def test_a_topic_that_changes_and_gets_no_more_records_in_its_run_stops_the_next_run(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    topic = pipeline.table_topic("a")
    execute(root, f"UPDATE `{database}`.a SET v = 1")
    with pytest.raises(AssertionError, match="has to end the run"):  # its third batch would begin
        run_and_change(pipeline, root, monkeypatch, what, f"UPDATE `{database}`.b SET v = 2")
    pipeline.settle()
    execute(root, f"UPDATE `{database}`.b SET v = 3")
    with pytest.raises(TopicChangedError, match=re.escape(f"{topic}: it ")):
        pipeline.drain()
    assert values(pipeline, "b") == [0, 0, 2, 2]


@pytest.mark.exhaustive
def test_a_topic_that_is_created_again_inside_a_window_fails_the_window(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_for(pipeline, ["a"])
    created = recreate_at(pipeline, monkeypatch, "incremental.after_commit")
    with pytest.raises(TopicChangedError, match="created again"):
        pipeline.drain()
    assert created and values(pipeline, "a") == []


@pytest.mark.exhaustive
def test_a_topic_that_is_created_again_inside_a_snapshot_fails_the_snapshot_and_its_retry(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = recreate_at(pipeline, monkeypatch, "snapshot.before_books")
    for _ in range(2):
        with pytest.raises(TopicChangedError, match=r"created again.*again=true"):
            pipeline.snapshot(again=True)
    with pytest.raises(TopicChangedError, match=r"created again.*again=true"):
        finish_interrupted(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log)
    assert created and values(pipeline, "a") == []
    accept(pipeline, "current")
    assert pipeline.snapshot(again=True).complete
    assert values(pipeline, "a") == [0, 0]


def test_the_topic_of_a_table_that_is_gone_may_be_deleted(pipeline: Pipeline, root: Any, database: str) -> None:
    execute(root, f"DROP TABLE `{database}`.a")
    pipeline.drain()
    delete(pipeline, pipeline.table_topic("a"))
    execute(root, f"UPDATE `{database}`.b SET v = 1")
    assert pipeline.drain() is not None
    assert [line for line in pipeline.lines if pipeline.table_topic("a") in line and "deleted" in line]
    said = len(pipeline.lines)
    execute(root, f"UPDATE `{database}`.b SET v = 2")
    assert pipeline.drain() is not None
    assert not [line for line in pipeline.lines[said:] if pipeline.table_topic("a") in line]


def test_a_new_snapshot_takes_the_topics_as_they_are_and_says_so(pipeline: Pipeline, root: Any, database: str) -> None:
    enlarge(pipeline, pipeline.table_topic("a"), 5)
    assert pipeline.snapshot(again=True).complete
    assert [line for line in pipeline.lines if "5 partitions instead of 3" in line]
    execute(root, f"UPDATE `{database}`.a SET v = 1")
    assert pipeline.drain() is not None


def test_an_interrupted_snapshot_is_not_finished_into_other_partitions(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipeline.slots = 1
    fired = set_fault(monkeypatch, tmp_path, point="snapshot.after_chunk")
    with pytest.raises(FaultRaised):
        pipeline.snapshot(again=True)
    assert fired.exists()
    monkeypatch.delenv("MYSQL_CDC_FAULT")
    enlarge(pipeline, pipeline.table_topic("b"), 5)
    with pytest.raises(TopicChangedError, match="again=true"):
        pipeline.snapshot()
    accept(pipeline, "current")
    assert pipeline.snapshot(again=True).complete


@pytest.mark.parametrize("partitions", ["1", "5"])
@pytest.mark.exhaustive(but="5")
def test_a_topic_born_inside_a_batch_keeps_its_partitions(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, partitions: str
) -> None:
    """It was created by an attempt that committed nothing; the default is another one in the next."""
    execute(root, f"CREATE TABLE `{database}`.born (id INT PRIMARY KEY, v INT)")
    execute(root, f"INSERT INTO `{database}`.born VALUES " + ",".join(f"({i}, 0)" for i in range(60)))
    fired = set_fault(monkeypatch, tmp_path, point="writer.before_commit")
    with pytest.raises(FaultRaised):
        pipeline.drain()
    assert fired.exists()
    monkeypatch.delenv("MYSQL_CDC_FAULT")
    pipeline.properties["topic.creation.default.partitions"] = partitions
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    execute(root, f"UPDATE `{database}`.born SET v = 1")
    pipeline.drain()
    at: dict[Any, set[int]] = {}
    for record in pipeline.records("born"):
        at.setdefault(record.key, set()).add(record.partition)
    assert len(at) == 60 and all(len(found) == 1 for found in at.values())
    assert {p for found in at.values() for p in found} == {0, 1, 2}
    assert duplicates(pipeline.records("born")) == []


@pytest.mark.req("STRM-15")
def test_a_table_that_is_created_and_emptied_gets_its_topic(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipeline.properties["skipped.operations"] = "none"
    execute(
        root,
        f"CREATE TABLE `{database}`.born (id INT PRIMARY KEY, v INT)",
        f"TRUNCATE TABLE `{database}`.born",
    )
    fired = set_fault(monkeypatch, tmp_path, point="writer.before_commit")
    with pytest.raises(FaultRaised):
        pipeline.drain()
    assert fired.exists()
    monkeypatch.delenv("MYSQL_CDC_FAULT")
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    assert [payload(r.value)["op"] for r in pipeline.records("born")] == ["t"]
    assert pipeline.topics()[pipeline.table_topic("born")] == 3
    enlarge(pipeline, pipeline.table_topic("born"), 5)
    execute(root, f"INSERT INTO `{database}`.born VALUES (1, 1)")
    with pytest.raises(TopicChangedError, match="5 partitions instead of 3"):
        pipeline.drain()


@pytest.mark.parametrize("module", ["drain.topic_shares", "job.topic_guard"])
@pytest.mark.exhaustive(but="guard")
def test_a_topic_that_vanishes_as_it_is_made_is_a_named_error(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    execute(root, f"CREATE TABLE `{database}`.born (id INT PRIMARY KEY, v INT)")
    if module == "job.topic_guard":
        assert pipeline.drain() is not None, (
            "the next batch begins with the table, and makes its topic before it writes"
        )
    execute(root, f"INSERT INTO `{database}`.born VALUES (1, 1)")
    topic = pipeline.table_topic("born")

    def deleted_meanwhile(admin: Any, names: Any, at: str) -> Any:
        if topic in names:
            delete(pipeline, topic)
            while describe_topics(admin, [topic], at):  # the brokers' metadata follow a moment later
                pass
        return describe_created(admin, names, at)

    with monkeypatch.context() as patch:
        patch.setattr("airflow_provider_mysql_cdc.cdc.sink.topics._LEADER_TIMEOUT_S", 1)
        patch.setattr(f"airflow_provider_mysql_cdc.cdc.{module}.describe_created", deleted_meanwhile)
        with pytest.raises(SinkError, match="just created no longer exists") as caught:
            pipeline.drain()
    assert topic in caught.value.where and caught.value.can_retry
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    assert values(pipeline, "born") == [1]


def test_a_topic_born_inside_a_batch_is_compared_when_the_batch_goes_on(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipeline.properties |= {"drain.writers": "2", "drain.small.batch.bytes": "0", "commit.bytes": "1024"}
    # A topic that is born in a batch goes to a writer by its name, which is another one in each run of the test.
    names = [f"t{n}" for n in range(60)]
    names.sort(key=lambda name: zlib.crc32(pipeline.table_topic(name).encode()) % 2)
    for name in (*names[:2], *names[-2:]):
        execute(
            root,
            f"CREATE TABLE `{database}`.{name} (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO `{database}`.{name} VALUES " + ",".join(f"({i}, 0)" for i in range(60)),
        )
    job = pipeline.prepare("drain")
    topics = [pipeline.table_topic(name) for name in (*names[:2], *names[-2:])]
    assert [job.plan.assigned_writer(topic, 0) for topic in topics] == [0, 0, 1, 1]
    fired = set_fault(monkeypatch, tmp_path, point="writer.before_commit", writer=0)
    with pytest.raises(FaultRaised):
        pipeline.drain()
    assert fired.exists()
    monkeypatch.delenv("MYSQL_CDC_FAULT")
    enlarge(pipeline, topics[-1], 5)
    with pytest.raises(TopicChangedError, match="5 partitions instead of 3"):
        pipeline.drain()
    accept(pipeline)
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete


@pytest.mark.req("FAULT-32")
@pytest.mark.parametrize(
    "how", ["CREATE TABLE `{0}`.`x y` (id INT PRIMARY KEY, v INT)", "RENAME TABLE `{0}`.b TO `{0}`.`x y`"]
)
@pytest.mark.exhaustive(but="RENAME")
def test_a_table_that_comes_into_the_topic_of_another_stops_the_drain_by_name(
    pipeline: Pipeline, root: Any, database: str, how: str
) -> None:
    execute(
        root,
        f"CREATE TABLE `{database}`.x_y (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO `{database}`.x_y VALUES (1, 7)",
    )
    assert pipeline.drain() is not None
    execute(
        root,
        how.format(database),
        f"REPLACE INTO `{database}`.`x y` VALUES (1, 8)",
        f"DELETE FROM `{database}`.`x y` WHERE id = 1",
    )
    for _ in range(2):
        with pytest.raises(ConfigError) as caught:
            pipeline.drain()
        text = str(caught.value)
        assert f"{database}.x y, {database}.x_y" in text and "table.exclude.list" in text and "binlog" in text
    assert values(pipeline, "x_y") == [7]
    pipeline.properties["table.exclude.list"] = ".*\\.x y"
    assert pipeline.drain() is not None
    assert values(pipeline, "x_y") == [7]


def test_many_tables_of_one_batch_get_their_topics_together(pipeline: Pipeline, root: Any, database: str) -> None:
    """Those that are on the server by now; the batch has also made, filled and dropped others."""
    names = [f"n{n:02}" for n in range(30)]
    for name in names:
        execute(root, f"CREATE TABLE `{database}`.{name} (id INT PRIMARY KEY, v VARCHAR(9))")
        execute(root, f"INSERT INTO `{database}`.{name} VALUES (1, '{name}')")
    execute(root, f"DROP TABLE `{database}`.n29", f"ALTER TABLE `{database}`.n05 RENAME COLUMN v TO w")
    execute(root, f"UPDATE `{database}`.n05 SET w = 'new'", f"UPDATE `{database}`.n06 SET v = 'new'")
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    prefix = pipeline.properties["topic.prefix"]
    assert {f"{prefix}.{database}.{name}" for name in names} <= pipeline.topics().keys()
    for name in ("n00", "n28", "n29"):
        (record,) = pipeline.records(name)
        assert payload(record.value)["after"] == {"id": 1, "v": name}
    last = [payload(pipeline.records(name)[-1].value) for name in ("n05", "n06")]
    assert [row["after"] for row in last] == [{"id": 1, "w": "new"}, {"id": 1, "v": "new"}]
    ledger = read_ledger(pipeline.cfg)
    assert ledger is not None and {f"{prefix}.{database}.{name}" for name in names} <= ledger.topics.keys()
