"""Topics before a batch writes into them, over the in-memory twins."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.memory_job import config, memory_job
from kit.memory_kafka import MemoryKafka
from kit.store_contract import END, plan

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import CHUNK_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.plan import OTHERS_LABEL, BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.topic_records import RecordedTopic, topic_record
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.errors import RecordsLostError, TopicChangedError
from airflow_provider_mysql_cdc.cdc.job import checked_topics, topic_guard
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo

CFG = config()
TOPIC = "p.d.t"


class Rig:
    """A cluster whose topics a test changes.

    Args:
        job: The ledger.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, job: JobLedger) -> None:
        self.job, self.topics, self.created = job, {TOPIC: TopicInfo(2, "first")}, TopicInfo(2, "made")
        self.lines: list[str] = []
        self.described = 0
        monkeypatch.setattr(topic_guard, "make_admin", lambda _: None)
        monkeypatch.setattr(topic_guard, "_METADATA_DELAY_S", 0.0)
        for name in ("describe_topics", "describe_created"):
            monkeypatch.setattr(topic_guard, name, self.describe)
        monkeypatch.setattr(job, "required_topics", lambda _: {TOPIC: None})
        monkeypatch.setattr(job, "create_topics", lambda specs: self.topics.update(dict.fromkeys(specs, self.created)))

    def describe(self, _: Any, names: Any, at: str) -> dict[str, TopicInfo]:
        self.described += 1
        return {topic: info for topic, info in self.topics.items() if topic in names}

    def ready(self, batch: BatchPlan, state: Any = None) -> dict[str, RecordedTopic]:
        """Begin a batch, with other tables than the one before unless they are given."""
        state = state or SchemaState()
        topic_guard.prepare_topics(CFG, self.job, batch, self.job.read(), state, self.lines.append)
        return dict(self.job.read().topics)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    made = Rig(monkeypatch, memory_job(monkeypatch, CFG, MemoryKafka()))
    assert made.ready(plan()) == {TOPIC: RecordedTopic(2, "first", 1)}
    return made


def test_a_batch_behind_another_describes_topics_only_where_something_has_changed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    same, late_s, epochs = SchemaState(), [0.0], iter(range(2, 99))
    now = time.monotonic()
    clock = SimpleNamespace(monotonic=lambda: now + late_s[0])
    monkeypatch.setattr(checked_topics, "time", clock)
    monkeypatch.setattr(topic_guard, "time", clock)

    def asked(state: SchemaState = same, planned: int | None = None) -> int:
        before = rig.described
        rig.ready(plan(next(epochs), END, partitions={TOPIC: planned} if planned else {}), state)
        return rig.described - before

    assert [asked(), asked(), asked()] == [1, 0, 0]
    assert [asked(planned=2), asked()] == [1, 0], "several writers"
    with pytest.raises(TopicChangedError, match="2 partitions instead of 3 since the batch was planned"):
        asked(planned=3)
    late_s[0] += checked_topics.RECHECK_S
    assert [asked(), asked()] == [1, 0], "a topic that nobody writes to may have gone meanwhile"
    assert [asked(SchemaState()), asked()] == [1, 1], "other tables"
    rig.job.commit([topic_record(CFG.ledger_topic, "p.d.born", RecordedTopic(4, "born", 9))])
    rig.topics["p.d.born"] = TopicInfo(4, "born")
    assert [asked(), asked()] == [1, 0], "one that a batch has created"
    rig.topics[TOPIC] = TopicInfo(2, "second")
    assert asked() == 0
    with pytest.raises(TopicChangedError, match="created again"):
        topic_guard.require_written_topics(CFG, rig.job.read(), plan(), {TOPIC: 1})


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (None, "deleted"),
        (TopicInfo(2, "second"), "created again"),
        (TopicInfo(3, "first"), "3 partitions instead of 2"),
    ],
)
def test_a_topic_that_is_not_as_the_last_batch_left_it_stops_the_next(
    rig: Rig, now: TopicInfo | None, text: str
) -> None:
    rig.topics = {} if now is None else {TOPIC: now}
    before = dict(rig.topics)
    with pytest.raises(TopicChangedError, match=text):
        rig.ready(plan(2, END))
    assert rig.topics == before and rig.job.read().topics == {TOPIC: RecordedTopic(2, "first", 1)}


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (None, "deleted"),
        (TopicInfo(2, "second"), "created again"),
        (TopicInfo(3, "first"), "3 partitions instead of 2"),
    ],
)
@pytest.mark.parametrize("counts", [{TOPIC: 1}, {OTHERS_LABEL: 1}])
def test_a_topic_that_has_changed_when_the_batch_ends_is_an_error(
    rig: Rig, now: TopicInfo | None, text: str, counts: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_guard.time, "sleep", lambda _: None)
    rig.topics = {} if now is None else {TOPIC: now}
    with pytest.raises(TopicChangedError, match=text) as caught:
        topic_guard.require_written_topics(CFG, rig.job.read(), plan(), counts)
    assert "a second time" not in str(caught.value)


def test_only_topics_with_records_of_the_batch_are_asked_for_at_its_end(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = rig.job.read()
    topic_guard.require_written_topics(CFG, ledger, plan(), {TOPIC: 1, "p.d.dead": 1})
    monkeypatch.setattr(topic_guard, "describe_topics", lambda *_: pytest.fail("nothing was written"))
    topic_guard.require_written_topics(CFG, ledger, plan(), {TOPIC: 0, "p.d.dead": 1})


def test_a_broker_may_know_of_a_new_topic_a_moment_later(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    topics, rig.topics = rig.topics, {}
    monkeypatch.setattr(topic_guard.time, "sleep", lambda _: rig.topics.update(topics))
    topic_guard.require_written_topics(CFG, rig.job.read(), plan(), {TOPIC: 1})
    rig.topics = {}
    assert rig.ready(plan(2, END)) == {TOPIC: RecordedTopic(2, "first", 1)}


def test_a_new_snapshot_takes_topics_as_they_are_and_one_that_goes_on_does_not(rig: Rig) -> None:
    batch = replace(plan(writers=1), kind="snapshot")
    rig.job.begin(batch)
    rig.topics = {TOPIC: TopicInfo(3, "second")}
    assert rig.ready(batch) == {TOPIC: RecordedTopic(3, "second", 1)}
    assert any("uses it as it is" in line for line in rig.lines)
    chunk = {"db": "d", "table": "t", "number": 0, "columns": [], "low": None, "high": None, "last": True, "rows": 1}
    done = {"offset": END.to_json(), "rows": 1, "left_out": 0, "ts_ms": 7, "list": "x", "order": 0}
    done |= {"epoch": 1, "chunk": chunk}
    rig.job.put(CHUNK_PREFIX + "d.t/0", done)
    rig.topics = {TOPIC: TopicInfo(4, "second")}
    with pytest.raises(TopicChangedError, match="4 partitions"):
        rig.ready(batch)


def test_a_topic_that_is_made_for_a_retry_has_the_partitions_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """topic.creation.default.partitions was changed in between."""
    rig = Rig(monkeypatch, memory_job(monkeypatch, CFG, MemoryKafka()))
    rig.topics, rig.created = {}, TopicInfo(3, "made")
    with pytest.raises(TopicChangedError, match="3 partitions instead of 1 since the batch was planned"):
        rig.ready(plan(partitions={TOPIC: 1}))
    rig.topics, rig.created = {}, TopicInfo(1, "made")
    assert rig.ready(plan(partitions={TOPIC: 1})) == {TOPIC: RecordedTopic(1, "made", 1)}


def test_a_topic_that_ends_before_where_a_batch_has_left_it_has_lost_records(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was made anew is told by its id; a broker that has just restarted may say so for a moment."""
    ends, slept = {0: 40, 1: 7}, list[float]()
    monkeypatch.setattr(topic_guard, "last_offsets_of_topics", lambda _, topics: {t: dict(ends) for t in topics})
    now = time.monotonic()
    clock = SimpleNamespace(monotonic=lambda: now + sum(slept), sleep=lambda s: (slept.append(s), ends.update(later)))
    monkeypatch.setattr(topic_guard, "time", clock)
    monkeypatch.setattr(topic_guard, "_METADATA_DELAY_S", 1.0)
    batch = plan()
    rig.job.begin(batch)
    topic_guard.note_topic_ends(CFG, rig.job, rig.job.read(), {TOPIC: 3, "p.d.other": 1})
    assert not rig.job.ends_due({TOPIC: 1}), "a moment later the next batch may end"
    rig.job.write_outcome(batch, counts={TOPIC: 3})
    later: dict[int, int] = {}
    ends[0] = 41
    rig.ready(plan(2, END))
    ends[1], later = 6, {1: 7}
    rig.ready(plan(2, END))
    assert len(slept) == 1
    ends[1], later = 6, {}
    with pytest.raises(RecordsLostError, match=r"p\.d\.t, partition 1: it ended at 7, and ends at 6"):
        rig.ready(plan(2, END))
    rig.ready(replace(plan(2, END), kind="snapshot"))
    rig.topics[TOPIC] = TopicInfo(2, "second")
    with pytest.raises(TopicChangedError):
        rig.ready(plan(2, END))
