"""Measure what ``ExtractNewRecordState`` costs on the made-up rows of ``bench_decode``: microseconds of CPU a record.

    .venv/bin/python scripts/bench_unwrap.py

measures change events, unwrapped rows, and rows that the chain of transforms unwraps in turn, from the bytes of a row
event to records handed to a producer that does nothing; ``MYSQL_CDC_NATIVE=off`` leaves the native kernel out. Whole
drains with Kafka are the workloads ``narrow`` and ``unwrap`` of ``scripts/bench``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from bench_decode import ORDERS, ORDERS_MAP, WIDE, WIDE_MAP, measure_in_turns, order_row, wide_row

from airflow_provider_mysql_cdc.cdc.binlog.rows_header import full_bitmap
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import EventContext
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import kernel
from airflow_provider_mysql_cdc.cdc.emit import source_block
from airflow_provider_mysql_cdc.cdc.formats import table_options, unwrapped_decoder
from airflow_provider_mysql_cdc.cdc.formats.chain_writer import ChainWriter
from airflow_provider_mysql_cdc.cdc.formats.unwrapped_rows import create_unwrapped_rows
from airflow_provider_mysql_cdc.cdc.model.table import Table
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter

PROPERTIES = {
    "topic.prefix": "cap", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1",
}  # fmt: skip
UNWRAP = {
    "transforms": "unwrap",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
}
OPTIONS: dict[str, dict[str, str]] = {
    "no options": {},
    "rewrite, add.fields": {
        "transforms.unwrap.delete.tombstone.handling.mode": "rewrite",
        "transforms.unwrap.add.fields": "op,table,source.ts_ms,lsn",
    },
    "add.headers": {"transforms.unwrap.add.headers": "op,source.ts_ms"},
}
HEADERS = [
    (f"__debezium.context.{name}", b"0") for name in ("connectorLogicalName", "taskId", "connectorName", "runId")
]


class _Nowhere(TransactionalWriter):
    """A producer without a client, and the topics that it finds."""

    def __init__(self) -> None:
        self.bytes_pending = self.records_pending = 0
        self._open, self._serve_at, self._produce = True, 1 << 62, lambda *_: None

    def note_partition(self, topic: str, partition: int) -> None:
        """Do nothing."""

    def describe(self, topics: Sequence[str]) -> dict[str, TopicInfo]:
        """Return every topic."""
        return {topic: TopicInfo(1, "id") for topic in topics}


class UnwrapPaths:
    """Write one table's rows as change events, and unwrapped in both ways."""

    def __init__(self, table: Table, table_map: Any, schemas: bool, options: dict[str, str]) -> None:
        given = PROPERTIES | {f"{part}.converter.schemas.enable": str(schemas).lower() for part in ("key", "value")}
        self.topic, nowhere = f"cap.{table.id}", _Nowhere()
        plain, cfg = ConnectorConfig.from_properties(given), ConnectorConfig.from_properties(given | UNWRAP | options)
        writer = ChainWriter(cfg, nowhere, topics=nowhere)  # type: ignore[arg-type]
        block, of_chain = (table_options.table_source_block(c, table.id) for c in (plain, cfg))
        decoders = []
        for config in (plain, cfg):
            modes = table_options.table_options(config, table)
            envelope = table_options.envelope_text(config, table, modes)
            decoders.append(compile_decoder(table, table_map, modes, envelope))
        unwrapped = create_unwrapped_rows(cfg, table, table_map, modes, envelope, self.topic, of_chain)
        assert unwrapped is not None
        self.ways: dict[str, tuple[Any, ...]] = {
            "events": (source_block.fill, block, decoders[0], nowhere),
            "unwrapped": (unwrapped_decoder.fill, unwrapped[1], unwrapped[0], writer),
            "by the chain": (source_block.fill, of_chain, decoders[1], writer),
        }

    def events(self, kind: str, bodies: list[bytes], skip: int) -> dict[str, Callable[[], None]]:
        """Return what decodes all bodies, by way."""
        event = SimpleNamespace(timestamp=1_795_246_498, server_id=3327, file="binlog.000001", start_pos=182177)
        at = SimpleNamespace(gtid="e62e8b76-e57c-11f1-a402-02fc00000001:86", commit_us=0, thread=60, query=None)

        def run(fill: Callable[..., None], block: Any, decoder: Any, sink: Any) -> None:
            ctx, decode = EventContext(), getattr(decoder, kind)
            for number, body in enumerate(bodies):
                at.commit_us = 1_795_246_498_878_881 + 1000 * number
                fill(ctx, block, event, at)
                out: list[Any] = []
                decode(body, skip, len(body), ctx, out)
                sink.produce_all(self.topic, out, HEADERS)

        return {way: partial(run, *parts) for way, parts in self.ways.items()}


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="?", type=int, default=4_000, help="rows of the table orders")
    parser.add_argument("seconds", nargs="?", type=float, default=1.0, help="CPU seconds a measurement takes at least")
    arguments = parser.parse_args()
    rows, seconds = arguments.rows, arguments.seconds
    orders, wide = [order_row(i) for i in range(rows)], [wide_row(i) for i in range(rows // 5)]
    one, three = full_bitmap(7), full_bitmap(20)
    batches = [one + b"".join(orders[i : i + 100]) for i in range(0, rows, 100)]
    hundred = [one + one + b"".join(row + row for row in orders[i : i + 100]) for i in range(0, rows, 100)]
    single, pairs, triples = [one + r for r in orders], [one + one + r + r for r in orders], [three + r for r in wide]
    print(f"rows are decoded by {kernel().text}")
    for name, options in OPTIONS.items():
        for schemas in (False, True):
            narrow, broad = (UnwrapPaths(*t, schemas, options) for t in ((ORDERS, ORDERS_MAP), (WIDE, WIDE_MAP)))
            print(f"{name}, {'with' if schemas else 'without'} schemas")
            measure_in_turns("  orders insert, 100 rows an event", seconds, rows, narrow.events("write", batches, 1))
            measure_in_turns("  orders update, 100 rows an event", seconds, rows, narrow.events("update", hundred, 2))
            measure_in_turns("  orders delete, 100 rows an event", seconds, rows, narrow.events("delete", batches, 1))
            measure_in_turns("  orders insert, 1 row an event", seconds, rows, narrow.events("write", single, 1))
            measure_in_turns("  orders update, 1 row an event", seconds, rows, narrow.events("update", pairs, 2))
            measure_in_turns("  orders delete, 1 row an event", seconds, rows, narrow.events("delete", single, 1))
            measure_in_turns("  wide insert, 1 row an event", seconds, len(wide), broad.events("write", triples, 3))


if __name__ == "__main__":
    main()
