"""The seam to the native kernel, with a kernel made up here: what it is told, and what becomes of what it declines."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.cases import for_each
from kit.decode_builder import DEFAULT, NO_SCHEMA, body, column, context, image, table, table_map
from kit.fake_kernel import FakeKernel, installed
from kit.native_identity import TABLES

from airflow_provider_mysql_cdc.cdc.binlog.table_map import WireType
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.run_tally import RunTally
from airflow_provider_mysql_cdc.cdc.decode import native_kernel, native_rows
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, UnnumberedRow
from airflow_provider_mysql_cdc.cdc.decode.codegen.renderers import ColumnRequest
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import FORM, KEY_CHANGE, PANIC, binlog_op, kernel
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.drain.drain_operations import DrainProgress, WriterReport
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.job.job_metrics import JobLog
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.column_rule import ColumnTreatment, ValueChange, ValueChangeKind
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import NativeCounts

T = table(column("id", "INT", nullable=False), column("name", "VARCHAR", charset="utf8mb4"), key=("id",))
MAP = table_map((wt.LONG, 0), (wt.VARCHAR, 80))
ROW, NEXT = image(2, b"\1\0\0\0\1a"), image(2, b"\2\0\0\0\1b")


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKernel]:
    with installed(monkeypatch, native_rows, "NativeRowDecoder") as made:
        yield made


def decoded(kind: str, *rows: bytes, options: DecoderOptions = DEFAULT, **ctx: Any) -> list[Any]:
    out: list[Any] = ["before"]
    decoder = compile_decoder(T, MAP, options, NO_SCHEMA)
    buf, pos, end = body(*rows, columns=2, images=2 if kind == "update" else 1)
    getattr(decoder, kind)(buf, pos, end, context(**ctx), out)
    assert out.pop(0) == "before"
    return out


@pytest.mark.parametrize(("kind", "rows"), [("write", [ROW]), ("update", [ROW, ROW]), ("delete", [ROW])])
def test_what_the_kernel_decodes_is_not_decoded_again(fake: FakeKernel, kind: str, rows: list[bytes]) -> None:
    assert decoded(kind, *rows) == [("natively",)]
    ((buf, pos, end, before, behind, first, _),) = fake.asked
    assert (buf[pos:end], first) == (b"".join(rows), 0)
    assert before.endswith('"source":{"row":') and behind.startswith('},"transaction":null,"op":')


@pytest.mark.parametrize(("kind", "rows"), [("write", [ROW]), ("update", [ROW, NEXT]), ("delete", [ROW])])
def test_python_decodes_what_the_kernel_declines(fake: FakeKernel, kind: str, rows: list[bytes]) -> None:
    fake.answer = KEY_CHANGE
    found = decoded(kind, *rows)
    fake.known = False
    assert found == decoded(kind, *rows) and found[0][0] == b'{"id":1}'
    assert len(fake.asked) == 1


def test_the_errors_are_those_of_python(fake: FakeKernel) -> None:
    fake.answer = -1
    with pytest.raises(ValueDecodeError, match="A value of column name"):
        decoded("write", image(2, b"\1\0\0\0\2\xff\xff"))


def test_a_kernel_with_a_defect_is_not_asked_again(fake: FakeKernel, caplog: pytest.LogCaptureFixture) -> None:
    fake.answer = PANIC
    decoder, out = compile_decoder(T, MAP, DEFAULT, NO_SCHEMA), list[Any]()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            decoder.write(*body(ROW, columns=2), context(), out)
    assert (len(fake.asked), len(out)) == (1, 3)
    assert [r.getMessage() for r in caplog.records] == [
        "rows of db.t are decoded in Python from binlog.000001:4 on: the native kernel failed"
    ]


def test_a_row_number_without_a_text_is_one_for_python(fake: FakeKernel) -> None:
    (record,) = decoded("write", ROW, first_row=UnnumberedRow(0))
    assert fake.asked == [] and b'"row":}' in record[1]


def test_operations_that_are_left_out(fake: FakeKernel) -> None:
    assert decoded("delete", ROW, options=replace(DEFAULT, skipped_ops=frozenset("dt"))) == []
    assert fake.asked == []


def test_the_plan_of_a_table_for_the_kernel(fake: FakeKernel) -> None:
    mask = ColumnTreatment(change=ValueChange(ValueChangeKind.CONSTANT, text="*é"))
    options = replace(DEFAULT, treatments=(("name", mask),), tombstones=False, key_fields=(("k", "v"),))
    compile_decoder(T, MAP, options, replace(NO_SCHEMA, key_schema='{"s":1}', value_schema='{"v":"é"}'))
    ((columns, keys, around, binary, deletes, _, owned, unwrapped, headers, _),) = fake.plans
    assert columns[0] == (b'"id":', b"null", True, None, "signed", [4], [])
    assert columns[1] == (b'"name":', b"null", True, '"*é"'.encode(), "text:utf8", [1], [])
    assert (keys, binary, deletes, owned, unwrapped) == ([0], False, (True, False), None, None)
    assert headers == [(0, b'"id":', b"null", False, "signed", [4], [])]
    assert around == [
        b'{"schema":{"s":1},"payload":{',
        b',"k":"v"}}',
        '{"schema":{"v":"é"},"payload":'.encode(),
        b'{"before":null,"after":',
        b'{"before":',
        b',"after":',
        *(b"{", b",", b"}"),
    ]


CUT = ColumnTreatment(change=ValueChange(ValueChangeKind.TRUNCATE_TEXT, length=3))


@pytest.mark.parametrize(
    ("options", "charset", "why"),
    [
        (replace(DEFAULT, treatments=(("name", CUT),)), "utf8mb4", "column name is truncated or hashed"),
        (replace(DEFAULT, flat=True), "utf8mb4", "records are in TiCDC's protocol"),
        (DEFAULT, "gb18030", "column name is VARCHAR gb18030"),
    ],
)
def test_a_table_that_the_kernel_does_not_know_is_one_for_python(
    options: DecoderOptions, charset: str, why: str, fake: FakeKernel, caplog: pytest.LogCaptureFixture
) -> None:
    made = table(column("id", "INT"), column("name", "VARCHAR", charset=charset), key=("id",))
    with caplog.at_level(logging.INFO):
        assert type(compile_decoder(made, MAP, options, NO_SCHEMA)) is RowDecoder
    assert [r.getMessage() for r in caplog.records] == [f"rows of db.t are decoded in Python: {why}"]
    assert fake.plans == [] and TABLES.fullmatch(why)


def test_a_kernel_that_refuses_the_plan_leaves_the_table_to_python(fake: FakeKernel) -> None:
    fake.known = False
    assert type(compile_decoder(T, MAP, DEFAULT, NO_SCHEMA)) is RowDecoder


def test_which_kernel_there_is(fake: FakeKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernel() == (fake, "native kernel 9.9")
    monkeypatch.setenv("MYSQL_CDC_NATIVE", "off")
    assert kernel() == (None, "Python (MYSQL_CDC_NATIVE=off)") and kernel().new_tally() is None


def test_a_kernel_of_another_version_is_left_alone(fake: FakeKernel) -> None:
    fake.FORM = FORM + 1
    found = kernel()
    assert found.module is None and "native kernel 9.9 is for another version of this package" in found.text


@pytest.mark.parametrize(("error", "text"), [(None, "Python"), ("no glibc", "cannot be loaded: no glibc")])
def test_a_kernel_that_is_not_there(error: str | None, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> Any:
        raise ModuleNotFoundError("nothing", name=name) if error is None else ImportError(error)

    monkeypatch.setattr(native_kernel, "import_module", load)
    found = kernel()
    assert found.module is None and (found.text == text or text in found.text)


@for_each(
    ("kind", "code", "mode", "wanted"),
    [
        ("TIME", wt.TIME2, "connect", ("clock:time", (3, 0, 1, 1, 1))),
        ("TIME", wt.TIME2, "isostring", ("clock:time", (3, 0, 1, 1, 2))),
        ("TIME", wt.TIME, "adaptive", ("clock:old_time", (3, 1000, 1, 1, 0))),
        ("DATETIME", wt.DATETIME2, "nanoseconds", ("clock:datetime", (3, 1_000_000_000, 1, 1, 0))),
        ("DATETIME", wt.DATETIME, "isostring", ("clock:old_datetime", (3, 0, 1, 1, 0))),
        ("TIMESTAMP", wt.TIMESTAMP2, "connect", ("clock:timestamp", (3, 1000, 1, 1, 0))),
    ],
)
def test_dates_and_times_in_the_plan_for_the_kernel(kind: str, code: int, mode: str, wanted: tuple[str, Any]) -> None:
    made = column("c", kind, length=3)
    op = binlog_op(ColumnRequest(made, WireType(code, 3), replace(DEFAULT, time_mode=mode), "null"))
    assert op is not None and (op.name, op.numbers) == wanted


def test_what_the_kernel_decoded_is_in_tally_and_log() -> None:
    offset, seven = BinlogOffset("binlog.000001", 4), NativeCounts(7, {"key_change": 2})
    tally = RunTally("r", native=NativeCounts(3, {"key_change": 1, "table": 1}))
    plan: Any = SimpleNamespace(kind="drain", epoch=1, start=offset, created_ms=1)
    added = tally.add(plan, {}, {}, seven)
    assert added.native == NativeCounts(10, {"key_change": 3, "table": 1})
    text = "the native kernel decoded 10 rows, 4 row events left to Python (key change 3, table 1)"
    assert added.native.text() == text and NativeCounts().text() == ""


def test_why_events_are_left_to_python_is_counted(fake: FakeKernel) -> None:
    tally = kernel().new_tally()
    assert tally is not None
    decoder, out = compile_decoder(T, MAP, DEFAULT, NO_SCHEMA, tally), list[Any]()
    decoder.write(*body(ROW, columns=2), context(first_row=UnnumberedRow(0)), out)
    fake.answer = PANIC
    decoder.write(*body(ROW, columns=2), context(), out)
    decoder.write(*body(ROW, columns=2), context(), out)
    tally.native.rows, tally.native.declined = 5, [0, 4, 0, 0, 1]
    assert tally.counts() == NativeCounts(5, {"key_change": 4, "defect": 2, "row_number": 1})
    assert tally.counting_fallbacks(lambda *given: len(given), "format")(1, 2) == 2
    assert tally.counts().declined["format"] == 1


def test_operations_that_are_left_out_are_not_counted(fake: FakeKernel) -> None:
    tally = kernel().new_tally()
    assert tally is not None
    decoder = compile_decoder(T, MAP, replace(DEFAULT, skipped_ops=frozenset("dt")), NO_SCHEMA, tally)
    decoder.delete(*body(ROW, columns=2), context(), [])
    assert tally.counts() == NativeCounts()


def test_a_job_says_once_which_decoder_ran() -> None:
    said: list[str] = []
    log, plan = JobLog(said.append), BatchPlan(1, "drain", *[BinlogOffset("binlog.000001", 4)] * 2, writers=2)
    for _ in range(2):
        progress = DrainProgress(plan, log)
        for writer in range(2):
            progress.update(writer, WriterReport("binlog.000001:4", 0, once="rows are decoded by Python"))
            progress.update(writer, WriterReport("binlog.000001:4", 0, note="each time"))
    assert [line for line in said if line != "each time"] == ["rows are decoded by Python"]
    assert said.count("each time") == 4
