"""Made-up flat rows of every kind of column, mode and dispatcher: the native kernel says what Python says."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kit.native_identity import BothFlat
from kit.ticdc_identity import sides
from test_fuzz_native import EVENTS, Made, each_seed

from airflow_provider_mysql_cdc.cdc.avro.avro_columns import FallbackToJson
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import kernel
from airflow_provider_mysql_cdc.cdc.formats.ticdc_row_decoder import (
    ColumnPartitioner,
    TicdcRowDecoder,
    TransactionPartitioner,
)
from airflow_provider_mysql_cdc.cdc.formats.ticdc_rows import TICDC_ROWS

pytestmark = [pytest.mark.quick, pytest.mark.native]
SEEN = SimpleNamespace(events=0, declined={}, spread={})


def run(seed: int) -> None:
    """Write events of one made-up table in both ways."""
    made = Made(seed)
    both = sides(made)
    if both is None:
        return
    try:
        decoder = BothFlat(TicdcRowDecoder(both.table, both.wires, both.text), both.wires, kernel().module)
    except Declined as reason:
        SEEN.declined[str(reason)] = seed
        return
    columns = list(zip(both.table.columns, both.wires, strict=True))
    size = (len(columns) + 7) // 8
    for _ in range(4):
        kind = made.random.choice(("write", "update", "delete"))
        present = b"\xff" * size * (2 if kind == "update" else 1)
        if made.random.random() < 0.05:
            # Images that leave the first column out, as the header says.
            present = bytes([0xFE]) + present[1:]
        buf = b"head" + present + made.event(columns, kind) + b"tail"
        ctx = both.context(made.random.choice(("0", "7", "null", "4711")), made.random.choice((0, 7)))
        try:
            getattr(decoder, kind)(buf, 4 + len(present), len(buf) - 4, ctx, [])
        except FallbackToJson:
            continue
        SEEN.events += 1
        SEEN.spread[type(both.text.partitioner)] = SEEN.spread.get(type(both.text.partitioner), 0) + 1


def test_made_up_flat_rows() -> None:
    before, changed = BothFlat.compared[TICDC_ROWS.action], BothFlat.compared["changed keys"]
    each_seed(run)
    assert BothFlat.compared["changed keys"] - changed > EVENTS // 200
    # Damaged rows and changed keys are not compared.
    assert BothFlat.compared[TICDC_ROWS.action] - before > EVENTS // 6, SEEN
    assert SEEN.spread[ColumnPartitioner] > EVENTS // 60 and SEEN.spread[TransactionPartitioner] > EVENTS // 100, SEEN
