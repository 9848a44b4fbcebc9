"""A ledger that is read again and again is read once, and after that only what came to it.

A ledger topic with records of others is never written to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator

import pytest
from kit.cases import for_each
from kit.memory_kafka import MemoryKafka
from kit.memory_ledger import MemoryLedger

from airflow_provider_mysql_cdc.cdc.commit.ledger_cache import (
    LedgerCache,
    LedgerValues,
    claim_ledger,
    require_own_prefix,
    require_own_records,
)
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.errors import ERROR_TYPES, ForeignLedgerError
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import HiddenByTransaction, TopicRecord


class Topic:
    """A compacted topic, of which it is noted how many records were read."""

    def __init__(self) -> None:
        self.id: str | None = "first"
        self.records: list[TopicRecord] = []
        self.end = self.read = 0

    def put(self, key: str, value: bytes | None) -> None:
        self.records.append(TopicRecord(0, self.end, key.encode(), value))
        self.end += 2  # the marker of a transaction has an offset too

    def since(self, first: int) -> Iterator[TopicRecord]:
        for record in self.records:
            if record.offset >= first:
                self.read += 1
                yield record

    def values(self, kept: LedgerCache) -> dict[str, bytes | None]:
        self.read = 0
        found = self.read_with(kept, lambda _, first: self.since(first))
        whole = LedgerValues().with_records(iter(self.records))
        there = {key: value for key, value in found.values.items() if value is not None}
        assert there == {key: value for key, value in whole.values.items() if value is not None}
        assert {key: found.offsets[key] for key in there} == {key: whole.offsets[key] for key in there}
        return found.values

    def read_with(self, kept: LedgerCache, read: Callable[[str, int], Iterable[TopicRecord]]) -> LedgerValues:
        found = kept.read_on(read)
        if found is not None:
            assert found[0] == self.id
            return found[1]
        values = LedgerValues().with_records(self.since(0))
        kept.keep(self.id, values)
        return values


@pytest.fixture
def topic() -> Topic:
    made = Topic()
    for n in range(500):
        made.put(f"topic/{n}", b"%d" % n)
    return made


def test_a_later_reading_takes_what_came_since(topic: Topic) -> None:
    kept = LedgerCache()
    assert len(topic.values(kept)) == 500
    assert topic.read == 500
    topic.values(kept)
    assert topic.read == 1
    topic.put("topic/7", b"changed")
    topic.put("topic/8", None)
    found = topic.values(kept)
    assert topic.read == 3
    assert (found["topic/7"], found.get("topic/8"), found["topic/9"]) == (b"changed", None, b"9")


def test_values_that_were_handed_out_stay_as_they_are(topic: Topic) -> None:
    kept = LedgerCache()
    before = topic.values(kept)
    topic.put("topic/7", b"changed")
    assert (topic.values(kept)["topic/7"], before["topic/7"]) == (b"changed", b"7")


@pytest.mark.parametrize("how", ["made anew", "without an id", "forgotten"])
def test_another_topic_is_read_whole(topic: Topic, how: str) -> None:
    kept = LedgerCache()
    topic.id = None if how == "without an id" else topic.id
    topic.values(kept)
    topic.put("plan", b"{}")
    if how == "made anew":
        topic.id = "second"
        del topic.records[:400]
        kept.keep_only("second")
    if how == "forgotten":
        kept.clear()
    topic.values(kept)
    assert topic.read == len(topic.records)


@pytest.mark.parametrize("end", ["cut off", "written again", "compacted"])
def test_a_topic_that_lost_the_record_read_last_is_read_whole(topic: Topic, end: str) -> None:
    """An elected leader may lack what was read; compaction takes away what has a later value."""
    kept = LedgerCache()
    topic.put("plan", b"old")
    topic.values(kept)
    last = topic.records.pop()
    if end == "written again":
        topic.records.append(TopicRecord(0, last.offset, b"plan", b"other"))
    if end == "compacted":
        topic.put("plan", b"new")
    found = topic.values(kept)
    assert found.get("plan") == {"cut off": None, "written again": b"other", "compacted": b"new"}[end]
    assert topic.read >= len(topic.records)


def test_a_reading_that_fails_leaves_what_was_read(topic: Topic) -> None:
    kept = LedgerCache()
    topic.values(kept)
    topic.put("plan", b"{}")

    def hidden(_: str, first: int) -> Iterator[TopicRecord]:
        yield from topic.since(first)
        raise HiddenByTransaction("partition 0: 1000 of 1002")

    with pytest.raises(HiddenByTransaction):
        topic.read_with(kept, hidden)
    topic.values(kept)
    assert topic.read == 2


def values(*keys: str, value: bytes | None = b"{}") -> LedgerValues:
    return LedgerValues(dict.fromkeys(keys, value), {key: n for n, key in enumerate(keys)})


OWN = ("plan", "plan/3", "snapshot-table/d.t", "writer/0", "chunk/d.t/0", "topic/t", "error/12", "told",
       "unchecked/d.t", "incremental/state", "signal/airflow/x", "signal-offset", "signals-taken",
       "owner/p")  # fmt: skip


def test_every_key_of_the_ledger_is_its_own() -> None:
    require_own_records("l", values(*OWN))
    require_own_records("l", values())


def test_an_unknown_key_beside_known_ones_is_for_the_check_of_versions() -> None:
    require_own_records("l", values("plan", "later", "later-thing/1"))
    with pytest.raises(ForeignLedgerError, match="offset 0"):
        require_own_records("l", values("later"))


@for_each(
    ("key", "whose"),
    [
        ("", "unknown program"),
        ("connector-shop", "Kafka Connect's configuration of connector shop"),
        (json.dumps(["shop", {"server": "x"}]), "an offset of Kafka Connect's connector shop"),
        (json.dumps({"id": 1}), "unknown program"),
    ],
)
def test_a_record_of_others_is_named_and_stays(key: str, whose: str) -> None:
    with pytest.raises(ForeignLedgerError, match=whose) as caught:
        require_own_records("l", values(*OWN, key))
    assert caught.value.where == f"topic l, offset {len(OWN)}" and "ledger.topic" in caught.value.remedy
    require_own_records("l", values(key, value=None))  # somebody has deleted it


def test_the_ledger_of_another_stream_is_named() -> None:
    assert ERROR_TYPES["ForeignLedgerError"] is ForeignLedgerError
    for prefix in ("", "shop"):
        require_own_prefix("l", "shop", LedgerState(owner=prefix))
    with pytest.raises(ForeignLedgerError, match=r"belongs to topic\.prefix=other, not to shop"):
        require_own_prefix("l", "shop", LedgerState(owner="other"))


@pytest.mark.req("TOPIC-08")
def test_the_first_stream_owns_a_ledger_before_anything_is_planned() -> None:
    kafka = MemoryKafka()
    first, second = MemoryLedger(kafka, "l", "first"), MemoryLedger(kafka, "l", "second")
    first.claim()
    assert not kafka.logs["l", 0]  # there is no topic yet
    first.ensure()
    first.claim(), first.claim()
    assert [r.key for r in kafka.committed("l")] == [b"owner/first"]
    for use in (second.claim, second.peek, second.read):
        with pytest.raises(ForeignLedgerError, match=r"belongs to topic\.prefix=first, not to second"):
            use()
    assert len(kafka.committed("l")) == 1 and first.peek().owner == "first"


@pytest.mark.req("TOPIC-08")
def test_of_two_streams_that_claim_at_the_same_moment_the_first_one_stays() -> None:
    kafka = MemoryKafka()
    first, second = MemoryLedger(kafka, "l", "first"), MemoryLedger(kafka, "l", "second")
    first.ensure()
    reads: list[LedgerState] = []

    def peek() -> LedgerState:
        reads.append(second.peek())
        if len(reads) == 1:
            first.claim()
        return reads[-1]

    with pytest.raises(ForeignLedgerError, match=r"belongs to topic\.prefix=first"):
        claim_ledger("second", peek, lambda key, value: kafka.append("l", key.encode(), value))
    assert [(r.key, r.value is None) for r in kafka.committed("l")] == [
        (b"owner/first", False),
        (b"owner/second", False),
        (b"owner/second", True),
    ]
    first.claim()
    assert first.peek().owner == "first" and len(kafka.committed("l")) == 3


def test_a_deletion_that_compaction_forgets_is_not_how_far_the_stream_is() -> None:
    """A stream that rests for days after a snapshot has lost nothing when the deletions of its chunks are gone."""
    values = {"plan": b"1", "chunk/d.t/0": b"2", "snapshot": b"3", "chunk/d.t/1": None, "note": b"4"}
    records = [TopicRecord(0, number, key.encode(), value) for number, (key, value) in enumerate(values.items())]
    whole = LedgerValues().with_records(records)
    compacted = LedgerValues().with_records([record for record in records if record.value is not None])
    assert whole.progress_end == compacted.progress_end == 2
    assert whole.with_records([TopicRecord(0, 9, b"writer/0", b"5")]).progress_end == 9
