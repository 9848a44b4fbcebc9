"""Made-up rows of every kind of column and mode as Avro, sound and damaged: the native kernel says what Python says."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from kit.avro_identity import sides
from kit.native_identity import BothDecoders
from test_fuzz_native import EVENTS, Made, each_seed

from airflow_provider_mysql_cdc.cdc.avro.avro_columns import FallbackToJson, avro_row_decoder
from airflow_provider_mysql_cdc.cdc.avro.native_avro import AVRO_ROWS
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import kernel
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId

pytestmark = [pytest.mark.quick, pytest.mark.native]


def run(seed: int) -> None:
    """Write events of one made-up table in both ways."""
    made = Made(seed)
    columns = [made.column(n) for n in range(1, made.random.randrange(2, 12))]
    names = [c.name for c, _ in columns]
    keys = tuple(made.random.sample(names, made.random.randrange(min(3, len(names)) + 1)))
    table, wires = Table(TableId("db", "t"), tuple(c for c, _ in columns), keys), tuple(w for _, w in columns)
    options = made.options(table.columns)
    # Only strings can be masked, and those of character set binary are bytes.
    masked = {name for name, _ in options.treatments}
    if any(c.name in masked and (c.family is not Family.TEXT or c.charset == "binary") for c in table.columns):
        options = replace(options, treatments=())
    both = sides(table, options)
    if both is None:
        return
    try:
        decoder = BothDecoders(
            avro_row_decoder(both.table, wires, both.options, both.texts, both.heads()),
            wires,
            AVRO_ROWS,
            kernel().module,
        )
    except Declined:
        return
    size = (len(columns) + 7) // 8
    for _ in range(4):
        kind = made.random.choice(("write", "update", "delete"))
        present = b"\xff" * size * (2 if kind == "update" else 1)
        buf = b"head" + present + made.event(columns, kind) + b"tail"
        _, ctx = both.contexts(first_row=made.random.choice((0, 7, 9_000)))
        try:
            getattr(decoder, kind)(buf, 4 + len(present), len(buf) - 4, ctx, [])
        except FallbackToJson as reason:
            NOT_DIRECT.by[type(reason.error)] = NOT_DIRECT.by.get(type(reason.error), 0) + 1


NOT_DIRECT = SimpleNamespace(by={})


def test_made_up_rows_as_avro() -> None:
    before, changed = BothDecoders.compared[AVRO_ROWS.action], BothDecoders.compared["changed keys"]
    each_seed(run)
    assert BothDecoders.compared["changed keys"] - changed > EVENTS // 200
    # Tables with spatial columns, damaged rows and changed keys are not compared.
    assert BothDecoders.compared[AVRO_ROWS.action] - before > EVENTS // 6, NOT_DIRECT.by
