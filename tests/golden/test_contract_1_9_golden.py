"""Contract 1.9 and the Db2 block come from the same layer and equal the seeds' samples."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from golden.golden_data import sample

from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.ddl.apply import apply
from airflow_provider_mysql_cdc.cdc.ddl.state import DbDefaults, DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.decode.context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.emit.contracts import DB2_1_9, MYSQL_1_9, contract
from airflow_provider_mysql_cdc.cdc.emit.envelope import envelope_text
from airflow_provider_mysql_cdc.cdc.emit.heartbeat import transaction_record
from airflow_provider_mysql_cdc.cdc.emit.schema_change import ChangeFormat
from airflow_provider_mysql_cdc.cdc.emit.source import fill, fill_snapshot, source_block, source_dict
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId

CONTEXT = DdlContext(default_db="inventory")
OLD_SERVER = SchemaState(databases={"inventory": DbDefaults("latin1", "latin1_swedish_ci")})
# EX-50, with the widths a MySQL 5.7 shows.
CUSTOMERS = apply(
    OLD_SERVER,
    "CREATE TABLE customers (id INT(11) NOT NULL AUTO_INCREMENT PRIMARY KEY, first_name VARCHAR(255) NOT NULL, "
    "last_name VARCHAR(255) NOT NULL, email VARCHAR(255) NOT NULL UNIQUE KEY) AUTO_INCREMENT=1001",
    CONTEXT,
).state


def customers() -> Table:
    return CUSTOMERS.tables[TableId("inventory", "customers")]


@pytest.mark.req("EX-05", "EX-06", "EVT-10", "EVT-12", "EVT-13", "EVT-14", "EVT-15", "EVT-16", "EVT-17", "EVT-35")
def test_schemas_equal_the_samples() -> None:
    text = envelope_text(customers(), DecoderOptions(contract="1.9", prefix="mysql-server-1"))
    assert text.key_schema == dumps(sample("EX-05")["schema"])
    assert text.value_schema == dumps(sample("EX-06")["schema"])


@pytest.mark.req("TXN-09", "EVT-14")
def test_transaction_is_a_member_of_the_envelope_only_with_transaction_metadata() -> None:
    options = DecoderOptions(contract="1.9", prefix="p")
    plain, enriched = (
        json.loads(envelope_text(customers(), options, transaction=on).value_schema or "") for on in (False, True)
    )
    names = [f["field"] for f in enriched["fields"]]
    assert [f["field"] for f in plain["fields"]] == ["before", "after", "source", "op", "ts_ms"]
    assert names == ["before", "after", "source", "op", "ts_ms", "transaction"]


@pytest.mark.req("EX-06", "EX-08", "EX-10", "EVT-36")
@pytest.mark.parametrize("name", ["EX-06", "EX-08", "EX-10"])
def test_source_blocks_equal_the_samples(name: str) -> None:
    payload: dict[str, Any] = sample(name)["payload"]
    theirs = payload["source"]
    block = source_block(TableId("inventory", "customers"), prefix="mysql-server-1", version="1.9", include_query=True)
    ctx = EventContext()
    event = SimpleNamespace(
        timestamp=theirs["ts_ms"] // 1000, server_id=theirs["server_id"], file=theirs["file"], start_pos=theirs["pos"]
    )
    commit_us = theirs["ts_ms"] * 1000
    fill(ctx, block, event, SimpleNamespace(gtid=None, commit_us=commit_us, thread=7, query=theirs["query"]))
    mine = json.loads(f"{ctx.src_head}0{ctx.src_tail}")
    assert mine == theirs
    assert list(mine) == [m.name for m in MYSQL_1_9.source]
    assert block.op_tail(payload["ts_ms"] * 1_000_000) == f',"ts_ms":{payload["ts_ms"]}}}'


@pytest.mark.req("SNAP-44")
def test_snapshot_is_a_boolean() -> None:
    ctx = EventContext()
    block = source_block(TableId("d", "t"), prefix="p", version="1.9")
    fill_snapshot(ctx, block, BinlogOffset("b.000001", 4), 0, "last")
    assert json.loads(f"{ctx.src_head}0{ctx.src_tail}")["snapshot"] is True


@pytest.mark.req("EX-03", "SCH-33", "SCH-34", "SCH-36", "SCH-39", "SCH-40", "SCH-41", "SCH-42", "SNAP-45")
def test_schema_change_equals_the_sample() -> None:
    theirs = sample("EX-03")["payload"]
    applied = apply(CUSTOMERS, theirs["ddl"], CONTEXT)
    form = ChangeFormat("dbserver1", "1.9", key_schema=False, value_schema=False)
    event = SimpleNamespace(timestamp=0, server_id=0, file="mysql-bin.000003", start_pos=219)
    at = SimpleNamespace(gtid=None, commit_us=0, thread=0, query=None)
    record = form.streamed(applied.changes, event, at)[0]
    assert record.key == b'{"databaseName":"inventory"}'
    assert record.value.decode() == dumps(theirs)


@pytest.mark.req("SCH-39")
def test_a_rename_names_both_tables() -> None:
    applied = apply(CUSTOMERS, "RENAME TABLE customers TO clients", CONTEXT)
    form = ChangeFormat("p", "1.9")
    event = SimpleNamespace(timestamp=0, server_id=0, file="b.000001", start_pos=4)
    at = SimpleNamespace(gtid=None, commit_us=0, thread=0, query=None)
    value = json.loads(form.streamed(applied.changes, event, at)[0].value)
    change = value["payload"]["tableChanges"][0]
    assert (change["type"], change["id"]) == ("ALTER", '"inventory"."customers","inventory"."clients"')
    assert [f["field"] for f in value["schema"]["fields"]] == list(value["payload"])


@pytest.mark.req("EX-16", "EX-17")
@pytest.mark.parametrize(("name", "counts"), [("EX-16", None), ("EX-17", {"s1.a": 1, "s2.a": 1})])
def test_transaction_records_equal_the_samples(name: str, counts: dict[str, int] | None) -> None:
    theirs = sample(name)
    _, value = transaction_record(theirs["id"], 0, counts, recent=False, value_schema=False)
    assert value.decode() == dumps(theirs)
    _, value = transaction_record(theirs["id"], 0, counts, recent=False)
    assert [f["field"] for f in json.loads(value)["schema"]["fields"]] == list(theirs)


@pytest.mark.req("EX-20", "EX-21", "DB2-01", "DB2-02", "DB2-03", "DB2-04", "DB2-07", "DB2-08", "DB2-15", "DB2-17")
def test_db2_schemas_equal_the_samples() -> None:
    columns = [Column("ID", 1, "INT", nullable=False)]
    columns += [Column(n, i, "VARCHAR", length=255, nullable=False, charset="utf8mb4") for i, n in
                enumerate(("FIRST_NAME", "LAST_NAME", "EMAIL"), 2)]  # fmt: skip
    table = Table(TableId("MYSCHEMA", "CUSTOMERS"), tuple(columns), ("ID",))
    text = envelope_text(table, DecoderOptions(contract="1.9", prefix="mydatabase"), connector="db2")
    assert text.key_schema == dumps(sample("EX-20")["schema"])
    assert text.value_schema == dumps(sample("EX-21")["schema"])


@pytest.mark.req("EX-21", "EX-22", "EX-23", "DB2-05", "DB2-14")
@pytest.mark.parametrize("name", ["EX-21", "EX-22", "EX-23"])
def test_db2_source_blocks_equal_the_samples(name: str) -> None:
    theirs = sample(name)["payload"]["source"]
    values = {k: v for k, v in theirs.items() if k not in ("version", "connector")}
    assert dumps(source_dict(DB2_1_9, values)) == dumps(theirs)


def test_an_unknown_contract_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"mysql 3\.x, mysql 1\.9, db2 1\.9"):
        contract("2.0")
