"""Topics of tables that a batch meets: those that are created, and tables that would share one.

Topics are made one by one, until there are enough of them to ask what else will be needed.
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from kit.drain_rig import routes_of
from kit.memory_job import config
from kit.store_contract import plan
from unit.drain.test_table_routes import AS_IT_IS, BATCH, TOPIC, T, make

from airflow_provider_mysql_cdc.cdc.ddl.apply import TableChange
from airflow_provider_mysql_cdc.cdc.drain import topic_shares as topics_ahead
from airflow_provider_mysql_cdc.cdc.drain.topic_shares import (
    LIST_TABLES_AFTER,
    TOPICS_PER_REQUEST,
    TopicPrecreation,
    TopicShares,
)
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SinkError, SourceError
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo


def test_a_topic_born_in_the_batch_is_written_down_as_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit of its first record takes the note along; else no retry could tell that the topic was changed."""
    monkeypatch.setattr(topics_ahead, "make_admin", lambda settings: None)
    monkeypatch.setattr(topics_ahead, "ensure_topics", lambda admin, topics: ())
    monkeypatch.setattr(topics_ahead, "describe_created", lambda admin, topics, at: {TOPIC: TopicInfo(3, "id")})
    side_records: list[SideRecord] = []
    share = make(routes_of(config(), plan(writers=1), side_records=side_records), AS_IT_IS, T).share
    assert (share.partitions, share.all_assigned) == (3, True)
    ledger, key, value, _ = side_records[0]
    assert (ledger, key) == (config().ledger_topic, b"topic/" + TOPIC.encode())
    assert b'"partitions":3' in (value or b"") and b'"id":"id"' in (value or b"")


@pytest.mark.req("FAULT-32")
def test_a_table_that_comes_into_the_topic_of_another_stops() -> None:
    def state(*names: str) -> Any:
        return SimpleNamespace(tables={TableId("db", n): T for n in names})

    made = TopicShares(config(), BATCH, 0, [])
    made.on_schema_change(state("a b"), state("a b", "c"), "here")
    with pytest.raises(ConfigError, match="topic of their own") as caught:
        made.on_schema_change(state("a b", "c"), state("a b", "a_b", "c"), "binlog.000001:400")
    assert "binlog.000001:400" in caught.value.where


def change(kind: str, name: str, before: str | None = None) -> Any:
    previous = None if before is None else TableId("db", before)
    return TableChange(kind, TableId("db", name), previous, None, "", "db")  # type: ignore[arg-type]


def test_only_tables_that_a_statement_names_are_looked_at() -> None:
    """With thousands of tables, a look at all of them takes longer than the statement."""

    class Tables(dict[TableId, Any]):
        def keys(self) -> Any:
            return Keys(super().keys())

    class Keys:
        def __init__(self, keys: Any) -> None:
            self._keys = keys

        def __contains__(self, table: TableId) -> bool:
            return table in self._keys

    made = TopicShares(config(), BATCH, 0, [])
    before: Any = SimpleNamespace(tables={TableId("db", "a b"): T})
    after: Any = SimpleNamespace(tables=Tables({TableId("db", "c"): T}))
    made.on_schema_change(before, after, "here", [change("RENAME", "c", "a b")])
    after.tables[TableId("db", "a_b")] = T
    made.on_schema_change(after, after, "here", [change("CREATE", "a_b")])
    after.tables[TableId("db", "a b")] = T
    with pytest.raises(ConfigError, match="topic of their own"):
        made.on_schema_change(after, after, "here", [change("CREATE", "a b")])


@pytest.mark.req("FAULT-32")
@pytest.mark.parametrize("changes", [(), [TableChange("DATABASE", None, None, None, "", "db")]], ids=["none", "db"])
def test_where_changes_do_not_name_all_tables_all_are_looked_at(changes: Any) -> None:
    made = TopicShares(config(), BATCH, 0, [])
    before: Any = SimpleNamespace(tables={TableId("db", "a b"): T})
    after: Any = SimpleNamespace(tables={TableId("db", "a_b"): T})
    both: Any = SimpleNamespace(tables={TableId("db", "a_b"): T, TableId("db", "a b"): T})
    made.on_schema_change(before, after, "here", changes)
    with pytest.raises(ConfigError, match="topic of their own"):
        made.on_schema_change(after, both, "here", changes)


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
