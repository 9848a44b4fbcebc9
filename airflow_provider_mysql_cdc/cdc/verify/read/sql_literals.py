"""Text in statements, the same in every ``sql_mode``; and JSON text with its escapes as the server writes them."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[ -~]*")
_QUOTED = re.compile(r"['\\]")
_ESCAPES = re.compile(rb"\\(?:u(D[89AB][0-9A-F]{2})\\u(D[C-F][0-9A-F]{2})|u00([01][0-9A-F])|.)", re.DOTALL)
_HIGH_BITS, _LOW_MASK = 10, 0x3FF


def sql_literal(text: str) -> str:
    """Return text as a literal of utf8mb4 that means the same with and without NO_BACKSLASH_ESCAPES and ANSI_QUOTES."""
    if _PLAIN.fullmatch(text) and not _QUOTED.search(text):
        return f"'{text}'"
    return f"_utf8mb4 X'{text.encode().hex().upper()}'"


def escapes_as_in_sql(text: bytes) -> bytes:
    """Return JSON text of a record with the escapes that JSON_QUOTE writes.

    Records have characters above U+FFFF as two escapes, and escapes in upper case; JSON_QUOTE writes these characters
    themselves, and escapes of control characters in lower case (MySQL source, ``json_dom.cc``, ``double_quote``). What
    the text means stays the same.
    """
    return _ESCAPES.sub(_escape_in_sql, text) if b"\\u" in text else text


def _escape_in_sql(match: re.Match[bytes]) -> bytes:
    high, low, control = match.groups()
    if high is not None:
        code = (int(high, 16) & _LOW_MASK) << _HIGH_BITS | int(low, 16) & _LOW_MASK
        return chr(0x10000 + code).encode()
    return match[0] if control is None else match[0].lower()
