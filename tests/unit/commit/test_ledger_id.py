"""A reading of the ledger says which topic it was: by what it was just told, or else by a question."""

from __future__ import annotations

import pytest

from airflow_provider_mysql_cdc.cdc.commit import ledger as ledgers
from airflow_provider_mysql_cdc.cdc.commit.ledger import Ledger
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
