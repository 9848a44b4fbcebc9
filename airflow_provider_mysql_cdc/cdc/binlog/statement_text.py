"""The text of a statement: bytes in the character set of its session, or in UTF-8 when the server wrote them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import pymysql.charset

from airflow_provider_mysql_cdc.cdc.model.charset_decoders import characters, decode_lossy, text_decoder
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
    """Return a statement in which a letter that becomes a quote or a backslash is escaped, or its word quoted."""
    code, character = _PUNCTUATION_CODES.get(name, (b"", ""))
    if not code or code not in data:
        return decode_lossy(data, name)
    text = "".join(_PLACEHOLDER if each == code else decode_lossy(each, name) for each in characters(data, name))
    escapes = not sql_mode & NO_BACKSLASH_ESCAPES

    def escaped(match: re.Match[str]) -> str:
        quote = match.group()[0]
        has_escapes = escapes and (quote == "'" or (quote == '"' and not sql_mode & _ANSI_QUOTES))
        doubled = character * (1 + (character == quote or (character == "\\" and has_escapes)))
        parts = re.split(r"(\\.)", match.group(), flags=re.DOTALL) if has_escapes else [match.group()]
        # What stands behind a backslash is escaped already.
        texts = (part.replace(_PLACEHOLDER, (doubled, character)[odd % 2]) for odd, part in enumerate(parts))
        return "".join(texts)

    text = re.sub(_QUOTED[escapes].pattern.decode(), escaped, text, flags=re.DOTALL)
    return _WORD.sub(lambda m: f"`{m.group().replace(_PLACEHOLDER, character)}`", text)


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
