"""Topics are made one by one, until there are enough of them to ask what else will be needed."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.drain import topic_precreation as topics_ahead
from airflow_provider_mysql_cdc.cdc.drain.topic_precreation import (
    LIST_TABLES_AFTER,
    TOPICS_PER_REQUEST,
    TopicPrecreation,
)
from airflow_provider_mysql_cdc.cdc.errors import SinkError, SourceError
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo


class Kafka:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, tables: int, refused: str = "") -> None:
        self.made: list[list[str]] = []
        self.asked, self.tables, self.refused = 0, tables, refused
        monkeypatch.setattr(topics_ahead, "make_admin", lambda settings: None)
        monkeypatch.setattr(topics_ahead, "ensure_topics", self.ensure)
        monkeypatch.setattr(topics_ahead, "describe_created", lambda admin, names, at: dict.fromkeys(names, self.info))
        monkeypatch.setattr(topics_ahead, "connect", lambda settings: contextlib.nullcontext())
        monkeypatch.setattr(topics_ahead, "captured_tables", self.captured)

    info = TopicInfo(3, "id")

    def ensure(self, admin: Any, topics: dict[str, Any]) -> None:
        if self.refused in topics:
            raise SinkError("the policy refuses a topic", where=self.refused)
        self.made.append(list(topics))

    def captured(self, conn: Any, cfg: Any) -> list[TableId]:
        self.asked += 1
        if not self.tables:
            raise SourceError("the server does not answer")
        return [TableId("db", f"t{n}") for n in range(self.tables)]


def ahead(have: tuple[str, ...] = ()) -> TopicPrecreation:
    return TopicPrecreation(config(), lambda table: None if table.table in have else table.table)


def test_a_few_topics_are_made_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka, made = Kafka(monkeypatch, 5000), ahead()
    assert [made.create(f"t{n}") for n in range(LIST_TABLES_AFTER - 1)] == [kafka.info] * (LIST_TABLES_AFTER - 1)
    assert [len(names) for names in kafka.made] == [1] * (LIST_TABLES_AFTER - 1) and not kafka.asked


def test_many_are_made_together_those_at_hand_first(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka, made = Kafka(monkeypatch, 1000), ahead(have=("t3",))
    for n in (*range(3), *range(4, LIST_TABLES_AFTER), 900, *range(LIST_TABLES_AFTER, 900)):
        made.create(f"t{n}")
    together = [names for names in kafka.made if len(names) > 1]
    assert together[0][0] == "t900" and all(len(names) <= TOPICS_PER_REQUEST for names in together)
    assert kafka.asked == 1 and len(kafka.made) < LIST_TABLES_AFTER + 1000 / TOPICS_PER_REQUEST + 1
    every = [name for names in kafka.made for name in names]
    assert "t3" not in every and set(every) >= {f"t{n}" for n in range(901) if n != 3}


def test_the_server_is_asked_more_rarely_the_less_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables that are dropped in the same batch are not on the server any more."""
    kafka, made = Kafka(monkeypatch, 1), ahead()
    for n in range(1000):
        made.create(f"gone{n}")
    assert kafka.asked == 7


@pytest.mark.parametrize(("tables", "refused"), [(0, ""), (100, "t50")], ids=["the server", "kafka"])
def test_what_goes_wrong_with_others_keeps_no_topic(monkeypatch: pytest.MonkeyPatch, tables: int, refused: str) -> None:
    kafka, made = Kafka(monkeypatch, tables, refused), ahead()
    for n in range(49):
        assert made.create(f"t{n}") == kafka.info
    if refused:
        with pytest.raises(SinkError, match="policy"):
            made.create(refused)
