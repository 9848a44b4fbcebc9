"""Tables of one shape share their code, and each writes its own names."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from kit.cases import for_each
from kit.decode_builder import column, python_decoder, table, table_map

from airflow_provider_mysql_cdc.cdc.decode.codegen import table_shape
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EventContext
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.emit.envelope import envelope_text
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId

T = table(column("id", "INT", nullable=False), column("n", "INT"), key=("id",))
MAP = table_map((wt.LONG, 0), (wt.LONG, 0))
OPTIONS = DecoderOptions(prefix="p")
ROW = b"\x00" + (7).to_bytes(4, "little") + (8).to_bytes(4, "little")


def named(name: str, of: Table = T) -> Table:
    return replace(of, id=TableId("db", name))


def decoder(made: Table, options: DecoderOptions = OPTIONS) -> RowDecoder:
    return compile_decoder(made, MAP, options, envelope_text(made, options))


def records(made: RowDecoder) -> list[Any]:
    out: list[Any] = []
    ctx = EventContext('{"row":', "}", ',"ts_ms":7}', where="here")
    buf = b"\xff\xff" + ROW + ROW
    made.write(buf[1:], 1, 1 + len(ROW), ctx, out)
    made.delete(buf[1:], 1, 1 + len(ROW), ctx, out)
    made.update(buf, 2, len(buf), ctx, out)
    return out


def test_tables_of_one_shape_are_compiled_once_and_write_their_own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    first = records(decoder(named("single_'{0}\\")))
    monkeypatch.setattr(table_shape, "compiled", lambda source: pytest.fail("it is compiled again"))
    second = records(decoder(named("other_'{0}\\")))
    assert len(first) == len(second) == 4
    for one, other in zip(first, second, strict=True):
        assert one[2:] == other[2:]
        for mine, theirs in zip(one[:2], other[:2], strict=True):
            assert (mine is None) == (theirs is None)
            if mine is not None:
                assert mine != theirs
                assert mine.replace(b"single_", b"other_") == theirs
                assert json.loads(theirs)["payload"] is not None


@for_each(
    ("made", "options", "key", "row", "count"),
    [
        (replace(T, primary_key=()), OPTIONS, None, {"id": 7, "n": 8}, 4),
        (replace(T, columns=(T.columns[0], replace(T.columns[1], name="m"))), OPTIONS, {"id": 7}, {"id": 7, "m": 8}, 4),
        (T, replace(OPTIONS, included=("id",)), {"id": 7}, {"id": 7}, 4),
        (T, replace(OPTIONS, tombstones=False), {"id": 7}, {"id": 7, "n": 8}, 3),
        (T, replace(OPTIONS, key_fields=(("source", "x"),)), {"id": 7, "source": "x"}, {"id": 7, "n": 8}, 4),
    ],
    ids=["no key", "another column", "a column left out", "no tombstones", "a key field"],
)
def test_tables_that_differ_in_anything_else_do_not_share(
    made: Table, options: DecoderOptions, key: Any, row: Any, count: int
) -> None:
    decoder(T)
    found = records(decoder(made, options))
    assert len(found) == count
    assert json.loads(found[0][1])["payload"]["after"] == row
    assert (None if found[0][0] is None else json.loads(found[0][0])["payload"]) == key


def test_a_title_that_a_transform_gave_is_the_schemas_name() -> None:
    plain = envelope_text(named("a"), OPTIONS)
    titled = envelope_text(named("a"), replace(OPTIONS, schema_titles=(("Value", 'q"x'), ("Key", "k"))))
    names = [json.loads(text or "")["name"] for text in (plain.key_schema, plain.value_schema, titled.key_schema)]
    assert names == ["p.db.a.Key", "p.db.a.Envelope", "k"]
    images = json.loads(titled.value_schema or "")["fields"][:2]
    assert [image["name"] for image in images] == ['q"x', 'q"x']


def test_an_error_names_the_table_at_hand() -> None:
    for name in ("a", "b"):
        with pytest.raises(SchemaError) as caught:
            envelope_text(named(name), replace(OPTIONS, key_columns=("nothing",)))
        assert caught.value.where == f"db.{name}"


def test_the_code_that_a_shape_keeps_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_shape, "_MAX_RUNS", 3)
    shape = python_decoder(_alone(T, OPTIONS))._shape
    for bitmap in (None, b"\x00", b"\x02", None, b"\x00"):
        for tombstone in (True, False):
            texts = {table_shape.KEY_PREFIX: "", table_shape.KEY_SUFFIX: "", table_shape.VALUE_PREFIX: ""}
            assert callable(shape.run("{", bitmap, tombstone=tombstone, texts=texts, owned=None))
            assert len(shape._runs) <= 3


def _alone(made: Table, options: DecoderOptions) -> RowDecoder:
    table_shape._shared_shape.cache_clear()
    return decoder(made, options)
