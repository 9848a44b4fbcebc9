"""A ledger that is read again and again is read once, and after that only what came to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest

from airflow_provider_mysql_cdc.cdc.commit.ledger_cache import LedgerCache, LedgerValues
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
