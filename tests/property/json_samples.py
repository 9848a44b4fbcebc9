"""Binary JSON documents and change vectors, as a server writes them."""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

from kit.json_builder import change, document

PACKED_DATE = struct.pack("<q", ((2024 * 13 + 2) << 22 | 29 << 17) << 24)
# DECIMALs of 81 digits, more than a column has.
WIDE = (
    b"\x51\x00\xbb\x9a\xc9\xff" + b"\x3b\x9a\xc9\xff" * 8,
    b"\x51\x1e" + b"\x44\x65\x36\x00" + b"\xc4\x65\x36\x00" * 4 + b"\xff" * 17,
)
VALUES: list[Any] = [
    None, True, 0, -1, 2**63 - 1, 2**64 - 1, ("double", 1.5), ("double", 1e300), "", "text", "ä" * 200,
    ("opaque", 10, PACKED_DATE), ("opaque", 12, PACKED_DATE), ("opaque", 11, PACKED_DATE),
    ("opaque", 246, b"\x0a\x02\x80\x00\x00\x01\x05"), *(("opaque", 246, data) for data in WIDE),
    *(("opaque", 252, b"bytes" * n) for n in (0, 1, 11, 12, 40)),
    [], {}, [1, "two", None, [True, [False, {}]]], {"a": {"b": {"c": [1, 2, 3]}}, "name": "x" * 130},
    {"k" * 140: [i for i in range(40)]}, [["deep"] * 3] * 3, {"long": "s" * 70_000, "n": [1] * 300},
]  # fmt: skip


@cache
def documents() -> tuple[bytes, ...]:
    """Return documents."""
    return tuple(document(value) for value in VALUES)


@cache
def vectors() -> tuple[tuple[bytes, bytes], ...]:
    """Return documents with the changes of an update."""
    base = document({"a": {"b": [1, 2, "x"]}, "c": "d", "e": [[1], {"f": None}]})
    changes = [
        change(0, "$.a.b[1]", {"new": [1]}),
        change(1, "$.a.b[0]", "first") + change(1, "$.z", 5),
        change(2, "$.c") + change(0, "$.e[1].f", [1, 2]),
        change(1, "$.e[last]", None) + change(2, "$.e[last-1]") + change(0, '$."a"', 1),
    ]
    return tuple((base, vector) for vector in changes)
