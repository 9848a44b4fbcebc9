"""Made-up rows of every kind of column and mode, sound and damaged: the native kernel says what Python says.

The tests of damaged binlog bytes (``test_fuzz_binlog``) compare both decoders as well where the kernel is installed.
"""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from json_samples import documents
from kit.native_identity import BothDecoders

from airflow_provider_mysql_cdc.cdc.binlog.table_map import WireType
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import (
    BIGINT_UNSIGNED_MODES,
    BINARY_MODES,
    DECIMAL_MODES,
    TIME_MODES,
    DecoderOptions,
    EnvelopeText,
    EventContext,
)
from airflow_provider_mysql_cdc.cdc.decode.codegen.table_shape import OwnedKeys
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import kernel
from airflow_provider_mysql_cdc.cdc.decode.native_rows import JSON_ROWS
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.charset_tables import SINGLE
from airflow_provider_mysql_cdc.cdc.model.column_rule import ColumnTreatment, ValueChange, ValueChangeKind
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family, type_names
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from airflow_provider_mysql_cdc.cdc.sink.murmur2 import partition_python

pytestmark = [pytest.mark.quick, pytest.mark.native]
EVENTS = 10 * (settings.default.max_examples if settings.default else 100)
CHARSETS = ("utf8mb4", "utf8mb3", "ascii", "binary", "ucs2", "utf16", "utf16le", "utf32", "swe7", *SINGLE)
TELLING = (0, 1, 0x7F, 0x80, 0xFF, 0x0A, 0x22, 0x5C, 0x20, 0x30)
PIECES = (*'a"\\\n\x01\x1f\x7f é€\u2028\ufeff😀\U0010ffff', "  ", "x" * 40)


class Made:
    """Make tables, rows and damage from one source of randomness."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def some_bytes(self, size: int) -> bytes:
        pick = self.random
        if pick.random() < 0.15:
            return bytes([pick.choice((0, 255))]) * size
        return bytes(pick.choice(TELLING) if pick.random() < 0.3 else pick.randrange(256) for _ in range(size))

    def options(self, columns: tuple[Column, ...]) -> DecoderOptions:
        pick = self.random
        options = DecoderOptions(
            contract=pick.choice(("3.x", "1.9")),
            decimal_mode=pick.choice(DECIMAL_MODES),
            bigint_unsigned_mode=pick.choice(BIGINT_UNSIGNED_MODES),
            binary_mode=pick.choice(BINARY_MODES),
            time_mode=pick.choice(TIME_MODES),
            tombstones=pick.random() < 0.8,
            time_adjuster=pick.random() < 0.5,
            replace_null_with_default=pick.random() < 0.3,
            booleans=frozenset(c.name for c in columns if pick.random() < 0.2),
            field_names=pick.choice(("none", "avro")),
            key_fields=(("part", "é"),) if pick.random() < 0.1 else (),
            transaction=pick.random() < 0.2,
        )
        if any(c.type_name == "TIMESTAMP" and c.length for c in columns):
            options = replace(options, contract="3.x")  # that of 1.9 leaves out zeros, which Python does
        if pick.random() < 0.2:
            options = replace(options, included=tuple(c.name for c in columns if pick.random() < 0.7))
        if pick.random() < 0.2:
            mask = ColumnTreatment(change=ValueChange(ValueChangeKind.CONSTANT, text="*é*"))
            options = replace(options, treatments=((pick.choice(columns).name, mask),))
        return options

    def owned(self) -> OwnedKeys | None:
        """Return partitions that a writer has, or none where it has all."""
        if self.random.random() < 0.7:
            return None
        count = self.random.randrange(1, 6)
        return OwnedKeys(count, frozenset(n for n in range(count) if self.random.random() < 0.5), partition_python)

    def temporal(self) -> tuple[str, dict[str, Any], WireType]:
        pick, digits = self.random, self.random.randrange(7)
        name, code = pick.choice(
            (
                *(("DATE", wt.DATE), ("TIME", wt.TIME2), ("DATETIME", wt.DATETIME2), ("TIMESTAMP", wt.TIMESTAMP2)),
                *(("TIME", wt.TIME), ("DATETIME", wt.DATETIME), ("TIMESTAMP", wt.TIMESTAMP), ("YEAR", wt.YEAR)),
            )
        )
        old = code not in (wt.TIME2, wt.DATETIME2, wt.TIMESTAMP2)
        return name, {"length": 0 if old else digits}, WireType(code, 0 if old else digits)

    def number(self) -> tuple[str, dict[str, Any], WireType]:
        pick = self.random
        precision = pick.choice((1, 5, 9, 10, 18, 19, 36, 37, 38, 65))
        scale = pick.randrange(min(precision, 30) + 1)
        return pick.choice(
            (
                ("TINYINT", {"declared_type": pick.choice(("", "BOOL"))}, WireType(wt.TINY)),
                *((name, {}, WireType(code)) for name, code in (("SMALLINT", wt.SHORT), ("MEDIUMINT", wt.INT24))),
                *((name, {}, WireType(code)) for name, code in (("INT", wt.LONG), ("BIGINT", wt.LONGLONG))),
                ("DECIMAL", {"length": precision, "scale": scale}, WireType(wt.NEWDECIMAL, precision, scale)),
                ("FLOAT", {}, WireType(wt.FLOAT, 4)),
                ("FLOAT", {"length": 7, "scale": 3}, WireType(wt.FLOAT, 4)),
                ("DOUBLE", {"declared_type": pick.choice(("", "REAL"))}, WireType(wt.DOUBLE, 8)),
                ("BIT", {}, WireType(wt.BIT, pick.choice((1, 2, 8, 9, 33, 64)))),
            )
        )

    def text(self) -> tuple[str, dict[str, Any], WireType]:
        pick = self.random
        kind = pick.choice((WireType(wt.VARCHAR, 80), WireType(wt.VARCHAR, 800), WireType(wt.STRING, 40)))
        if pick.random() < 0.3:
            kind = WireType(wt.BLOB, pick.choice((1, 2, 3, 4)))
        if pick.random() < 0.3:
            return pick.choice(type_names(Family.BYTES)), {}, kind
        return pick.choice(type_names(Family.TEXT)), {"charset": pick.choice(CHARSETS)}, kind

    def other(self) -> tuple[str, dict[str, Any], WireType]:
        pick = self.random
        members = tuple(pick.choice(PIECES) + str(n) for n in range(pick.choice((1, 3, 9, 64))))
        return pick.choice(
            (
                ("ENUM", {"enum_values": members}, WireType(wt.ENUM, pick.choice((1, 2)))),
                ("SET", {"enum_values": members}, WireType(wt.SET, pick.choice((1, 2, 3, 4, 8)))),
                ("JSON", {}, WireType(wt.JSON, 4)),
                ("POINT", {}, WireType(wt.GEOMETRY, 4)),
                (pick.choice(type_names(Family.GEOMETRY)), {}, WireType(wt.GEOMETRY, 4)),
                ("VECTOR", {}, WireType(wt.VECTOR, 4)),
            )
        )

    def column(self, position: int) -> tuple[Column, WireType]:
        kind, more, wire = self.random.choice((self.temporal, self.number, self.text, self.other))()
        name = self.random.choice(("c", "Ünit", "a-b", 'q"')) + str(position)
        nullable, unsigned = self.random.random() < 0.7, self.random.random() < 0.4
        return Column(name, position, kind, nullable=nullable, unsigned=unsigned, **more), wire

    def value(self, column: Column, wire: WireType) -> bytes:
        """Return the bytes of a value: mostly of one that a server would send."""
        pick, wild = self.random, self.random.random() < 0.15
        prefix = _prefix(column, wire)
        if prefix is None:
            size = _size(wire)
            if wild:
                return self.some_bytes(size)
            return self.fixed(wire, size)
        data = self.some_bytes(pick.randrange(30)) if wild else self.variable(column, wire)
        return (len(data) % 256**prefix).to_bytes(prefix, "little") + data

    def fixed(self, wire: WireType, size: int) -> bytes:
        pick = self.random
        if wire.code in (wt.DATE, wt.NEWDATE):
            return (pick.randrange(10000) << 9 | pick.randrange(14) << 5 | pick.randrange(32)).to_bytes(3, "little")
        if wire.code == wt.DATETIME2:
            day = (pick.choice((0, 1, 99, 1969, 1970, 2026, 2263, 9999)) * 13 + pick.randrange(13)) << 5
            clock = pick.randrange(24) << 12 | pick.randrange(60) << 6 | pick.randrange(60)
            packed = (1 << 39 | (day | pick.randrange(29)) << 17 | clock).to_bytes(5, "big")
            return packed + self.fraction(wire, size - 5)
        if wire.code in (wt.TIMESTAMP2, wt.TIME2):
            base = 4 if wire.code == wt.TIMESTAMP2 else 3
            head = bytes(base) if pick.random() < 0.1 else self.some_bytes(base)
            return head + self.fraction(wire, size - base)
        if wire.code == wt.DATETIME:
            return pick.choice((0, 20261123103000, 10101000000, 99991231235959, 20260230000000)).to_bytes(8, "little")
        if wire.code in (wt.ENUM, wt.SET):
            return pick.randrange(4).to_bytes(size, "little")
        if wire.code in (wt.FLOAT, wt.DOUBLE) and pick.random() < 0.7:
            number = pick.choice((1, -1)) * round(pick.random() * 10 ** pick.randrange(-8, 12), pick.randrange(9))
            return _packed(number, size)
        return self.some_bytes(size)

    def fraction(self, wire: WireType, size: int) -> bytes:
        return self.random.choice((0, self.random.randrange(100**size))).to_bytes(size, "big")

    def variable(self, column: Column, wire: WireType) -> bytes:
        pick = self.random
        if column.type_name == "JSON":
            return pick.choice(documents())
        if column.type_name == "VECTOR":
            return self.some_bytes(4 * pick.randrange(5))
        if wire.code == wt.GEOMETRY:
            head = pick.choice((0, 4326)).to_bytes(4, "little")
            return head + b"\1\1\0\0\0" + _packed(pick.uniform(-99, 99), 8) + _packed(float(pick.randrange(9)), 8)
        text = "".join(pick.choice(PIECES) for _ in range(pick.randrange(5)))
        name = {"ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}
        data = text.encode(name.get(column.charset or "", "utf-8"))
        if wire.code == wt.STRING:
            data = data.rstrip(b" ")
        return data[:250] if _prefix(column, wire) == 1 else data

    def image(self, columns: list[tuple[Column, WireType]]) -> bytes:
        nulls = [self.random.random() < 0.2 for _ in columns]
        bits = sum(null << n for n, null in enumerate(nulls)).to_bytes((len(columns) + 7) // 8, "little")
        return bits + b"".join(self.value(*c) for c, null in zip(columns, nulls, strict=True) if not null)

    def event(self, columns: list[tuple[Column, WireType]], kind: str) -> bytes:
        pick = self.random
        rows = []
        for _ in range(pick.randrange(1, 4)):
            first = self.image(columns)
            rows.append(first if kind != "update" else first + (first if pick.random() < 0.8 else self.image(columns)))
        data = bytearray(b"".join(rows))
        while data and pick.random() < 0.25:
            at = pick.randrange(len(data))
            if pick.random() < 0.3:
                del data[at:]
            else:
                data[at] = pick.choice((*TELLING, pick.randrange(256)))
        return bytes(data)


def _packed(number: float, size: int) -> bytes:
    return struct.pack("<f" if size == 4 else "<d", number)


def _prefix(column: Column, wire: WireType) -> int | None:
    if wire.code in (wt.JSON, wt.GEOMETRY, wt.VECTOR, wt.BLOB):
        return wire.length
    if wire.code in (wt.VARCHAR, wt.STRING):
        return 2 if wire.length > 255 else 1
    return None


def _size(wire: WireType) -> int:
    digits = (wire.length + 1) // 2
    sizes = {
        **{wt.TINY: 1, wt.SHORT: 2, wt.INT24: 3, wt.LONG: 4, wt.LONGLONG: 8, wt.FLOAT: 4, wt.DOUBLE: 8, wt.YEAR: 1},
        **{wt.DATE: 3, wt.TIME: 3, wt.DATETIME: 8, wt.TIMESTAMP: 4},
        **{wt.TIME2: 3 + digits, wt.DATETIME2: 5 + digits, wt.TIMESTAMP2: 4 + digits},
        **{wt.BIT: (wire.length + 7) // 8, wt.ENUM: wire.length, wt.SET: wire.length},
    }
    if wire.code == wt.NEWDECIMAL:
        words = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
        whole = wire.length - wire.scale
        return whole // 9 * 4 + words[whole % 9] + wire.scale // 9 * 4 + words[wire.scale % 9]
    return sizes[wire.code]


def each_seed(run: Callable[[int], None]) -> None:
    """Run with one seed after the other; what is raised says which it was.

    Args:
        run: Makes four events of a seed.
    """
    for seed in range(EVENTS // 4):
        try:
            run(seed)
        except BaseException as error:
            error.add_note(f"run({seed})")
            raise


def run(seed: int) -> None:
    """Decode events of one made-up table in both ways."""
    made = Made(seed)
    columns = [made.column(n) for n in range(1, made.random.randrange(2, 14))]
    names = [c.name for c, _ in columns]
    keys = tuple(made.random.sample(names, made.random.randrange(min(3, len(names)) + 1)))
    table = Table(TableId("db", "t"), tuple(c for c, _ in columns), keys)
    options = made.options(table.columns)
    schemas = ('{"k":"é"}', '{"v":1}') if made.random.random() < 0.3 else (None, None)
    texts = EnvelopeText(*schemas, null_text=dict.fromkeys(names, '"dé"'))
    wires = tuple(w for _, w in columns)
    python = RowDecoder(table, wires, options, texts, owned=made.owned())
    decoder = BothDecoders(python, wires, JSON_ROWS, kernel().module)
    size = (len(columns) + 7) // 8
    for _ in range(4):
        kind = made.random.choice(("write", "update", "delete"))
        present = b"\xff" * size * (2 if kind == "update" else 1)
        buf = b"head" + present + made.event(columns, kind) + b"tail"
        ctx = EventContext('{"file":"é","row":', "}", ',"ts_ms":7}', first_row=made.random.choice((0, 7)), where="b:4")
        with contextlib.suppress(CdcError):
            getattr(decoder, kind)(buf, 4 + len(present), len(buf) - 4, ctx, [])


def test_made_up_rows_of_every_kind() -> None:
    before, changed = BothDecoders.compared["decoded"], BothDecoders.compared["changed keys"]
    each_seed(run)
    assert BothDecoders.compared["changed keys"] - changed > EVENTS // 200
    # What raises in both is not counted: most events are sound.
    assert BothDecoders.compared["decoded"] - before > EVENTS // 4


def test_a_buffer_that_is_not_the_event() -> None:
    """Offsets outside of the buffer, another type, texts that are no byte text: declined, and nothing is added."""
    column = ([b'"c":', b"null", True, None, "signed", [4], []],)
    texts = [b""] * 6 + [b"{", b",", b"}"]
    made = kernel().module.plan(
        [tuple(column[0])], [], texts, False, (True, True), kernel().module.Tally(), None, None, None, None
    )
    out: list[Any] = []
    good = b"\xff\x00\x01\x00\x00\x00"
    for given in ((good, 0, 6), (good, 7, 6), (good, 5, 1), (good, 1, 99), (bytearray(good), 1, 6), (None, 1, 6)):
        assert made.write(*given, "", "", 0, None, out) < 0
    assert made.write(good, 1, 6, "\u0100", "", 0, None, out) < 0
    assert out == []
    assert made.write(good, 1, 6, "", "", 0, None, out) == 1
    assert out == [(None, b'{"c":1}0', 0, 0, None, None)]


def test_a_panic_is_a_decline() -> None:
    assert kernel().module.panic() == -5
