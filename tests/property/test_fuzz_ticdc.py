"""Made-up flat rows of every kind of column, mode and dispatcher, sound and damaged: at once as by way of JSON."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kit.ticdc_identity import sides
from test_fuzz_native import EVENTS, Made, each_seed

from airflow_provider_mysql_cdc.cdc.avro.avro_columns import FallbackToJson
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.formats.ticdc_row_decoder import TicdcRowDecoder

pytestmark = pytest.mark.quick
SEEN = SimpleNamespace(events=0, records=0, direct=0)


def run(seed: int) -> None:
    """Write events of one made-up table in both ways."""
    made = Made(seed)
    both = sides(made)
    if both is None:
        return
    try:
        decoder = TicdcRowDecoder(both.table, both.wires, both.text)
    except Declined:
        return
    columns = list(zip(both.table.columns, both.wires, strict=True))
    size = (len(columns) + 7) // 8
    for _ in range(4):
        kind = made.random.choice(("write", "update", "delete"))
        present = b"\xff" * size * (2 if kind == "update" else 1)
        buf = b"head" + present + made.event(columns, kind) + b"tail"
        ctx = both.context(made.random.choice(("0", "7", "null", "4711")), made.random.choice((0, 7)))
        given = buf, 4 + len(present), len(buf) - 4
        found = both.event(decoder, kind, *given, ctx)
        SEEN.events += 1
        SEEN.records += found is not None and found[0] == "records"
        try:
            getattr(decoder, kind)(*given, ctx, [])
            SEEN.direct += 1
        except FallbackToJson:
            pass


def test_made_up_flat_rows() -> None:
    each_seed(run)
    # Damaged rows and changed keys are written by way of JSON.
    assert SEEN.direct > EVENTS // 5 and SEEN.records > SEEN.direct, SEEN
