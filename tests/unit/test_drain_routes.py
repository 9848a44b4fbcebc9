"""From TABLE_MAP events to routes: tables that are not known, not as they were, or share a topic."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from decode_builder import column, table
from memory_job import config
from store_contract import plan

from airflow_provider_mysql_cdc.cdc.decode import wire_types as wt
from airflow_provider_mysql_cdc.cdc.drain import routes
from airflow_provider_mysql_cdc.cdc.drain.routes import Routes
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SchemaError, SchemaMismatchError
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo

T = table(column("id", "INT", nullable=False), column("n", "INT"), key=("id",))
TOPIC = "p.db.t"
EVENT: Any = SimpleNamespace(file="binlog.000001", start_pos=4, where=lambda: "binlog.000001:4")
BATCH = plan(writers=1, partitions={TOPIC: 1}, assignment={TOPIC: (0,)})


def announced(*wires: tuple[int, int]) -> Any:
    return SimpleNamespace(
        db="db",
        table="t",
        column_types=bytes(code for code, _ in wires),
        column_meta=tuple(meta for _, meta in wires),
        null_bits=b"\xff",
        column_names=None,
        signed=None,
        **dict.fromkeys(("default_charset", "column_charsets", "enum_values", "set_values", "primary_key"), None),
    )


AS_IT_IS = announced((wt.LONG, 0), (wt.LONG, 0))


def make(made: Routes, table_map: Any, *tables: Any) -> Any:
    state: Any = SimpleNamespace(tables={t.id: t for t in tables})
    return made._make(table_map, state, EVENT)


def of(**more: str) -> Routes:
    return Routes(config(**more), BATCH, 0, "run")


@pytest.mark.parametrize(("mode", "stops"), [("fail", True), ("warn", False), ("skip", False)])
def test_rows_of_a_table_that_the_history_does_not_know_stop_unless_told_otherwise(mode: str, stops: bool) -> None:
    made = of(inconsistent__schema__handling__mode=mode)
    if stops:
        with pytest.raises(SchemaError, match="does not know"):
            make(made, AS_IT_IS)
        return
    assert make(made, AS_IT_IS).decoder is None


@pytest.mark.parametrize(
    "table_map",
    [announced((wt.LONG, 0)), announced((wt.LONG, 0), (wt.VARCHAR, 80)), announced(*((wt.LONG, 0),) * 3)],
    ids=["fewer", "another type", "more"],
)
def test_rows_of_another_structure_are_not_decoded_with_the_historys(
    monkeypatch: pytest.MonkeyPatch, table_map: Any
) -> None:
    monkeypatch.setattr(routes, "compile_decoder", lambda *_: pytest.fail("a decoder is made"))
    with pytest.raises(SchemaMismatchError):
        make(of(), table_map, T)


def test_a_topic_born_in_the_batch_is_written_down_as_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit of its first record takes the note along; else no retry could tell that the topic was changed."""
    monkeypatch.setattr(routes, "make_admin", lambda settings: None)
    monkeypatch.setattr(routes, "ensure_topics", lambda admin, topics: ())
    monkeypatch.setattr(routes, "describe_made", lambda admin, topics, at: {TOPIC: TopicInfo(3, "id")})
    monkeypatch.setattr(routes, "check_table_map", lambda table, table_map: None)
    made = Routes(config(), plan(writers=1), 0, "run")
    share = make(made, AS_IT_IS, T).share
    assert (share.partitions, share.whole) == (3, True)
    ledger, key, value = made.learned[0]
    assert (ledger, key) == (config().ledger_topic, b"topic/" + TOPIC.encode())
    assert b'"partitions":3' in (value or b"") and b'"id":"id"' in (value or b"")


@pytest.mark.req("FAULT-32")
def test_a_table_that_comes_into_the_topic_of_another_stops() -> None:
    def state(*names: str) -> Any:
        return SimpleNamespace(tables={TableId("db", n): T for n in names})

    made = of()
    made.forget(state("a b"), state("a b", "c"), "here")
    with pytest.raises(ConfigError, match="topic of their own") as caught:
        made.forget(state("a b", "c"), state("a b", "a_b", "c"), "binlog.000001:400")
    assert "binlog.000001:400" in caught.value.where
