"""The seam to the native kernel for rows of snapshots, with a kernel made up here."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from kit.decode_builder import DEFAULT, NO_SCHEMA, column, context, packet, table
from kit.fake_kernel import FakeKernel, installed
from kit.native_identity import TABLES

from airflow_provider_mysql_cdc.cdc.decode import native_text
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, UnnumberedRow
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import PANIC, kernel
from airflow_provider_mysql_cdc.cdc.decode.native_text import NativeTextDecoder
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import mark
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import compile_text_decoder
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.model.column_rule import ColumnTreatment, CustomColumn, ValueChange, ValueChangeKind
from airflow_provider_mysql_cdc.cdc.model.records import NativeCounts

T = table(column("id", "INT", nullable=False), column("name", "VARCHAR", charset="utf8mb4"), key=("id",))
ROW = packet(b"1", b"a")


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKernel]:
    with installed(monkeypatch, native_text, "NativeTextDecoder") as made:
        yield made


def read(row: bytes = ROW, options: DecoderOptions = DEFAULT, **ctx: Any) -> list[Any]:
    out: list[Any] = ["before"]
    compile_text_decoder(T, options, NO_SCHEMA)(row, 0, context(**ctx), out)
    assert out.pop(0) == "before"
    return out


def test_what_the_kernel_reads_is_not_read_again(fake: FakeKernel) -> None:
    assert read() == [("natively",)]
    ((row, pos, before, behind, number),) = fake.asked
    assert (row, pos, number) == (ROW, 0, 0)
    assert before.endswith('"source":{"row":') and behind.startswith('},"transaction":null,"op":"r"')


def test_python_reads_what_the_kernel_declines(fake: FakeKernel) -> None:
    fake.answer = -1
    found = read()
    fake.known = False
    assert found == read() and found[0][0] == b'{"id":1}'
    assert len(fake.asked) == 1


def test_the_errors_are_those_of_python(fake: FakeKernel) -> None:
    fake.answer = -1
    with pytest.raises(ValueDecodeError, match="A value of column name"):
        read(packet(b"1", b"\xff"))


def test_a_kernel_with_a_defect_is_not_asked_again(fake: FakeKernel, caplog: pytest.LogCaptureFixture) -> None:
    fake.answer, tally, out = PANIC, kernel().new_tally(), list[Any]()
    decode = compile_text_decoder(T, DEFAULT, NO_SCHEMA, tally=tally)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            decode(ROW, 0, context(where="snapshot of db.t"), out)
    assert (len(fake.asked), len(out)) == (1, 3) and tally is not None
    assert tally.counts() == NativeCounts(0, {"defect": 2})
    assert [r.getMessage() for r in caplog.records] == [
        "rows of db.t are decoded in Python from snapshot of db.t on: the native kernel failed"
    ]


def at_once(fake: FakeKernel, rows: int, tail: str = "}", **more: Any) -> tuple[int, int]:
    decode, fake.many = compile_text_decoder(T, DEFAULT, NO_SCHEMA), rows
    assert isinstance(decode, native_text.NativeTextDecoder)
    ctx = context(**more)
    ctx.tail = tail
    return decode.decode_many(b"data", 7, 5, ctx, [])


def test_rows_at_once_are_those_that_the_kernel_says(fake: FakeKernel) -> None:
    assert at_once(fake, 2, tail=f',"ts_ms":{mark("now_millis")}}}') == (2, 7)
    ((data, at, most, before, behind, number, now),) = fake.asked
    assert (data, at, most, number, now) == (b"data", 7, 5, 0, 0) and before.endswith('"source":{"row":')
    (head, place), end = behind
    assert head.endswith(b',"op":"r","ts_ms":') and place == "now_millis" and end == (b"}", "")


@pytest.mark.parametrize("answer", [-1, -4, PANIC])
def test_what_the_kernel_declines_at_once_is_no_row(fake: FakeKernel, answer: int) -> None:
    assert at_once(fake, answer) == (0, 7)
    assert at_once(fake, 3, first_row=UnnumberedRow(0)) == (0, 7) and len(fake.asked) == 1


def test_a_kernel_that_failed_at_many_rows_is_not_asked_again(fake: FakeKernel) -> None:
    decode, fake.many = compile_text_decoder(T, DEFAULT, NO_SCHEMA), PANIC
    assert isinstance(decode, native_text.NativeTextDecoder)
    for _ in range(3):
        assert decode.decode_many(b"data", 7, 5, context(), []) == (0, 7)
    decode(ROW, 0, context(), [])
    assert len(fake.asked) == 1


def test_a_row_number_without_a_text_is_one_for_python(fake: FakeKernel) -> None:
    (record,) = read(first_row=UnnumberedRow(0))
    assert fake.asked == [] and b'"row":}' in record[1]


def test_text_around_the_row_is_passed_as_bytes_are(fake: FakeKernel) -> None:
    ctx = context()
    ctx.src_head, ctx.src_tail = '{"file":"語","row":', ',"query":"語"}'
    compile_text_decoder(T, DEFAULT, NO_SCHEMA)(ROW, 0, ctx, [])
    before, behind = fake.asked[0][2:4]
    assert before.encode("latin-1").decode().endswith(':{"file":"語","row":')
    assert behind.encode("latin-1").decode().startswith(',"query":"語"},"transaction":null')


def test_the_plan_of_a_table_for_the_kernel(fake: FakeKernel) -> None:
    mask = ColumnTreatment(change=ValueChange(ValueChangeKind.CONSTANT, text="*é"))
    options = replace(DEFAULT, treatments=(("name", mask),), key_fields=(("k", "v"),))
    compile_text_decoder(T, options, replace(NO_SCHEMA, key_schema='{"s":1}', value_schema='{"v":"é"}'))
    ((columns, value, key, around, numbers, _),) = fake.plans
    assert columns == [(False, b"null", "copy", [], [])]
    assert value == [(b'"id":', 0, b""), (b'"name":', None, '"*é"'.encode())]
    assert key == [(b'"id":', 0, b"")]
    assert around == [
        b'{"schema":{"s":1},"payload":{',
        b',"k":"v"}}',
        '{"schema":{"v":"é"},"payload":{"before":null,"after":'.encode(),
        *(b"{", b",", b"}"),
    ]
    assert numbers == (False, True)


CUT = ColumnTreatment(change=ValueChange(ValueChangeKind.TRUNCATE_TEXT, length=3))
CUSTOM = CustomColumn("name", "converter x", str, "string")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (replace(DEFAULT, treatments=(("name", CUT),)), "column name is truncated or hashed"),
        (replace(DEFAULT, flat=True), "records are in TiCDC's protocol"),
        (replace(DEFAULT, conversions=(("name", CUSTOM),)), "a converter handles column name"),
    ],
)
def test_a_table_that_the_kernel_does_not_know_is_one_for_python(
    options: DecoderOptions, why: str, fake: FakeKernel, caplog: pytest.LogCaptureFixture
) -> None:
    tally, out = kernel().new_tally(), list[Any]()
    with caplog.at_level(logging.INFO):
        decode = compile_text_decoder(T, options, NO_SCHEMA, tally=tally)
    assert not isinstance(decode, NativeTextDecoder) and fake.plans == [] and TABLES.fullmatch(why)
    assert [r.getMessage() for r in caplog.records] == [f"rows of db.t are decoded in Python: {why}"]
    decode(ROW, 0, context(), out)
    assert len(out) == 1 and tally is not None and tally.counts() == NativeCounts(0, {"table": 1})


def test_a_kernel_that_refuses_the_plan_leaves_the_table_to_python(fake: FakeKernel) -> None:
    fake.known = False
    assert read()[0][0] == b'{"id":1}' and fake.asked == []


def test_counts_since_others() -> None:
    before, now = NativeCounts(3, {"value": 1, "table": 2}), NativeCounts(10, {"value": 1, "table": 5, "defect": 1})
    assert now.since(before) == NativeCounts(7, {"table": 3, "defect": 1})
