"""Measure the row decoders on made-up row bodies: rows a CPU-second from bytes to finished key and value bytes.

``orders`` is the 7-column table of the peer's workload A (100 rows an insert event), ``wide`` the 20-column table of
workload B (one row an event).

    .venv/bin/python scripts/bench_decode.py --avro

measures JSON without schemas, Avro written directly and Avro via JSON in turn, source block included;

    .venv/bin/python scripts/bench_decode.py --shared

what a row costs a writer that has all partitions of a topic, one of two, or none.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from airflow_provider_mysql_cdc.cdc.avro import avro_source
from airflow_provider_mysql_cdc.cdc.binlog.rows_header import full_bitmap
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText, EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.table_shape import OwnedKeys
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.native_rows import RowEventDecoder
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import compile_text_decoder
from airflow_provider_mysql_cdc.cdc.emit import source_block
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.formats.avro_rows import (
    SnapshotSource,
    create_avro_rows,
    create_text_rows,
    snapshot_source,
)
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.formats.record_topics import partition_of
from airflow_provider_mysql_cdc.cdc.model.connection import SchemaId
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId

WORDS = "alpha bravo charlie delta echo foxtrot golf hotel india juliett kilo lima mike november oscar papa"
STATES = "new paid packed shipped delivered returned cancelled"
RANDOM = random.Random(42)
# {"a": 812345678901, "name": "...", "tags": ["...", "..."], "nest": {"x": 512.125, "ok": true}} as stored.
DOCUMENT = bytes.fromhex(
    "0004007500200001002100040025000400290004000a2d000c3500004200025f00616e616d656e65737474616773355c9323bd0000000c61"
    "626320646566206768692002001d0012000100130002000b1500040100786f6b0000000000018040020016000c0a000c0f00047137207a06"
    "6b6b77203132"
)

ORDERS = Table(
    TableId("bench", "orders"),
    (
        Column("id", 1, "BIGINT", nullable=False),
        Column("customer_id", 2, "INT"),
        Column("status", 3, "VARCHAR", length=20, charset="utf8mb4"),
        Column("amount", 4, "DECIMAL", length=10, scale=2),
        Column("note", 5, "VARCHAR", length=200, charset="utf8mb4"),
        Column("created_at", 6, "DATETIME", length=3),
        Column("updated_at", 7, "TIMESTAMP", length=3),
    ),
    ("id",),
)
ORDERS_MAP = SimpleNamespace(
    column_types=bytes([8, 3, 15, 246, 15, 18, 17]), column_meta=(0, 0, 80, 10 | 2 << 8, 800, 3, 3)
)
WIDE = Table(
    TableId("bench", "wide"),
    (
        Column("id", 1, "INT", unsigned=True, nullable=False),
        Column("k", 2, "INT", nullable=False),
        Column("tiny", 3, "TINYINT"),
        Column("small", 4, "SMALLINT", unsigned=True),
        Column("big", 5, "BIGINT"),
        Column("ubig", 6, "BIGINT", unsigned=True),
        Column("flag", 7, "TINYINT", nullable=False),
        Column("f", 8, "DOUBLE"),
        Column("price", 9, "DECIMAL", length=12, scale=4),
        Column("qty", 10, "DECIMAL", length=20, scale=0),
        Column("c", 11, "CHAR", length=120, charset="utf8mb4", nullable=False),
        Column("pad", 12, "VARCHAR", length=60, charset="utf8mb4", nullable=False),
        Column("email", 13, "VARCHAR", length=100, charset="utf8mb4"),
        Column("title", 14, "VARCHAR", length=255, charset="utf8mb4"),
        Column("state", 15, "ENUM", enum_values=("a", "b", "c", "d"), charset="utf8mb4"),
        Column("doc", 16, "JSON"),
        Column("body", 17, "TEXT", charset="utf8mb4"),
        Column("day", 18, "DATE"),
        Column("made", 19, "DATETIME", length=6),
        Column("touched", 20, "TIMESTAMP"),
    ),
    ("id",),
)
_CHAR_META = (0xFE ^ ((480 & 0x300) >> 4)) | (480 & 0xFF) << 8
WIDE_MAP = SimpleNamespace(
    column_types=bytes([3, 3, 1, 2, 8, 8, 1, 5, 246, 246, 254, 15, 15, 15, 254, 245, 252, 10, 18, 17]),
    column_meta=(*(0, 0, 0, 0, 0, 0, 0, 8, 12 | 4 << 8, 20, _CHAR_META, 240, 400, 1020, 247 | 1 << 8, 4, 2, 0, 6, 0),),
)


def text(size: int) -> bytes:
    """Return random lower case text."""
    return "".join(RANDOM.choices("abcdefghijklmnopqrstuvwxyz0123456789 ", k=size)).encode()


def datetime2(micros: int | None, digits: int) -> bytes:
    """Return a random DATETIME of 2026 in MySQL's packed form."""
    days = (2026 * 13 + RANDOM.randint(1, 9)) << 5 | RANDOM.randint(1, 28)
    clock = RANDOM.randint(4, 23) << 12 | RANDOM.randint(0, 59) << 6 | RANDOM.randint(0, 59)
    fraction = RANDOM.randint(0, 999) * 10 if digits == 3 else RANDOM.randint(0, 999999)
    return ((days << 17 | clock) + (1 << 39)).to_bytes(5, "big") + fraction.to_bytes((digits + 1) // 2, "big")


def order_row(number: int) -> bytes:
    """Return a row image of ``orders``."""
    note = " ".join(RANDOM.choices(WORDS.split(), k=RANDOM.randint(3, 20))).encode()
    status = RANDOM.choice(STATES.split()).encode()
    return b"".join(
        (
            b"\x80",
            struct.pack("<qiB", number, RANDOM.randint(1, 100000), len(status)),
            status,
            struct.pack(">IB", RANDOM.randint(0, 9999) | 1 << 31, RANDOM.randint(0, 99)),
            struct.pack("<H", len(note)),
            note,
            datetime2(None, 3),
            struct.pack(">IH", 1767225600 + RANDOM.randint(0, 24192000), RANDOM.randint(0, 999) * 10),
        )
    )


def wide_row(number: int) -> bytes:
    """Return a row image of ``wide``."""
    title, body = text(RANDOM.randint(10, 80)), text(RANDOM.randint(50, 400))
    email = text(10) + b"@example.com"
    day = (2026 << 9 | RANDOM.randint(1, 12) << 5 | RANDOM.randint(1, 28)).to_bytes(3, "little")
    qty = RANDOM.randint(0, 10**19)
    return b"".join(
        (
            b"\x00\x00\xf0",
            struct.pack("<IibHqQbd", number, 7, -5, 77, RANDOM.getrandbits(62), RANDOM.getrandbits(63), 1, 1234.5678),
            struct.pack(">IIH", RANDOM.randint(0, 99999999) | 1 << 31, 0, RANDOM.randint(0, 9999))[:4],
            struct.pack(">H", RANDOM.randint(0, 9999)),
            struct.pack(">BII", qty // 10**18 | 0x80, qty // 10**9 % 10**9, qty % 10**9),
            struct.pack("<H", 120),
            text(119) + b"x",
            b"\x3c" + text(59) + b"x",
            struct.pack("<H", len(email)) + email,
            struct.pack("<H", len(title)) + title,
            b"\x02" + struct.pack("<I", len(DOCUMENT)) + DOCUMENT,
            struct.pack("<H", len(body)) + body,
            day,
            datetime2(None, 6),
            struct.pack(">I", 1767225600 + RANDOM.randint(0, 24192000)),
        )
    )


def context() -> EventContext:
    """Return the constant text of a real event."""
    head = json.dumps(
        {
            "version": "3.6.1.Final", "connector": "mysql", "name": "cap", "ts_ms": 1795246498878, "snapshot": "false",
            "db": "bench", "sequence": None, "ts_us": 1795246498878881, "ts_ns": 1795246498878881000, "table": "orders",
            "server_id": 3327, "gtid": "e62e8b76-e57c-11f1-a402-02fc00000001:86", "file": "binlog.000001",
            "pos": 182177, "row": 0,
        },
        separators=(",", ":"),
    )  # fmt: skip
    tail = ',"ts_ms":1795246498881,"ts_us":1795246498881590,"ts_ns":1795246498881590461}'
    return EventContext(head[:-2], ',"thread":60,"query":null}', tail, where="bench:4")


def measure(name: str, seconds: float, rows: int, run: Callable[[], Any]) -> None:
    """Print rows a CPU-second of a function that decodes ``rows`` rows; the first call is not counted."""
    run()
    decoded, begun = 0, time.process_time()
    while (spent := time.process_time() - begun) < seconds:
        run()
        decoded += rows
    print(f"{name:42s} {decoded / spent:10,.0f} rows/CPU-s")


def events(decode: Callable[..., int], bodies: list[bytes], skip: int) -> Callable[[], None]:
    """Return a function that decodes all bodies."""
    ctx = context()

    def run() -> None:
        for body in bodies:
            decode(body, skip, len(body), ctx, [])

    return run


def decoder(table: Table, table_map: Any, schema: bool) -> RowEventDecoder:
    """Return a decoder, with 5 kB of schema text if requested."""
    texts = EnvelopeText('{"type":"x"}' * 20, '{"type":"x"}' * 400) if schema else EnvelopeText()
    return compile_decoder(table, table_map, DecoderOptions(), texts)


def make_text_rows(rows: int) -> list[bytes]:
    """Return rows of ``orders`` in the text protocol."""
    out = []
    for i in range(rows):
        values = (
            str(i), "4711", "shipped", f"{RANDOM.randint(0, 9999)}.{RANDOM.randint(0, 99):02d}",
            " ".join(RANDOM.choices(WORDS.split(), k=12)), f"2026-0{RANDOM.randint(1, 9)}-11 12:34:56.789",
            f"2026-0{RANDOM.randint(1, 9)}-11 12:34:56.789",
        )  # fmt: skip
        out.append(b"".join(bytes([len(v)]) + v.encode() for v in values))
    return out


class DecodePaths:
    """Write one table's rows as JSON, as Avro at once, and as Avro by way of JSON."""

    def __init__(self, table: Table, table_map: Any) -> None:
        base = {"topic.prefix": "cap", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}
        avro = dict.fromkeys(("key.converter", "value.converter"), "io.confluent.connect.avro.AvroConverter")
        avro |= {f"{part}.converter.schema.registry.url": "http://registry:1" for part in ("key", "value")}
        self.cfg = ConnectorConfig.from_properties(base | avro)
        self.table = table
        self.options = table_options.table_options(self.cfg, table)
        self.envelope = table_options.envelope_text(self.cfg, table, self.options)
        self.form = RecordFormats(self.cfg, lambda *_: SchemaId(7)).table_format(table, self.options, "topic")
        self.json = compile_decoder(table, table_map, self.options, self.envelope)
        direct = create_avro_rows(self.cfg, self.form, table, table_map, self.options, self.envelope)
        assert direct is not None
        self.avro = direct
        self.block = table_options.table_source_block(self.cfg, table.id)
        self.avro_block = avro_source.avro_source(table.id, "cap", self.block)

    def events(self, kind: str, bodies: list[bytes], skip: int) -> dict[str, Callable[[], None]]:
        """Return what decodes all bodies, by way."""
        event = SimpleNamespace(timestamp=1_795_246_498, server_id=3327, file="binlog.000001", start_pos=182177)
        at = SimpleNamespace(
            gtid="e62e8b76-e57c-11f1-a402-02fc00000001:86", commit_us=1_795_246_498_878_881, thread=60, query=None
        )

        def run(fill: Callable[..., None], block: Any, decode: Callable[..., int], form: Any) -> None:
            ctx = EventContext()
            for number, body in enumerate(bodies):
                at.commit_us = 1_795_246_498_878_881 + 1000 * number
                fill(ctx, block, event, at)
                out: list[Any] = []
                decode(body, skip, len(body), ctx, out)
                if form is not None:
                    for _ in form.records(out):
                        pass

        plain, direct = getattr(self.json, kind), getattr(self.avro, kind)
        return {
            "JSON": partial(run, source_block.fill, self.block, plain, None),
            "Avro": partial(run, avro_source.fill, self.avro_block, direct, None),
            "Avro by way of JSON": partial(run, source_block.fill, self.block, plain, self.form),
        }

    def rows(self, packets: list[bytes]) -> dict[str, Callable[[], None]]:
        """Return what decodes rows of the text protocol, by way."""
        plain = compile_text_decoder(self.table, self.options, self.envelope)
        direct = create_text_rows(self.cfg, self.form, self.table, self.options).decode
        place = BinlogOffset("binlog.000001", 182177), 1_795_246_498_878

        def run(texts: SnapshotSource, decode: Callable[..., None], form: Any) -> None:
            ctx, out = EventContext(), list[Any]()
            texts.fill(ctx, *place)
            for packet in packets:
                ctx.tail = texts.op_tail(time.time_ns())
                out.clear()
                decode(packet, 0, ctx, out)
                if form is not None:
                    for _ in form.records(out):
                        pass

        data = b"".join(len(packet).to_bytes(3, "little") + b"\0" + packet for packet in packets)

        def in_blocks(texts: SnapshotSource, many: Callable[..., tuple[int, int]]) -> None:
            ctx, at = EventContext(), 0
            texts.fill(ctx, *place)
            ctx.tail = texts.marked_tail
            while at < len(data):
                at = many(data, at, 1000, ctx, [])[1]

        ways: dict[str, Callable[[], None]] = {}
        for name, is_direct, decode, form in (
            ("JSON", False, plain, None),
            ("Avro", True, direct, None),
            ("Avro by way of JSON", False, plain, self.form),
        ):
            texts = snapshot_source(self.cfg, self.table.id, writes_avro=is_direct)
            ways[name] = partial(run, texts, decode, form)
            if form is None and decode.decode_many is not None:
                ways[f"{name} in blocks"] = partial(in_blocks, texts, decode.decode_many)
        return ways


def measure_in_turns(name: str, seconds: float, rows: int, paths: dict[str, Callable[[], None]]) -> None:
    """Print microseconds of CPU a row of each way, the least of several turns: other load only adds to it."""
    best = dict.fromkeys(paths, float("inf"))
    begun = time.process_time()
    while time.process_time() - begun < seconds:
        for way, run in paths.items():
            start = time.process_time()
            run()
            best[way] = min(best[way], (time.process_time() - start) / rows * 1e6)
    print(f"{name:34s} " + "   ".join(f"{way} {us:6.2f} us" for way, us in best.items()))


def compare_avro_with_json(rows: int, seconds: float, orders: list[bytes], wide: list[bytes]) -> None:
    """Measure Avro and JSON in turn."""
    one, three = full_bitmap(7), full_bitmap(20)
    narrow, broad = DecodePaths(ORDERS, ORDERS_MAP), DecodePaths(WIDE, WIDE_MAP)
    batches = [one + b"".join(orders[i : i + 100]) for i in range(0, rows, 100)]
    single, pairs = [one + r for r in orders], [one + one + r + r for r in orders]
    measure_in_turns("orders insert, 100 rows an event", seconds, rows, narrow.events("write", batches, 1))
    measure_in_turns("orders insert, 1 row an event", seconds, rows, narrow.events("write", single, 1))
    measure_in_turns("orders update, 1 row an event", seconds, rows, narrow.events("update", pairs, 2))
    measure_in_turns("orders delete, 100 rows an event", seconds, rows, narrow.events("delete", batches, 1))
    measure_in_turns(
        "wide insert, 1 row an event", seconds, len(wide), broad.events("write", [three + r for r in wide], 3)
    )
    tens = [three + b"".join(wide[i : i + 10]) for i in range(0, len(wide), 10)]
    measure_in_turns("wide insert, 10 rows an event", seconds, len(wide), broad.events("write", tens, 3))
    measure_in_turns("orders snapshot, text protocol", seconds, rows, narrow.rows(make_text_rows(rows)))


def shared_topics(rows: int, seconds: float, orders: list[bytes], wide: list[bytes]) -> None:
    """Measure what a row costs a writer that has all partitions of a topic, one of two, or none."""
    one, three = full_bitmap(7), full_bitmap(20)
    batches = [one + b"".join(orders[i : i + 100]) for i in range(0, rows, 100)]
    pairs, single = [one + one + r + r for r in orders], [three + r for r in wide]
    shares = {"all": None, "half": frozenset({0}), "none": frozenset[int]()}

    def ways(table: Table, table_map: Any, kind: str, bodies: list[bytes], skip: int) -> dict[str, Callable[[], None]]:
        runs = {}
        for name, mine in shares.items():
            owned = None if mine is None else OwnedKeys(2, mine, partition_of)
            compiled = compile_decoder(table, table_map, DecoderOptions(), EnvelopeText(), owned=owned)
            runs[name] = events(getattr(compiled, kind), bodies, skip)
        return runs

    measure_in_turns("orders insert, 100 rows an event", seconds, rows, ways(ORDERS, ORDERS_MAP, "write", batches, 1))
    measure_in_turns("orders update, 1 row an event", seconds, rows, ways(ORDERS, ORDERS_MAP, "update", pairs, 2))
    measure_in_turns("wide insert, 1 row an event", seconds, len(wide), ways(WIDE, WIDE_MAP, "write", single, 3))


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="?", type=int, default=20_000, help="rows of the table orders")
    parser.add_argument("seconds", nargs="?", type=float, default=2.0, help="CPU seconds a measurement takes at least")
    parser.add_argument("--avro", action="store_true", help="JSON without schemas and Avro in turn")
    parser.add_argument("--shared", action="store_true", help="a writer that has all partitions, one of two, or none")
    arguments = parser.parse_args()
    rows, seconds = arguments.rows, arguments.seconds
    orders = [order_row(i) for i in range(rows)]
    wide = [wide_row(i) for i in range(rows // 5)]
    if arguments.avro:
        compare_avro_with_json(rows, seconds, orders, wide)
        return
    if arguments.shared:
        shared_topics(rows, seconds, orders, wide)
        return
    one, three = full_bitmap(7), full_bitmap(20)
    batches = [one + b"".join(orders[i : i + 100]) for i in range(0, rows, 100)]
    for schema in (False, True):
        suffix = ", schema" if schema else ""
        decode = decoder(ORDERS, ORDERS_MAP, schema)
        measure(f"orders insert, 100 rows an event{suffix}", seconds, rows, events(decode.write, batches, 1))
        measure(
            f"orders insert, 1 row an event{suffix}",
            seconds,
            rows,
            events(decode.write, [one + r for r in orders], 1),
        )
        pairs = [one + one + r + r for r in orders]
        measure(f"orders update, 1 row an event{suffix}", seconds, rows, events(decode.update, pairs, 2))
        measure(f"orders delete, 100 rows an event{suffix}", seconds, rows, events(decode.delete, batches, 1))
        decode = decoder(WIDE, WIDE_MAP, schema)
        measure(
            f"wide insert, 1 row an event{suffix}",
            seconds,
            len(wide),
            events(decode.write, [three + r for r in wide], 3),
        )
    texts = make_text_rows(rows)
    read = compile_text_decoder(ORDERS, DecoderOptions(), EnvelopeText())
    ctx = context()

    def read_all() -> None:
        for text in texts:
            read(text, 0, ctx, [])

    measure("orders snapshot, text protocol", seconds, rows, read_all)


if __name__ == "__main__":
    main()
