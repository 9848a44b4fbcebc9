"""Whoever chooses a native decoder looks its class up in its module when it chooses.

The suite puts classes there that compare both decoders (``kit.native_identity.watch``). A class that is bound by name
at import would leave the comparison out without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kit.cases import for_each
from kit.decode_builder import DEFAULT, NO_SCHEMA, column, table, table_map
from kit.fake_kernel import installed
from kit.ticdc_identity import FlatSides

from airflow_provider_mysql_cdc.cdc.avro import native_avro
from airflow_provider_mysql_cdc.cdc.binlog.table_map import wire_types
from airflow_provider_mysql_cdc.cdc.decode import native_rows, native_text, text_decoder
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import compile_text_decoder
from airflow_provider_mysql_cdc.cdc.formats import ticdc_rows
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt

T = table(column("id", "INT", nullable=False), key=("id",))
MAP = table_map((wt.LONG, 0))
WIRES = wire_types(MAP)


@for_each(
    ("module", "name", "choose"),
    [
        (native_rows, "NativeRowDecoder", lambda: compile_decoder(T, MAP, DEFAULT, NO_SCHEMA)),
        (native_text, "NativeTextDecoder", lambda: compile_text_decoder(T, DEFAULT, NO_SCHEMA)),
        (text_decoder, "NativeKeyReader", lambda: text_decoder.native_key_reader(T, DEFAULT, T.columns)),
        (
            native_rows,
            "NativeRowDecoder",
            lambda: native_avro.create_avro_decoder(T, WIRES, DEFAULT, NO_SCHEMA, ("", "")),
        ),
        (
            ticdc_rows,
            "NativeTicdcDecoder",
            lambda: ticdc_rows.create_ticdc_decoder(T, WIRES, FlatSides(T, WIRES).text),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_native_decoder_is_looked_up_in_its_module(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, choose: Callable[[], Any]
) -> None:
    chosen = object()
    with installed(monkeypatch, module, name):
        monkeypatch.setattr(module, name, lambda *_, **__: chosen)
        assert choose() is chosen
