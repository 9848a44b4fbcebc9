"""Made-up rows of MySQL's text protocol as Avro, sound and damaged: the native kernel says what Python says."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest
from kit.avro_identity import Sides, sides
from kit.native_identity import BothTexts
from kit.row_blocks import block_of
from test_fuzz_native import EVENTS, each_seed
from test_fuzz_native_text import MadeText

from airflow_provider_mysql_cdc.cdc.avro.avro_source import op_tail
from airflow_provider_mysql_cdc.cdc.avro.native_avro import AVRO_TEXT
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import selected_columns
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import kernel
from airflow_provider_mysql_cdc.cdc.decode.native_text import NativeTextDecoder
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import PythonTextDecoder, compile_text_decoder
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.formats.avro_rows import ViaJsonText
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId

pytestmark = [pytest.mark.quick, pytest.mark.native]


def made_up(made: MadeText) -> tuple[Sides, BothTexts] | None:
    """Return a table and what writes its rows; None for one that is left to Python."""
    plain = [made.column(n)[0] for n in range(1, made.random.randrange(2, 10))]
    columns = tuple(replace(c, zerofill=c.unsigned and made.random.random() < 0.2) for c in plain)
    names = [c.name for c in columns]
    keys = tuple(made.random.sample(names, made.random.randrange(min(3, len(names)) + 1)))
    table, options = Table(TableId("db", "t"), columns, keys), made.options(columns)
    # Only strings can be masked, and those of character set binary are bytes.
    masked = {name for name, _ in options.treatments}
    if any(c.name in masked and (c.family is not Family.TEXT or c.charset == "binary") for c in columns):
        options = replace(options, treatments=())
    both = sides(table, options)
    if both is None:
        return None
    given = both.table, both.options, both.texts
    plain = compile_text_decoder(*given)
    if isinstance(plain, BothTexts):
        plain.sound = False  # only damaged rows come there
    rescue = ViaJsonText(lambda: plain, both.form)
    try:
        plan = both.text_plan()
        return both, BothTexts(PythonTextDecoder(plan, rescue), plan, AVRO_TEXT, kernel().module)
    except Declined:
        return None


def run(seed: int) -> None:
    """Write rows of one made-up table in both ways."""
    made = MadeText(seed)
    found = made_up(made)
    if found is None:
        return
    both, decoder = found
    for _ in range(4):
        row = made.packet(selected_columns(both.table, both.options))
        decoder.sound = made.random.random() < 0.7
        if not decoder.sound:
            row = made.damaged(row)
        _, ctx = both.contexts("true", first_row=made.random.choice((0, 7, 9_000)))
        # What is damaged need not be JSON, by way of which it goes then.
        with contextlib.suppress(CdcError, ValueError):
            decoder(row, 0, ctx, [])


def many(seed: int) -> None:
    """Write rows of a table at once, sound ones and damaged ones between them."""
    made = MadeText(seed)
    found = made_up(made)
    if found is None:
        return
    both, decoder = found
    packets = [made.packet(selected_columns(both.table, both.options)) for _ in range(made.random.randrange(9))]
    if packets and made.random.random() < 0.5:
        at = made.random.randrange(len(packets))
        packets[at] = made.damaged(packets[at])
    block, ctx = block_of(packets), both.contexts("true")[1]
    ctx.tail, ctx.plain = op_tail(both.avro_block), ctx.plain[1] if ctx.plain else None
    rows = stop = 0
    while stop < len(block.data):
        out: list[Any] = []
        done, stop = decoder.decode_many(block.data, stop, len(packets) - rows, ctx, out)
        assert len(out) == done
        rows += done
        if rows < len(packets):
            # What is left to Python is passed over here.
            rows, stop = rows + 1, block.row_at(stop)[1]
    assert rows == len(packets)


@pytest.mark.parametrize("write", [run, many])
def test_made_up_rows_of_the_text_protocol_as_avro(write: Any) -> None:
    before = BothTexts.compared["written as Avro"]
    each_seed(write)
    # Tables with spatial columns are left to Python, and what raises in both is not counted.
    assert BothTexts.compared["written as Avro"] - before > EVENTS // 8


def test_a_number_outside_of_the_range_of_its_type_is_one_for_python() -> None:
    """The server sends none; a table of varints in Python would give another number's bytes."""
    for kind, bits in (("TINYINT", 8), ("SMALLINT", 16), ("MEDIUMINT", 24), ("INT", 32), ("BIGINT", 63)):
        both = Sides(Table(TableId("db", "t"), (Column("c", 1, kind),)), DecoderOptions())
        decoder = both.native_text(lambda *_: None)
        assert decoder is not None
        for number in (-(1 << 63 if bits == 63 else 1 << bits - 1), 0, (1 << bits) - 1):
            assert natively(decoder, number) == 1
        for number in (-(1 << 63) - 1 if bits == 63 else -(1 << bits - 1) - 1, 1 << bits, 10**20):
            assert natively(decoder, number) == -1


def natively(decoder: NativeTextDecoder, number: int) -> int:
    out, text = list[Any](), b"%d" % number
    made = decoder.decode_natively(bytes([len(text)]) + text, 0, EventContext(), out)
    assert len(out) == max(made, 0)
    return made


@pytest.mark.parametrize(("text", "rows"), [(b"2026-01-02 03:04:05", 1), (b"2026-01-02 03:04:0\\", -1)])
def test_a_moment_with_anything_to_escape_is_one_for_python(text: bytes, rows: int) -> None:
    both = Sides(Table(TableId("db", "t"), (Column("c", 1, "TIMESTAMP"),)), DecoderOptions())
    decoder = both.native_text(lambda *_: None)
    assert decoder is not None
    assert decoder.decode_natively(bytes([len(text)]) + text, 0, EventContext(), []) == rows
