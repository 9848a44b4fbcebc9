"""Measure decoders of TiCDC's flat rows on the made-up rows of ``bench_decode``: microseconds of CPU a row.

    .venv/bin/python scripts/bench_flat.py

measures rows that are written directly and via JSON in turn, the transaction's timestamp included;
``MYSQL_CDC_NATIVE=off`` leaves the native kernel out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
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
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.formats.dead_letter import format_rows
from airflow_provider_mysql_cdc.cdc.formats.record_topics import TopicShare
from airflow_provider_mysql_cdc.cdc.formats.ticdc_format import TicdcFormat
from airflow_provider_mysql_cdc.cdc.formats.ticdc_rows import create_ticdc_rows
from airflow_provider_mysql_cdc.cdc.model.connection import SchemaId
from airflow_provider_mysql_cdc.cdc.model.table import Table
from airflow_provider_mysql_cdc.cdc.ticdc import ticdc_source
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_source import TicdcSource

PROPERTIES = {
    "topic.prefix": "cap", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1",
    "value.format": "ticdc-avro", "schema-registry": "http://registry:1", "enable-tidb-extension": "true",
    "dispatchers": '[{"matcher": ["*.*"], "topic": "{schema}{table}", "partition": "index-value"}]',
}  # fmt: skip


class FlatDecodePaths:
    """Write one table's rows at once and by way of JSON.

    Args:
        count: Partitions of its topic.
    """

    def __init__(self, table: Table, table_map: Any, count: int) -> None:
        cfg = ConnectorConfig.from_properties(PROPERTIES)
        options = table_options.table_options(cfg, table)
        envelope = table_options.envelope_text(cfg, table, options)
        self.form = TicdcFormat(cfg, table, options, "topic", lambda *_: SchemaId(7))
        self.json = compile_decoder(table, table_map, options, envelope)
        direct = create_ticdc_rows(self.form, table, table_map, options, envelope, count)
        assert direct is not None
        self.direct, self.block = direct, table_options.table_source_block(cfg, table.id)
        self.share = TopicShare("topic", count, frozenset(range(count)), True)

    def events(self, kind: str, bodies: list[bytes], skip: int) -> dict[str, Callable[[], None]]:
        """Return what decodes all bodies, by way."""
        event = SimpleNamespace(timestamp=1_795_246_498, server_id=3327, file="binlog.000001", start_pos=182177)
        at = SimpleNamespace(gtid=None, commit_us=0, thread=60, query=None)

        def run(fill: Callable[..., None], block: Any, decode: Callable[..., int], *, formed: bool) -> None:
            ctx = EventContext(transaction="77")
            for number, body in enumerate(bodies):
                at.commit_us = 1_795_246_498_878_881 + 1000 * number
                fill(ctx, block, event, at)
                out: list[Any] = []
                decode(body, skip, len(body), ctx, out)
                if formed:
                    format_rows(self.form, out, self.share, ctx.where, tolerant=False)

        flat = TicdcSource(self.block, extension=True)
        return {
            "at once": partial(run, ticdc_source.fill, flat, getattr(self.direct, kind), formed=False),
            "by way of JSON": partial(run, source_block.fill_time, self.block, getattr(self.json, kind), formed=True),
        }


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
    single, pairs = [one + r for r in orders], [one + one + r + r for r in orders]
    print(f"rows are decoded by {kernel().text}")
    for count in (1, 8):
        narrow, broad = FlatDecodePaths(ORDERS, ORDERS_MAP, count), FlatDecodePaths(WIDE, WIDE_MAP, count)
        on = f", {count} partition{'s' if count > 1 else ''}"
        measure_in_turns(f"orders insert, 100 rows an event{on}", seconds, rows, narrow.events("write", batches, 1))
        measure_in_turns(f"orders insert, 1 row an event{on}", seconds, rows, narrow.events("write", single, 1))
        measure_in_turns(f"orders update, 1 row an event{on}", seconds, rows, narrow.events("update", pairs, 2))
        measure_in_turns(f"orders delete, 100 rows an event{on}", seconds, rows, narrow.events("delete", batches, 1))
        triples = [three + r for r in wide]
        measure_in_turns(f"wide insert, 1 row an event{on}", seconds, len(wide), broad.events("write", triples, 3))


if __name__ == "__main__":
    main()
