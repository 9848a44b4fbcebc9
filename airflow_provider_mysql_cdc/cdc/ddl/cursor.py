"""Walk over tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from airflow_provider_mysql_cdc.cdc.ddl.lexer import Token, TokenKind
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.charset_decoders import basic_plane

MAX_DIGITS = 100
"""Digits of a number, leading zeros included; no length, scale or SRID of MySQL has more than ten."""
_STRINGS = (TokenKind.STRING, TokenKind.HEX)
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
        if self.token.kind not in _STRINGS:
            self.fail("expected a string")
        parts = list[str]()
        while self.token.kind in _STRINGS:
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
