"""The seam to the native kernel for rows of snapshots as Avro, with a kernel made up here."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from kit.avro_identity import KEY_HEAD, VALUE_HEAD, Sides
from kit.avro_rig import avro
from kit.decode_builder import column, packet, table
from kit.fake_kernel import FakeKernel, installed

from airflow_provider_mysql_cdc.cdc.avro import avro_source as avro_marks
from airflow_provider_mysql_cdc.cdc.avro.avro_binary import varint
from airflow_provider_mysql_cdc.cdc.avro.native_avro import AVRO_TEXT
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode import native_text
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import kernel
from airflow_provider_mysql_cdc.cdc.formats import avro_rows, table_options
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.model.column_rule import ColumnTreatment, CustomColumn, ValueChange, ValueChangeKind
from airflow_provider_mysql_cdc.cdc.model.connection import SchemaId
from airflow_provider_mysql_cdc.cdc.model.records import NativeCounts
from airflow_provider_mysql_cdc.cdc.model.table import Table

T = table(
    column("id", "TINYINT", nullable=False),
    column("name", "VARCHAR", charset="utf8mb4"),
    column("day", "DATE", nullable=False),
    column("at", "TIME", nullable=False),
    key=("id",),
)
ROW = packet(b"1", b"a", b"2026-01-02", b"00:00:01")
PLAIN = DecoderOptions()
BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKernel]:
    with installed(monkeypatch, native_text, "NativeTextDecoder") as made:
        yield made


def rows_of(made: Table = T, options: DecoderOptions | None = None, tally: Any = None) -> avro_rows.TextRows:
    cfg = ConnectorConfig.from_properties(BASE | avro("http://r:1"))
    given = options or table_options.table_options(cfg, made)
    form = RecordFormats(cfg, lambda *_: SchemaId(7)).table_format(made, given, "topic")
    return avro_rows.create_text_rows(cfg, form, made, given, tally=tally)


def native(fake: FakeKernel, options: DecoderOptions = PLAIN) -> tuple[Any, Sides]:
    both = Sides(T, options)
    plan = replace(both.text_plan(), columns=both.table.columns)
    python: Any = lambda *row: row[-1].append(("python",))  # noqa: E731
    return native_text.choose_text_decoder(python, plan, AVRO_TEXT), both


def test_the_plan_of_a_table_for_the_kernel(fake: FakeKernel) -> None:
    native(fake, DecoderOptions(key_fields=(("k", "v"),)))
    ((columns, value, key, around, numbers, _),) = fake.plans
    assert columns == [
        (False, b"", "avro-stored:copy", [8], [b"", b"", b""]),
        (True, b"\0", "avro-stored:text", [0], [b"\2", b"\0", b"\0"]),
        (False, b"", "avro-shown:date", [0, 1000, 1, 0, 0], [b"", b"\0", b"", b"Z", b"N"]),
        (False, b"", "avro-shown:time", [0, 1_000_000, 1, 0, 0], [b"", b"", b"", b"Z", b"N"]),
    ]
    assert value == [(b"", place, b"") for place in range(4)] and key == [(b"", 0, b"")]
    heads = [text.encode("latin-1") for text in (KEY_HEAD, "\x02v", VALUE_HEAD + "\0")]
    assert around == [*heads, b"\2", b"", b""] and numbers == (True, True)


def test_a_constant_is_passed_as_avro(fake: FakeKernel) -> None:
    mask = ColumnTreatment(change=ValueChange(ValueChangeKind.CONSTANT, text="*é"))
    native(fake, replace(PLAIN, treatments=(("name", mask),)))
    assert fake.plans[0][1][1] == (b"", None, b"\2\6*\xc3\xa9")


def test_python_writes_what_the_kernel_declines(fake: FakeKernel) -> None:
    decode, both = native(fake)
    fake.answer, out = -1, list[Any]()
    decode(ROW, 0, both.contexts("true")[1], out)
    fake.answer = 1
    decode(ROW, 0, both.contexts("true")[1], out)
    assert out == [("python",), ("natively",)] and len(fake.asked) == 2


def test_rows_at_once_have_their_own_time(fake: FakeKernel) -> None:
    decode, both = native(fake)
    ctx, fake.many = both.contexts("true")[1], 2
    ctx.tail = avro_marks.op_tail(both.avro_block)
    assert decode.decode_many(b"data", 7, 5, ctx, []) == (2, 7)
    ((data, at, most, before, behind, number, now),) = fake.asked
    assert (data, at, most, number, now) == (b"data", 7, 5, 0, 0) and before == ctx.src_head
    (head, millis), (_, micros), (_, nanos), end = behind
    assert head.endswith(b"\0\2r\2") and (millis, micros, nanos) == ("now_millis", "now_micros", "now_nanos")
    assert end == (b"", "") and "\0" in ctx.src_tail


def test_the_marked_tail_is_the_tail_of_a_time() -> None:
    for contract in ("3.x", "1.9"):
        block, ns = Sides(T, DecoderOptions(contract=contract)).avro_block, 1_795_246_498_881_590_461
        text = avro_marks.op_tail(block)
        for name, share in (("millis", 1_000_000), ("micros", 1000), ("nanos", 1)):
            text = text.replace(f"\u0100now_{name}\u0100", varint(ns // share))
        assert text == block.op_tail(ns)


CUT = ColumnTreatment(change=ValueChange(ValueChangeKind.TRUNCATE_TEXT, length=3))
OF_BYTES = table(column("id", "INT", nullable=False), column("e", "ENUM", charset="binary", enum_values=("ÿ",)))
POINT = table(column("id", "INT", nullable=False), column("p", "POINT"), key=("id",))


@pytest.mark.parametrize(
    ("made", "options", "why"),
    [
        (T, replace(PLAIN, treatments=(("name", CUT),)), "column name is truncated or hashed"),
        (T, replace(PLAIN, conversions=(("name", CustomColumn("name", "x", str, "string")),)), "a converter handles"),
        (POINT, PLAIN, "column p is POINT"),
        (OF_BYTES, PLAIN, "column e has members in the character set binary"),
    ],
)
def test_a_table_that_the_kernel_does_not_know_is_one_for_python(
    made: Table, options: DecoderOptions, why: str, fake: FakeKernel, caplog: pytest.LogCaptureFixture
) -> None:
    tally, out = kernel().new_tally(), list[Any]()
    with caplog.at_level(logging.INFO):
        found = rows_of(made, replace(options, prefix="p"), tally)
    assert found.writes_avro and fake.plans == []
    assert f"rows of db.t are written as Avro in Python: {why}" in caplog.text
    values = {
        "INT": b"1",
        "TINYINT": b"1",
        "VARCHAR": b"a",
        "DATE": b"2026-01-02",
        "TIME": b"00:00:01",
        "POINT": None,
        "ENUM": b"\xff",
    }
    ctx = Sides(made, options).contexts("true")[1]
    found.decode(packet(*(values[c.type_name] for c in made.columns)), 0, ctx, out)
    assert len(out) == 1 and tally is not None and tally.counts() == NativeCounts(0, {"format": 1})


def test_a_row_by_way_of_json_is_counted_once(fake: FakeKernel) -> None:
    """What neither the kernel nor Python writes at once, Python reads as JSON: the kernel has been asked already."""
    tally, out = kernel().new_tally(), list[Any]()
    assert tally is not None
    found, fake.answer = rows_of(tally=tally), -1
    ctx = Sides(T, PLAIN).contexts("true")[1]
    found.decode(packet(b"1", b"a", b"0000-00-00", b"00:00:01"), 0, ctx, out)
    assert len(out) == 1 and tally.counts() == NativeCounts(0)
