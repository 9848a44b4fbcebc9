"""What a dead letter of a snapshot shows of its row."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.decode_builder import column, packet, table
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import EventContext
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import BadRow
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.model.table import Table
from airflow_provider_mysql_cdc.cdc.snapshot.row_emitter import PartialTextRows, make_snapshot_route

pytestmark = pytest.mark.quick

ERROR = ValueDecodeError("a row cannot be read")
PLAIN = {
    "time__precision__mode": "connect",
    "key__converter__schemas__enable": "false",
    "value__converter__schemas__enable": "false",
}


def text(name: str) -> Any:
    return column(name, "VARCHAR", length=9, charset="utf8mb4")


ROWS = table(
    column("id", "INT", nullable=False), column("t", "TIME", nullable=False), text("note"), text("card"), key=("id",)
)


def describe(of: Table, row: bytes, **properties: str) -> BadRow:
    ctx = EventContext(src_head='{"row":', src_tail="}", tail="}")
    return PartialTextRows(config(**PLAIN | properties), of).describe(3, ERROR, row, ctx)


def test_the_key_and_the_values_that_can_be_read_are_shown_and_why_others_cannot() -> None:
    bad = describe(ROWS, packet(b"5", b"100:00:00", b"\xc3\xa9", None))
    assert (bad.row, bad.op, bad.error, bad.before) == (3, "r", ERROR, None)
    assert (bad.key, bad.key_json) == (b'{"id":5}', '{"id":5}')
    assert json.loads(bad.after or "") == {"id": 5, "note": "é", "card": None}
    ((name, cause),) = bad.failed
    assert name == "t" and "Error: " in cause


@pytest.mark.parametrize(
    ("rule", "row", "shown"),
    [
        ("column__mask__with__4__chars", (b"5", b"100:00:00", b"n"), "****"),
        ("column__truncate__to__2__chars", (b"5", b"100:00:00", b"n", b"4711"), "47"),
    ],
)
def test_a_masked_value_stays_masked(rule: str, row: tuple[bytes, ...], shown: str) -> None:
    masked = describe(ROWS, packet(*row), **{rule: r"db\.t\.card"})
    assert json.loads(masked.after or "")["card"] == shown and "4711" not in str(masked)


def test_the_error_of_a_masked_column_does_not_show_the_value() -> None:
    cfg, error = config(column__truncate__to__2__chars=r"db\.t\.note"), ValueDecodeError("x", why="KeyError: 4711")
    rows, columns = PartialTextRows(cfg, ROWS), {c.name: c for c in ROWS.columns}
    assert (rows._cause(columns["note"], error), rows._cause(columns["t"], error)) == ("KeyError", "KeyError: 4711")


def test_a_key_that_cannot_be_read_is_not_shown() -> None:
    keyed = table(column("id", "TIME", nullable=False), text("note"), key=("id",))
    bad = describe(keyed, packet(b"100:00:00", b"n"))
    assert (bad.key, bad.key_json) == (None, None) and json.loads(bad.after or "")["note"] == "n"
    assert [name for name, _ in bad.failed] == ["id"]


def test_a_table_without_a_key_has_none() -> None:
    bad = describe(table(text("v")), packet(b"1"))
    assert (bad.key, bad.key_json, bad.after) == (None, None, '{"v":"1"}')


def test_the_values_are_those_of_the_columns_that_are_selected() -> None:
    cfg = config(**PLAIN)
    route = make_snapshot_route(cfg, None, ROWS, 1, ROWS.columns[::-1])
    ctx = EventContext(src_head='{"row":', src_tail="}", tail="}")
    bad = route.partial_rows.describe(3, ERROR, packet(None, b"n", b"100:00:00", b"5"), ctx)
    assert (bad.key, json.loads(bad.after or "")) == (b'{"id":5}', {"id": 5, "note": "n", "card": None})


def test_a_key_has_the_schema_that_it_has_in_records() -> None:
    bad = describe(ROWS, packet(b"5", None, None, None), key__converter__schemas__enable="true")
    assert json.loads(bad.key or b"")["payload"] == {"id": 5} and bad.key_json == '{"id":5}'
