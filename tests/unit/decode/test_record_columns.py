"""Decoders, schemas, Avro, TiCDC and snapshots have the same columns in keys and values, whatever their names' case."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.avro_identity import Sides
from kit.cases import for_each
from kit.decode_builder import NO_SCHEMA, body, column, context, image, packet, table, table_map, write
from kit.ticdc_identity import TICDC

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import (
    key_columns,
    key_indexes,
    select_list,
    selected_columns,
    value_columns,
)
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import KeyReader, compile_text_decoder
from airflow_provider_mysql_cdc.cdc.emit.envelope import envelope_text
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.formats.ticdc_format import TicdcFormat
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.registry_settings import SchemaId
from airflow_provider_mysql_cdc.cdc.model.table import folded_name

# What the table calls a column, and what the options call it.
ONE_NAME = [("Id", "Id"), ("Id", "iD"), ("ÄRGER", "ärger"), ("ΌΝΟΜΑΣ", "όνομασ"), ("İD", "id"), ("ß", "ß")]
MAP = table_map(*((wt.TINY, 0),) * 3)


def numbers(*names: str) -> Any:
    return table(*(column(name, "TINYINT", nullable=False) for name in names))


def fields(schema: str | None) -> list[str]:
    return [] if schema is None else [f["field"] for f in json.loads(schema)["fields"]]


def row_fields(schema: str | None) -> list[str]:
    assert schema is not None
    return [f["field"] for f in json.loads(schema)["fields"][1]["fields"]]


@for_each(("name", "given"), ONE_NAME)
def test_all_that_make_records_agree_on_key_and_value(name: str, given: str) -> None:
    made = numbers("first", name, "last")
    options = DecoderOptions(prefix="p", key_columns=("LAST", given), included=(given,))
    key, value = ["last", name], [name]
    assert [c.name for c in key_columns(made, options)] == key and key_indexes(made, options) == (2, 1)
    assert [c.name for c in value_columns(made, options)] == value
    texts = envelope_text(made, options)
    assert fields(texts.key_schema) == key and row_fields(texts.value_schema) == value
    (record,) = write(compile_decoder(made, MAP, options, NO_SCHEMA), image(3, b"\1\2\3"), columns=3)
    assert json.loads(record[0]) == {"last": 3, name: 2} and list(json.loads(record[1])["after"]) == value
    assert [c.name for c in selected_columns(made, options)] == [name, "last"]
    assert select_list(made, options) == f"`{name}`, `last`"
    out: list[Any] = []
    compile_text_decoder(made, options, NO_SCHEMA)(packet(b"2", b"3"), 0, context(), out)
    assert (out[0][0], json.loads(out[0][1])["after"]) == (record[0], {name: 2})
    assert KeyReader(made, options, selected_columns(made, options))(packet(b"2", b"3")) == record[0]


@for_each(("name", "given"), ONE_NAME)
def test_avro_has_the_columns_of_its_schemas(name: str, given: str) -> None:
    """What both ways write is read back with the schemas that were registered, to the last byte."""
    made = numbers("first", name, "last")
    both = Sides(made, DecoderOptions(key_columns=(given,), included=(given, "last")))
    for kind, row in (("write", image(3, b"\1\2\3")), ("delete", image(3, b"\1\2\3"))):
        found = both.event(kind, MAP, *body(row, columns=3))
        assert found is not None and found[0] == "records"
    assert both.row(packet(b"2", b"3")) is not None


@for_each(("name", "given"), ONE_NAME)
def test_flat_rows_have_the_same_columns(name: str, given: str) -> None:
    made, schemas = numbers("first", name, "last"), list[Any]()
    options = DecoderOptions(key_columns=("LAST", given), included=(given,), flat=True)

    def ask(part: str, subject: str, text: str, about: str) -> SchemaId:
        schemas.append([f["name"] for f in json.loads(text)["fields"]])
        return SchemaId(1)

    form = TicdcFormat(ConnectorConfig.from_properties(TICDC), made, options, "t", ask)
    assert form.keys == (name, "last"), "in the table's order"
    assert len(schemas) == 2 and [len(names) for names in schemas] == [2, 1]


def test_names_that_mysql_distinguishes_are_two_columns() -> None:
    """Unicode 5.1 made ẞ the capital of ß, which MySQL does not know; Python does."""
    made = numbers("ẞ", "ß")
    for index, name in enumerate(("ẞ", "ß")):
        options = DecoderOptions(key_columns=(name,), included=(name,))
        assert key_indexes(made, options) == (index,) and [c.name for c in value_columns(made, options)] == [name]
        column_of_name = made.column(name)
        assert column_of_name is not None and column_of_name.name == name


def test_a_key_column_that_is_not_there_is_an_error_for_all() -> None:
    made, options = numbers("a"), DecoderOptions(prefix="p", key_columns=("b",))
    for ask in (key_columns, selected_columns, envelope_text):
        with pytest.raises(SchemaError, match="key column b is not a column of the table"):
            ask(made, options)  # type: ignore[operator]
    with pytest.raises(SchemaError, match=r"key column b.*db\.t"):
        compile_decoder(made, table_map((wt.TINY, 0)), options, NO_SCHEMA)


def test_a_column_of_the_value_that_is_not_there_is_left_out() -> None:
    assert value_columns(numbers("a"), DecoderOptions(included=("b", "A"))) == numbers("a").columns


@for_each(
    ("one", "other", "same"),
    [
        ("ID", "id", True),
        ("É", "é", True),
        ("é", "e", False),
        ("ΑΣ", "ας", False),
        ("ΑΣ", "ασ", True),
        ("İ", "i", True),
    ],
)
def test_names_are_compared_character_by_character(one: str, other: str, same: bool) -> None:
    """``tests/integration/test_columns.py`` asks a server for the same pairs."""
    assert (folded_name(one) == folded_name(other)) is same
