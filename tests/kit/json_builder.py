"""Binary JSON and change vectors for tests, built by hand."""

from __future__ import annotations

import struct
from typing import Any


def lenenc(number: int) -> bytes:
    return bytes([number]) if number < 251 else b"\xfc" + struct.pack("<H", number) if number < 65536 else (
        b"\xfd" + struct.pack("<I", number)[:3]
    )  # fmt: skip


def varlen(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def document(value: Any) -> bytes:
    """Return a value as binary JSON; a tuple is ("double", x) or ("opaque", type, bytes)."""
    kind, data = _value(value, large=False)
    if kind in (0, 2) and len(data) > 0xFFFF:
        kind, data = _value(value, large=True)
    return bytes([kind]) + data


def change(operation: int, path: str, *value: Any) -> bytes:
    """Return one change of a vector."""
    data = b"".join(lenenc(len(d)) + d for d in (path.encode(), *(document(v) for v in value)))
    return bytes([operation]) + data


def _value(value: Any, *, large: bool) -> tuple[int, bytes]:
    if value is None or isinstance(value, bool):
        return 4, bytes([{None: 0, True: 1, False: 2}[value]])
    if isinstance(value, int):
        return (9, struct.pack("<q", value)) if value < 2**63 else (10, struct.pack("<Q", value))
    if isinstance(value, str):
        data = value.encode()
        return 12, varlen(len(data)) + data
    if isinstance(value, tuple):
        if value[0] == "double":
            return 11, struct.pack("<d", value[1])
        return 15, bytes([value[1]]) + varlen(len(value[2])) + value[2]
    return _container(value, large=large)


def _container(value: Any, *, large: bool) -> tuple[int, bytes]:
    is_object = isinstance(value, dict)
    number, width = ("<I", 4) if large else ("<H", 2)
    items = list(value.items()) if is_object else [(None, v) for v in value]
    if is_object:
        items.sort(key=lambda item: (len(item[0].encode()), item[0].encode()))
    names = [name.encode() for name, _ in items] if is_object else []
    head = 2 * width + len(names) * (width + 2)
    at = head + len(items) * (width + 1)
    keys = b""
    for name in names:
        keys += struct.pack(number, at & (2 ** (8 * width) - 1)) + struct.pack("<H", len(name))
        at += len(name)
    entries, body = b"", b""
    for _, child in items:
        kind, data = _value(child, large=large)
        if kind == 4:
            entries += bytes([kind]) + data.ljust(width, b"\0")
        else:
            entries += bytes([kind]) + struct.pack(number, at + len(body) & (2 ** (8 * width) - 1))
            body += data
    size = at + len(body)
    packed = struct.pack(number, len(items)) + struct.pack(number, size & (2 ** (8 * width) - 1))
    return (0 if is_object else 2) + large, packed + keys + entries + b"".join(names) + body
