"""Each row has a key of its own in a window, or it is known that it may not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.cases import for_each
from kit.decode_builder import column, packet, table

from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.native_keys import NativeKeyReader
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import KeyReader
from airflow_provider_mysql_cdc.cdc.drain.row_keys import row_key_options, shared_key_check
from airflow_provider_mysql_cdc.cdc.model.charset_decoders import shared_characters, text_decoder
from airflow_provider_mysql_cdc.cdc.model.table import Table


def keyed_by(type_name: str, **more: Any) -> Table:
    return table(column("v", "INT"), column("k", type_name, nullable=False, **more), key=("k",))


@pytest.mark.req("INC-27")
@for_each(
    ("made", "values"),
    [
        (keyed_by("DATE"), ("0000-00-00", "2020-00-01", "1970-01-01", "0070-01-01", "2020-02-30")),
        (keyed_by("DATETIME", length=2), ("2020-00-01 00:00:00.00", "1970-01-01 00:00:00.00")),
        (keyed_by("TIMESTAMP"), ("0000-00-00 00:00:00", "1970-01-01 00:00:01")),
        (keyed_by("TIME"), ("-00:00:01", "00:00:01")),
        (keyed_by("TINYINT", declared_type="BOOL"), ("0", "1", "2", "-1")),
    ],
    ids=lambda value: value.columns[1].type_name if isinstance(value, Table) else None,
)
def test_a_key_is_what_the_server_has(made: Table, values: tuple[str, ...]) -> None:
    read = KeyReader(made, row_key_options(made), made.columns)
    keys = [json.loads(read(packet(b"1", value.encode())))["k"] for value in values]
    assert [str(key) for key in keys] == [*values]
    assert shared_key_check(made) is None
    with pytest.raises(Declined):
        NativeKeyReader(made, row_key_options(made), made.columns, None)


def test_other_keys_are_left_to_the_kernel() -> None:
    made = table(column("d", "DATE"), column("k", "TINYINT", nullable=False), key=("k",))
    assert not row_key_options(made).flat


@pytest.mark.req("INC-27")
@for_each(
    ("made", "shared", "own"),
    [
        (keyed_by("ENUM", enum_values=("", "a")), [""], ["a"]),
        (keyed_by("ENUM", enum_values=("a", "b", "a")), ["a"], ["", "b"]),
        (keyed_by("SET", enum_values=("", "a")), ["", "a"], []),
        (keyed_by("VARCHAR", charset="gbk"), ["?", "中?"], ["中", "a"]),
        (keyed_by("VARCHAR", charset="cp932"), ["∪"], ["語"]),
        (keyed_by("CHAR", charset="greek"), ["?"], ["α"]),
    ],
    ids=["enum", "lax enum", "set", "gbk", "cp932", "greek"],
)
def test_texts_of_several_rows_are_known(made: Table, shared: list[str], own: list[str]) -> None:
    is_shared = shared_key_check(made)
    assert is_shared is not None
    texts = {text: is_shared(json.dumps({"k": text}).encode()) for text in [*shared, *own]}
    assert texts == dict.fromkeys(shared, True) | dict.fromkeys(own, False)


@for_each(
    "made",
    [
        keyed_by("ENUM", enum_values=("a", "b")),
        keyed_by("SET", enum_values=("a", "b")),
        keyed_by("VARCHAR", charset="utf8mb4"),
        keyed_by("CHAR", charset="latin1"),
        keyed_by("VARBINARY", charset="binary"),
        keyed_by("INT"),
    ],
    ids=["enum", "set", "utf8mb4", "latin1", "binary", "int"],
)
def test_other_texts_are_of_one_row(made: Table) -> None:
    assert shared_key_check(made) is None


def test_codes_of_one_character_are_found() -> None:
    assert text_decoder("cp932")(b"\x81\xbe") == text_decoder("cp932")(b"\x87\x9c") == "∪"
    assert text_decoder("eucjpms")(b"\x8f\xa2\xb7") in shared_characters("eucjpms")
    assert {"\\", "?"} <= shared_characters("sjis")
