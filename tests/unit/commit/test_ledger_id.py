"""A reading of the ledger says which topic it was, and whether that still holds what it held."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from kit.store_contract import END, START

from airflow_provider_mysql_cdc.cdc.commit import ledger as ledgers
from airflow_provider_mysql_cdc.cdc.commit.ledger import Ledger
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker, encode
from airflow_provider_mysql_cdc.cdc.errors import RecordsLostError
from airflow_provider_mysql_cdc.cdc.model.offset import ResumePosition
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo


@pytest.mark.parametrize(("told", "found", "questions"), [("first", "first", 0), (None, "asked", 1)])
def test_the_id_is_requested_only_if_it_was_not_returned(
    told: str | None, found: str, questions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def topic_id(admin: object, topic: str) -> str:
        asked.append(topic)
        return "asked"

    monkeypatch.setattr(ledgers, "make_admin", lambda settings: None)
    monkeypatch.setattr(ledgers, "existing_topics", lambda admin, names: {name: TopicInfo(1, told) for name in names})
    monkeypatch.setattr(ledgers, "topic_id", topic_id)
    monkeypatch.setattr(ledgers, "read_topic", lambda *a, **k: iter(()))
    state = Ledger({}, "ledger.p", "p").read()
    assert state is not None and state.topic_id == found
    assert len(asked) == questions


class Topic:
    """A ledger topic that a test writes, and an hour that passes with each look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        done = Marker(1, 0, START, END, ResumePosition(END, 0), done=True).record("ledger.p")
        values = {
            "plan": encode(BatchPlan(1, "drain", START, END, 1).to_json()),
            "writer/0": done.value,
            "note": encode({}),
        }
        self.records = [TopicRecord(0, n, key.encode(), value) for n, (key, value) in enumerate(values.items())]
        self.id, self.later, self.now = "first", list[TopicRecord](), 0.0
        monkeypatch.setattr(ledgers, "make_admin", lambda settings: None)
        monkeypatch.setattr(ledgers, "existing_topics", lambda admin, names: {n: TopicInfo(1, self.id) for n in names})
        monkeypatch.setattr(ledgers, "read_topic", lambda *a, since, **k: self.read(since[0]))
        monkeypatch.setattr(ledgers, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep))

    def read(self, since: int) -> Iterator[TopicRecord]:
        return iter([record for record in self.records if record.offset >= since])

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.records += self.later


@pytest.mark.parametrize("opened", [True, False], ids=["in a job", "in Airflow"])
def test_a_ledger_that_has_gone_back_is_an_error(monkeypatch: pytest.MonkeyPatch, opened: bool) -> None:
    """In a job by what it has read itself, in Airflow by what is stored; a broker that restarts may need a moment."""
    topic, ledger = Topic(monkeypatch), Ledger({}, "ledger.p", "p")
    monkeypatch.setattr(ledgers, "require_own_records", lambda *_: None)
    if opened:
        ledger.__enter__()
    first = ledger.read()
    assert first is not None and first.progress_end == 1
    if not opened:
        ledger = Ledger({}, "ledger.p", "p")
        ledger.expect("first", 1)
    topic.records, topic.later = topic.records[:1], topic.records[1:]
    assert (again := ledger.read()) is not None and again.markers
    del topic.records[2:]
    assert ledger.read() is not None, "no other record says how far the stream is"
    topic.records, topic.later = topic.records[:1], []
    for look in (ledger.read, ledger.peek):
        with pytest.raises(RecordsLostError, match="at offset 1, and is at 0 now") as caught:
            look()
        assert not caught.value.can_retry
    topic.id = "second"
    assert ledger.read() is not None, "another topic is another ledger"
