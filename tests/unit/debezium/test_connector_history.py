"""A connector's schema history: the forms of 1.9, 2.x and 3.x, and this stream's structures in its form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.cases import for_each
from kit.drain_rig import GIVEN

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.debezium.sources import (
    all_tables,
    different_tables,
    history_values,
    read_statements,
    structures_at,
)
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, DdlParseError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.snapshot_records import captured_state
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import TableDefinitions

CFG = ConnectorConfig.from_properties(GIVEN | {"table.include.list": "d.t,d.u"})
UUIDS = "8d4a1c5e-0000-11ee-9d2f-0242ac120002", "9e5b2d6f-0000-11ee-9d2f-0242ac120002"
MEMBERS = "source", "position", "ts_ms", "databaseName", "ddl", "tableChanges"
CREATE = "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(20))"


def record(ddl: str, pos: int, file: str = "b.000002", prefix: str = "p", **more: Any) -> bytes:
    position = {"ts_sec": 1, "file": file, "pos": pos, "server_id": 1} | more
    data = {"source": {"server": prefix}, "position": position, "databaseName": "d", "ddl": ddl, "tableChanges": []}
    return json.dumps(data | ({} if prefix == "p9" else {"ts_ms": 5})).encode()


def at(pos: int, *records: bytes, cfg: ConnectorConfig = CFG, gtids: str | None = None) -> SchemaState:
    values = [(f"line {n}", value) for n, value in enumerate(records)]
    offset = BinlogOffset("b.000002", pos, gtids)
    return structures_at(cfg, read_statements(values, cfg.topic_prefix), offset, DdlContext())


def columns(state: SchemaState) -> list[str]:
    return [column.name for column in state.tables[TableId("d", "t")].columns]


def test_the_statements_before_an_offset_make_its_structures() -> None:
    history = [
        record("SET character_set_server=latin1, collation_server=latin1_swedish_ci;", 10, snapshot=True),
        record("CREATE DATABASE `d` CHARSET latin1 COLLATE latin1_swedish_ci", 10, snapshot=True),
        record(CREATE, 10, file="old-base.000007", snapshot=True),
        record("DROP TABLE t", 90, prefix="other"),
        record("ALTER TABLE t ADD b INT", 100),
        record("ALTER TABLE t ADD c INT", 200),
    ]
    assert columns(at(99, *history)) == ["id", "a"]
    assert columns(at(100, *history)) == ["id", "a", "b"], "the position is behind the statement"
    assert columns(at(500, *history)) == ["id", "a", "b", "c"]
    assert at(99, *history).tables[TableId("d", "t")].column("a").charset == "latin1"  # type: ignore[union-attr]


def test_over_a_failover_gtids_say_which_statements_were_before() -> None:
    """Positions are of the server before, whose files have the same name and higher numbers."""
    ahead = {"file": "b.000900", "server_id": 7}
    history = [
        record(CREATE, 10, snapshot=True, gtids="u1:1-4", **ahead),
        record("ALTER TABLE t ADD b INT", 100, gtids="U1:1-4", **ahead),
        record("ALTER TABLE t ADD c INT", 200, gtids="u1:1-5", **ahead),
        record("ALTER TABLE t ADD d INT", 100, gtids="u1:1-5,u2:1-3", file="b.000001"),
    ]
    history = [line.replace(b"u1", UUIDS[0].encode()).replace(b"U1", UUIDS[0].upper().encode()) for line in history]
    history = [line.replace(b"u2", UUIDS[1].encode()) for line in history]
    for gtids, named in (("{0}:1-4", ""), ("{0}:1-5", "b"), ("{0}:1-6", "bc"), ("{0}:1-5,{1}:1-3", "bc")):
        assert columns(at(500, *history, gtids=gtids.format(*UUIDS))) == ["id", "a", *named], gtids
    assert columns(at(500, *history, gtids=f"{UUIDS[0]}:1-5,{UUIDS[1]}:1-4")) == ["id", "a", "b", "c", "d"]
    assert columns(at(1, record(CREATE, 900), gtids=f"{UUIDS[0]}:1")) == ["id", "a"], "GTIDs were turned on since"


@for_each("value", [b"{", b"[]", b'{"source":{"server":"p"}}', b'{"source":1,"position":{"file":"b.000001","pos":4}}'])
def test_another_program_s_records_are_refused(value: bytes) -> None:
    with pytest.raises(ConfigError, match=r"not the schema history of a Debezium connector for MySQL \[line 0\]"):
        at(99, value)


def test_a_statement_that_is_not_understood_stops_or_is_skipped_as_configured() -> None:
    history = record(CREATE, 10), record("ALTER TABLE t FROBNICATE", 20)
    with pytest.raises(DdlParseError, match=r"line 1: ALTER TABLE t FROBNICATE"):
        at(99, *history)
    skipping = GIVEN | {"table.include.list": "d.t", "schema.history.internal.skip.unparseable.ddl": "true"}
    assert columns(at(99, *history, cfg=ConnectorConfig.from_properties(skipping))) == ["id", "a"]
    assert columns(at(99, record(CREATE, 10), record("ALTER TABLE other FROBNICATE", 20))) == ["id", "a"]


def test_differences_between_history_and_server_are_named() -> None:
    server = at(99, record(CREATE.replace("20", "30"), 10), record("CREATE TABLE u (id INT PRIMARY KEY)", 10))
    found = different_tables(CFG, at(99, record(CREATE, 10)), server)
    assert found == {TableId("d", "t"): "columns a", TableId("d", "u"): "it is not in the connector's history"}
    keyless = at(99, record(CREATE.replace(" PRIMARY KEY", " NOT NULL"), 10))
    assert "its key is" in different_tables(CFG, keyless, at(99, record(CREATE, 10)))[TableId("d", "t")]
    assert different_tables(CFG, server, server) == {}


def definitions(**creates: str) -> TableDefinitions:
    tables = {TableId("d", name): create for name, create in creates.items()}
    return TableDefinitions("utf8mb4", "utf8mb4_0900_ai_ci", {"d": "CREATE DATABASE `d`"}, tables, "", 0)


def test_structures_are_written_as_a_connector_s_snapshot_writes_them() -> None:
    """Debezium for MySQL before 2.0 reads the statements alone, later ones the description."""
    create = "CREATE TABLE `t` (`d` varchar(10), `id` int NOT NULL, PRIMARY KEY (`id`))"
    values = history_values(CFG, definitions(t=create), BinlogOffset("b.000003", 400, "", "u"))
    records = [json.loads(value) for value in values]
    assert {tuple(r) for r in records} == {MEMBERS}
    assert all(r["position"] == {"file": "b.000003", "pos": 400, "gtids": "", "snapshot": True} for r in records)
    statements = [(r["databaseName"], r["ddl"]) for r in records]
    assert statements[0][1].startswith("SET character_set_server=")
    assert statements.index(("d", "DROP TABLE IF EXISTS `d`.`t`")) < statements.index(("d", create))
    [change] = records[-1]["tableChanges"]
    assert (change["type"], change["id"]) == ("CREATE", '"d"."t"')
    assert [c["name"] for c in change["table"]["columns"]] == ["d", "id"]


def test_what_we_have_written_there_is_read_when_the_stream_is_taken_over_again() -> None:
    ours = definitions(
        t="CREATE TABLE `t` (`e` enum('x','y') CHARACTER SET latin1, `id` int NOT NULL, UNIQUE KEY (`id`))"
    )
    exported = history_values(CFG, ours, BinlogOffset("b.000002", 300))
    before = [record(CREATE, 10), record("CREATE TABLE u (id INT PRIMARY KEY)", 10)]
    assert at(300, *before, *exported).tables == captured_state(ours).tables, "the other one is gone"
    assert columns(at(500, *before, *exported, record("ALTER TABLE t ADD f INT", 400))) == ["e", "id", "f"]
    assert columns(at(299, *before, *exported)) == ["id", "a"]
    assert all_tables(CFG, read_statements([("", v) for v in (*before, *exported)], "p"), DdlContext()).keys() == {
        TableId("d", "t"),
        TableId("d", "u"),
    }


def test_a_table_that_a_signal_has_described_counts() -> None:
    described = json.loads(history_values(CFG, definitions(t=CREATE), BinlogOffset("b.000002", 50))[-1])
    signal = json.dumps(described | {"ddl": "", "position": {"file": "b.000002", "pos": 50}}).encode()
    assert columns(at(60, signal)) == ["id", "a"]
    assert at(40, signal).tables == {}
