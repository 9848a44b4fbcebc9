"""Turn the text of a MySQL statement into tokens, and walk over them.

Turn the text of a MySQL statement into tokens.

Source: MySQL 9.7 manual, chapters "Literal Values", "Schema Object Names" and "Comments".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple, NoReturn

from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.charset_decoders import basic_plane

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


MAX_DIGITS = 100
"""Digits of a number, leading zeros included; no length, scale or SRID of MySQL has more than ten."""
_STRING_KINDS = (TokenKind.STRING, TokenKind.HEX)
NameParts = tuple[str, ...]
"""A table name as written: ``(table,)`` or ``(database, table)``."""


class Cursor:
    """Read tokens one after the other.

    Args:
        sql: The statement, for slices and messages.
        tokens: Its tokens, closed by END.
        sql_mode: The session's sql_mode bits.
    """

    __slots__ = ("pos", "sql", "sql_mode", "tokens")

    def __init__(self, sql: str, tokens: Sequence[Token], sql_mode: int = 0) -> None:
        self.sql, self.tokens, self.sql_mode, self.pos = sql, tokens, sql_mode, 0

    def copy(self) -> Cursor:
        """Return a second cursor at the same place."""
        copy = Cursor(self.sql, self.tokens, self.sql_mode)
        copy.pos = self.pos
        return copy

    @property
    def token(self) -> Token:
        """The current token."""
        return self.tokens[self.pos]

    def peek(self, distance: int = 1) -> Token:
        """Return the token ``distance`` places on; END beyond the end."""
        return self.tokens[min(self.pos + distance, len(self.tokens) - 1)]

    def next(self) -> Token:
        """Return the current token and step on; END is never passed."""
        token = self.tokens[self.pos]
        if token.kind is not TokenKind.END:
            self.pos += 1
        return token

    def at_end(self) -> bool:
        """Return whether only END is left."""
        return self.token.kind is TokenKind.END

    def matches(self, *words: str) -> bool:
        """Return whether the next tokens are exactly these words or operators."""
        return all(self.peek(i).upper == w for i, w in enumerate(words))

    def matches_one_of(self, *words: str) -> bool:
        """Return whether the current token is one of these words or operators."""
        return self.token.upper in words

    def accept(self, *words: str) -> bool:
        """Step over these words when they are next, and say whether they were."""
        if self.matches(*words):
            self.pos += len(words)
            return True
        return False

    def accept_one_of(self, *words: str) -> str:
        """Step over one of these words and return it; empty when none is next."""
        upper = self.token.upper
        if upper and upper in words:
            self.pos += 1
            return upper
        return ""

    def expect(self, *words: str) -> None:
        """Step over these words.

        Raises:
            DdlParseError: They are not next.
        """
        if not self.accept(*words):
            self.fail(f"expected {' '.join(words)}")

    def name(self) -> str:
        """Read one name, quoted or not, as the server stores it.

        Raises:
            DdlParseError: No name is next.
        """
        token = self.next()
        if token.kind in (TokenKind.WORD, TokenKind.NAME):
            return basic_plane(token.text)
        self.pos -= token.kind is not TokenKind.END
        self.fail("expected a name")

    def word_or_string(self) -> str:
        """Read a name that may be written as a string: charset, collation, engine."""
        if self.token.kind is TokenKind.STRING:
            return self.next().text
        return self.name()

    def string(self) -> str:
        """Read a string literal; adjacent ones are joined.

        A hexadecimal one stands for a string that is no UTF-8 (``statement_text``); the server keeps what is before
        the first byte that means nothing.

        Raises:
            DdlParseError: No string is next.
        """
        if self.token.kind not in _STRING_KINDS:
            self.fail("expected a string")
        parts = list[str]()
        while self.token.kind in _STRING_KINDS:
            token = self.next()
            parts.append(token.text if token.kind is TokenKind.STRING else _valid_prefix(bytes.fromhex(token.text)))
        return "".join(parts)

    def number(self) -> int:
        """Read an unsigned integer.

        Raises:
            DdlParseError: No integer is next.
        """
        token = self.token
        base = 16 if token.kind is TokenKind.HEX else 10
        if base == 10 and (token.kind is not TokenKind.NUMBER or not token.text.isdigit()):
            self.fail("expected a number")
        if len(token.text) > MAX_DIGITS:
            self.fail("expected a smaller number")
        self.pos += 1
        return int(token.text or "0", base)

    def length(self) -> int:
        """Read the length of a type; the server takes ``19.5`` for 19 and ``.5`` for 0.

        Raises:
            DdlParseError: No number is next.
        """
        whole, point, fraction = self.token.text.partition(".")
        is_decimal = point and f"{whole}{fraction}".isdigit() and len(whole) <= MAX_DIGITS
        if not is_decimal or self.token.kind is not TokenKind.NUMBER:
            return self.number()
        self.pos += 1
        return int(whole or "0")

    def table_name(self) -> NameParts:
        """Read ``table``, ``database.table`` or ``.table``."""
        if self.accept("."):
            return (self.name(),)
        first = self.name()
        if self.accept("."):
            return first, self.name()
        return (first,)

    def column_name(self) -> str:
        """Read a column name; ``table.column`` and ``db.table.column`` are allowed where MySQL allows them."""
        name = self.name()
        while self.accept("."):
            name = self.name()
        return name

    def skip_parentheses(self) -> str:
        """Step over a balanced ``( ... )`` and return its text with the parentheses.

        Raises:
            DdlParseError: No parenthesis is next, or it is not closed.
        """
        start = self.token.start
        self.expect("(")
        depth = 1
        while depth:
            token = self.next()
            if token.kind is TokenKind.END:
                self.fail("a parenthesis is not closed")
            if token.kind is TokenKind.OP:
                depth += (token.text == "(") - (token.text == ")")
        return self.sql[start : self.tokens[self.pos - 1].end]

    def fail(self, why: str) -> NoReturn:
        """Raise DdlParseError that shows the place.

        Raises:
            DdlParseError: Always.
        """
        token = self.token
        near = self.sql[token.start : token.start + 60] or "the end of the statement"
        raise DdlParseError("a statement was not understood", why=f"{why} near: {near}")


def _valid_prefix(data: bytes) -> str:
    """Return the text before the first byte that is no UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        return data[: error.start].decode()
