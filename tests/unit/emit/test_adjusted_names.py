"""Names adjusted to Avro's rules."""

from __future__ import annotations

import json
import struct

import pytest
from kit.cases import for_each
from kit.decode_builder import NO_SCHEMA, body, column, context, image, table, table_map

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.emit.envelope import envelope_text
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.avro_names import field_name, schema_name


@pytest.mark.req("EVT-04", "COL-15")
@for_each(
    ("name", "avro", "unicode"),
    [
        ("plain9", "plain9", "plain9"),
        ("a b", "a_b", "a_u0020b"),
        ("a_b", "a_b", "a_u005fb"),
        ("a.b", "a_b", "a_u002eb"),
        ("1st", "_1st", "_u0031st"),
        ("ñ", "_", "_u00f1"),
        ("aā", "a_", "a_u101"),
        ("名", "_", "_u540d"),
        ("😀", "__", "_ud83d_ude00"),
        ("-", "_", "_u002d"),
        ("", "", ""),
    ],
)
def test_field_names(name: str, avro: str, unicode: str) -> None:
    assert field_name(name, "none") == name
    assert field_name(name, "avro") == avro
    assert field_name(name, "avro_unicode") == unicode


@pytest.mark.req("EVT-04", "EVT-06", "EVT-07", "COL-16")
def test_schema_names_keep_their_dots() -> None:
    assert schema_name("mysql-server-1.db.t_x.Value", "none") == "mysql-server-1.db.t_x.Value"
    assert schema_name("mysql-server-1.db.t_x.Value", "avro") == "mysql_server_1.db.t_x.Value"
    assert schema_name("mysql-1.t_x.Value", "avro_unicode") == "mysql_u002d1.t_u005fx.Value"


@pytest.mark.req("EVT-05", "FAULT-32")
def test_columns_whose_names_become_equal_are_refused() -> None:
    made = table(column("a b", "INT"), column("a-b", "INT"))
    with pytest.raises(SchemaError, match="same field name a_b"):
        envelope_text(made, DecoderOptions(field_names="avro"))
    assert envelope_text(made, DecoderOptions(field_names="avro", included=("a b",)))
    assert envelope_text(made, DecoderOptions(field_names="avro_unicode"))


def test_adjusted_names_stand_in_rows_keys_and_headers() -> None:
    made = table(column("i d", "INT", nullable=False), key=("i d",))
    decoder = compile_decoder(made, table_map((wt.LONG, 0)), DecoderOptions(field_names="avro"), NO_SCHEMA)
    out: list = []
    rows = [image(1, struct.pack("<i", n)) for n in (1, 2)]
    buf, pos, end = body(*rows, columns=1, images=2)
    assert decoder.update(buf, pos, end, context(), out) == 1
    assert [json.loads(r[0]) for r in out] == [{"i_d": 1}, {"i_d": 1}, {"i_d": 2}]
    assert json.loads(out[2][1])["after"] == {"i_d": 2}
    assert out[0][4] == ("__debezium.newkey", b'{"i_d":2}')
