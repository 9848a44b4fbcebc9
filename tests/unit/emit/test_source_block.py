"""Source block text: escaping, missing facts, and agreement with the slow path."""

from __future__ import annotations

import json
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EventContext
from airflow_provider_mysql_cdc.cdc.emit.envelope import context_headers, envelope_text, key_columns, new_run_id
from airflow_provider_mysql_cdc.cdc.emit.heartbeat import heartbeat_record
from airflow_provider_mysql_cdc.cdc.emit.source_block import fill, snapshot_marker, source_block, source_dict
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId

EVENT = SimpleNamespace(timestamp=12, server_id=7, file="binlog.000002", start_pos=99)


def at(**more: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"gtid": None, "commit_us": 0, "thread": 0, "query": None, **more})


def block_text(table: TableId, transaction: SimpleNamespace, *, version: str = "3.x", query: bool = True) -> str:
    ctx = EventContext()
    fill(ctx, source_block(table, prefix="p", version=version, include_query=query), EVENT, transaction)
    return f"{ctx.src_head}3{ctx.src_tail}"


@given(st.text(min_size=1), st.text(min_size=1), st.text(), st.sampled_from(["3.x", "1.9"]))
def test_the_fast_path_equals_the_slow_path(db: str, table: str, query: str, version: str) -> None:
    block = source_block(TableId(db, table), prefix="p", version=version, include_query=True)
    facts = {
        "name": "p", "ts_ms": 1795247698002, "ts_us": 1795247698002003, "ts_ns": 1795247698002003000,
        "snapshot": block.layout.snapshot_value("false"), "db": db, "table": table, "server_id": 7, "gtid": "u:1",
        "file": "binlog.000002", "pos": 99, "row": 3, "thread": 5, "query": query,
    }  # fmt: skip
    if version == "1.9":
        facts["ts_ms"] = 12_000  # the event's own time
    mine = block_text(
        TableId(db, table), at(gtid="u:1", commit_us=1795247698002003, thread=5, query=query), version=version
    )
    assert mine == dumps(source_dict(block.layout, facts))


def test_the_time_is_that_of_the_commit_in_all_its_digits() -> None:
    found = json.loads(block_text(TableId("d", "t"), at(commit_us=13_000_004)))
    assert (found["ts_ms"], found["ts_us"], found["ts_ns"]) == (13_000, 13_000_004, 13_000_004_000)


def test_what_the_server_does_not_tell_is_null_or_the_statements_start() -> None:
    found = json.loads(block_text(TableId("d", "t"), at()))
    assert (found["gtid"], found["thread"], found["query"], found["sequence"]) == (None, None, None, None)
    assert (found["ts_ms"], found["ts_us"], found["ts_ns"]) == (12_000, 12_000_000, 12_000_000_000)


@pytest.mark.req("STRM-18")
def test_the_query_is_left_out_unless_asked_for() -> None:
    assert json.loads(block_text(TableId("d", "t"), at(query="SELECT 1"), query=False))["query"] is None
    assert json.loads(block_text(TableId("d", "t"), at(query="SELECT 'é\n'")))["query"] == "SELECT 'é\n'"


def test_run_ids_are_version_7_uuids_in_order_of_time() -> None:
    first, second = new_run_id(1_000), new_run_id(2_000)
    made = [uuid.UUID(new_run_id(1_000)) for _ in range(40)]  # most of their bits are random
    assert {(each.version, each.variant) for each in made} == {(7, uuid.RFC_4122)}
    assert first < second
    assert first != new_run_id(1_000)


def test_context_headers() -> None:
    assert context_headers("p", "r") == [
        ("__debezium.context.connectorLogicalName", b"p"),
        ("__debezium.context.taskId", b"0"),
        ("__debezium.context.connectorName", b"mysql"),
        ("__debezium.context.runId", b"r"),
    ]


@pytest.mark.req("STRM-28", "STRM-29")
def test_heartbeat_record() -> None:
    key, value = heartbeat_record("p", 5)
    assert json.loads(key)["payload"] == {"serverName": "p"}
    assert json.loads(value)["payload"] == {"ts_ms": 5}
    assert json.loads(value)["schema"]["name"] == "io.debezium.connector.common.Heartbeat"
    assert heartbeat_record("p", 5, key_schema=False, value_schema=False) == (b'{"serverName":"p"}', b'{"ts_ms":5}')


TABLE = Table(
    TableId("d", "t"),
    (
        Column("a", 1, "INT", nullable=False),
        Column("b", 2, "INT", has_default=True, default="4"),
        Column("c", 3, "INT"),
    ),
    ("a",),
)


def names(schema: str | None) -> list[str]:
    return [f["field"] for f in json.loads(schema or "")["fields"]]


@pytest.mark.req("COL-13", "EVT-09")
def test_the_users_key_columns_replace_the_tables_key() -> None:
    text = envelope_text(TABLE, DecoderOptions(prefix="p", key_columns=("c", "B")))
    assert names(text.key_schema) == ["c", "b"]
    assert envelope_text(TABLE, DecoderOptions(prefix="p", key_columns=())).key_schema is None
    with pytest.raises(SchemaError, match=r"message\.key\.columns"):
        key_columns(TABLE, DecoderOptions(key_columns=("x",)))


@pytest.mark.req("COL-02")
def test_only_included_columns_are_in_the_value() -> None:
    text = envelope_text(TABLE, DecoderOptions(prefix="p", included=("c",)))
    assert [f["field"] for f in json.loads(text.value_schema or "")["fields"][1]["fields"]] == ["c"]
    assert names(text.key_schema) == ["a"]


@pytest.mark.req("EVT-01")
def test_schemas_are_left_out_when_the_converter_says_so() -> None:
    text = envelope_text(TABLE, DecoderOptions(prefix="p"), key=False, value=False)
    assert (text.key_schema, text.value_schema) == (None, None)


def test_null_texts_are_given_where_nulls_become_defaults() -> None:
    assert dict(envelope_text(TABLE, DecoderOptions(replace_null_with_default=True)).null_text) == {"b": "4"}
    assert dict(envelope_text(TABLE, DecoderOptions()).null_text) == {}


@for_each(
    ("first_table", "last_table", "marker"),
    [(True, True, "last"), (True, False, "first"), (False, False, "last_in_data_collection"), (False, True, "last")],
)
@pytest.mark.req("SNAP-48")
def test_the_only_row_of_a_table_is_marked_by_the_ends_of_the_snapshot_first(
    first_table: bool, last_table: bool, marker: str
) -> None:
    found = snapshot_marker(first_row=True, last_row=True, first_table=first_table, last_table=last_table)
    assert found == marker
