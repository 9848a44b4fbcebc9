"""Rows that are decoded straight to unwrapped records: the chain makes the same of their change events."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.cases import for_each
from kit.chain_rig import CONNECT, DEBEZIUM, GIVEN, MemoryTopics, NotedWriter, Produced, transforms
from kit.table_maps import type_bytes
from kit.tiers import many
from test_fuzz_native import Made
from test_fuzz_native_text import MadeText

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import (
    BIGINT_UNSIGNED_MODES,
    BINARY_MODES,
    DECIMAL_MODES,
    TIME_MODES,
    EventContext,
)
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import selected_columns
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import kernel
from airflow_provider_mysql_cdc.cdc.emit import source_block
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.formats import table_options, unwrapped_decoder
from airflow_provider_mysql_cdc.cdc.formats.avro_rows import create_text_rows, snapshot_source
from airflow_provider_mysql_cdc.cdc.formats.chain_writer import ChainWriter
from airflow_provider_mysql_cdc.cdc.formats.unwrapped_rows import create_unwrapped_rows, create_unwrapped_text
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import AddedHeaders
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId

pytestmark = pytest.mark.quick
TABLES = many(250, 4000)
DELETES = ("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")
MEMBERS = (
    *("op", "ts_ms", "ts_us", "ts_ns", "source.op", "lsn", "source.lsn", "table", "source.table:Tábla", "source.ts_ms"),
    *(
        "source.ts_us:at",
        "ts_ns:n",
        "source.ts_ns",
        "db",
        "source.db",
        "source.snapshot",
        "name",
        "version",
        "connector",
    ),
    *("server_id", "gtid", "file", "pos", "thread", "query", "sequence", "transaction.id", "total_order"),
)
UNUSUAL = ("row", "before.c1", "source.row:r", "after")
DEFAULTS = ("1", "0.5", 'a"é', "2020-01-01", "2020-01-01 10:00:00", "b'101'", "1e10")
HEADERS = [("__debezium.context.taskId", b"0")]


def _properties(made: Made, names: list[str]) -> dict[str, str]:
    pick = made.random

    def flag(share: float = 0.5) -> str:
        return str(pick.random() < share).lower()

    def members() -> str:
        chosen = pick.sample(MEMBERS, pick.choice((0, 0, 1, 3, 8)))
        return ",".join([*chosen, *([pick.choice(UNUSUAL)] if pick.random() < 0.05 else [])])

    unwrap = {
        "type": f"{DEBEZIUM}ExtractNewRecordState",
        "delete.tombstone.handling.mode": pick.choice(DELETES),
        "add.fields": members(),
        "add.headers": members(),
        "add.fields.prefix": pick.choice(("__", "", 'é"{')),
        "replace.null.with.default": flag(0.7),
    }
    route = {"type": f"{CONNECT}RegexRouter", "regex": r"cap\.(.*)", "replacement": "to.$1"}
    given = transforms(unwrap=unwrap, route=route) if pick.random() < 0.3 else transforms(unwrap=unwrap)
    return {
        **given,
        "key.converter.schemas.enable": flag(),
        "value.converter.schemas.enable": flag(),
        "value.converter.replace.null.with.default": flag(),
        "tombstones.on.delete": flag(0.8),
        "decimal.handling.mode": pick.choice(DECIMAL_MODES),
        "bigint.unsigned.handling.mode": pick.choice(BIGINT_UNSIGNED_MODES),
        "binary.handling.mode": pick.choice(BINARY_MODES),
        "time.precision.mode": pick.choice(TIME_MODES),
        "enable.time.adjuster": flag(),
        "include.query": flag(0.3),
        "field.name.adjustment.mode": pick.choice(("none", "avro")),
        **({"column.exclude.list": rf"db\.t\.{pick.choice('cÜ')}.*"} if pick.random() < 0.2 else {}),
        **({"column.mask.with.5.chars": r"db\.t\.c.*"} if pick.random() < 0.1 else {}),
        **({"message.key.columns": rf"db\.t:{pick.choice(names)}"} if pick.random() < 0.1 else {}),
    }


def _produced(cfg: ConnectorConfig, partitions: int, records: list[Any]) -> list[Produced]:
    inner = NotedWriter()
    ChainWriter(cfg, inner, topics=MemoryTopics(partitions=partitions)).produce_all("cap.db.t", records, HEADERS)
    return inner.produced


def run(seed: int) -> tuple[int, int]:
    """Compare both ways for events of one made-up table; return the number of events, and of direct ones."""
    made = Made(seed)
    pick = made.random
    columns = [made.column(n) for n in range(1, pick.randrange(2, 12))]
    for n, (column, wire) in enumerate(columns):
        more: dict[str, Any] = {"length": wire.length} if column.type_name == "BIT" else {}
        if pick.random() < 0.3:
            more |= {"has_default": True, "default": pick.choice(DEFAULTS)}
        columns[n] = replace(column, **more), wire
    names = [column.name for column, _ in columns]
    keys = tuple(pick.sample(names, pick.randrange(min(3, len(names)) + 1)))
    table = Table(TableId("db", "t"), tuple(column for column, _ in columns), keys)
    try:
        cfg = ConnectorConfig.from_properties({**GIVEN, **_properties(made, names)})
        options = table_options.table_options(cfg, table)
        envelope = table_options.envelope_text(cfg, table, options)
    except CdcError:
        return 0, 0
    types, metas = zip(*(type_bytes(wire) for _, wire in columns), strict=True)
    table_map = SimpleNamespace(column_types=bytes(types), column_meta=metas)
    block = table_options.table_source_block(cfg, table.id)
    unwrapped = create_unwrapped_rows(cfg, table, table_map, options, envelope, "cap.db.t", block, kernel().new_tally())
    if unwrapped is None:
        return 4, 0
    plain, direct_count = compile_decoder(table, table_map, options, envelope), 0
    for _ in range(4):
        kind, query = pick.choice(("write", "update", "delete")), pick.choice((None, 'SELECT "é"'))
        present = b"\xff" * ((len(columns) + 7) // 8) * (2 if kind == "update" else 1)
        rows = b"".join(_row(made, columns, kind) for _ in range(pick.randrange(1, 4)))
        buf = b"head" + present + rows + b"tail"
        event = SimpleNamespace(timestamp=1_795_246_498, server_id=33, file="binlog.000007", start_pos=1234)
        at = SimpleNamespace(
            gtid=pick.choice((None, "e62e8b76-e57c-11f1-a402-02fc00000001:86")),
            commit_us=pick.choice((0, 1_795_246_498_878_881)),
            thread=pick.choice((0, 60)),
            query=query,
        )
        results: list[Any] = []
        partitions = pick.choice((1, 1, 3))
        for decoder, fill, source in (
            (plain, source_block.fill, block),
            (unwrapped[0], unwrapped_decoder.fill, unwrapped[1]),
        ):
            ctx, out = EventContext(), list[Any]()
            fill(ctx, source, event, at)
            try:
                getattr(decoder, kind)(buf, 4 + len(present), len(buf) - 4, ctx, out)
                results.append(_produced(cfg, partitions, out))
            except CdcError as error:
                results.append(str(error))
            direct_count += any(isinstance(record[4], AddedHeaders) for record in out)
        # Of a row before a change only the key is read.
        if kind == "write" or not isinstance(results[0], str):
            assert results[1] == results[0]
    return 4, direct_count


def run_text(seed: int) -> tuple[int, int]:
    """Compare both ways for rows of a snapshot of one made-up table; return as ``run``."""
    made = MadeText(seed)
    pick = made.random
    columns = tuple(made.column(n)[0] for n in range(1, pick.randrange(2, 10)))
    names = [column.name for column in columns]
    table = Table(TableId("db", "t"), columns, (names[0],))
    try:
        cfg = ConnectorConfig.from_properties({**GIVEN, **_properties(made, names)})
        options = table_options.table_options(cfg, table)
        plain = create_text_rows(cfg, None, table, options)
    except CdcError:
        return 0, 0
    direct, chosen = create_unwrapped_text(cfg, table, options, "cap.db.t"), selected_columns(table, options)
    if direct is None or direct.unwrapped is None:
        return 4, 0
    marker, place = pick.choice(("true", "first", "last", "incremental")), BinlogOffset("binlog.000007", 1234)
    for _ in range(4):
        packet, results = made.packet(chosen), list[Any]()
        for rows, texts in ((plain, snapshot_source(cfg, table.id, writes_avro=False)), (direct, direct.unwrapped)):
            ctx, out = EventContext(), list[Any]()
            texts.fill(ctx, place, 1_795_246_498_878, marker, (33, "uuid:1"))
            ctx.tail = texts.op_tail(time.time_ns())
            try:
                rows.decode(packet, 0, ctx, out)
                results.append(
                    _produced(cfg, 1, out if rows is plain else [(*r[:4], AddedHeaders(), None) for r in out])
                )
            except CdcError as error:
                results.append(str(error))
        assert results[1] == results[0]
    return 4, 4


def _image(made: Made, columns: list[Any]) -> bytes:
    nulls = [made.random.random() < (0.2 if column.nullable else 0.01) for column, _ in columns]
    bits = sum(null << n for n, null in enumerate(nulls)).to_bytes((len(columns) + 7) // 8, "little")
    return bits + b"".join(made.value(*c) for c, null in zip(columns, nulls, strict=True) if not null)


def _row(made: Made, columns: list[Any], kind: str) -> bytes:
    first = _image(made, columns)
    if kind != "update":
        return first
    return first + (first if made.random.random() < 0.5 else _image(made, columns))


@for_each("compare", [run, run_text])
def test_rows_are_unwrapped_as_the_chain_does(monkeypatch: pytest.MonkeyPatch, compare: Any) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_795_246_498_881_590_461)
    events = direct = 0
    for seed in range(TABLES):
        try:
            more = compare(seed)
        except BaseException as error:
            error.add_note(f"{compare.__name__}({seed})")
            raise
        events, direct = events + more[0], direct + more[1]
    assert direct > events // 3, (events, direct)
