"""Canonical bytes of a row's values, equal for equal rows wherever they come from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import orjson

MAX_VALUE_CHARACTERS = 1024
"""Longest text, or JSON of another value, that a comparison carries; of longer ones it carries a digest."""
DIGEST_MARK = "blake2b:"
"""What a digest begins with; a text that does is written as one."""
_DIGEST = b'"' + DIGEST_MARK.encode()
FORMS_MEMBER = "\0forms"
"""Member with the forms of values (``row_comparison``); no column has such a name."""


def row_bytes(row: Mapping[str, Any]) -> bytes:
    """Return the canonical bytes of a row: JSON with sorted columns, in which long values are digests."""
    text = _dumps(row)
    if len(text) <= MAX_VALUE_CHARACTERS and _DIGEST not in text:
        return text
    return _dumps({name: value if name == FORMS_MEMBER else _shortened(value) for name, value in row.items()})


def stored_row(text: bytes) -> dict[str, Any]:
    """Return the row that ``row_bytes`` wrote; long values as digests."""
    row: dict[str, Any] = json.loads(text)
    return row


def row_values(text: bytes) -> dict[str, Any]:
    """Return the values of the row that ``row_bytes`` wrote, without its forms; long ones as digests."""
    return {name: value for name, value in stored_row(text).items() if name != FORMS_MEMBER}


def same_value(one: Any, other: Any) -> bool:
    """Return whether two values are written alike.

    In Python, true equals 1, 1 equals 1.0, and -0.0 equals 0.0; their texts differ.
    """
    return _dumps(one) == _dumps(other)


def _shortened(value: Any) -> Any:
    if isinstance(value, (int, float)) or value is None:
        return value
    text = value if isinstance(value, str) else _dumps(value).decode()
    if len(text) <= MAX_VALUE_CHARACTERS and not text.startswith(DIGEST_MARK):
        return value
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{DIGEST_MARK}{digest}:{len(text)}"


def _dumps(value: Any) -> bytes:
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        # Whole numbers beyond 64 bits, and halves of surrogate pairs.
        return json.dumps(value, default=_plain, sort_keys=True, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)
