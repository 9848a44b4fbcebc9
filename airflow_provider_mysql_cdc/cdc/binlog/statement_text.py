"""The text of a statement: bytes in the character set of its session, or in UTF-8 when the server wrote them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import pymysql.charset

from airflow_provider_mysql_cdc.cdc.model.charset_decoders import (
    characters,
    decode_lossy,
    shown_text,
    text_decoder,
)
from airflow_provider_mysql_cdc.cdc.model.charset_tables import MULTI, SINGLE

SERVER_COLLATION = 45
"""utf8mb4_general_ci, which every version has: what stands for the session's in a statement that the server wrote."""
NO_BACKSLASH_ESCAPES = 0x100000
"""Bit of sql_mode."""
_ANSI_QUOTES = 0x4
# Where a no-break space separates words (MySQL 9.7.4); elsewhere it is a letter, or no part of a statement.
_NO_BREAK_SPACE_SEPARATES = frozenset(
    ("armscii8", "cp1250", "cp852", "cp866", "dec8", "geostd8", "greek", "hebrew", "keybcs2", "latin1", "latin2")
) | {"latin5", "latin7"}
# Codes that become a quote or a backslash, and are letters to the server when it reads a statement (MySQL 9.7.4).
_PUNCTUATION_CODES = {"armscii8": (b"\xff", "'"), "sjis": (b"\x81\x5f", "\\"), "ujis": (b"\xa1\xc0", "\\")}
_PLACEHOLDER = "\ufffe"
"""Stands for such a character; no character set has it."""
_SWE7_COLLATIONS = frozenset((10, 82))
_SWE7_LETTER = re.compile(rb"[\[\]{}|\\^@`~]")
_SWE7_WORD = r"[0-9A-Za-z$_]*[\[\]{}\\^~][0-9A-Za-z$_\[\]{}\\^~]*"
_BYTE = re.compile(r"[\udc80-\udcff]")
_LAST_BYTES = re.compile(r"[\udc80-\udcff][\udc80-\udcff\0-\x5b\x5d-\x7f]*")
_MAX_LAST_BYTES = 3
_ESCAPED = re.compile(r"(\\.)", re.DOTALL)
_LETTERS = r"[0-9A-Za-z$_\x80-\U0010ffff]*"
_WORD = re.compile(rf"{_LETTERS}{_PLACEHOLDER}{_LETTERS}")
_NAME = rb"(?:`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|[^\s`\"(.]+)"
# How the server writes out a table (MySQL source, store_create_info); sql_quote_show_create=OFF leaves quotes out.
_LAYOUT = re.compile(rb"CREATE TABLE (?:IF NOT EXISTS )?(?:%b\.)?%b \(\n  (?=\S)" % (_NAME, _NAME))
_GENERATED_KEY = re.compile(rb"[`\"]?my_row_id[`\"]? bigint unsigned NOT NULL AUTO_INCREMENT /\*!80023 INVISIBLE \*/")
_TEXT_NAME = _NAME.decode()
_NULLABLE_KEY = re.compile(
    rf"^  {_TEXT_NAME} [a-z]+(?:\([0-9,]+\))?(?: unsigned)?(?: zerofill)? AUTO_INCREMENT\b", re.MULTILINE
)
_OF_SELECT = b"\n) START TRANSACTION"


def is_written_by_server(data: bytes, *, temporary: bool) -> bool:
    r"""Return whether the server wrote a statement itself: in UTF-8 and with ``\`` as escape, whatever its session has.

    It writes out CREATE TABLE ... SELECT, CREATE TABLE ... LIKE of a temporary table, and each CREATE TABLE for which
    it generates an invisible primary key (MySQL 8.0.15, 9.7.4). What a client sent in the same layout was most likely
    read from SHOW CREATE TABLE, and lacks these marks.

    Args:
        data: The statement's bytes.
        temporary: Whether the event is marked as one that used a temporary table.
    """
    layout = _match_layout(data)
    if layout is None:
        return False
    return temporary or _OF_SELECT in data or _GENERATED_KEY.match(data, layout.end()) is not None


def has_server_layout(data: bytes) -> bool:
    """Return whether a statement has the layout in which the server writes out tables.

    CREATE TABLE ... SELECT of a server without GTIDs before 8.0.21 has no other mark.

    Args:
        data: The statement's bytes.
    """
    return _match_layout(data) is not None


def _match_layout(data: bytes) -> re.Match[bytes] | None:
    return _LAYOUT.match(data) if data.startswith(b"CREATE TABLE ") else None


def with_null(statement: str) -> str:
    """Return a statement with NULL where the server leaves it out: AUTO_INCREMENT alone means NOT NULL to its parser.

    Args:
        statement: CREATE TABLE, as the server wrote it.
    """
    return _NULLABLE_KEY.sub(r"\g<0> NULL", statement)


def decode_statement(data: bytes, collation: int | None, sql_mode: int = 0) -> str:
    """Return a statement's text.

    Bytes that mean nothing in the session's character set become ``?``, as in the server's own conversions. Literals
    that are no UTF-8 in a session of UTF-8 or ``binary`` become hexadecimal ones, which mean the same.

    Args:
        data: The statement's bytes.
        collation: Collation id of character_set_client, or None when not known.
        sql_mode: Bits of sql_mode.
    """
    if collation in _SWE7_COLLATIONS and _SWE7_LETTER.search(data):
        return _decode_swe7(data, sql_mode)
    if data.isascii():
        return data.decode("ascii")
    name = client_charset(collation)
    if name in SINGLE or name in MULTI:
        if has_server_layout(data) and _is_utf8(data):
            return data.decode()
        text = _decode_with_escapes(data, name, sql_mode)
        return _spaced(text, sql_mode) if "\xa0" in text and name in _NO_BREAK_SPACE_SEPARATES else text
    try:
        return data.decode()
    except UnicodeDecodeError:
        return decode_lossy(_with_hex_literals(data, sql_mode), "utf8mb4")


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@lru_cache(maxsize=64)
def client_charset(collation: int | None) -> str:
    """Return the character set of character_set_client; utf8mb4 for one that is not known.

    Args:
        collation: Its collation id, or None when not known.
    """
    try:
        charset: Any = pymysql.charset.charset_by_id(collation or SERVER_COLLATION)
        text_decoder(charset.name)
        return str(charset.name)
    except KeyError:  # ``binary``, or a collation of utf8mb4 that the driver does not know
        return "utf8mb4"


def _with_hex_literals(data: bytes, sql_mode: int) -> bytes:
    """Return a statement whose string literals are hexadecimal where they are no UTF-8."""
    escapes, ansi = not sql_mode & NO_BACKSLASH_ESCAPES, sql_mode & _ANSI_QUOTES

    def rewritten(match: re.Match[bytes]) -> bytes:
        text, quote = match.group(), match.group()[:1]
        if quote not in (b"'", b'"') or (quote == b'"' and ansi) or _is_utf8(text):
            return text
        content = text[1:-1].replace(quote * 2, quote)
        return b" X'%b'" % (_ESCAPE.sub(_unescaped, content) if escapes else content).hex().encode()

    return _QUOTED[escapes].sub(rewritten, data)


def _decode_with_escapes(data: bytes, name: str, sql_mode: int) -> str:
    """Return a statement in which a letter that becomes a quote or a backslash is escaped, or its word quoted.

    Bytes at the end of a string literal that are fewer than their character has are left out, as the server does.
    """
    code, character = _PUNCTUATION_CODES.get(name, (b"", ""))
    try:
        if not code or code not in data:
            return text_decoder(name)(data)
    except UnicodeDecodeError:
        pass
    text = "".join(_PLACEHOLDER if each == code else _text_or_bytes(each, name) for each in characters(data, name))
    escapes = not sql_mode & NO_BACKSLASH_ESCAPES

    def escaped(match: re.Match[str]) -> str:
        quote = match.group()[0]
        is_string = quote == "'" or (quote == '"' and not sql_mode & _ANSI_QUOTES)
        has_escapes = escapes and is_string
        doubled = character * (1 + (character == quote or (character == "\\" and has_escapes)))
        # What stands behind a backslash is escaped already.
        parts = _ESCAPED.split(match.group()) if has_escapes else [match.group()]
        texts = [part.replace(_PLACEHOLDER, (doubled, character)[odd % 2]) for odd, part in enumerate(parts)]
        text = "".join(texts)
        return _without_last_bytes(text, name, has_escapes) if is_string else text

    text = re.sub(_QUOTED[escapes].pattern.decode(), escaped, text, flags=re.DOTALL)
    text = _WORD.sub(lambda m: f"`{m.group().replace(_PLACEHOLDER, character)}`", text)
    return _BYTE.sub("?", text)


def _text_or_bytes(data: bytes, name: str) -> str:
    """Return a character; what is none as one lone surrogate for each byte."""
    try:
        return text_decoder(name)(data)
    except UnicodeDecodeError:
        return data.decode("ascii", "surrogateescape")


def _without_last_bytes(literal: str, name: str, has_escapes: bool) -> str:
    """Return a string literal without the bytes at its end that the server's conversions leave out."""
    content, quote = literal[1:-1], literal[0]
    if _BYTE.search(content, max(0, len(content) - 2 * _MAX_LAST_BYTES)) is None:
        return literal
    units = re.findall(r"\\.|." if has_escapes else ".", content, re.DOTALL)
    for count in range(_MAX_LAST_BYTES, 0, -1):
        last = "".join(unit[-1] if _BYTE.match(unit[-1]) else unit for unit in units[-count:])
        if _LAST_BYTES.fullmatch(last):
            shown = shown_text(last.encode("ascii", "surrogateescape"), name)
            return quote + "".join(units[:-count]) + shown + quote
    return literal


def _decode_swe7(data: bytes, sql_mode: int) -> str:
    """Return a statement of a swe7 session: brackets and the like are letters, but to the server's parser itself not.

    It converts what is quoted, whose quotes and escapes it finds before, and takes a word without quotes as ASCII.
    """
    escapes = not sql_mode & NO_BACKSLASH_ESCAPES

    def rewritten(match: re.Match[str]) -> str:
        text = match.group()
        quote = text[0]
        if quote not in "`'\"":
            return f"`{text}`" if match["word"] else text
        content = text[1:-1].replace(quote * 2, quote).encode("latin-1")
        if escapes and (quote == "'" or (quote == '"' and not sql_mode & _ANSI_QUOTES)):
            content = _ESCAPE.sub(_unescaped, content)
        return quote + decode_lossy(content, "swe7").replace(quote, quote * 2) + quote

    pattern = rf"{_QUOTED[escapes].pattern.decode()}|(?P<word>{_SWE7_WORD})"
    return re.sub(pattern, rewritten, data.decode("latin-1"), flags=re.DOTALL)


def _spaced(text: str, sql_mode: int) -> str:
    """Return a statement with spaces for no-break spaces outside of quotes, as the server reads them."""
    pattern = _QUOTED[not sql_mode & NO_BACKSLASH_ESCAPES].pattern.decode()
    return re.sub(f"{pattern}|\xa0", lambda m: " " if m.group() == "\xa0" else m.group(), text, flags=re.DOTALL)


def _unescaped(match: re.Match[bytes]) -> bytes:
    return _ESCAPES.get(match[1], match[1])


_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPES = {b"0": b"\0", b"b": b"\b", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"Z": b"\x1a", b"%": b"\\%", b"_": b"\\_"}
_NOT_QUOTED = rb"`(?:[^`]|``)*+`|/\*(?!!).*?\*/|(?:#|--(?=\s))[^\n]*+"
_QUOTED = {
    True: re.compile(_NOT_QUOTED + rb"|'(?:[^'\\]|''|\\.)*+'|\"(?:[^\"\\]|\"\"|\\.)*+\"", re.DOTALL),
    False: re.compile(_NOT_QUOTED + rb"|'(?:[^']|'')*+'|\"(?:[^\"]|\"\")*+\"", re.DOTALL),
}
"""What is quoted, and comments, by whether a backslash is an escape."""
