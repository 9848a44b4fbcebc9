"""Generated code for JSON documents of one shape: the same members in the same order, with values of the same types.

The documents of a column mostly differ in their values alone. Code for a shape compares what is constant in one, reads
the values and joins the texts, in half the time of ``binary_json``. Documents that it does not expect go there, and so
do damaged ones: it neither repairs nor refuses any.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from struct import Struct
from typing import Any

import orjson

from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import compiled, literal, run_function
from airflow_provider_mysql_cdc.cdc.decode.values.binary_json import (
    ByteBudget,
    children,
    double_text,
    json_byte_text,
    scalar_text,
)
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import escape_utf8

_OBJECT, _ARRAY, _LITERAL, _INT16, _UINT16, _DOUBLE, _STRING = 0, 2, 4, 5, 6, 11, 12  # small ones (``json_binary.h``)
_OFFSETS = {7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_LITERALS = ("null", "true", "false")
_HEAD = 5  # kind, number of members and size of a document whose root is a small object
_MAX_HEAD = 1024
_MAX_SHAPES = 1024
_MAX_CONTAINERS, _MAX_VALUES = 16, 64
_MAX_NAME = 128  # the bytes of longer names are counted (``ByteBudget``)
_BEFORE_CODE = 64
"""So many documents of a shape are met before code is generated for it, which takes as long as two hundred of them."""
_MAX_MISSES = 100

Run = Callable[[bytes, str], "str | None"]


class _Shape:
    """Hold the code of a shape, and how it did."""

    __slots__ = ("run", "seen", "unexpected")

    def __init__(self) -> None:
        self.run: Run | None = None
        self.seen = self.unexpected = 0


class DocumentShapes(dict[tuple[bytes, bytes], _Shape]):
    """Generate code for shapes that come often, and forget all shapes when there are too many."""

    def __missing__(self, key: tuple[bytes, bytes]) -> _Shape:
        if len(self) >= _MAX_SHAPES:
            self.clear()
        shape = self[key] = _Shape()
        return shape

    def text(self, data: bytes) -> str:
        """Return a binary JSON document as UTF-8 byte text; errors as ``binary_json.json_byte_text``.

        Args:
            data: The column's bytes.
        """
        if len(data) < _HEAD or data[0] != _OBJECT:
            return json_byte_text(data)
        first = _HEAD + 4 * (data[1] | data[2] << 8)
        if first > _MAX_HEAD:
            return json_byte_text(data)
        # Key entries, and types of the values.
        shape = self[data[_HEAD:first], data[first : first + (first - _HEAD) // 4 * 3 : 3]]
        shape.seen += 1
        if shape.run is None:
            if shape.seen == _BEFORE_CODE:
                shape.run = document_function(data)
            return json_byte_text(data)
        try:
            text = shape.run(data, data.decode("latin-1"))
        except (struct.error, IndexError, ValueError):
            text = None
        if text is not None:
            return text
        shape.unexpected += 1
        if shape.unexpected > _MAX_MISSES and 4 * shape.unexpected > shape.seen:
            shape.run = None
        return json_byte_text(data)


SHAPES = DocumentShapes()


def json_string(data: bytes) -> str:
    """Return a binary JSON document as the inside of a JSON string, byte text.

    Args:
        data: The column's bytes.

    Raises:
        ValueError: When the document is not well formed.
    """
    text = SHAPES.text(data)
    # Control characters are escaped in it already.
    return text.replace('"', '\\"') if text.isascii() and "\\" not in text else escape_utf8(text)


def document_function(data: bytes) -> Run | None:
    """Return code for the documents of the shape of this one; None where there is none.

    Args:
        data: A document whose root is a small object.
    """
    writer = _Writer(data)
    try:
        body = writer.container(_OBJECT, 1, "1")
    except (ValueError, IndexError, struct.error):  # damaged, or with a part that has no code
        return None
    head = f" r = len(d) - {writer.header_bytes}"
    lines = ["def run(d, t):", head, " if r < 0: return None", *writer.lines, f" return f'{body}'"]
    run: Run = run_function(compiled("\n".join(lines)), writer.names)
    return run


def _string(data: bytes, text: str, pos: int) -> str:
    """Return the inside of a JSON string that is long or needs escapes."""
    return scalar_text(data, text, _STRING, pos, ByteBudget(data))[1:-1]


class _Writer:
    """Write the code of a document.

    Args:
        data: A document of the shape.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._values, self._containers = data, 0, 0
        self.lines: list[str] = []
        self.header_bytes = 0
        self.names: dict[str, Any] = {
            "dumps": orjson.dumps,
            "double": double_text,
            "string": _string,
            "LITERALS": _LITERALS,
            "DOUBLE": Struct("<d").unpack_from,
            **{f"NUMBER_{kind}": Struct(fmt).unpack_from for kind, fmt in _OFFSETS.items()},
        }

    def container(self, kind: int, base: int, start: str) -> str:
        """Add the reading of a container; return the f-string body of its text.

        Args:
            kind: Its type.
            base: Its offset in the document at hand.
            start: Expression of its offset in any.

        Raises:
            ValueError: There is no code for it, or it is damaged.
        """
        members = children(self._data, kind, base, ByteBudget(self._data))
        self._containers, self._values = self._containers + 1, self._values + len(members)
        if self._containers > _MAX_CONTAINERS or self._values > _MAX_VALUES:
            raise ValueError("a large document")
        number, keys = self._containers, 4 * len(members) if kind == _OBJECT else 0
        words = [f"v{number}_{i}" for i in range(len(members))]
        types = [f"k{number}_{i}" for i in range(len(members))]
        self.header_bytes += 4 + keys + 3 * len(members)
        unpack = f"READ{number}"
        self.names[unpack] = Struct(f"<H2x{keys}s" + "BH" * len(members)).unpack_from
        entries = "".join(f", {k}, {w}" for k, w in zip(types, words, strict=True))
        self.lines.append(f" n, k{entries} = {unpack}(d, {start})")
        wanted = "".join(f" or {k} != {m[1]}" for k, m in zip(types, members, strict=True))
        key_entries = self._data[base + 4 : base + 4 + keys]
        wanted += self._names(base, keys, start)
        self.lines.append(f" if n != {len(members)} or k != {key_entries!r}{wanted}: return None")
        bodies = [self._value(m[1], m[2], w, start) for m, w in zip(members, words, strict=True)]
        if kind == _ARRAY:
            return "[" + ",".join(bodies) + "]"
        labels = [literal(_quoted_name(m[0] or b"")) for m in members]
        return "{{" + ",".join(f"{a}:{b}" for a, b in zip(labels, bodies, strict=True)) + "}}"

    def _names(self, base: int, keys: int, start: str) -> str:
        """Return the condition that member names are others, with ``or`` before it."""
        if not keys:
            return ""
        places = [struct.unpack_from("<HH", self._data, base + 4 + at) for at in range(0, keys, 4)]
        low, high = places[0][0], sum(places[-1])
        if any(size > _MAX_NAME or at < low or at + size > high for at, size in places) or high - low > _MAX_HEAD:
            raise ValueError("long names, or names out of order")
        return f" or d[{start} + {low}:{start} + {high}] != {self._data[base + low : base + high]!r}"

    def _value(self, kind: int, pos: int, word: str, start: str) -> str:
        """Add the reading of a value; return the f-string body of its text."""
        if kind in (_OBJECT, _ARRAY):
            self.lines.append(f" {word} += {start}")
            return self.container(kind, pos, word)
        if kind in _OFFSETS:
            self.lines.append(f" {word}, = NUMBER_{kind}(d, {word} + {start})")
        elif kind == _STRING:
            self.lines += [
                f" {word} += {start}",
                f" n = d[{word}]",
                f" s = t[{word} + 1:{word} + 1 + n]",
                " if n > 127 or len(s) != n or len(dumps(s)) != n + 2:",
                f"  s = string(d, t, {word})",
                "  r -= len(s)",
                "  if r < 0: return None",
                f" {word} = s",
            ]
            return f'"{{{word}}}"'
        else:
            self.lines.append(f" {word} = {_READS.get(kind, _no_code)(word, start)}")
        return f"{{{word}}}"


def _quoted_name(name: bytes) -> str:
    """Return a member name as MySQL quotes it, byte text."""
    return orjson.dumps(name.decode()).decode("latin-1")


def _double(word: str, start: str) -> str:
    return f"repr(x) if 1e-4 <= (x := DOUBLE(d, {word} + {start})[0]) < 1e15 else double(x)"


def _no_code(word: str, start: str) -> str:
    raise ValueError("a value of a type that is rare")


_READS: dict[int, Callable[[str, str], str]] = {
    _LITERAL: lambda word, start: f"LITERALS[{word} & 255]",
    _INT16: lambda word, start: f"({word} ^ 32768) - 32768",
    _UINT16: lambda word, start: word,
    _DOUBLE: _double,
}
"""Expressions of values, by type."""
