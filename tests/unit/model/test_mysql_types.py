"""The table of types: every layer has an entry for each row, and a new row of a known family needs nothing else."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Container
from pathlib import Path
from typing import NamedTuple

from kit.cases import for_each
from pymysqlreplication.constants import FIELD_TYPE

from airflow_provider_mysql_cdc.cdc.avro import avro_renderers, avro_text_renderers
from airflow_provider_mysql_cdc.cdc.binlog.table_map import WireType
from airflow_provider_mysql_cdc.cdc.convert import connect_schema, connect_types
from airflow_provider_mysql_cdc.cdc.ddl import stored_defaults
from airflow_provider_mysql_cdc.cdc.decode import native_kernel, native_text, table_check
from airflow_provider_mysql_cdc.cdc.decode.codegen import (
    custom_values,
    literal_temporal_renderers,
    renderers,
    temporal_renderers,
    text_renderers,
)
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.renderers import ColumnRequest
from airflow_provider_mysql_cdc.cdc.model import mysql_types, wire_codes
from airflow_provider_mysql_cdc.cdc.model.mysql_types import (
    METADATA_BYTES,
    MYSQL_TYPES,
    SPATIAL_FAMILIES,
    TEMPORAL_FAMILIES,
    Family,
    Metadata,
    MySqlType,
    mysql_type,
)
from airflow_provider_mysql_cdc.cdc.model.table import Column
from airflow_provider_mysql_cdc.cdc.snapshot import key_kinds
from airflow_provider_mysql_cdc.cdc.ticdc import ticdc_encoder

ROOT = Path(__file__).resolve().parents[3]
CORE = ROOT / "airflow_provider_mysql_cdc" / "cdc"
ROWS = tuple(MYSQL_TYPES.values())


class LayerTable(NamedTuple):
    """A table by family, and which rows of the types must have an entry: what the others have instead is in the row."""

    file: str
    entries: Container[Family]
    has_entry: Callable[[MySqlType], bool] = lambda row: True


TABLES = (
    LayerTable("decode/codegen/renderers.py", renderers.RENDERERS),
    LayerTable("decode/codegen/text_renderers.py", text_renderers.RENDERERS),
    LayerTable("decode/codegen/custom_values.py", custom_values.PARSERS),
    LayerTable("decode/native_kernel.py", native_kernel.OPS),
    LayerTable("decode/native_text.py", native_text.OPS),
    LayerTable("convert/connect_types.py", connect_types.BUILDERS),
    LayerTable("convert/connect_schema.py", connect_schema.CONVERTERS, lambda row: row.literal_default),
    LayerTable("ddl/stored_defaults.py", stored_defaults.STORES, lambda row: row.literal_default),
    # A TIMESTAMP's literal is a time in the zone of a session.
    LayerTable(
        "convert/connect_schema.py",
        connect_schema.PLAIN_VALUES,
        lambda row: row.literal_default and row.family is not Family.TIMESTAMP,
    ),
    LayerTable("avro/avro_renderers.py", avro_renderers.RENDERERS, lambda row: row.direct_avro),
    LayerTable("avro/avro_text_renderers.py", avro_text_renderers.RENDERERS, lambda row: row.direct_avro),
    LayerTable("snapshot/key_kinds.py", key_kinds.KIND_NAMES, lambda row: row.key_range),
)


def lacking(tables: tuple[LayerTable, ...], rows: tuple[MySqlType, ...]) -> list[str]:
    return [
        f"{table.file} has no entry for Family.{row.family.name}, the family of {row.name}"
        for table in tables
        for row in rows
        if table.has_entry(row) and row.family not in table.entries
    ]


def test_every_layer_has_an_entry_for_every_type() -> None:
    assert lacking(TABLES, ROWS) == []


def test_a_type_of_a_new_family_is_missed_by_each_layer() -> None:
    made_up = MySqlType("INET6", Family.UNKNOWN, (), literal_default=True, key_range=True)
    missed = lacking(TABLES, (made_up,))
    assert len(missed) == len(TABLES)
    assert missed[0] == "decode/codegen/renderers.py has no entry for Family.UNKNOWN, the family of INET6"


def test_no_entry_is_left_over() -> None:
    needed = {(table.file, row.family) for table in TABLES for row in ROWS if table.has_entry(row)}
    families = [family for family in Family if family is not Family.UNKNOWN]
    entries = {(table.file, family) for table in TABLES for family in families if family in table.entries}
    assert entries == needed
    assert {row.family for row in ROWS} == set(families)


def test_every_format_of_dates_and_times_has_renderers() -> None:
    temporal = [row for row in ROWS if row.family in TEMPORAL_FAMILIES]
    codes = {form.code for row in temporal for form in row.formats}
    assert set(literal_temporal_renderers.RENDERERS) == codes
    assert set(temporal_renderers.RENDERERS) == codes | {wire_codes.YEAR}


def test_whole_numbers_of_every_width_have_renderers() -> None:
    widths = {row.width for row in ROWS if row.family is Family.INTEGER}
    assert set(renderers._BY_WIDTH) == set(avro_renderers._BY_WIDTH) == widths


def test_every_kind_of_metadata_is_compared() -> None:
    assert set(table_check.METADATA) == set(METADATA_BYTES) == set(Metadata)


def test_tidb_has_all_types_but_the_spatial_ones() -> None:
    assert {row.family for row in ROWS if not row.tidb_type} == SPATIAL_FAMILIES
    assert {row.tidb_avro_type for row in ROWS if row.tidb_type} == set(ticdc_encoder.BY_AVRO_TYPE)


def sample(row: MySqlType) -> Column:
    members = ("a", "b") if row.has_members else ()
    return Column("c", 1, row.name, length=3, charset="utf8mb4" if row.collated else None, enum_values=members)


@for_each("row", ROWS, ids=lambda row: row.name)
def test_the_operations_of_the_native_kernel_have_names(row: MySqlType) -> None:
    column, options = sample(row), DecoderOptions()
    for form in row.formats if native_kernel.OPS[row.family] is not None else ():
        op = native_kernel.binlog_op(ColumnRequest(column, WireType(form.code, 4, 0), options, "null"))
        assert op is not None and op.name
    if native_text.OPS[row.family] is not None:
        assert native_text.text_op(column, options, "null").name


@for_each("row", ROWS, ids=lambda row: row.name)
def test_every_type_has_a_schema(row: MySqlType) -> None:
    schema = connect_types.connect_type(sample(row), DecoderOptions())
    assert schema.type
    if row.connect_type:
        assert (schema.type, schema.name or "") == (row.connect_type, row.semantic_type)


def test_other_names_in_the_rows_are_those_of_types() -> None:
    for row in ROWS:
        assert not row.binary_type or mysql_type(row.binary_type).family is Family.BYTES
        assert row.family is not Family.TEXT or row.binary_type
    words = [words for row in ROWS for words in (row.name, *(synonym.words for synonym in row.synonyms))]
    assert len(words) == len(set(words)) == len(mysql_types.TYPE_BY_WORDS)
    assert mysql_type("INET6").family is Family.UNKNOWN


def test_the_numbers_are_those_of_mysql_replication() -> None:
    """All but those that it does not know."""
    ours = {name: value for name, value in vars(wire_codes).items() if name.isupper() and isinstance(value, int)}
    theirs = {name: value for name, value in vars(FIELD_TYPE).items() if name.isupper()}
    assert ours.keys() - theirs.keys() == {"VECTOR"}
    assert {name: value for name, value in ours.items() if name in theirs} == {
        name: theirs[name] for name in ours if name in theirs
    }


MAX_TYPES_NAMED = 3


def test_no_other_file_has_a_table_of_types() -> None:
    """What is true of several types belongs to their rows."""
    found = []
    for path in sorted(CORE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if sum(f'"{name}"' in text for name in MYSQL_TYPES) <= MAX_TYPES_NAMED:
            continue
        for node in ast.walk(ast.parse(text)):
            parts = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", ())
            texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
            named = [text for text in texts if text in MYSQL_TYPES]
            if len(named) > MAX_TYPES_NAMED and path.name != "mysql_types.py":
                found.append(f"{path.relative_to(CORE)}:{getattr(node, 'lineno', 0)} names {', '.join(named)}")
    assert found == []


# -- one row is enough for a type of a known family ----------------------------------------------------------------

HUGEBLOB = '    _bytes("HUGEBLOB", formats=_one(wt.BLOB, Metadata.WIDTH), width=4, synonyms=_synonyms("HUGE BLOB")),\n'
BEFORE = '    _temporal("DATE", Family.DATE,'

USE_HUGEBLOB = """
import json
from types import SimpleNamespace
import airflow_provider_mysql_cdc
from kit.decode_builder import one_text, one_value, table
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.table_map import parse_table_map
from airflow_provider_mysql_cdc.cdc.binlog.table_map import wire_types
from airflow_provider_mysql_cdc.cdc.convert.connect_types import connect_type
from airflow_provider_mysql_cdc.cdc.convert.connect_types import jdbc_type, type_expression
from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.renderers import ColumnRequest
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import binlog_op
from airflow_provider_mysql_cdc.cdc.decode.native_text import text_op
from airflow_provider_mysql_cdc.cdc.decode.table_check import check_table_map
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import kind_name
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_encoder import column_encoder
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_schema import TicdcModes, tidb_type

sql = "CREATE TABLE t (id INT PRIMARY KEY, v HUGE BLOB NOT NULL)"
made = apply_ddl(SchemaState(), sql, DdlContext(default_db="db")).state.tables[TableId("db", "t")]
body = bytes(8) + b"\\2db\\0\\1t\\0" + b"\\2\\x03\\xfc" + b"\\1\\x04" + b"\\0"
announced = parse_table_map(Event(19, 0, 1, 0, "binlog.000001", 4, 99, body, 0, len(body)))
check_table_map(made, announced)
column, wire, options = made.columns[1], wire_types(announced)[1], DecoderOptions()
stored = bytes((3, 0, 0, 0)) + b"\\x01a\\xff"
print(json.dumps({
    "package": airflow_provider_mysql_cdc.__file__,
    "type": [column.type_name, type_expression(column), jdbc_type(column)],
    "row": one_value(column, tuple(wire[:2]), stored),
    "snapshot": one_text(column, b"\\x01a\\xff"),
    "schema": connect_type(column, options).type,
    "hex": one_value(column, tuple(wire[:2]), stored, DecoderOptions(binary_mode="hex")),
    "native": [binlog_op(ColumnRequest(column, wire, options, "null"))[:2], text_op(column, options, "null").name],
    "tidb": [tidb_type(column, TicdcModes()).name, tidb_type(column, TicdcModes()).avro_type],
    "encoded": column_encoder(column, TicdcModes())("AWH/"),
    "key": kind_name(column),
}))
"""


def test_a_type_of_a_known_family_is_one_row(tmp_path: Path) -> None:
    """In a copy of the package, whose table has a type that MySQL does not have."""
    shutil.copytree(CORE.parent, tmp_path / CORE.parent.name, ignore=shutil.ignore_patterns("__pycache__"))
    model = tmp_path / CORE.parent.name / "cdc" / "model" / "mysql_types.py"
    text = model.read_text(encoding="utf-8")
    assert text.count(BEFORE) == 1
    model.write_text(text.replace(BEFORE, HUGEBLOB + BEFORE), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT / 'tests'}"}
    run = [sys.executable, "-c", USE_HUGEBLOB]
    result = subprocess.run(run, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer.pop("package").startswith(str(tmp_path))
    assert answer == {
        "type": ["HUGEBLOB", "HUGE BLOB", 2004],
        "row": '"AWH/"',
        "snapshot": '"AWH/"',
        "schema": "bytes",
        "hex": '"0161ff"',
        "native": [["bytes", [4, 0]], "bytes"],
        "tidb": ["BLOB", "bytes"],
        "encoded": "\x06\x01a\xff",
        "key": None,
    }
