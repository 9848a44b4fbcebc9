"""Made-up rows of MySQL's text protocol, sound and damaged: the native kernel says what Python says."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kit.native_identity import BothKeys, BothTexts
from kit.row_blocks import block_of
from test_fuzz_native import EVENTS, PIECES, TELLING, Made, each_seed

from airflow_provider_mysql_cdc.cdc.decode import text_decoder
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText, EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import selected_columns
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import kernel
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import CURRENT_TIME
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import compile_text_decoder
from airflow_provider_mysql_cdc.cdc.drain.window_keys import row_key_options
from airflow_provider_mysql_cdc.cdc.emit.source_block import source_block
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from airflow_provider_mysql_cdc.cdc.snapshot.rows import _scan_rows

pytestmark = [pytest.mark.quick, pytest.mark.native]
SOURCE = source_block(TableId("db", "t"), prefix="p")
DOCUMENTS = (
    "null",
    "[]",
    '{"a": 1, "b": [1.5, "x, y: \\" \\\\", null]}',
    '"\\u0001 é"',
    "[ ]",
    '["😀", {"": {}}]',
    "-1",
)
BITS = {"TINYINT": 8, "SMALLINT": 16, "MEDIUMINT": 24, "INT": 32, "BIGINT": 64}


class MadeText(Made):
    """Make rows as a server sends them to a SELECT."""

    def value_text(self, column: Column) -> bytes:
        """Return what stands in the packet for a value that is not NULL."""
        if column.type_name in BITS:
            return self.integer(column)
        if column.family is Family.BYTES or (column.mysql_type.collated and column.charset == "binary"):
            return self.some_bytes(self.random.randrange(9))
        if column.mysql_type.collated:
            return "".join(self.random.choice(PIECES) for _ in range(self.random.randrange(5))).encode()
        make: dict[str, Callable[[Column], bytes]] = {
            "DECIMAL": self.decimal,
            "FLOAT": lambda c: self.real(4),
            "DOUBLE": lambda c: self.real(8),
            "BIT": lambda c: self.some_bytes(((c.length or 1) + 7) // 8),
            "YEAR": lambda c: b"%04d" % self.random.choice((0, 1901, 1970, 2155)),
            "DATE": lambda c: self.date(),
            "TIME": self.time_of,
            "DATETIME": lambda c: self.date() + b" " + self.clock(c),
            "TIMESTAMP": lambda c: self.date() + b" " + self.clock(c),
            "JSON": lambda c: self.random.choice(DOCUMENTS).encode(),
            "VECTOR": lambda c: self.some_bytes(4 * self.random.randrange(4)),
        }
        return make.get(column.type_name, lambda c: bytes(4) + b"\1\1\0\0\0" + struct.pack("<dd", 1.5, -0.0))(column)

    def integer(self, column: Column) -> bytes:
        bits, pick = BITS[column.type_name], self.random
        low, high = (0, (1 << bits) - 1) if column.unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)
        text = b"%d" % pick.choice((low, high, 0, 1, pick.randint(low, high)))
        return text.rjust(20, b"0") if column.zerofill else text

    def decimal(self, column: Column) -> bytes:
        pick, scale = self.random, column.scale or 0
        whole = "".join(pick.choice("0159") for _ in range(pick.randrange(1, (column.length or 1) - scale + 2)))
        text = (whole.lstrip("0") or "0") + ("." + "".join(pick.choice("059") for _ in range(scale)) if scale else "")
        return (pick.choice(("", "-")) + text).encode()

    def real(self, size: int) -> bytes:
        pick = self.random
        value = pick.choice((0.0, -0.0, 1.5, 1e-45, 3.4e38, 1e7, 1e-3, pick.uniform(-1e9, 1e9), pick.uniform(-1, 1)))
        if size == 4:
            return repr(struct.unpack("<f", struct.pack("<f", value))[0]).encode()
        return repr(value * pick.choice((1, 1e200, 1e-200))).encode()

    def date(self) -> bytes:
        pick = self.random
        year = pick.choice((0, 1, 69, 99, 1000, 1969, 1970, 2026, 2262, 2263, 9999))
        return b"%04d-%02d-%02d" % (year, pick.randrange(13), pick.choice((0, 1, 28, 29, 30, 31)))

    def clock(self, column: Column) -> bytes:
        pick = self.random
        text = f"{pick.randrange(24):02d}:{pick.randrange(60):02d}:{pick.randrange(60):02d}"
        digits = "".join(pick.choice("0059") for _ in range(column.length or 0))
        return (text + ("." + digits if digits else "")).encode()

    def time_of(self, column: Column) -> bytes:
        sign, hours = self.random.choice((b"", b"-")), self.random.choice((b"", b"8"))
        return sign + hours + self.clock(column)

    def packet(self, columns: tuple[Column, ...]) -> bytes:
        row = bytearray()
        for column in columns:
            if column.nullable and self.random.random() < 0.2:
                row += b"\xfb"
                continue
            text = self.value_text(column)
            row += bytes([len(text)]) if len(text) < 251 else b"\xfc" + len(text).to_bytes(2, "little")
            row += text
        return bytes(row)

    def damaged(self, packet: bytes) -> bytes:
        data = bytearray(packet)
        for _ in range(self.random.randrange(1, 4)):
            if data:
                at = self.random.randrange(len(data))
                data[at : at + 1] = self.random.choice((b"", bytes([self.random.choice(TELLING)]), b"-", b" ", b"9"))
        return bytes(data)


def run(seed: int) -> None:
    """Read rows of one made-up table in both ways."""
    made = MadeText(seed)
    plain = [made.column(n)[0] for n in range(1, made.random.randrange(2, 14))]
    columns = tuple(replace(c, zerofill=c.unsigned and made.random.random() < 0.2) for c in plain)
    names = [c.name for c in columns]
    keys = tuple(made.random.sample(names, made.random.randrange(min(3, len(names)) + 1)))
    table, options = Table(TableId("db", "t"), columns, keys), made.options(columns)
    schemas = ('{"k":"é"}', '{"v":1}') if made.random.random() < 0.3 else (None, None)
    texts = EnvelopeText(*schemas, null_text=dict.fromkeys(names, '"dé"'))
    decoder, chosen = compile_text_decoder(table, options, texts), selected_columns(table, options)
    assert isinstance(decoder, BothTexts)
    for _ in range(4):
        packet = made.packet(chosen)
        decoder.sound = made.random.random() < 0.7
        if not decoder.sound:
            packet = made.damaged(packet)
        ctx = EventContext('{"file":"é","row":', "}", ',"ts_ms":7}', first_row=made.random.choice((0, 7)), where="t")
        with contextlib.suppress(CdcError):
            decoder(packet, 0, ctx, [])


def many(seed: int) -> None:
    """Read rows of a table at once, sound ones and damaged ones between them."""
    made = MadeText(seed)
    columns = tuple(made.column(n)[0] for n in range(1, made.random.randrange(2, 6)))
    table, options = Table(TableId("db", "t"), columns, (columns[0].name,)), made.options(columns)
    decoder, chosen = compile_text_decoder(table, options, EnvelopeText(None, None)), selected_columns(table, options)
    assert isinstance(decoder, BothTexts)
    packets = [made.packet(chosen) for _ in range(made.random.randrange(9))]
    if packets and made.random.random() < 0.5:
        at = made.random.randrange(len(packets))
        packets[at] = made.damaged(packets[at])
    block, ctx = block_of(packets), EventContext('{"file":"é","row":', "}", SOURCE.op_tail(CURRENT_TIME), where="t")  # type: ignore[arg-type]
    rows = stop = 0
    while stop < len(block.data):
        found, stop = decoder.decode_many(block.data, stop, len(packets) - rows, ctx, [])
        rows += found
        if rows < len(packets):
            # What is left to Python is passed over here.
            rows, stop = rows + 1, block.row_at(stop)[1]
    assert rows == len(packets)


def test_made_up_rows_at_once() -> None:
    before = BothTexts.compared["decoded"]
    each_seed(many)
    assert BothTexts.compared["decoded"] - before > EVENTS // 8


def frames_of(seed: int) -> None:
    """Look for whole rows in packets, cut and damaged."""
    pick = random.Random(seed)
    number = pick.randrange(256)
    sizes = [pick.choice((0, 1, 3, 9, 12, 20, 21)) for _ in range(pick.randrange(9))]
    packets = [
        size.to_bytes(3, "little")
        + bytes([(number + at + (pick.random() < 0.05)) % 256])
        + bytes([pick.choice((1, 1, 1, 1, 251, 0xFE, 0xFF))] * size)
        for at, size in enumerate(sizes)
    ]
    data = b"".join(packets)
    data = data[: pick.choice((len(data), len(data), pick.randrange(len(data) + 1)))]
    for pos in (0, len(packets[0]) if packets else 0, len(data), len(data) + 3):
        assert kernel().module.frames(data, pos, number, 21) == _scan_rows(data, pos, number, 21)


def keys(seed: int) -> None:
    """Read the keys of rows at once, sound ones and damaged ones between them."""
    made = MadeText(seed)
    columns = tuple(made.column(n)[0] for n in range(1, made.random.randrange(2, 8)))
    names = [c.name for c in columns]
    chosen = made.random.sample(names, made.random.randrange(1, len(names) + 1))
    table = Table(TableId("db", "t"), columns, tuple(chosen))
    # MySQL's own text of dates is left to Python.
    read = text_decoder.native_key_reader(table, replace(row_key_options(table), flat=False), columns)
    assert isinstance(read, BothKeys)
    packets = [made.packet(columns) for _ in range(made.random.randrange(9))]
    damaged = made.random.choice([*range(len(packets)), None])
    if damaged is not None:
        packets[damaged] = made.damaged(packets[damaged])
    block = block_of(packets)
    found, at = read(block.data, 0, len(packets))
    assert block_of(packets[: len(found)]).data == block.data[:at]
    if len(found) not in (len(packets), damaged):
        # Days that no calendar has.
        with pytest.raises(CdcError):
            read.one(packets[len(found)])


def test_keys_of_made_up_rows() -> None:
    before = BothKeys.compared
    each_seed(keys)
    assert BothKeys.compared - before > EVENTS // 2


def test_rows_are_found_in_the_bytes_of_a_connection_as_python_finds_them() -> None:
    each_seed(frames_of)


def test_made_up_rows_of_the_text_protocol() -> None:
    before = BothTexts.compared["decoded"]
    each_seed(run)
    # What raises in both is not counted: most rows are sound.
    assert BothTexts.compared["decoded"] - before > EVENTS // 4


def test_a_packet_that_is_not_the_row() -> None:
    """Offsets outside of the packet, another type, texts that are no byte text: declined, and nothing is added."""
    module, out = kernel().module, list[Any]()
    around = [b"", b"", b"", b"{", b",", b"}"], (False, True), module.Tally()
    made = module.text_plan([(False, b"null", "copy", [], [])], [(b'"c":', 0, b"")], [], *around)
    for given in ((b"\x011", 3), (b"\x021", 0), (b"\xff1", 0), (b"\xfe1", 0), (bytearray(b"\x011"), 0), (None, 0)):
        assert made.row(*given, "", "", 0, out) < 0
    assert made.row(b"\x011", 0, "\u0100", "", 0, out) < 0
    assert made.row(b"\xfb", 0, "", "", 0, out) < 0
    assert out == []
    assert made.row(b"\x011", 0, "<", ">", 0, out) == 1
    assert out == [(None, b'{"c":1}<0>', 0, 0, None, None)]
    assert module.text_plan([(False, b"", "copy", [], [])], [(b"", 1, b"")], [], *around) is None


def test_rows_at_once_end_where_their_records_have_a_megabyte() -> None:
    """Rows of NULLs are short, and each record has the names and the schema of all columns."""
    table = Table(TableId("d", "t"), (Column("a", 1, "INT"),))
    schema = '{"about":"' + "x" * 100_000 + '"}'
    decoder: Any = compile_text_decoder(table, DecoderOptions(), EnvelopeText(value_schema=schema))
    block, found, at = block_of([b"\xfb"] * 99), list[Any](), 0
    ctx = EventContext('{"row":', "}", SOURCE.op_tail(CURRENT_TIME), where="t")  # type: ignore[arg-type]
    while len(found) < 99:
        out: list[Any] = []
        rows, at = decoder.decode_many(block.data, at, 99 - len(found), ctx, out)
        assert rows == len(out) and 0 < sum(len(value) for _, value, *_ in out) < (1 << 20) + len(schema) + 1000
        found += out
    assert at == len(block.data)
