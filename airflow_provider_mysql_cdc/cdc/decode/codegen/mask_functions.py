"""Functions that change the JSON text of a value: cut it, or replace it by a hash.

They see byte text (``jsontext``) of one JSON value as the renderers make it and leave ``null`` alone.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode
from collections.abc import Callable

from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import base64_text, quote_byte_text
from airflow_provider_mysql_cdc.cdc.model.column_rule import ValueChange, ValueChangeKind

ChangeText = Callable[[str], str]

# Stream header, TC_STRING and TC_LONGSTRING. Source: Java Object Serialization Specification, chapter 6.
_JAVA_STREAM = b"\xac\xed\x00\x05"
_JAVA_STRING, _JAVA_LONG_STRING = b"t", b"|"


def java_serialized(text: str) -> bytes:
    """Return what Java's ObjectOutputStream writes for a String: header, length and modified UTF-8."""
    data = text.encode("utf-16-be", "surrogatepass")
    units = (chr(int.from_bytes(data[i : i + 2], "big")) for i in range(0, len(data), 2))
    body = text.encode() if text.isascii() else b"".join(u.encode("utf-8", "surrogatepass") for u in units)
    body = body.replace(b"\0", b"\xc0\x80")
    if len(body) > 0xFFFF:
        return _JAVA_STREAM + _JAVA_LONG_STRING + len(body).to_bytes(8, "big") + body
    return _JAVA_STREAM + _JAVA_STRING + len(body).to_bytes(2, "big") + body


def truncate(text: str, length: int) -> str:
    """Return the first ``length`` UTF-16 units, as Java counts; half a character at the end is left out."""
    if len(text) * 2 <= length:
        return text
    data = text.encode("utf-16-be", "surrogatepass")[: 2 * length]
    return data.decode("utf-16-be", "ignore")


def _text_of(value: str) -> str:
    text: str = json.loads(value.encode("latin-1"))
    return text


def _truncate_text(change: ValueChange) -> ChangeText:
    length = change.length or 0

    def run(value: str) -> str:
        # A JSON text is never shorter than the value in UTF-16 units.
        if len(value) <= length + 2 or value == "null":
            return value
        return quote_byte_text(truncate(_text_of(value), length))

    return run


def _truncate_bytes(change: ValueChange) -> ChangeText:
    length = change.length or 0

    def run(value: str) -> str:
        return value if value == "null" else f'"{base64_text(b64decode(value[1:-1])[:length])}"'

    return run


def _hash(change: ValueChange) -> ChangeText:
    algorithm, salt, length = change.algorithm, change.salt.reveal().encode(), change.length
    encode: Callable[[str], bytes] = java_serialized if change.kind is ValueChangeKind.HASH else _utf8

    def run(value: str) -> str:
        if value == "null":
            return value
        return f'"{hashlib.new(algorithm, salt + encode(_text_of(value))).hexdigest()[:length]}"'

    return run


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


_BUILDERS: dict[ValueChangeKind, Callable[[ValueChange], ChangeText]] = {
    ValueChangeKind.TRUNCATE_TEXT: _truncate_text,
    ValueChangeKind.TRUNCATE_BYTES: _truncate_bytes,
    ValueChangeKind.HASH: _hash,
    ValueChangeKind.HASH_V2: _hash,
}


def change_text(change: ValueChange | None) -> ChangeText | None:
    """Return the function for a change, or None when there is nothing to compute."""
    return None if change is None or change.kind is ValueChangeKind.CONSTANT else _BUILDERS[change.kind](change)


def constant_text(change: ValueChange | None) -> str | None:
    """Return the JSON text that replaces every value, or None."""
    return quote_byte_text(change.text) if change is not None and change.kind is ValueChangeKind.CONSTANT else None
