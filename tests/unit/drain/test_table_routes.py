"""From TABLE_MAP events to routes: tables that are not known, not as they were, or share a topic."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.decode_builder import column, table
from kit.memory_job import config
from kit.store_contract import plan

from airflow_provider_mysql_cdc.cdc.binlog import wire_types as wt
from airflow_provider_mysql_cdc.cdc.ddl.apply import TableChange
from airflow_provider_mysql_cdc.cdc.drain import table_routes as routes
from airflow_provider_mysql_cdc.cdc.drain import topic_precreation as topics_ahead
from airflow_provider_mysql_cdc.cdc.drain.table_routes import TableRoutes
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
        layout=repr(wires).encode(),
        column_names=None,
        signed=None,
        **dict.fromkeys(("default_charset", "column_charsets", "enum_values", "set_values", "primary_key"), None),
    )


AS_IT_IS = announced((wt.LONG, 0), (wt.LONG, 0))


def make(made: TableRoutes, table_map: Any, *tables: Any) -> Any:
    state: Any = SimpleNamespace(tables={t.id: t for t in tables})
    return made._build_route(table_map, state, EVENT)


def of(**more: str) -> TableRoutes:
    return TableRoutes(config(**more), BATCH, 0, "run")


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
    monkeypatch.setattr(topics_ahead, "make_admin", lambda settings: None)
    monkeypatch.setattr(topics_ahead, "ensure_topics", lambda admin, topics: ())
    monkeypatch.setattr(topics_ahead, "describe_created", lambda admin, topics, at: {TOPIC: TopicInfo(3, "id")})
    monkeypatch.setattr(routes, "check_table_map", lambda table, table_map: None)
    made = TableRoutes(config(), plan(writers=1), 0, "run")
    share = make(made, AS_IT_IS, T).share
    assert (share.partitions, share.all_assigned) == (3, True)
    ledger, key, value = made.side_records[0]
    assert (ledger, key) == (config().ledger_topic, b"topic/" + TOPIC.encode())
    assert b'"partitions":3' in (value or b"") and b'"id":"id"' in (value or b"")


@pytest.mark.req("FAULT-32")
def test_a_table_that_comes_into_the_topic_of_another_stops() -> None:
    def state(*names: str) -> Any:
        return SimpleNamespace(tables={TableId("db", n): T for n in names})

    made = of()
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

    made = of()
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
    made = of()
    before: Any = SimpleNamespace(tables={TableId("db", "a b"): T})
    after: Any = SimpleNamespace(tables={TableId("db", "a_b"): T})
    both: Any = SimpleNamespace(tables={TableId("db", "a_b"): T, TableId("db", "a b"): T})
    made.on_schema_change(before, after, "here", changes)
    with pytest.raises(ConfigError, match="topic of their own"):
        made.on_schema_change(after, both, "here", changes)


def event(db: str, name: str) -> Any:
    names = b"".join(bytes([len(part)]) + part.encode() + b"\x00" for part in (db, name))
    buf = b"\x01\x00\x00\x00\x00\x00" + b"\x01\x00" + names + b"\x02\x03\x03" + b"\x00" + b"\x02"
    return SimpleNamespace(
        buf=buf, body=0, end=len(buf), file="binlog.000001", start_pos=4, where=lambda: "binlog.000001:4"
    )


def test_a_route_stays_as_long_as_its_table_has_the_structure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements about other tables cost nothing; the same bytes announce rows of another structure after ALTER."""
    made = of()
    new: Any = replace(T, columns=(T.columns[0], replace(T.columns[1], name="m")))
    state: Any = SimpleNamespace(tables={T.id: T})
    _, first = made.of_table_map(event("db", "t"), state)
    for _ in range(2):
        made.on_schema_change(state, state, "here", [change("CREATE", "other")])
        assert made.of_table_map(event("db", "t"), state)[1] is first
    changed: Any = SimpleNamespace(tables={T.id: new})
    made.on_schema_change(state, changed, "here", [change("ALTER", "t")])
    _, second = made.of_table_map(event("db", "t"), changed)
    assert second.decoder is not None and second.decoder.table is new
    made.on_schema_change(changed, SimpleNamespace(tables={}), "here", [change("DROP", "t")])  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="does not know"):
        made.of_table_map(event("db", "t"), SimpleNamespace(tables={}))  # type: ignore[arg-type]


def test_routes_of_tables_that_are_gone_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MAX_UNCHECKED_ROUTES", 4)
    made = of(table__exclude__list=r"db\.x.*")
    for n in range(40):
        state: Any = SimpleNamespace(tables={TableId("db", f"x{n}"): T})
        made.on_schema_change(state, state, "here", [change("CREATE", f"x{n}")])
        made.of_table_map(event("db", f"x{n}"), state)
    assert len(made._cache) <= 5
