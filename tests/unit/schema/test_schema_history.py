"""The schema history rebuilds the structures of any earlier point."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from kit.cases import for_each
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.lexer import ANSI_QUOTES
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, DefaultCharset, SchemaState
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError, SchemaError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema import history
from airflow_provider_mysql_cdc.cdc.schema.history import covers_offset, replay
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord
from airflow_provider_mysql_cdc.cdc.schema.snapshot_records import (
    build_snapshot_schema,
    captured_state,
    ddl_context,
    history_records,
    schema_change_records,
)
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import TableDefinitions

T = TableId("d", "t")


def place(pos: int, *, file: str = "binlog.000001", server: str | None = "s1") -> BinlogOffset:
    return BinlogOffset(file, pos, None, server)


def record(pos: int, ddl: str, *, epoch: int = 1, server: str | None = "s1", db: str = "d") -> HistoryRecord:
    return HistoryRecord("p", place(pos, server=server), epoch, 0, db, ddl, DdlContext(default_db=db))


CREATE = record(100, "CREATE TABLE t (id INT PRIMARY KEY)")
ADD_A = record(200, "ALTER TABLE t ADD a INT")
ADD_B = record(300, "ALTER TABLE t ADD b INT")


def columns(state: SchemaState, table: TableId = T) -> list[str]:
    return [c.name for c in state.tables[table].columns]


@pytest.mark.req("SCH-01", "SCH-03")
def test_replay_stops_at_the_offset() -> None:
    log = [CREATE, ADD_A, ADD_B]
    assert columns(replay(log, until=place(299), epoch=2)) == ["id", "a"]
    assert columns(replay(log, until=place(300), epoch=2)) == ["id", "a", "b"]
    assert replay(log, until=place(99), epoch=2).tables == {}


def test_files_are_ordered_by_number() -> None:
    late = HistoryRecord("p", place(4, file="binlog.1000000"), 1, 0, "d", ADD_A.ddl, DdlContext(default_db="d"))
    assert columns(replay([CREATE, late], until=place(9, file="binlog.999999"), epoch=2)) == ["id"]


def test_a_statement_that_two_attempts_recorded_is_applied_once() -> None:
    abandoned = [CREATE, ADD_A, ADD_B]
    again = [record(r.position.pos, r.ddl, epoch=2) for r in (ADD_A, ADD_B)]
    assert columns(replay(abandoned + again, until=place(300), epoch=3)) == ["id", "a", "b"]


def test_statements_of_another_server_count_by_epoch() -> None:
    log = [CREATE, ADD_A, record(50_000, "ALTER TABLE t ADD c INT", epoch=3, server="s1")]
    assert columns(replay(log, until=place(10, server="s2"), epoch=3)) == ["id", "a"]
    assert columns(replay(log, until=place(10, server="s2"), epoch=4)) == ["id", "a", "c"]


def test_the_session_decides_what_a_statement_means() -> None:
    context = DdlContext(default_db="d", sql_mode=ANSI_QUOTES, server_collation=8, server_layout=True)
    written = HistoryRecord("p", place(1), 1, 0, "d", 'CREATE TABLE "t" (v VARCHAR(3))', context)
    read = HistoryRecord.from_bytes(written.to_bytes())
    assert read.context == context
    assert replay([read], until=place(1), epoch=1).tables[T].columns[0].charset == "latin1"


def test_a_record_reads_back_as_written() -> None:
    changes = apply_ddl(SchemaState(), CREATE.ddl, CREATE.context).changes
    query = SimpleNamespace(db="d", sql="CREATE TABLE t (id INT PRIMARY KEY) COMMENT 'ü😀'", sql_mode=0)
    made = HistoryRecord.of_statement(place(7), 3, 5, query, changes, prefix="p")
    assert HistoryRecord.from_bytes(made.to_bytes()) == made
    data = json.loads(made.to_bytes())
    assert list(data)[:6] == ["source", "position", "ts_ms", "databaseName", "ddl", "tableChanges"]
    assert data["position"] == {"file": "binlog.000001", "pos": 7, "server_uuid": "s1"}
    assert data["tableChanges"][0]["id"] == '"d"."t"'
    assert data["epoch"] == 3


@for_each("damage", [b"", b"[]", encode({}), b"\xff", encode({"source": {"server": "p"}, "position": 7})])
def test_a_damaged_record_is_named(damage: bytes) -> None:
    with pytest.raises(SchemaError, match=r"topic h, offset 4.*snapshot\.mode=recovery"):
        HistoryRecord.from_bytes(damage, "topic h, offset 4")


def described(
    pos: int, columns: str, *, epoch: int, server: str = "s1", origin: str | None = None
) -> list[HistoryRecord]:
    """Return what a snapshot or a reset writes: the whole of what is captured."""
    at = BinlogOffset("binlog.000001", pos, None, server, origin)
    ddl = ("SET character_set_server=latin1, collation_server=latin1_swedish_ci", f"CREATE TABLE t (id INT{columns})")
    return [HistoryRecord("p", at, epoch, 0, "d", sql, DdlContext(default_db="d"), (), True) for sql in ddl]


def test_a_description_takes_the_place_of_all_before_it() -> None:
    """The same statement at the same place of another binlog is another statement."""
    log = [*described(100, "", epoch=1, origin="1.a"), ADD_A, *described(100, "", epoch=3, origin="2.b")]
    again = replace(ADD_A, epoch=4)
    until = BinlogOffset("binlog.000001", 300, None, "s1", "2.b.c")
    assert columns(replay(log, until=until, epoch=4)) == ["id"]
    assert columns(replay([*log, again], until=until, epoch=5)) == ["id", "a"]


def test_records_of_another_server_do_not_count_if_there_is_a_description_of_the_own_one() -> None:
    other = described(150, ", x INT", epoch=3, server="s2")
    log = [*described(100, "", epoch=1), ADD_A, *other, replace(ADD_B, epoch=4)]
    assert columns(replay(log, until=place(160, server="s2"), epoch=5)) == ["id", "x"]
    assert columns(replay(log, until=place(299), epoch=5)) == ["id", "a"]


def test_statements_that_a_description_contains_or_that_a_fenced_writer_left_do_not_count() -> None:
    base = described(250, ", a INT", epoch=5)
    assert columns(replay([CREATE, *base, replace(ADD_A, epoch=6)], until=place(300), epoch=7)) == ["id", "a"]
    assert columns(replay([CREATE, *base, replace(ADD_B, epoch=4)], until=place(300), epoch=7)) == ["id", "a"]
    assert columns(replay([CREATE, *base, replace(ADD_B, epoch=6)], until=place(300), epoch=7)) == ["id", "a", "b"]


def test_a_description_after_the_offset_does_not_count() -> None:
    log = [*described(100, "", epoch=1), ADD_A, *described(250, ", z INT", epoch=3)]
    assert columns(replay(log, until=place(249), epoch=4)) == ["id", "a"]
    assert columns(replay(log, until=place(250), epoch=4)) == ["id", "z"]


def test_a_history_reaches_what_it_followed_in_one_piece() -> None:
    first, second = described(100, "", epoch=1, origin="1.a"), described(300, "", epoch=3, origin="1.a")
    assert covers_offset([], place(50)) and covers_offset([CREATE, ADD_A], place(50))
    assert [covers_offset([*first, ADD_A], place(pos)) for pos in (99, 100, 250)] == [False, True, True]
    assert [covers_offset([*first, ADD_A, *second], place(pos)) for pos in (250, 300)] == [False, True]
    assert not covers_offset(first, BinlogOffset("binlog.000001", 500, None, "s1", "2.b"))
    assert not covers_offset(first, place(500, server="s2"))


@pytest.mark.req("SCH-09", "FAULT-15")
def test_a_statement_not_understood_stops_with_its_position_by_default() -> None:
    bad = record(150, "ALTER TABLE t FROBNICATE")
    with pytest.raises(DdlParseError, match=r"binlog\.000001:150"):
        replay([CREATE, bad], until=place(150), epoch=1)
    assert columns(replay([CREATE, bad, ADD_A], until=place(200), epoch=1, skip_unparseable=True)) == ["id", "a"]


@pytest.mark.req("SCH-09")
@pytest.mark.parametrize(
    "name", ["schema.history.internal.skip.unparseable.ddl", "database.history.skip.unparseable.ddl"]
)
def test_a_person_may_let_the_next_batch_begin_without_a_statement(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The default stops, so that somebody can repair the history; what is skipped is missing from the structures."""
    log = [CREATE, record(150, "ALTER TABLE t FROBNICATE"), ADD_A]
    monkeypatch.setattr(history, "read_history", lambda cfg, first=0, bases=(): iter(log[first:]))

    def load(**given: str) -> list[str]:
        cfg = config(table__include__list="d[.]t")
        cfg = ConnectorConfig.from_properties({**cfg.properties(), **given})
        return columns(history.load_schema_state(cfg, until=place(200), epoch=2))

    for stops in ({}, {name: "false"}):
        with pytest.raises(DdlParseError, match=r"binlog\.000001:150"):
            load(**stops)
    assert load(**{name: "true"}) == ["id", "a"]


DEFINITIONS = TableDefinitions(
    "latin1",
    "latin1_swedish_ci",
    {
        "d": "CREATE DATABASE `d` /*!40100 DEFAULT CHARACTER SET gbk */ /*!80016 DEFAULT ENCRYPTION='N' */",
        "e": "CREATE DATABASE `e` /*!40100 DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin */",
    },
    {
        TableId(
            "d", "t"
        ): "CREATE TABLE `t` (\n  `id` int NOT NULL,\n  `v` varchar(5) DEFAULT NULL,\n  PRIMARY KEY (`id`)\n)",
        TableId(
            "e", "u`x"
        ): "CREATE TABLE `u``x` (\n  `v` char(1) DEFAULT NULL\n) ENGINE=InnoDB DEFAULT CHARSET=latin1",
    },
    "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES",
    0,
)
CFG = ConnectorConfig.from_properties(
    {
        "topic.prefix": "p",
        "database.hostname": "localhost",
        "database.user": "u",
        "database.password": "x",
        "kafka.bootstrap.servers": "localhost:9092",
        "schema.history.internal.kafka.topic": "history.p",
    }
)


def test_a_snapshots_definitions_become_structures() -> None:
    state = captured_state(DEFINITIONS)
    assert state.server_defaults == DefaultCharset("latin1", "latin1_swedish_ci")
    assert state.database_defaults["e"] == DefaultCharset("utf8mb4", "utf8mb4_bin")
    assert [state.tables[t].columns[-1].charset for t in DEFINITIONS.tables] == ["gbk", "latin1"]
    assert ddl_context(TableDefinitions("", "", {}, {}, "ANSI_QUOTES,PIPES_AS_CONCAT", 1)).sql_mode == ANSI_QUOTES
    old = TableDefinitions("", "", {}, {}, "", 0, {}, 45)
    assert ddl_context(old).collation_of("utf8mb4") == "utf8mb4_general_ci", "MySQL 5.7"


@pytest.mark.req("SCH-02", "SNAP-15")
def test_the_snapshots_history_replays_to_the_same_structures() -> None:
    written = history_records(CFG, build_snapshot_schema(DEFINITIONS), place(100), 1)
    assert {(record.topic, record.key) for record in written} == {("history.p", None)}
    log = [HistoryRecord.from_bytes(value or b"") for _, _, value, _ in written]
    assert all(r.snapshot for r in log)
    state = replay(log, until=place(100), epoch=1)
    assert dict(state.tables) == dict(captured_state(DEFINITIONS).tables)
    assert dict(state.database_defaults) == dict(captured_state(DEFINITIONS).database_defaults)
    log.append(record(200, "ALTER TABLE t ADD w VARCHAR(2)", epoch=2))
    assert captured_state(DEFINITIONS).tables[T].column("v") == replay(log, until=place(200), epoch=3).tables[T].column(
        "v"
    )
    added = replay(log, until=place(200), epoch=3).tables[T].column("w")
    assert added is not None
    assert added.charset == "gbk"


def test_a_second_snapshot_replaces_the_first() -> None:
    first = [
        HistoryRecord.from_bytes(v or b"")
        for _, _, v, _ in history_records(CFG, build_snapshot_schema(DEFINITIONS), place(100), 1)
    ]
    second = [
        HistoryRecord.from_bytes(v or b"")
        for _, _, v, _ in history_records(CFG, build_snapshot_schema(DEFINITIONS), place(500), 4)
    ]
    log = [*first, record(200, "ALTER TABLE t ADD w INT", epoch=2), *second]
    assert columns(replay(log, until=place(200), epoch=3)) == ["id", "v", "w"]
    assert columns(replay(log, until=place(500), epoch=5)) == ["id", "v"]


@pytest.mark.req("SCH-02", "SCH-26")
def test_the_history_knows_databases_without_tables_and_the_schema_changes_do_not_name_them() -> None:
    """A table created there later gets the database's character set, not the server's."""
    databases = {**DEFINITIONS.databases, "empty": "CREATE DATABASE `empty` CHARSET latin2 COLLATE latin2_general_ci"}
    definitions = replace(DEFINITIONS, databases=databases)
    log = [
        HistoryRecord.from_bytes(v or b"")
        for _, _, v, _ in history_records(CFG, build_snapshot_schema(definitions), place(100), 1)
    ]
    assert replay(log, until=place(100), epoch=1).database_defaults["empty"] == DefaultCharset(
        "latin2", "latin2_general_ci"
    )
    assert schema_change_records(CFG, build_snapshot_schema(definitions), place(100), 1)
    assert not [
        v
        for _, _, v, _ in schema_change_records(CFG, build_snapshot_schema(definitions), place(100), 1)
        if b"empty" in (v or b"")
    ]


@pytest.mark.req("SCH-10", "SCH-26")
def test_tables_that_are_not_captured_are_described_in_order_of_their_names() -> None:
    """A table captured later has its structure in the history; what is not understood of others is left out."""
    others = {
        TableId("a", "first"): "CREATE TABLE `first` (\n  `id` int NOT NULL\n)",
        TableId("d", "odd"): "CREATE TABLE `odd` (\n  `id` frobnicated\n)",
    }
    definitions = replace(
        DEFINITIONS, uncaptured=others, databases={**DEFINITIONS.databases, "a": "CREATE DATABASE `a`"}
    )
    records = [
        json.loads(v or b"")["payload"]
        for _, _, v, _ in schema_change_records(CFG, build_snapshot_schema(definitions), place(100), 1)
    ]
    assert [r["source"]["table"] for r in records if r["ddl"].startswith("CREATE TABLE")] == ["first", "t", "u`x"]
    log = [
        HistoryRecord.from_bytes(v or b"")
        for _, _, v, _ in history_records(CFG, build_snapshot_schema(definitions), place(100), 1)
    ]
    assert set(replay(log, until=place(100), epoch=1).tables) == {TableId("a", "first"), *DEFINITIONS.tables}


@pytest.mark.req("SCH-10", "SCH-26", "SCH-39")
def test_a_snapshot_of_contract_1_9_describes_captured_databases_and_lists_captured_tables() -> None:
    others = {TableId(db, "n"): "CREATE TABLE `n` (\n  `id` int NOT NULL\n)" for db in ("a", "d")}
    definitions = replace(
        DEFINITIONS, uncaptured=others, databases={**DEFINITIONS.databases, "a": "CREATE DATABASE `a`"}
    )
    lists = {"database.exclude.list": "a", "table.exclude.list": "d.n", "event.contract": "1.9"}
    cfg = ConnectorConfig.from_properties({**CFG.properties(), **lists})
    records = schema_change_records(cfg, build_snapshot_schema(definitions), place(100), 1)
    payloads = [json.loads(value or b"")["payload"] for _, _, value, _ in records]
    assert {p["databaseName"] for p in payloads} == {"", "d", "e"}
    listed = {p["source"]["table"]: bool(p["tableChanges"]) for p in payloads if p["ddl"].startswith("CREATE TABLE")}
    assert listed == {"n": False, "t": True, "u`x": True}


@pytest.mark.req("SCH-10", "SCH-26")
def test_the_character_set_of_the_server_is_described_whatever_databases_are() -> None:
    store = {"schema.history.internal.store.only.captured.databases.ddl": "true", "database.include.list": "d"}
    for given in (store, {"event.contract": "1.9", "database.include.list": "d"}):
        cfg = ConnectorConfig.from_properties({**CFG.properties(), **given})
        (first, *_) = schema_change_records(cfg, build_snapshot_schema(DEFINITIONS), place(100), 1)
        assert json.loads(first.value or b"")["payload"]["ddl"].startswith("SET character_set_server")


OTHERS = {
    TableId("d", f"o{i}"): f"CREATE TABLE `o{i}` (\n  `id` int NOT NULL,\n  KEY `k` (`id`)\n) CHARSET=latin1"
    for i in range(3)
}


@for_each(
    ("statement", "captured", "expected"),
    [
        ("ALTER TABLE o1 RENAME TO t2, ADD v CHAR(3)", "t2", ["id", "v"]),
        ("RENAME TABLE d.o1 TO d.t2", "t2", ["id"]),
        ("CREATE TABLE t2 LIKE o1", "t2", ["id"]),
        ("CREATE TABLE IF NOT EXISTS o1 (x INT)", "o1", ["id"]),
        ("DROP TABLE o1; CREATE TABLE o1 (x INT)", "o1", ["x"]),
        ("DROP DATABASE d; CREATE DATABASE d; CREATE TABLE d.o1 (x INT)", "o1", ["x"]),
    ],
)
def test_a_table_that_is_not_captured_is_read_when_a_statement_needs_it(
    statement: str, captured: str, expected: list[str]
) -> None:
    definitions = replace(DEFINITIONS, uncaptured=OTHERS)
    log = [
        HistoryRecord.from_bytes(v or b"")
        for _, _, v, _ in history_records(CFG, build_snapshot_schema(definitions), place(100), 1)
    ]

    def captures(table: TableId) -> bool:
        return table in DEFINITIONS.tables

    before = replay(log, until=place(100), epoch=1, captures=captures)
    assert set(before.unparsed) == set(OTHERS) and set(before.tables) == set(DEFINITIONS.tables)
    after = apply_ddl(before, statement, DdlContext(default_db="d"), captures).state
    wanted = TableId("d", captured)
    assert columns(after, wanted) == expected if wanted in after.tables else wanted in after.unparsed
    # With the table captured all along, the history gives the same.
    log.append(record(150, statement, epoch=2))
    assert columns(replay(log, until=place(150), epoch=3), wanted) == expected


def test_a_table_with_a_quote_in_its_name_is_found_by_its_name() -> None:
    statement = """CREATE TABLE `a"b` (`id` int NOT NULL)"""
    definitions = replace(DEFINITIONS, uncaptured={TableId("d", 'a"b'): statement})
    log = [
        HistoryRecord.from_bytes(v or b"")
        for _, _, v, _ in history_records(CFG, build_snapshot_schema(definitions), place(100), 1)
    ]
    state = replay(log, until=place(100), epoch=1, captures=lambda table: table in DEFINITIONS.tables)
    assert {*state.tables, *state.unparsed} == {*DEFINITIONS.tables, TableId("d", 'a"b')}


@pytest.mark.req("SNAP-48")
def test_the_last_schema_change_of_a_snapshot_without_rows_is_marked() -> None:
    for final, expected in ((True, "last"), (False, "true")):
        written = schema_change_records(CFG, build_snapshot_schema(DEFINITIONS), place(100), 1, final=final)
        markers = [json.loads(value or b"")["payload"]["source"]["snapshot"] for _, _, value, _ in written]
        assert (set(markers[:-1]), markers[-1]) == ({"true"}, expected)


@pytest.mark.req("SCH-07", "SCH-10")
def test_what_the_history_and_the_schema_changes_describe() -> None:
    def described(**given: str) -> list[bool]:
        properties = {**CFG.properties(), "table.include.list": "d.t", "database.include.list": "d", **given}
        cfg = ConnectorConfig.from_properties(properties)
        return [cfg.stores_ddl(TableId(*n)) for n in (("d", "t"), ("d", "x"), ("e", "t"), ("mysql", "user"))]

    store = "schema.history.internal.store.only.captured"
    assert described() == [True, True, True, False]
    assert described(**{f"{store}.tables.ddl": "true"}) == [True, False, False, False]
    assert described(**{f"{store}.databases.ddl": "true"}) == [True, True, False, False]


@pytest.mark.req("SCH-09", "FAULT-15")
def test_a_statement_not_understood_about_tables_not_captured_does_not_stop_the_replay() -> None:
    """The stream went on past it, too."""
    bad = record(150, "ALTER TABLE t FROBNICATE")
    state = replay([CREATE, bad], until=place(150), epoch=1, captures=lambda table: table.table != "t")
    assert T not in state.tables
    with pytest.raises(DdlParseError):
        replay([CREATE, bad], until=place(150), epoch=1, captures=lambda table: table.table == "t")


@pytest.mark.req("SCH-26")
def test_the_snapshots_schema_changes_name_every_step() -> None:
    written = schema_change_records(CFG, build_snapshot_schema(DEFINITIONS), place(100), 1)
    assert {record.topic for record in written} == {"p"}
    ddls = [json.loads(value or b"")["payload"]["ddl"].split("\n")[0] for _, _, value, _ in written]
    assert ddls == [
        "SET character_set_server=latin1, collation_server=latin1_swedish_ci",
        "DROP TABLE IF EXISTS `d`.`t`",
        "DROP TABLE IF EXISTS `e`.`u``x`",
        "DROP DATABASE IF EXISTS `d`",
        "CREATE DATABASE `d` CHARSET gbk COLLATE gbk_chinese_ci",
        "USE `d`",
        "CREATE TABLE `t` (",
        "DROP DATABASE IF EXISTS `e`",
        "CREATE DATABASE `e` CHARSET utf8mb4 COLLATE utf8mb4_bin",
        "USE `e`",
        "CREATE TABLE `u``x` (",
    ]
