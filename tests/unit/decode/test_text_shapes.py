"""Tables of one shape share the code that reads their snapshot's rows, and keep their own schemas around them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from kit.decode_builder import column, context, packet, table

from airflow_provider_mysql_cdc.cdc.decode import text_decoder as text
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.text_row_source import compile_source
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.model.table import TableId


def read(name: str, schemas: bool, column_name: str = "v", cut: int = 0) -> tuple[Any, ...]:
    made = replace(table(column(column_name, "INT")), id=TableId("db", name))
    key, whole = (json.dumps({"name": f"{name} {{t}} ' ü \\ {part}"}) for part in ("key", "value"))
    envelope = EnvelopeText(key, whole) if schemas else EnvelopeText()
    options = DecoderOptions(key_columns=(column_name,))
    out: list[Any] = []
    text.compile_text_decoder(made, options, envelope)(packet(b"7")[cut:], 0, context(), out)
    return tuple(out[0])


@pytest.mark.parametrize("schemas", [False, True])
def test_a_thousand_tables_of_a_shape_are_compiled_once(schemas: bool) -> None:
    compile_source.cache_clear()
    for n in range(1_000):
        key, value, *_ = read(f"t{n}", schemas)
        if schemas:
            assert json.loads(key)["schema"] == {"name": f"t{n} {{t}} ' ü \\ key"}
            assert json.loads(value)["schema"] == {"name": f"t{n} {{t}} ' ü \\ value"}
        found = json.loads(key), json.loads(value)
        found = tuple(f["payload"] for f in found) if schemas else found
        assert found[0] == {"v": 7} and found[1]["after"] == {"v": 7}
    assert compile_source.cache_info().misses == 1
    read("other", schemas, "w")
    assert compile_source.cache_info().misses == 2


def test_a_row_that_cannot_be_read_names_its_own_table() -> None:
    read("first", True)
    with pytest.raises(ValueDecodeError, match=r"of table db\.second cannot be read"):
        read("second", True, cut=1)


def test_code_that_is_kept_is_bounded() -> None:
    for n in range(400):
        read("t", False, f"c{n}")
    assert compile_source.cache_info().currsize <= 256
