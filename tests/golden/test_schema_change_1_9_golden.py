"""Schema changes of contract 1.9 equal the seeds' samples, in today's form and in the oldest."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from golden.golden_data import sample

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, DefaultCharset, SchemaState
from airflow_provider_mysql_cdc.cdc.emit.contracts import DB2_1_9, MYSQL_1_9
from airflow_provider_mysql_cdc.cdc.emit.schema_change import SchemaChangeFormat, SnapshotStatement, snapshot_statements
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.snapshot_records import change_format

CONTEXT = DdlContext(default_db="inventory")
LATIN = DefaultCharset("latin1", "latin1_swedish_ci")
# EX-50, with the widths a MySQL 5.7 shows.
STATEMENT = (
    "CREATE TABLE customers (id INT(11) NOT NULL AUTO_INCREMENT PRIMARY KEY, first_name VARCHAR(255) NOT NULL, "
    "last_name VARCHAR(255) NOT NULL, email VARCHAR(255) NOT NULL UNIQUE KEY) AUTO_INCREMENT=1001"
)
CUSTOMERS = apply_ddl(SchemaState(database_defaults={"inventory": LATIN}), STATEMENT, CONTEXT).state
AT = SimpleNamespace(gtid=None, commit_us=0, thread=0, query=None)
CONFIG = {
    "topic.prefix": "mysql-server-1", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1",
    "event.contract": "1.9",
}  # fmt: skip


def event(pos: int, seconds: int = 0) -> Any:
    return SimpleNamespace(timestamp=seconds, server_id=0, file="mysql-bin.000003", start_pos=pos)


def format_of(**properties: str) -> SchemaChangeFormat:
    """Return the writer that the pipeline takes for a configuration."""
    return change_format(ConnectorConfig.from_properties(CONFIG | properties))


def streamed(form: SchemaChangeFormat, ddl: str, state: SchemaState = CUSTOMERS) -> list[tuple[Any, Any]]:
    records = list(form.stream_records(apply_ddl(state, ddl, CONTEXT).changes, event(4, 12), AT))
    return [(json.loads(r.key), json.loads(r.value)) for r in records]


@pytest.mark.req("EX-01", "EX-02", "SCH-28", "SCH-29", "SCH-30", "SCH-31", "SNAP-46", "EVT-39", "DIS-01", "DIS-02")
def test_the_oldest_form_equals_the_sample() -> None:
    """Names, order and values, byte for byte; the statements stand in the record of their database (SCH-22)."""
    key, theirs = sample("EX-01"), sample("EX-02")
    payload = theirs["payload"]
    place = BinlogOffset(payload["source"]["file"], payload["source"]["pos"])
    statement = SnapshotStatement("inventory", payload["ddl"])
    (record,) = format_of(**{"source.struct.version": "v1"}).snapshot_records([statement], {}, place)
    assert record.key.decode() == dumps(key)
    assert record.value.decode() == dumps(theirs)


@pytest.mark.req("EX-02", "SCH-21", "SCH-26")
def test_the_oldest_form_of_a_snapshots_statements() -> None:
    table = TableId("inventory", "customers")
    statements = snapshot_statements(LATIN, {"inventory": LATIN}, {table: STATEMENT})
    form = format_of(**{"source.struct.version": "v1"})
    records = form.snapshot_records(statements, CUSTOMERS.tables, BinlogOffset("mysql-bin.000003", 154))
    payloads = [json.loads(r.value)["payload"] for r in records]
    assert [p["ddl"].split()[0] for p in payloads] == ["SET", "DROP", "DROP", "CREATE", "USE", "CREATE"]
    assert [json.loads(r.key)["payload"] for r in records] == [{"databaseName": p["databaseName"]} for p in payloads]
    assert all(p["source"] == sample("EX-02")["payload"]["source"] for p in payloads)


@pytest.mark.req("SCH-22", "SCH-23", "SCH-30")
def test_the_oldest_form_of_streamed_statements_has_one_record_for_each_database() -> None:
    form = format_of(**{"source.struct.version": "v1"})
    ((key, value),) = streamed(form, "ALTER TABLE customers ADD COLUMN middle_name VARCHAR(2000)")
    assert key == {"schema": sample("EX-01")["schema"], "payload": {"databaseName": "inventory"}}
    assert value["schema"] == sample("EX-02")["schema"]
    assert value["payload"]["ddl"] == "ALTER TABLE customers ADD COLUMN middle_name VARCHAR(2000)"
    source = value["payload"]["source"]
    assert (source["ts_sec"], source["snapshot"], source["db"], source["table"]) == (12, False, None, None)
    state = CUSTOMERS
    for statement in ("CREATE TABLE a (i INT)", "CREATE DATABASE other", "CREATE TABLE other.b (i INT)"):
        state = apply_ddl(state, statement, CONTEXT).state
    found = streamed(form, "DROP TABLE customers, other.b, a", state)
    assert [k["payload"]["databaseName"] for k, _ in found] == ["inventory", "other"]
    assert found[0][1]["payload"]["ddl"] == "DROP TABLE `inventory`.`customers`; DROP TABLE `inventory`.`a`;"
    assert found[1][1]["payload"]["ddl"] == "DROP TABLE `other`.`b`"


@pytest.mark.req("EX-03", "SCH-33", "SCH-34", "SCH-36", "SCH-37", "SCH-39", "SCH-40", "SCH-41", "SCH-42", "SNAP-45")
def test_a_schema_change_equals_the_sample() -> None:
    theirs = sample("EX-03")["payload"]
    form = SchemaChangeFormat("dbserver1", "1.9", key_schema=False, value_schema=False)
    (record,) = form.stream_records(apply_ddl(CUSTOMERS, theirs["ddl"], CONTEXT).changes, event(219), AT)
    assert record.key == b'{"databaseName":"inventory"}'
    theirs = {**theirs, "source": {**theirs["source"], "version": "1.9.7.Final"}}
    (change,) = theirs["tableChanges"]
    # The comment is a member in Debezium 1.9.7, null without include.schema.comments.
    columns = [{**described, "comment": None} for described in change["table"]["columns"]]
    theirs["tableChanges"] = [{**change, "table": {**change["table"], "columns": columns, "comment": None}}]
    assert record.value.decode() == dumps(theirs)


@pytest.mark.req("EX-04", "SCH-32", "SCH-35", "SCH-24")
def test_the_leftover_of_the_manuals_is_not_written() -> None:
    """A message has one payload: neither its members nor its source are the flat ones; pos stands in source only."""
    left = sample("EX-04")["payload"]
    form = format_of()
    (record,) = form.snapshot_records(
        [SnapshotStatement("inventory", left["ddl"])], {}, BinlogOffset("mysql-bin.000003", 154)
    )
    assert record.value.count(b'"payload":') == 1
    mine = json.loads(record.value)["payload"]
    assert mine["ddl"] == left["ddl"]
    assert list(mine) == ["source", "databaseName", "schemaName", "ddl", "tableChanges"] != list(left)
    assert list(mine["source"]) == [m.name for m in MYSQL_1_9.change_source] != list(left["source"])
    assert "pos" not in mine and mine["source"]["pos"] == left["source"]["pos"]
    # The oldest form has seconds where the leftover has ts_ms.
    (record,) = format_of(**{"source.struct.version": "v1"}).snapshot_records(
        [SnapshotStatement("inventory", left["ddl"])], {}, BinlogOffset("mysql-bin.000003", 154)
    )
    assert "ts_ms" not in json.loads(record.value)["payload"]["source"]


@pytest.mark.req("SCH-39")
def test_a_rename_names_the_new_table() -> None:
    """The manuals of 1.9 show both names; Debezium 1.9.7 writes the new one."""
    ((_, value),) = streamed(format_of(), "RENAME TABLE customers TO clients")
    change = value["payload"]["tableChanges"][0]
    assert (change["type"], change["id"]) == ("ALTER", '"inventory"."clients"')
    assert [f["field"] for f in value["schema"]["fields"]] == list(value["payload"])


@pytest.mark.parametrize("ddl", ["DROP TABLE customers", "TRUNCATE TABLE customers"])
def test_a_drop_and_a_truncation_have_records_without_table_changes(ddl: str) -> None:
    """As Debezium 1.9.7 writes them; the latest one lists a DROP, and has no record for TRUNCATE."""
    ((_, value),) = streamed(format_of(), ddl)
    assert value["payload"]["tableChanges"] == [] and value["payload"]["source"]["table"] == "customers"
    recent = streamed(format_of(**{"event.contract": "3.x"}), ddl)
    assert [len(v["payload"]["tableChanges"]) for _, v in recent] == ([1] if ddl.startswith("DROP") else [])


@pytest.mark.req("SCH-40", "SCH-41", "CFG-26")
@pytest.mark.parametrize("comments", ["false", "true"])
def test_members_that_came_later_stand_only_where_1_9_had_them(comments: str) -> None:
    """Debezium 1.9.7 always has the member comment, null without include.schema.comments; the samples lack it."""
    ((key, value),) = streamed(
        format_of(**{"include.schema.comments": comments}),
        "ALTER TABLE customers ADD COLUMN size ENUM('s','m') DEFAULT 's' COMMENT 'cut', COMMENT 'people'",
    )
    table = value["payload"]["tableChanges"][0]["table"]
    change = value["schema"]["fields"][-1]["items"]["fields"]
    schema = next(f for f in change if f["field"] == "table")
    assert schema["optional"] is False, "as recorded; it is optional in 3.x"
    columns = next(f for f in schema["fields"] if f["field"] == "columns")["items"]["fields"]
    more = ["comment"]
    sampled = sample("EX-03")["payload"]["tableChanges"][0]["table"]
    assert list(table) == [f["field"] for f in schema["fields"]] == [*sampled, *more]
    last = table["columns"][-1]
    assert list(last) == [f["field"] for f in columns] == [*sampled["columns"][0], *more]
    assert (table["comment"], last["comment"]) == (("people", "cut") if comments == "true" else (None, None))
    assert "version" not in key["schema"] and "version" not in value["schema"]
    assert b'"version":1' not in dumps([schema, change]).encode()


@pytest.mark.req("SNAP-45")
def test_the_marker_of_a_schema_change_is_the_enumeration_of_1_9() -> None:
    ((_, value),) = streamed(format_of(), "DROP TABLE customers")
    source = value["schema"]["fields"][0]["fields"]
    assert next(f for f in source if f["field"] == "snapshot") == {
        "type": "string",
        "optional": True,
        "name": "io.debezium.data.Enum",
        "version": 1,
        "parameters": {"allowed": "true,last,false,incremental"},
        "default": "false",
        "field": "snapshot",
    }
    assert DB2_1_9.change_source == MYSQL_1_9.change_source
