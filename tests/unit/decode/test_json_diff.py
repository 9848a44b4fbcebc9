"""Changes of JSON documents: paths, change vectors, and what they make of a document."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.cases import for_each
from kit.json_builder import change, document

from airflow_provider_mysql_cdc.cdc.decode.values.binary_json import json_byte_text
from airflow_provider_mysql_cdc.cdc.decode.values.json_diff import (
    INSERT,
    REMOVE,
    REPLACE,
    ArrayCell,
    parse_path,
    patched_text,
    read_diffs,
    read_tree,
    tree_text,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=20,
)


def after(before: Any, *changes: bytes) -> Any:
    return json.loads(patched_text(document(before), b"".join(changes)).encode("latin-1"))


@for_each(
    ("text", "legs"),
    [
        ("$", ()),
        ("$.a", (b"a",)),
        ('$."a b"[3].c', (b"a b", ArrayCell(3, False), b"c")),
        ('$."q\\"\\\\\\u0001]"', (b'q"\\\x01]',)),
        ("$.ünï[last]", ("ünï".encode(), ArrayCell(0, True))),
        ("$[last-2][0]", (ArrayCell(2, True), ArrayCell(0, False))),
        ("$ . a [ last - 1 ] ", (b"a", ArrayCell(1, True))),
        ('$.""', (b"",)),
    ],
)
def test_paths(text: str, legs: tuple[Any, ...]) -> None:
    assert parse_path(text.encode()) == legs


@for_each("text", ["", "a", "$.", "$[", "$[1 to 2]", "$[*]", "$.*", "$**.a", "$.a b", '$."a'])
def test_what_is_no_exact_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="path"):
        parse_path(text.encode())


def test_a_vector_holds_operations_paths_and_values() -> None:
    changes = read_diffs(change(REPLACE, "$.a", 1) + change(REMOVE, "$[2]") + change(INSERT, "$.b", "x" * 300))
    assert [(c.operation, c.path) for c in changes] == [
        (REPLACE, (b"a",)),
        (REMOVE, (ArrayCell(2, False),)),
        (INSERT, (b"b",)),
    ]
    assert changes[1].value == b"" and json_byte_text(changes[2].value) == json.dumps("x" * 300)


@for_each("cut", range(1, 7))
def test_a_vector_that_ends_early_is_refused(cut: int) -> None:
    with pytest.raises((ValueError, IndexError)):
        read_diffs(change(REPLACE, "$.a", 7)[:-cut])


def test_an_unknown_operation_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown operation 3"):
        read_diffs(b"\x03" + change(REMOVE, "$.a")[1:])


@for_each(
    ("before", "changes", "expected"),
    [
        ({"a": 1, "b": 2}, [change(REPLACE, "$.a", [1, {"x": None}])], {"a": [1, {"x": None}], "b": 2}),
        ({"a": {"d": 1}}, [change(REPLACE, "$.a.d", 22), change(INSERT, "$.new", "n")], {"a": {"d": 22}, "new": "n"}),
        ([1, 2, 3], [change(REMOVE, "$[1]")], [1, 3]),
        ([1, 2, 3], [change(REMOVE, "$[last]"), change(REPLACE, "$[last-1]", 9)], [9, 2]),
        ([1, 2], [change(INSERT, "$[0]", 0), change(INSERT, "$[9]", 3)], [0, 1, 2, 3]),
        ([1, 2], [change(INSERT, "$[last]", "x"), change(INSERT, "$[last-9]", "y")], ["y", 1, "x", 2]),
        ({"a": 1}, [change(REMOVE, "$.a")], {}),
        ({"k": [[1]]}, [change(REPLACE, "$.k[0][0]", {"y": 1}), change(INSERT, "$.k[0][0].x", 2)],
         {"k": [[{"y": 1, "x": 2}]]}),
        ({"a": 1}, [], {"a": 1}),
    ],
)  # fmt: skip
def test_changes_of_a_document(before: Any, changes: list[bytes], expected: Any) -> None:
    assert after(before, *changes) == expected


def test_members_stand_in_the_servers_order() -> None:
    text = patched_text(document({"b": 1, "ccc": 2}), change(INSERT, "$.aa", 3) + change(INSERT, "$.a", 4))
    assert text == '{"a":4,"b":1,"aa":3,"ccc":2}'


def test_numbers_and_values_of_the_document_keep_their_text() -> None:
    exact = {"dec": ("opaque", 246, bytes.fromhex("03028132")), "big": 2**64 - 1, "d": ("double", 1e-7)}
    text = patched_text(document(exact), change(INSERT, "$.n", ("opaque", 246, bytes.fromhex("03027ecd"))))
    assert text == '{"d":0.0000001,"n":-1.50,"big":18446744073709551615,"dec":1.50}'


@for_each(
    ("before", "changes"),
    [
        ({"a": 1}, change(REPLACE, "$.b", 1)),
        ({"a": 1}, change(INSERT, "$.a", 1)),
        ({"a": 1}, change(REMOVE, "$.b")),
        ({"a": 1}, change(REPLACE, "$.a.b", 1)),
        ({"a": 1}, change(REPLACE, "$[0]", 1)),
        ([1], change(REPLACE, "$[1]", 1)),
        ([1], change(REMOVE, "$[last-1]")),
        ([1], change(INSERT, "$.a", 1)),
        ([1], change(INSERT, "$[0][0]", 1)),
        (1, change(INSERT, "$[0]", 1)),
    ],
)
def test_a_change_that_does_not_fit_is_an_error_and_never_a_guess(before: Any, changes: bytes) -> None:
    with pytest.raises(ValueError, match="does not have"):
        patched_text(document(before), changes)


def test_a_change_of_the_whole_or_of_an_absent_document_is_an_error() -> None:
    with pytest.raises(ValueError, match="whole document"):
        patched_text(document(1), change(REPLACE, "$", 2))
    with pytest.raises(ValueError, match="before image does not contain"):
        patched_text(None, change(REPLACE, "$.a", 2))


@given(JSON)
def test_a_tree_has_the_text_of_its_document(value: Any) -> None:
    data = document(value)
    assert tree_text(read_tree(data)) == json_byte_text(data)


def test_large_documents_and_deep_ones() -> None:
    large = {f"k{i}": "x" * 100 for i in range(2000)}
    assert after(large, change(REPLACE, "$.k7", 7))["k7"] == 7
    deep = b"\x0c\x01x"
    for _ in range(102):
        deep = b"\x02" + struct.pack("<HHBH", 1, 7 + len(deep) - 1, deep[0], 7) + deep[1:]
    with pytest.raises(ValueError, match="nested deeper"):
        read_tree(deep)
