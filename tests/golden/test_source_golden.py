"""Source blocks and the other topics equal what Debezium 3.6.1 wrote."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from golden.golden_data import rows

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import EventContext
from airflow_provider_mysql_cdc.cdc.emit.heartbeat import transaction_record
from airflow_provider_mysql_cdc.cdc.emit.source_block import fill, fill_snapshot, snapshot_marker, source_block
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId


def source_text(payload: dict[str, Any]) -> str:
    """Build the source block of a recorded event from its facts."""
    s = payload["source"]
    block = source_block(TableId(s["db"], s["table"]), prefix="cap", include_query=True)
    ctx = EventContext()
    if s["snapshot"] == "false":
        event = SimpleNamespace(timestamp=0, server_id=s["server_id"], file=s["file"], start_pos=s["pos"])
        at = SimpleNamespace(gtid=s["gtid"], commit_us=s["ts_us"], thread=s["thread"] or 0, query=s["query"])
        fill(ctx, block, event, at)
    else:
        fill_snapshot(ctx, block, BinlogOffset(s["file"], s["pos"], "u:1-9"), s["ts_ms"], s["snapshot"])
    return f"{ctx.src_head}{s['row']}{ctx.src_tail}"


@pytest.mark.req("EVT-35", "EVT-37", "SNAP-42", "SNAP-43", "STRM-18", "STRM-19")
def test_source_blocks_equal_the_recording() -> None:
    recorded = rows("payloads")
    assert {json.loads(r["payload"])["source"]["snapshot"] for r in recorded} > {"false", "true", "last", "first"}
    for row in recorded:
        assert f'"source":{source_text(json.loads(row["payload"]))},"transaction"' in row["payload"]


@pytest.mark.req("EVT-23")
def test_the_text_after_op_has_the_time_in_three_units() -> None:
    ctx = EventContext()
    block = source_block(TableId("d", "t"), prefix="cap")
    payload = rows("payloads")[0]["payload"]
    ns = json.loads(payload)["ts_ns"]
    assert payload.endswith(f'"op":"r"{block.op_tail(ns)}')
    fill_snapshot(ctx, block, BinlogOffset("b.000001", 4), 1000)
    assert ctx.where == "b.000001:4"


@pytest.mark.req("SNAP-48", "DIS-11")
def test_snapshot_markers_follow_the_recordings() -> None:
    for row in rows("snapshot_markers"):
        tables = list(row["tables"].values())
        # "first" went to a table of the recording's own database where that came first.
        first = next((i for i, t in enumerate(tables) if "first" in t), None)
        for i, markers in enumerate(tables):
            count = len(markers)
            mine = [
                snapshot_marker(
                    first_row=n == 0,
                    last_row=n == count - 1,
                    first_table=i == first,
                    last_table=i == len(tables) - 1,
                )
                for n in range(count)
            ]
            assert mine == markers


@pytest.mark.req("TXN-02", "TXN-03", "TXN-04", "TXN-05", "TXN-10")
def test_transaction_records_equal_the_recording() -> None:
    for row in rows("transactions"):
        payload = json.loads(row["value"])["payload"]
        found = payload["data_collections"]
        counts = None if found is None else {c["data_collection"]: c["event_count"] for c in found}
        key, value = transaction_record(payload["id"], payload["ts_ms"], counts)
        assert (key.decode(), value.decode()) == (row["key"], row["value"])
        assert row["headers"] == []
