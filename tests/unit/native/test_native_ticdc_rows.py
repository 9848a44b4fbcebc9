"""The seam to the native kernel for TiCDC's flat rows, with a kernel made up here."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import pytest
from kit.decode_builder import body, column, image, table, table_map
from kit.fake_kernel import FakeKernel, installed
from kit.ticdc_identity import AT, FlatSides

from airflow_provider_mysql_cdc.cdc.avro.avro_columns import FallbackToJson
from airflow_provider_mysql_cdc.cdc.binlog.table_map import wire_types
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import EventContext
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import KEY_CHANGE, kernel
from airflow_provider_mysql_cdc.cdc.drain.whole_transactions import row_context
from airflow_provider_mysql_cdc.cdc.formats import ticdc_rows as native_flat
from airflow_provider_mysql_cdc.cdc.formats.ticdc_row_decoder import TicdcRowDecoder
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.column_rule import ColumnTreatment, CustomColumn, ValueChange, ValueChangeKind
from airflow_provider_mysql_cdc.cdc.model.records import NativeCounts
from airflow_provider_mysql_cdc.cdc.ticdc.commit_ts import commit_ts

T = table(
    column("id", "INT", nullable=False),
    column("name", "VARCHAR", charset="utf8mb4"),
    column("at", "DATETIME", nullable=False, length=3),
    column("bits", "BIT", length=12),
    column("f", "FLOAT"),
    key=("id",),
)
WIRES = wire_types(table_map((wt.LONG, 0), (wt.VARCHAR, 80), (wt.DATETIME2, 3), (wt.BIT, 12), (wt.FLOAT, 4)))
ROW = image(5, struct.pack("<i", 1) + b"\x01a" + bytes(7) + b"\x01\x02", nulls=16)
COLUMNS = {"partition": "columns", "columns": ["name", "at"]}


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKernel]:
    with installed(monkeypatch, native_flat, "NativeTicdcDecoder") as made:
        yield made


def made(count: int = 1, rule: dict[str, Any] | None = None, **changed: Any) -> tuple[FlatSides, Any]:
    """Return both ways of a table, and what writes its rows at once."""
    both = FlatSides(T, WIRES, count, rule, **{"enable-tidb-extension": "true"})
    text = replace(both.text, options=replace(both.text.options, **changed))
    return both, native_flat.create_ticdc_decoder(T, WIRES, text, kernel().new_tally())


def context(both: FlatSides, number: int = 77, at: Any = AT) -> EventContext:
    """Return the context of an event of a transaction with this sequence number."""
    return both.context(str(commit_ts(at.commit_us, number).value), at=at)


def test_what_the_kernel_writes_is_not_written_again(fake: FakeKernel) -> None:
    both, found = made()
    out: list[Any] = []
    assert found.native and found.write(*body(ROW, columns=5), context(both), out) == 1
    assert out == [("natively",)]
    # Operation, and the two times, which stand where another record has what is around its row number.
    (asked,) = fake.asked
    assert asked[3:5] == ("\x02c", context(both).tail) and len(context(both).tail) == 15


def test_what_it_declines_is_written_in_python_or_by_way_of_json(fake: FakeKernel) -> None:
    both, found = made()
    fake.answer, out = KEY_CHANGE, list[Any]()
    assert found.write(*body(ROW, columns=5), context(both), out) == 1
    assert out[0][0] == b"\x00\x00\x00\x00\x01\x02" and out[0][4:] == (None, 0)
    buf, pos, end = body(ROW, columns=5)
    with pytest.raises(FallbackToJson):
        found.write(buf, pos, end - 1, context(both), out)


def test_the_plan_of_a_table_for_the_kernel(fake: FakeKernel) -> None:
    made(7, COLUMNS)
    ((columns, keys, heads, spread, *_),) = fake.plans
    assert columns == [
        (b"", None, True, None, "avro-stored:signed", [4], [b"", b"", b""]),
        (b"", b"\0", True, None, "avro-stored:text:utf8", [1], [b"\2", b"\0", b"\0"]),
        (b"", None, True, None, "avro-shown:flat:datetime", [3], [b"", b"", b""]),
        (b"", b"\0", True, None, "avro-stored:flat:bits", [2, 0], [b"\2", b"", b"\0"]),
        (b"", b"\0", True, None, "avro-stored:float_as_double", [], [b"\2", b"", b"\0"]),
    ]
    assert (keys, heads) == ([0], (b"\x00\x00\x00\x00\x01", b"\x00\x00\x00\x00\x02"))
    assert spread == (
        7,
        crc32(b"t", crc32(b"db")),
        [(1, crc32(b"name"), "text:utf8", [1], []), (2, crc32(b"at"), "flat:datetime", [3], [])],
    )


@pytest.mark.parametrize(
    ("count", "rule", "told"),
    [
        (1, COLUMNS, (1, 0, [])),
        (7, {"partition": "table"}, (crc32(b"t", crc32(b"db")) % 7 + 1, crc32(b"t", crc32(b"db")) % 7, [])),
        (7, {"partition": "ts"}, (1, 0, [])),
        (7, {"partition": "index-value"}, (7, crc32(b"t", crc32(b"db")), [(0, crc32(b"id"), "signed", [4], [])])),
    ],
)
def test_the_plan_of_partitions_for_the_kernel(count: int, rule: dict[str, Any], told: Any, fake: FakeKernel) -> None:
    made(count, rule)
    ((*_, spread, _, _),) = fake.plans
    assert spread == told


def test_where_transactions_decide_python_puts_the_partition_in(fake: FakeKernel) -> None:
    both, found = made(7, {"partition": "ts"})
    found._native["c"] = lambda *given: given[-1].append((b"k", b"v", 3, 0, None, 0)) or 1
    out: list[Any] = ["before"]
    assert found.write(*body(ROW, columns=5), context(both, 9), out) == 1
    assert out == ["before", (b"k", b"v", 3, 0, None, commit_ts(AT.commit_us, 9).value % 7)]


def test_a_time_that_values_cannot_hold_is_written_via_json(fake: FakeKernel) -> None:
    both, found = made()
    at = SimpleNamespace(gtid=None, commit_us=(1 << 55) - 1, thread=9, query=None)
    given = body(ROW, columns=5)
    for direct in (found, TicdcRowDecoder(T, WIRES, both.text)):
        with pytest.raises(FallbackToJson):
            direct.write(*given, context(both, at=at), [])
    assert fake.asked == []
    outcome = both.event(found, "write", *given, context(both, at=at))
    assert outcome is not None and outcome[0] == "ValueDecodeError" and "OverflowError" in outcome[1]


CUT = ColumnTreatment(change=ValueChange(ValueChangeKind.TRUNCATE_TEXT, length=3))
MASKED = ColumnTreatment(change=ValueChange(ValueChangeKind.CONSTANT, text="***"))
CUSTOM = CustomColumn("name", "converter x", str, "string")


@pytest.mark.parametrize(
    ("changed", "rule", "why"),
    [
        ({"treatments": (("name", CUT),)}, None, "column name is truncated or hashed"),
        ({"conversions": (("name", CUSTOM),)}, None, "a converter handles column name"),
        ({"treatments": (("name", MASKED),)}, COLUMNS, "column name, which the dispatcher uses, is masked"),
        ({}, {"partition": "columns", "columns": ["f"]}, "column f, which the dispatcher uses, is FLOAT"),
    ],
)
def test_a_table_that_the_kernel_does_not_know_is_one_for_python(
    changed: Any, rule: Any, why: str, fake: FakeKernel, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        _, found = made(7, rule, **changed)
    assert type(found) is TicdcRowDecoder and fake.plans == []
    assert [r.getMessage() for r in caplog.records] == [
        f"rows of db.t are decoded to TiCDC's protocol in Python: {why}"
    ]


def test_its_events_are_counted(fake: FakeKernel) -> None:
    _, found = made()
    found._tally.native.rows = 4
    assert found._tally.counts() == NativeCounts(4)


@pytest.mark.parametrize(("rule", "walks"), [(None, True), (COLUMNS, True), ({"partition": "ts"}, False)])
def test_transactions_are_decoded_as_a_whole_where_they_do_not_decide(rule: Any, walks: bool) -> None:
    both, found = made(7, rule)
    around = row_context(SimpleNamespace(source=both.source, decoder=found))  # type: ignore[arg-type]
    assert (around is not None) is walks
    if around is not None:
        assert found.row_texts(around.ctx, "u") == ("\x02u", "\u0100commit_ts\u0100\u0100millis\u0100")
        assert found.row_texts(around.ctx, "d") == ("", "")
