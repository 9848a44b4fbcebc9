"""A structure is corrected by the metadata of its TABLE_MAP event (``tests/property/test_structure_correction.py``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.cases import for_each
from kit.decode_builder import column, table
from kit.table_maps import full_table_map

from airflow_provider_mysql_cdc.cdc.decode.table_check import decoded_members
from airflow_provider_mysql_cdc.cdc.decode.table_correction import corrected_table, find_correction
from airflow_provider_mysql_cdc.cdc.errors import SchemaMismatchError
from airflow_provider_mysql_cdc.cdc.model.table import Table, UniqueIndex

UTF8 = {"charset": "utf8mb4", "collation": "utf8mb4_0900_ai_ci"}
T = table(
    column("id", "BIGINT", unsigned=True, nullable=False, comment="the key"),
    column("flag", "TINYINT", declared_type="BOOL", length=1, has_default=True, default="1"),
    column("mood", "ENUM", enum_values=("😀", "ok"), has_default=True, **UTF8),
    column("note", "VARCHAR", length=20, has_default=True, **UTF8),
    key=("id",),
)


def corrected(history: Table, truth: Table = T) -> Table:
    correction = find_correction(history, full_table_map(truth))
    assert correction is not None
    return correction.table


def changed(column_name: str, /, **changes: Any) -> Table:
    return replace(T, columns=tuple(replace(c, **changes) if c.name == column_name else c for c in T.columns))


def test_names_in_another_order_take_their_attributes_along() -> None:
    columns = tuple(replace(each, position=5 - each.position) for each in reversed(T.columns))
    assert corrected(replace(T, columns=columns)) == T


def test_a_name_that_was_read_wrongly_keeps_what_else_is_known() -> None:
    history = replace(changed("flag", name="drapeau"), unique_keys=(UniqueIndex("u", ("drapeau",)),))
    assert corrected(history) == replace(T, unique_keys=(UniqueIndex("u", ("flag",)),))


def test_a_column_that_the_history_lacks_is_made_of_the_event() -> None:
    made = corrected(replace(T, columns=T.columns[:1])).columns[1]
    assert (made.type_name, made.length, made.has_default, made.default) == ("TINYINT", None, True, None)


def test_an_index_of_a_column_that_is_gone_is_gone() -> None:
    """Else it might become the key of the records."""
    history = replace(T, columns=(*T.columns, column("x", "INT", 5)), unique_keys=(UniqueIndex("u", ("x",)),))
    assert corrected(history) == T


def test_a_default_is_lost_with_the_null_that_was_wrong() -> None:
    truth = replace(changed("note", nullable=False, has_default=False))
    assert corrected(T, truth) == truth
    assert corrected(truth) == T


@for_each("nullable", [False, True])
@for_each(
    "history",
    [
        {"type_name": "INT", "declared_type": "INT", "default": "1"},
        {"type_name": "DATETIME", "declared_type": "DATETIME", "default": "now()", "default_is_expression": True},
        {"type_name": "TINYINT", "declared_type": "TINYINT", "unsigned": True, "default": "200"},
        {"type_name": "DECIMAL", "declared_type": "DECIMAL", "length": 10, "scale": 2, "default": "0.25"},
    ],
    ids=lambda history: history["type_name"],
)
def test_a_default_of_another_type_is_lost(history: dict[str, Any], nullable: bool) -> None:
    """It may not be a value of the type that the rows have."""
    truth = replace(column("a", "TINYINT", has_default=nullable), nullable=nullable)
    known = replace(truth, **{"length": None, "has_default": True, **history})
    made = corrected(table(known), table(truth)).columns[0]
    assert (made.type_name, made.unsigned) == ("TINYINT", False)
    assert (made.has_default, made.default, made.default_is_expression) == (nullable, None, False)


def test_a_default_of_other_members_is_lost() -> None:
    known = changed("mood", enum_values=("sad", "ok"), default="sad")
    assert corrected(known) == T
    renamed = changed("flag", name="drapeau")
    assert corrected(renamed).columns[1].default == "1", "the type is the same"


def test_tables_with_equal_columns_are_compared_by_their_keys_too() -> None:
    table_map = full_table_map(T, layout=b"one layout")
    assert find_correction(T, table_map) is None
    assert find_correction(replace(T, primary_key=("flag",)), table_map) is not None


KEYED = replace(
    table(column("u", "INT", nullable=False), column("v", "INT", nullable=False), column("n", "INT", has_default=True)),
    unique_keys=(UniqueIndex("v", ("v",)), UniqueIndex("u", ("u",))),
)


@pytest.mark.parametrize("key", ["u", "v"])
def test_a_unique_index_without_nullable_columns_is_no_primary_key(key: str) -> None:
    """MySQL writes it as the primary key where there is none."""
    index = [each.name for each in KEYED.columns].index(key)
    table_map = full_table_map(KEYED, primary_key=(index,))
    assert find_correction(KEYED, table_map) is None
    dropped = find_correction(replace(KEYED, primary_key=("n",)), table_map)
    assert dropped is not None and dropped.table == KEYED


@for_each(
    "unique_keys",
    [(), (UniqueIndex("v", ("v",)),), (UniqueIndex("u", ("u",), prefixed=True),), (UniqueIndex("u", ("u", "v")),)],
    ids=["none", "another column", "a prefix", "more columns"],
)
def test_a_key_that_is_no_known_unique_index_is_the_primary_key(unique_keys: tuple[UniqueIndex, ...]) -> None:
    table_map = full_table_map(KEYED, primary_key=(0,), layout=b"keyed")
    assert find_correction(KEYED, table_map) is None
    correction = find_correction(replace(KEYED, unique_keys=unique_keys), table_map)
    assert correction is not None and correction.table.primary_key == ("u",)


def test_a_nullable_column_without_default_agrees() -> None:
    history = changed("note", has_default=False)
    assert find_correction(history, full_table_map(T)) is None
    assert not corrected(replace(history, primary_key=())).columns[3].has_default


def test_differences_are_named_up_to_a_number() -> None:
    correction = find_correction(changed("mood", enum_values=("??", "ok")), full_table_map(T))
    assert correction is not None
    assert correction.differences() == (
        "enum_values of column mood is ('??', 'ok') in the schema history, ('😀', 'ok') in the binlog"
    )
    wrong = [replace(each, nullable=not each.nullable, invisible=True) for each in T.columns]
    correction = find_correction(replace(T, columns=tuple(wrong)), full_table_map(T))
    assert correction is not None and "; and 3 more" in correction.differences()


def test_without_names_of_columns_a_difference_is_an_error() -> None:
    history = changed("note", length=30)
    with pytest.raises(SchemaMismatchError):
        find_correction(history, full_table_map(T, names=None))


@pytest.mark.parametrize("in_history", [False, True])
def test_a_column_that_only_looks_like_a_hidden_one_is_corrected(in_history: bool) -> None:
    name = "28d61f7b1f07d88c18f1068410d140b5"
    truth = changed("note", name=name)
    history = replace(truth, primary_key=()) if in_history else T
    assert corrected_table(history, full_table_map(truth)) == truth
    correction = find_correction(history, full_table_map(truth, visible=None) if in_history else full_table_map(truth))
    assert correction is not None and correction.table == truth


def test_what_cannot_be_read_is_an_error() -> None:
    with pytest.raises(SchemaMismatchError, match="type of column note"):
        corrected_table(changed("note", type_name="INT"), full_table_map(T, charsets=(None, None, 255, 4_000)))


def test_members_that_are_no_text_are_what_the_server_shows() -> None:
    """As CONVERT TO CHARACTER SET utf8mb4 leaves those of latin1 (MySQL 9.7.4)."""
    members = full_table_map(T, enum_members=(None, None, (b"b\xe9\xe8b", b"ok"), None))
    assert corrected_table(T, members).columns[2].enum_values == ("b?", "ok")
    with pytest.raises(SchemaMismatchError, match="members"):
        find_correction(T, replace(members, names=None))
    assert decoded_members([b"\xff"], "latin1") == ("ÿ",) and decoded_members([b"\xff"], "binary") == ("ÿ",)


def test_members_whose_last_bytes_are_no_whole_character_do_not_stop_the_stream() -> None:
    """As they are after CONVERT TO CHARACTER SET utf16; DDL gives the same texts."""
    assert decoded_members([b"a", b"bc", b"x,y"], "utf16") == ("", "扣", "砬")
    assert decoded_members([b"abc"], "utf32") == ("",) and decoded_members([b"a"], "latin1") == ("a",)


def test_an_event_without_names_tells_the_default_character_set() -> None:
    """With sql_mode=ANSI the server leaves table options out of the statements that it writes itself."""
    latin1 = {"charset": "latin1", "collation": "latin1_swedish_ci"}
    own = column("own", "VARCHAR", length=20, **UTF8)
    known = replace(table(T.columns[3], own, T.columns[2]), charset_assumed=True, **UTF8)
    truth = replace(table(replace(T.columns[3], **latin1), own, T.columns[2]), **latin1)
    assert minimal_correction(known, truth) == truth
    assert minimal_correction(truth, truth) is None
    with pytest.raises(SchemaMismatchError, match="differs from the schema history"):
        minimal_correction(replace(known, charset_assumed=False), truth)


@pytest.mark.parametrize(
    ("known", "rows"),
    [
        ({"charset": "greek", "collation": "greek_general_ci"}, {"charset": "latin1", "collation": "latin1_bin"}),
        (UTF8, {"type_name": "VARBINARY", "length": 80}),
        (UTF8, {"charset": "latin1", "collation": "latin1_bin", "length": 21}),
    ],
)
def test_nothing_but_the_default_character_set_is_corrected_without_names(
    known: dict[str, Any], rows: dict[str, Any]
) -> None:
    """Another column may stand at its place."""
    a, b = column("a", "VARCHAR", length=20), column("b", "CHAR", length=9, charset="cp1251", collation="cp1251_bin")
    history = replace(table(replace(a, **known), b), charset_assumed=True, **UTF8)
    with pytest.raises(SchemaMismatchError, match="differs from the schema history"):
        minimal_correction(history, table(replace(a, **rows), b))


def test_columns_with_several_other_character_sets_are_not_corrected_without_names() -> None:
    history = replace(
        table(*(column(name, "VARCHAR", length=20, **UTF8) for name in "ab")), charset_assumed=True, **UTF8
    )
    truth = [{"charset": "latin1", "collation": "latin1_bin"}, {"charset": "cp1251", "collation": "cp1251_bin"}]
    others = (replace(each, **more) for each, more in zip(history.columns, truth, strict=True))
    with pytest.raises(SchemaMismatchError, match="differs from the schema history"):
        minimal_correction(history, table(*others))


def minimal_correction(history: Table, truth: Table) -> Table | None:
    """Return what the event of ``binlog_row_metadata=MINIMAL`` corrects; it has no character sets of members."""
    event = full_table_map(truth)
    charsets = tuple(
        None if each.mysql_type.has_members else number
        for each, number in zip(truth.columns, event.charsets or (), strict=True)
    )
    correction = find_correction(
        history, replace(event, names=None, charsets=charsets, enum_members=None, set_members=None)
    )
    return None if correction is None else correction.table
