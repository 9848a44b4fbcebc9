"""Turn the text of a MySQL statement into tokens.

Source: MySQL 9.7 manual, chapters "Literal Values", "Schema Object Names" and "Comments".
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import NamedTuple

from airflow_provider_mysql_cdc.cdc.errors import DdlParseError

ANSI_QUOTES = 0x4
"""Bit of ``sql_mode``: double quotes enclose names."""
REAL_AS_FLOAT = 0x1
"""Bit of ``sql_mode``: REAL is FLOAT, not DOUBLE."""
NO_BACKSLASH_ESCAPES = 0x100000
"""Bit of ``sql_mode``: a backslash in a string is an ordinary character."""


class TokenKind(Enum):
    """Say what a token is."""

    WORD = auto()
    NAME = auto()
    STRING = auto()
    NUMBER = auto()
    HEX = auto()
    BITS = auto()
    PARAM = auto()
    OP = auto()
    END = auto()


class Token(NamedTuple):
    """Hold one token.

    Args:
        kind: What it is; WORD is an unquoted name or keyword, NAME a quoted name.
        text: Its meaning: a name or string without quotes and escapes, hex or binary digits without prefix,
            an operator or number as written.
        upper: ``text`` in upper case for a WORD, ``text`` for an OP, empty for all others.
        start: Index of its first character in the statement.
        end: Index after its last character.
    """

    kind: TokenKind
    text: str
    upper: str
    start: int
    end: int


_WORD = r"[0-9A-Za-z_$\u0080-\U0010ffff]"
# In an executable comment that it does not execute, MySQL 5.7 and 8.0.15 log comments as they are; 9.7.4 as (* ... *).
# Without them, */ would stand outside a comment. Groups are not possessive: Python before 3.11.5 matches those wrongly
# (gh-106052).
_INSIDE = r"(?:[^*/]++|\*(?!/)|/(?!\*))*"
_TOKEN_PATTERNS = {
    "space": r"[\x00-\x20]++",
    "line": r"(?:\#|--(?=[\x00-\x20]|\Z))[^\n]*+",
    "executable": r"/\*!(?:\d{6}(?=\s)|\d{5})?",
    "comment": rf"/\* \d{{5,6}}{_INSIDE}(?:/\*{_INSIDE}\*/{_INSIDE})+\*/|/\*(?s:.*?)\*/",
    "hex": rf"0x[0-9A-Fa-f]++(?!{_WORD})|[xX]'[0-9A-Fa-f]*+'",
    "bits": rf"0b[01]++(?!{_WORD})|[bB]'[01]*+'",
    "national": r"[nN](?=')",
    "number": rf"(?:\d++\.?\d*+|\.\d++)[eE][+-]?\d++(?!{_WORD})|\d++\.\d*+|\.\d++|\d++(?!{_WORD})",
    "param": rf"@@?(?:(?:{_WORD}|\.)++|(?=['\"`]))",
    "word": rf"{_WORD}++",
    "tick": r"`(?:[^`]++|``)*+`",
    "end_executable": r"\*/",
    "op": r"<=>|->>|->|:=|<<|>>|<=|>=|<>|!=|\|\||&&|[^'\"`]",
}
# Unicode spaces are letters of names, and only the digits of ASCII make numbers.
_TOKEN = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _TOKEN_PATTERNS.items()), re.ASCII)
_AFTER_DOT = re.compile(rf"{_WORD}++")
_STRINGS = {
    ("'", True): re.compile(r"'(?:[^'\\]++|''|\\(?s:.))*+'"),
    ('"', True): re.compile(r'"(?:[^"\\]++|""|\\(?s:.))*+"'),
    ("'", False): re.compile(r"'(?:[^']++|'')*+'"),
    ('"', False): re.compile(r'"(?:[^"]++|"")*+"'),
}
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_ESCAPE = re.compile(r"\\(?s:(.))")
_IGNORED = frozenset(("space", "line", "comment", "executable", "end_executable"))
_NATIONAL = "_utf8mb3"  # what the N of N'...' stands for
_KINDS = {"number": TokenKind.NUMBER, "param": TokenKind.PARAM, "word": TokenKind.WORD, "op": TokenKind.OP}


def tokenize(sql: str, sql_mode: int = 0, *, limit: int | None = None) -> list[Token]:
    """Return the tokens of ``sql``, closed by one END token.

    The content of executable comments (``/*!80000 ... */``) counts as statement text whatever version they name: the
    server blanks the ``!`` of those it does not execute before it writes a statement to the binlog.

    Args:
        sql: Statement text.
        sql_mode: The session's sql_mode bits; ANSI_QUOTES and NO_BACKSLASH_ESCAPES matter.
        limit: Stop after that many tokens.

    Raises:
        DdlParseError: A string, quoted name or comment is not closed.
    """
    tokens: list[Token] = []
    pos, size, in_executable = 0, len(sql), False
    escapes, ansi = not sql_mode & NO_BACKSLASH_ESCAPES, bool(sql_mode & ANSI_QUOTES)
    while pos < size and (limit is None or len(tokens) < limit):
        if sql[pos] in "'\"":
            token = _string(sql, pos, escapes, ansi)
            tokens.append(token)
            pos = token.end
            continue
        after_dot = bool(tokens) and tokens[-1].text == "." and tokens[-1].end == pos
        match = (_AFTER_DOT.match(sql, pos) if after_dot else None) or _TOKEN.match(sql, pos)
        if match is None:
            raise DdlParseError("a quoted name is not closed", where=sql[pos : pos + 40])
        name = match.lastgroup or "word"
        if name == "space":
            pos = match.end()
            continue
        if name in _IGNORED:
            pos, in_executable = _skip(name, match, in_executable, tokens)
            continue
        if name == "number" and sql[pos] == "." and tokens and _is_name(tokens[-1]) and tokens[-1].end == pos:
            tokens.append(Token(TokenKind.OP, ".", ".", pos, pos + 1))
            pos += 1
            continue
        tokens.append(_token(name, match))
        pos = match.end()
    if in_executable and pos >= size:
        raise DdlParseError("an executable comment is not closed", where=sql[:80])
    tokens.append(Token(TokenKind.END, "", "", size, size))
    return tokens


def _is_name(token: Token) -> bool:
    return token.kind in (TokenKind.WORD, TokenKind.NAME)


def _skip(name: str, match: re.Match[str], in_executable: bool, tokens: list[Token]) -> tuple[int, bool]:
    """Step over white space and comment marks; ``*/`` outside an executable comment is two operators."""
    if name == "executable":
        return match.end(), True
    if name == "end_executable":
        if not in_executable:
            start = match.start()
            tokens.append(Token(TokenKind.OP, "*", "*", start, start + 1))
            return start + 1, False
        return match.end(), False
    return match.end(), in_executable


def _token(name: str, match: re.Match[str]) -> Token:
    text, start, end = match.group(), match.start(), match.end()
    if name == "national":
        return Token(TokenKind.WORD, _NATIONAL, _NATIONAL.upper(), start, end)
    if name == "tick":
        return Token(TokenKind.NAME, text[1:-1].replace("``", "`"), "", start, end)
    if name in ("hex", "bits"):
        digits = text[2:-1] if text[1] == "'" else text[2:]
        return Token(TokenKind.HEX if name == "hex" else TokenKind.BITS, digits, "", start, end)
    if name == "op" and text == "/" and match.string.startswith("/*", start):
        raise DdlParseError("a comment is not closed", where=match.string[start : start + 40])
    kind = _KINDS[name]
    # No keyword has a letter beyond ASCII; str.upper makes I of ı.
    upper = text.upper() if text.isascii() else text
    return Token(kind, text, upper if kind in (TokenKind.WORD, TokenKind.OP) else "", start, end)


def _string(sql: str, pos: int, escapes: bool, ansi: bool) -> Token:
    quote = sql[pos]
    name = quote == '"' and ansi
    match = _STRINGS[quote, escapes and not name].match(sql, pos)
    if match is None:
        raise DdlParseError("a string is not closed", where=sql[pos : pos + 40])
    text = match.group()[1:-1]
    if name:
        return Token(TokenKind.NAME, text.replace('""', '"'), "", pos, match.end())
    return Token(TokenKind.STRING, _unescape(text, quote, escapes), "", pos, match.end())


def _unescape(text: str, quote: str, escapes: bool) -> str:
    if not escapes or "\\" not in text:
        return text.replace(quote * 2, quote)
    parts, last = [], 0
    for match in _ESCAPE.finditer(text):
        parts.append(text[last : match.start()].replace(quote * 2, quote))
        parts.append(_ESCAPES.get(match.group(1), match.group(1)))
        last = match.end()
    parts.append(text[last:].replace(quote * 2, quote))
    return "".join(parts)
