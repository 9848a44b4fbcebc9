"""Code for JSON documents of one shape gives what is read value by value, and leaves every other document to that."""

from __future__ import annotations

import random
from typing import Any

import pytest
from kit.cases import for_each
from kit.json_builder import document

from airflow_provider_mysql_cdc.cdc.decode.codegen import json_documents
from airflow_provider_mysql_cdc.cdc.decode.codegen.json_documents import DocumentShapes, document_function, json_string
from airflow_provider_mysql_cdc.cdc.decode.values.binary_json import json_byte_text
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import escape_utf8

pytestmark = pytest.mark.quick
TEXTS = (
    "",
    "a",
    'say "x"',
    "back\\slash",
    "tab\t",
    "\x7f",
    "é",
    "日本",
    "😀",
    "x" * 127,
    "y" * 128,
    "z" * 400,
    "{b}%s'",
)
NUMBERS = (0, -1, 32767, -(2**31), 2**63 - 1, -(2**63), 2**64 - 1)
DOUBLES = (0.5, 1e-5, -2.25, 1e15, 123456789.125, 1e300, -0.0, 5e-324)


def value(draw: random.Random, depth: int = 0) -> Any:
    """Return the shape of a value: a function that makes values of one type."""
    kind = draw.randint(0, 5 if depth < 3 else 3)
    if kind == 4:
        members = {draw.choice(TEXTS[1:9]) + str(i): value(draw, depth + 1) for i in range(draw.randint(0, 4))}
        return lambda: {name: make() for name, make in members.items()}
    if kind == 5:
        values = [value(draw, depth + 1) for _ in range(draw.randint(0, 4))]
        return lambda: [make() for make in values]
    return (
        lambda: draw.choice(TEXTS),
        lambda: draw.choice(NUMBERS[:-1]),
        lambda: ("double", draw.choice(DOUBLES)),
        lambda: draw.choice((None, True, False)),
    )[kind]


def shape(draw: random.Random) -> Any:
    members = {f"m{i}": value(draw) for i in range(draw.randint(1, 5))}
    return lambda: {name: make() for name, make in members.items()}


def outcome(read: Any, data: bytes) -> str:
    try:
        return str(read(data))
    except (ValueError, LookupError, json_documents.struct.error) as error:
        return repr(error)


@for_each("seed", range(60))
def test_code_of_a_shape_gives_what_is_read_value_by_value(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(json_documents, "_BEFORE_CODE", 2)
    draw = random.Random(seed)
    shapes, makers = DocumentShapes(), [shape(draw) for _ in range(3)]
    monkeypatch.setattr(json_documents, "SHAPES", shapes)
    for _ in range(60):
        data = document(draw.choice(makers)())
        assert shapes.text(data) == json_byte_text(data)
        assert json_string(data) == escape_utf8(json_byte_text(data))
        damaged = bytearray(data)
        for _ in range(draw.randint(1, 3)):
            damaged[draw.randrange(len(damaged))] = draw.choice((0, 1, 4, 12, 255, draw.getrandbits(8)))
        cut = bytes(damaged[: draw.choice((len(damaged), draw.randint(1, len(damaged))))])
        assert outcome(shapes.text, cut) == outcome(json_byte_text, cut)
    assert any(each.run for each in shapes.values())


def test_documents_of_a_shape_are_read_by_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = DocumentShapes()
    first = {"id": 5, "name": "x", "in": {"a": ("double", 0.5), "b": None}, "tags": ["p", "q"]}
    for _ in range(64):
        shapes.text(document(first))
    monkeypatch.setattr(json_documents, "json_byte_text", lambda _: pytest.fail("read value by value"))
    other = {"id": -7, "name": "é" * 200, "in": {"a": ("double", 1e300), "b": True}, "tags": ["", '"']}
    assert shapes.text(document(other)).encode("latin-1").decode() == (
        '{"id":-7,"in":{"a":1e300,"b":true},"name":"' + "é" * 200 + '","tags":["","\\""]}'
    )


def test_code_that_seldom_fits_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = DocumentShapes()
    for size in range(64 + json_documents._MAX_MISSES + 2):
        shapes.text(document({"a": ["x"] * (3 if size < 64 else 4)}))
    assert [each.run for each in shapes.values()] == [None]


def test_no_more_shapes_are_remembered_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_documents, "_MAX_SHAPES", 10)
    shapes = DocumentShapes()
    for number in range(100):
        name = "n" * number
        assert shapes.text(document({name: 1})) == f'{{"{name}":1}}'
    assert len(shapes) <= 10


@for_each(
    "value",
    [
        {"o": ("opaque", 252, b"x")},
        {"n" * 129: 1},
        {f"m{i:03}": 1 for i in range(65)},
        {"a": [[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]},
    ],
    ids=["opaque", "long name", "many values", "many containers"],
)
def test_rare_and_large_documents_have_no_code(value: Any) -> None:
    assert document_function(document(value)) is None


def test_values_that_overlap_are_refused_by_code_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_documents, "_BEFORE_CODE", 1)
    shapes, data = DocumentShapes(), bytearray(document({"a": "x" * 300, "b": "y" * 300}))
    shapes.text(bytes(data))
    at = data.index(b"ab") - 6  # both values begin at one place
    data[at + 4 : at + 6] = data[at + 1 : at + 3]
    assert outcome(shapes.text, bytes(data)) == outcome(json_byte_text, bytes(data))
    data = data[: data.index(b"y" * 300) - 2]
    assert "overlap" in outcome(shapes.text, bytes(data)) == outcome(json_byte_text, bytes(data))


def test_containers_that_overlap_are_refused_by_code_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_documents, "_BEFORE_CODE", 1)
    shapes, inner = DocumentShapes(), {f"k{i}": True for i in range(9)}
    data = bytearray(document({"a": inner, "b": inner}))
    shapes.text(bytes(data))
    at = data.index(b"ab") - 6
    data[at + 4 : at + 6] = data[at + 1 : at + 3]
    data = data[: data.rindex(b"k8") + 2 - 83]
    assert "overlap" in outcome(shapes.text, bytes(data)) == outcome(json_byte_text, bytes(data))


@for_each("size", [127, 128, 97 * 128 + 5, 97 * 128])
def test_the_length_of_a_long_string_is_not_read_as_its_first_letter(size: int) -> None:
    shapes = DocumentShapes()
    for _ in range(64):
        shapes.text(document({"a": "x"}))
    assert shapes.text(document({"a": "y" * size})) == f'{{"a":"{"y" * size}"}}'
