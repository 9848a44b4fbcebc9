"""The seam to the native kernel for rows in Avro, with a kernel made up here."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from kit.avro_identity import Sides
from kit.decode_builder import body, column, image, table, table_map
from kit.fake_kernel import FakeKernel, installed

from airflow_provider_mysql_cdc.cdc.avro import native_avro
from airflow_provider_mysql_cdc.cdc.avro.avro_columns import FallbackToJson
from airflow_provider_mysql_cdc.cdc.binlog.table_map import WireType, wire_types
from airflow_provider_mysql_cdc.cdc.decode import native_rows
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import KEY_CHANGE, kernel
from airflow_provider_mysql_cdc.cdc.decode.native_rows import RowEventDecoder
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.column_rule import ColumnTreatment, CustomColumn, ValueChange, ValueChangeKind
from airflow_provider_mysql_cdc.cdc.model.records import NativeCounts

T = table(
    column("id", "INT", nullable=False),
    column("name", "VARCHAR", charset="utf8mb4"),
    column("day", "DATE", nullable=False),
    key=("id",),
)
MAP = table_map((wt.LONG, 0), (wt.VARCHAR, 80), (wt.DATE, 0))
ROW = image(3, b"\1\0\0\0\1a\x21\x00\x00")
PLAIN = DecoderOptions()


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKernel]:
    with installed(monkeypatch, native_rows, "NativeRowDecoder") as made:
        yield made


def decoder(made: Any = T, announced: Any = MAP, options: DecoderOptions = PLAIN) -> tuple[RowEventDecoder, Any]:
    both = Sides(made, options)
    wires = wire_types(announced)
    return native_avro.create_avro_decoder(both.table, wires, both.options, both.texts, both.heads()), both.contexts()[
        1
    ]


def test_what_the_kernel_writes_is_not_written_again(fake: FakeKernel) -> None:
    found, ctx = decoder()
    out: list[Any] = []
    assert found.write(*body(ROW, columns=3), ctx, out) == 1
    assert out == [("natively",)]


def test_what_it_declines_is_written_in_python_or_by_way_of_json(fake: FakeKernel) -> None:
    found, ctx = decoder()
    fake.answer, out = KEY_CHANGE, list[Any]()
    assert found.write(*body(ROW, columns=3), ctx, out) == 1
    assert out[0][0] == b"\x00\x00\x00\x00\x07\x02"
    buf, pos, end = body(ROW, columns=3)
    with pytest.raises(FallbackToJson):
        found.write(buf, pos, end - 1, ctx, out)


def test_the_plan_of_a_table_for_the_kernel(fake: FakeKernel) -> None:
    decoder()
    ((columns, keys, around, binary, *_),) = fake.plans
    assert columns == [
        (b"", None, True, None, "avro-stored:signed", [4], [b"", b"", b""]),
        (b"", b"\0", True, None, "avro-stored:text:utf8", [1], [b"\2", b"\0", b"\0"]),
        (b"", None, True, None, "avro-shown:clock:date", [0, 1000, 1, 0, 0], [b"", b"\0", b"", b"Z", b"N"]),
    ]
    assert (keys, binary) == ([0], True)
    assert around == [
        b"\x00\x00\x00\x00\x07",
        b"",
        b"\x00\x00\x00\x01\xff",
        b"\0",
        b"",
        b"",
        b"\2",
        b"",
        b"",
    ]


CUT = ColumnTreatment(change=ValueChange(ValueChangeKind.TRUNCATE_TEXT, length=3))
CUSTOM = CustomColumn("name", "converter x", str, "string")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (replace(PLAIN, treatments=(("name", CUT),)), "column name is truncated or hashed"),
        (replace(PLAIN, conversions=(("name", CUSTOM),)), "a converter handles column name"),
    ],
)
def test_a_table_that_the_kernel_does_not_know_is_one_for_python(
    options: DecoderOptions, why: str, fake: FakeKernel, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        found, _ = decoder(options=options)
    assert type(found) is RowDecoder and fake.plans == []
    assert [r.getMessage() for r in caplog.records] == [f"rows of db.t are written as Avro in Python: {why}"]


def test_spatial_values_are_for_python(fake: FakeKernel) -> None:
    made = table(column("id", "INT", nullable=False), column("p", "POINT"), key=("id",))
    found, _ = decoder(made, table_map((wt.LONG, 0), (wt.GEOMETRY, 4)))
    assert type(found) is RowDecoder and not found.native


def test_its_events_are_counted(fake: FakeKernel) -> None:
    tally, both = kernel().new_tally(), Sides(T, PLAIN)
    assert tally is not None
    wires: tuple[WireType, ...] = wire_types(MAP)
    found = native_avro.create_avro_decoder(both.table, wires, both.options, both.texts, both.heads(), tally)
    assert found.native
    tally.native.rows = 4
    assert tally.counts() == NativeCounts(4)
