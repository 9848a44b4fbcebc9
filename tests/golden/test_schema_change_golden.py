"""Schema change records equal, byte for byte, what Debezium 3.6.1 wrote; the differences are listed and explained."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from golden.golden_data import Step, history, rows
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.ddl.state import DefaultCharset
from airflow_provider_mysql_cdc.cdc.emit.envelope import context_headers
from airflow_provider_mysql_cdc.cdc.emit.schema_change import SchemaChangeFormat, snapshot_statements
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId

CAPTURES = sorted({r["capture"] for r in rows("schema_changes")})


class Clock:
    """Give the times at which Debezium wrote its records."""

    def __init__(self, *times: int) -> None:
        self.times = list(times)

    def __call__(self) -> int:
        return self.times.pop(0)


# Debezium drops the table comment that CREATE TABLE ... LIKE copies.
LIKE_COMMENTS = {"lk": "new comment", "lk_new": "new comment", "lk2": "c1 table", "c1_old": "c1 table"}


def explained(text: str, *, comments: bool) -> str:
    """Return a recorded value with Debezium's known faults put right.

    ALTER TABLE ... DEFAULT CHARACTER SET after CONVERT TO is not followed; quotes in defaults stay doubled; hexadecimal
    defaults are cut; the tables of a RENAME stand in no order.
    """
    record = json.loads(text)
    payload = record["payload"]
    if payload["source"]["table"] == "sw2,sw1,sw_t":
        payload["source"]["table"] = "sw_t,sw1,sw2"
    for change in payload["tableChanges"]:
        for column in (change["table"] or {"columns": []})["columns"]:
            fixed = {"it''s": "it's", "00F": "0x00FF"}.get(column["defaultValueExpression"])
            column["defaultValueExpression"] = fixed or column["defaultValueExpression"]
        if change["table"] and any(c["name"] == "g" for c in change["table"]["columns"]):
            change["table"]["defaultCharsetName"] = "gbk"
            for column in change["table"]["columns"]:
                column["charsetName"] = "gbk" if column["name"] == "g" else column["charsetName"]
        name = change["id"].split('"')[3]
        if comments and change["table"] and name in LIKE_COMMENTS:
            change["table"]["comment"] = LIKE_COMMENTS[name]
    if payload["ddl"] == "ALTER TABLE base DEFAULT CHARACTER SET gbk":
        payload["tableChanges"][0]["table"]["defaultCharsetName"] = "gbk"
    return dumps(record)


def written(step: Step, comments: bool) -> list[Any]:
    """Write the records of a streamed statement as Debezium's own clock, server and GTID would have them."""
    source = step.records[0]["source"]
    event = SimpleNamespace(timestamp=0, server_id=source["server_id"], file=source["file"], start_pos=source["pos"])
    at = SimpleNamespace(
        gtid=source["gtid"], commit_us=source["ts_us"] + 999, thread=source["thread"] or 4711, query="x"
    )
    clock = Clock(*(r["payload"]["ts_ms"] * 1_000_000 for r in step.records))
    form = SchemaChangeFormat("cap", comments=comments, clock_ns=clock)
    return list(
        form.stream_records(step.changes, event, at, in_transaction=source["thread"] is not None, row=source["row"])
    )


@pytest.mark.req("SCH-21", "SCH-22", "SCH-24", "SCH-33", "SCH-37", "SCH-38", "SCH-40", "SCH-41", "SCH-42", "SCH-17")
@for_each("capture", CAPTURES)
def test_streamed_statements_equal_the_recording(capture: str) -> None:
    for step in (s for s in history(capture) if not s.snapshot):
        comments = capture.endswith("extras")
        records = written(step, comments)
        assert len(records) == len(step.records), step.ddl
        for mine, theirs in zip(records, step.records, strict=True):
            assert mine.key.decode() == theirs["key"]
            if mine.value.decode() != theirs["value"]:
                assert mine.value.decode() == explained(theirs["value"], comments=comments), step.ddl


@pytest.mark.req("SNAP-15", "SCH-26")
@for_each("capture", CAPTURES)
def test_snapshot_statements_equal_the_recording(capture: str) -> None:
    steps = [s for s in history(capture) if s.snapshot]
    creates = {TableId(s.db, s.records[0]["source"]["table"]): s.ddl for s in steps if s.ddl.startswith("CREATE TABLE")}
    state = steps[-1].state
    server = DefaultCharset("utf8mb4", "utf8mb4_0900_ai_ci")
    statements = snapshot_statements(server, state.database_defaults, creates)
    assert [s.ddl for s in statements] == [s.ddl for s in steps]
    theirs = [s.records[0] for s in steps]
    times = [t for r in theirs for t in (r["source"]["ts_ns"], r["payload"]["ts_ms"] * 1_000_000)]
    comments = capture.endswith("extras")
    form = SchemaChangeFormat("cap", comments=comments, clock_ns=Clock(*times))
    offset = BinlogOffset(theirs[0]["source"]["file"], theirs[0]["source"]["pos"], "ignored:1-2", "u")
    for mine, their in zip(form.snapshot_records(statements, state.tables, offset), theirs, strict=True):
        assert mine.key.decode() == their["key"]
        assert mine.value.decode() in (their["value"], explained(their["value"], comments=comments)), their["payload"][
            "ddl"
        ]


def test_schema_changes_carry_the_context_headers() -> None:
    for row in rows("schema_changes"):
        recorded = [next(iter(h.items())) for h in row["headers"]]
        run_id = recorded[-1][1]
        assert [(n, v.decode()) for n, v in context_headers("cap", run_id)] == recorded


def test_without_schemas_only_the_payload_is_written() -> None:
    step = next(s for s in history("ddl/default") if not s.snapshot)
    clock = Clock(step.records[0]["payload"]["ts_ms"] * 1_000_000)
    form = SchemaChangeFormat("cap", key_schema=False, value_schema=False, clock_ns=clock)
    event = SimpleNamespace(timestamp=1, server_id=1, file="b.000001", start_pos=4)
    record = next(
        form.stream_records(step.changes, event, SimpleNamespace(gtid=None, commit_us=0, thread=0, query=None))
    )
    assert record.key == b'{"databaseName":"ddldb"}'
    payload = json.loads(record.value)
    assert list(payload) == ["source", "ts_ms", "databaseName", "schemaName", "ddl", "tableChanges"]
    assert payload["source"]["ts_ms"] == 1000  # no commit time: the statement's start
