"""Whatever the schema history says, a TABLE_MAP event with all metadata makes the structure right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kit.table_maps import full_table_map

from airflow_provider_mysql_cdc.cdc.decode.table_check import check_table_map, expected_types
from airflow_provider_mysql_cdc.cdc.decode.table_correction import corrected_table, find_correction
from airflow_provider_mysql_cdc.cdc.model.mysql_types import MYSQL_TYPES, Family, MySqlType
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId, UniqueIndex

NAMES = ("id", "a", "b", "c", "größe", "debit", "credit", "my_row_id", "B")
COLLATIONS = {
    "utf8mb4_0900_ai_ci": "utf8mb4",
    "utf8mb4_bin": "utf8mb4",
    "utf8mb3_general_ci": "utf8mb3",
    "latin1_swedish_ci": "latin1",
    "ucs2_general_ci": "ucs2",
    "gbk_chinese_ci": "gbk",
}
MEMBERS = ("x", "y", "ok", "é")
FAULTS = ("order", "drop", "add", "rename", "type", "flags", "key")
ASTRAL = ("😀", "😡")
FACTS = ("name", "position", "type_name", "unsigned", "nullable", "charset", "collation", "enum_values", "invisible")
"""What a TABLE_MAP event has of every column."""
DECLARED = ("declared_type", "length", "scale", "zerofill", "comment", "generated", "auto_increment", "default", "srid")
"""What it does not have."""


@st.composite
def columns(draw: st.DrawFn, name: str) -> Column:
    row = MYSQL_TYPES[draw(st.sampled_from(sorted(MYSQL_TYPES)))]
    nullable = draw(st.booleans())
    values: dict[str, Any] = {"nullable": nullable, "has_default": nullable and draw(st.booleans())}
    if row.unsigned:
        values["unsigned"] = draw(st.booleans())
        values["zerofill"] = values["unsigned"] and draw(st.booleans())
    if row.collated:
        values["collation"] = draw(st.sampled_from(sorted(COLLATIONS)))
        values["charset"] = COLLATIONS[values["collation"]]
    if row.has_members:
        texts = MEMBERS + (ASTRAL if values["charset"] == "utf8mb4" else ())
        values["enum_values"] = tuple(draw(st.lists(st.sampled_from(texts), min_size=1, unique=True)))
    values |= dict(zip(("length", "scale"), draw(lengths(row)), strict=True))
    declared = draw(st.sampled_from([row.name, *(synonym.words for synonym in row.synonyms)]))
    return Column(
        name,
        1,
        row.name,
        declared,
        invisible=draw(st.booleans()),
        comment=draw(st.sampled_from((None, "why"))),
        generated=draw(st.booleans()),
        **values,
    )


def lengths(row: MySqlType) -> st.SearchStrategy[tuple[int | None, int | None]]:
    if row.name == "DECIMAL":
        return st.tuples(st.integers(11, 30), st.integers(0, 10))
    if row.name == "VECTOR":
        return st.tuples(st.sampled_from((None, 3)), st.none())
    if row.needs_length or row.name in ("CHAR", "BINARY", "BIT"):
        return st.tuples(st.integers(1, 60), st.none())
    if row.name in ("TIME", "DATETIME", "TIMESTAMP"):
        return st.tuples(st.sampled_from((None, 3, 6)), st.none())
    return st.just((1, None)) if row.name == "TINYINT" else st.just((None, None))


@st.composite
def tables(draw: st.DrawFn) -> Table:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique_by=str.lower))
    placed = [replace(draw(columns(name)), position=position) for position, name in enumerate(names, 1)]
    key = tuple(draw(st.lists(st.sampled_from(names), max_size=2, unique=True)))
    unique = UniqueIndex("u", tuple(draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))))
    return Table(TableId("db", "t"), tuple(placed), key, (unique,), "utf8mb4", "utf8mb4_0900_ai_ci", "words")


@st.composite
def damaged(draw: st.DrawFn, table: Table) -> Table:
    """A history that a parser's faults have damaged: order, names, types, attributes, columns, keys."""
    made = list(table.columns)
    for fault in draw(st.lists(st.sampled_from(FAULTS), max_size=4)):
        index = draw(st.integers(0, len(made) - 1))
        if fault == "order":
            made = draw(st.permutations(made))
        elif fault == "drop" and len(made) > 1:
            del made[index]
        elif fault == "add":
            made.insert(index, draw(columns("extra")))
        elif fault == "rename":
            made[index] = replace(made[index], name=draw(st.sampled_from((*NAMES, "stale"))))
        elif fault == "type":
            made[index] = draw(columns(made[index].name))
        elif fault == "flags":
            made[index] = replace(made[index], nullable=draw(st.booleans()), invisible=draw(st.booleans()))
        else:
            table = replace(table, primary_key=(made[index].name,))
    unique = {column.name.lower(): column for column in made}
    placed = tuple(replace(column, position=position) for position, column in enumerate(unique.values(), 1))
    return replace(table, columns=placed)


def facts(table: Table) -> Any:
    return [[getattr(column, name) for name in FACTS] for column in table.columns]


def wire_facts(column: Column) -> Any:
    dimensions = column.length if column.family is Family.VECTOR else None
    return [getattr(column, name) for name in FACTS if name != "position"], expected_types(column), dimensions


@given(data=st.data())
def test_the_structure_is_that_of_the_event_whatever_the_history_says(data: st.DataObject) -> None:
    truth = data.draw(tables())
    history = data.draw(damaged(truth))
    table_map = full_table_map(truth)
    corrected = corrected_table(history, table_map)
    assert facts(corrected) == facts(truth)
    key = truth.key_columns()
    known_keys = [index.columns for index in corrected.not_null_keys()]
    assert corrected.primary_key in (key, ()) if key in known_keys else corrected.primary_key == key
    check_table_map(corrected, table_map)
    assert corrected_table(corrected, table_map) is corrected
    names = {column.name for column in corrected.columns}
    assert all(set(index.columns) <= names for index in corrected.unique_keys)
    for column in corrected.columns:
        known = next((each for each in history.columns if each.name == column.name), None)
        truly = next(each for each in truth.columns if each.name == column.name)
        if known is not None and wire_facts(known) == wire_facts(truly):
            assert [getattr(column, name) for name in DECLARED] == [getattr(known, name) for name in DECLARED]


@given(data=st.data())
def test_what_agrees_is_not_touched(data: st.DataObject) -> None:
    truth = data.draw(tables())
    assert corrected_table(truth, full_table_map(truth)) is truth
    assert find_correction(truth, full_table_map(truth)) is None


@given(data=st.data())
def test_what_is_corrected_is_said(data: st.DataObject) -> None:
    truth = data.draw(tables())
    history = data.draw(damaged(truth))
    correction = find_correction(history, full_table_map(truth))
    assert correction is None or correction.differences()
