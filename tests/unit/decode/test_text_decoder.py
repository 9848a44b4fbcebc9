"""Rows of the text protocol.

Decoders, schemas, Avro, TiCDC and snapshots have the same columns in keys and values, whatever their names' case.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.avro_identity import Sides
from kit.cases import for_each
from kit.decode_builder import DEFAULT, NO_SCHEMA, body, column, context, image, packet, table, table_map, write
from kit.native_identity import BothTexts
from kit.ticdc_identity import TICDC

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
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
from airflow_provider_mysql_cdc.cdc.errors import SchemaError, ValueDecodeError
from airflow_provider_mysql_cdc.cdc.formats.ticdc_format import TicdcFormat
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.connection import SchemaId
from airflow_provider_mysql_cdc.cdc.model.table import folded_name

T = table(
    column("id", "BIGINT", nullable=False),
    column("na`me", "VARCHAR", length=20, charset="utf8mb4"),
    column("f", "FLOAT"),
    column("d", "DOUBLE", length=10, scale=2),
    key=("id",),
)


def read(*values: bytes | None, options: DecoderOptions = DEFAULT, texts: EnvelopeText = NO_SCHEMA, **more: Any) -> Any:
    out: list[Any] = []
    compile_text_decoder(T, options, texts)(packet(*values), 0, context(**more), out)
    assert len(out) == 1
    return out[0]


@pytest.mark.req("EVT-27")
def test_a_row_is_a_read_event() -> None:
    record = read(b"5", "ü".encode(), b"1.5", None)
    assert record == (
        b'{"id":5}',
        '{"before":null,"after":{"id":5,"na`me":"ü","f":1.5,"d":null},"source":{"row":0},"transaction":null,'
        '"op":"r","ts_ms":7}'.encode(),
        0,
        0,
        None,
        None,
    )


def test_schema_contract_and_foreign_text_around_the_row() -> None:
    texts = EnvelopeText('{"k":1}', '{"v":"ü"}')
    key, value, *_ = read(b"5", b"x", b"1", b"2", texts=texts, transaction='{"id":"😀"}')
    assert json.loads(key) == {"schema": {"k": 1}, "payload": {"id": 5}}
    assert json.loads(value)["schema"] == {"v": "ü"} and json.loads(value)["payload"]["transaction"] == {"id": "😀"}
    _, value, *_ = read(b"5", b"x", b"1", b"2", options=DecoderOptions(contract="1.9"))
    assert list(json.loads(value)) == ["before", "after", "source", "op", "ts_ms"]


def test_select_list_asks_floats_with_all_their_digits_and_quotes_names() -> None:
    assert select_list(T) == "`id`, `na``me`, `f` * 1e0 AS `f`, `d` * 1e0 AS `d`"


def test_select_list_and_decoder_leave_excluded_columns_out_but_not_the_key() -> None:
    options = DecoderOptions(included=("f",))
    assert select_list(T, options) == "`id`, `f` * 1e0 AS `f`"
    key, value, *_ = read(b"5", b"1.5", options=options)
    assert (key, json.loads(value)["after"]) == (b'{"id":5}', {"f": 1.5})


@for_each("size", [0, 1, 250, 251, 252, 70_000])
def test_values_of_every_length(size: int) -> None:
    _, value, *_ = read(b"5", b"x" * size, b"1", b"1")
    assert json.loads(value)["after"]["na`me"] == "x" * size


def test_trailing_blanks_of_char_are_cut_as_in_the_binlog() -> None:
    made = table(column("c", "CHAR", length=5, charset="utf8mb4"), column("v", "VARCHAR", length=5, charset="utf8mb4"))
    out: list[Any] = []
    compile_text_decoder(made, DEFAULT, NO_SCHEMA)(packet(b"ab   ", b"ab   "), 0, context(), out)
    assert json.loads(out[0][1])["after"] == {"c": "ab", "v": "ab   "}


def test_members_that_are_no_text_are_what_the_server_shows() -> None:
    """SELECT gives the bytes of those that CONVERT TO CHARACTER SET utf8mb4 left so (MySQL 9.7.4)."""
    made = table(column("e", "ENUM", charset="utf8mb4"), column("s", "SET", charset="utf8mb4"))
    out: list[Any] = []
    decode = compile_text_decoder(made, DEFAULT, NO_SCHEMA)
    if isinstance(decode, BothTexts):
        decode.sound = False  # the kernel leaves bytes that are no text to Python
    for value in (b"b\xe9\xe8b", b"\xe9,\xfc", "é,ü".encode()):
        decode(packet(value, value), 0, context(), out)
    assert [json.loads(record[1])["after"] for record in out] == [
        {"e": "b?", "s": "b?"},
        {"e": "?,", "s": ","},
        {"e": "é,ü", "s": "é,ü"},
    ]


@for_each(
    ("values", "what"),
    [
        ((b"5", b"\xff", b"1", b"1"), "A value of column na`me"),
        ((b"5", b"x", b"one", b"1"), "A value of column f"),
        ((None, b"x", b"1", b"1"), "A value of column id"),
        ((b"5", b"x", b"1"), "A value of column d"),
        ((b"5", b"x", b"1", b"1", b"more"), "A row"),
    ],
)
def test_a_failure_names_table_and_column(values: tuple[bytes | None, ...], what: str) -> None:
    with pytest.raises(ValueDecodeError) as caught:
        read(*values)
    assert caught.value.what == f"{what} of table db.t cannot be read"
    assert "binlog.000001:4" in caught.value.where


MIXED = table(
    column("a", "VARCHAR", length=70_000, charset="utf8mb4"),
    column("b", "BIGINT", nullable=False),
    column("c", "DOUBLE"),
    column("d", "VARCHAR", length=20, charset="utf8mb4", nullable=False),
    column("e", "FLOAT"),
    key=("d", "b"),
)


@for_each("size", [0, 1, 250, 251, 70_000])
@for_each("middle", [b"1.5", None])
def test_a_key_is_read_as_the_decoder_writes_it(size: int, middle: bytes | None) -> None:
    """Key columns in another order than the table's, with long values and NULL before and between them."""
    row = packet(b"x" * size, b"-7", middle, 'ü"\\'.encode(), b"1")
    options, made = DecoderOptions(included=()), list[Any]()
    compile_text_decoder(MIXED, options, NO_SCHEMA, MIXED.columns)(row, 0, context(), made)
    assert KeyReader(MIXED, options, MIXED.columns)(row) == made[0][0]
    assert json.loads(made[0][0]) == {"d": 'ü"\\', "b": -7}


def test_a_value_outside_the_key_is_not_read_and_one_of_the_key_is_named() -> None:
    read_key = KeyReader(MIXED, DEFAULT, MIXED.columns)
    assert read_key(packet(b"\xff", b"5", b"no number", b"k", b"none")) == b'{"d":"k","b":5}'
    with pytest.raises(ValueDecodeError, match=r"column d of table db\.t"):
        read_key(packet(b"x", b"1", b"1", None))


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(SchemaError, match="NOSUCH"):
        compile_text_decoder(table(column("c", "NOSUCH")), DEFAULT, NO_SCHEMA)


@pytest.mark.req("TYPE-27")
@for_each("mode", ["bytes", "hex"])
@for_each("type_name", ["ENUM", "SET"])
def test_members_of_bytes_are_text_as_in_the_stream(type_name: str, mode: str) -> None:
    """In the character set binary a member has a character for each byte, whatever binary.handling.mode says."""
    members = ("a", "Ã¤", '"\n', "ÿ\x01")
    of_bytes = table(column("e", type_name, charset="binary", collation="binary", enum_values=members))
    decode = compile_text_decoder(of_bytes, DecoderOptions(binary_mode=mode), NO_SCHEMA)
    for member in members:
        out: list[Any] = []
        decode(packet(member.encode("latin-1")), 0, context(), out)
        assert json.loads(out[0][1])["after"] == {"e": member}


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
