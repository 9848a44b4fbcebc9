"""Conditions of signals: SQL that runs with the account's rights, and must stay within its parentheses.

A key range is read with ``key > low AND key <= high AND (condition)``. A condition that closes the parenthesis and
continues with OR disables the bounds: each key range then reads the whole table, and the scan never ends.
"""

from __future__ import annotations

import re
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.ddl.lexer import ANSI_QUOTES, NO_BACKSLASH_ESCAPES, TokenKind, tokenize
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.signals.table_names import SignalRefused, quote_text

_EXECUTABLE_COMMENT = re.compile(r"/\*!")
_QUOTING_MODE_BITS = {"ANSI_QUOTES": ANSI_QUOTES, "NO_BACKSLASH_ESCAPES": NO_BACKSLASH_ESCAPES}


def quoting_mode(conn: Any) -> int:
    """Return the bits of the session's sql_mode that decide where a string ends.

    Args:
        conn: An open connection to the source.

    Raises:
        SourceError: The query fails.
    """
    modes = str(fetch_all(conn, "SELECT @@SESSION.sql_mode")[0][0]).split(",")
    return sum(bit for name, bit in _QUOTING_MODE_BITS.items() if name in modes)


def require_contained(sql: str, sql_mode: int) -> None:
    """Check that a condition is one expression that stays within the parentheses around it.

    Args:
        sql: The condition.
        sql_mode: Bits of ``quoting_mode``.

    Raises:
        SignalRefused: The condition is not such an expression.
    """
    try:
        tokens = tokenize(sql, sql_mode)
    except DdlParseError as error:
        raise _refusal(sql, error.what) from None
    quoted_spans = [
        range(token.start, token.end) for token in tokens if token.kind in (TokenKind.STRING, TokenKind.NAME)
    ]
    if any(not any(match.start() in text for text in quoted_spans) for match in _EXECUTABLE_COMMENT.finditer(sql)):
        raise _refusal(sql, "it has an executable comment, whose effect depends on the server's version")
    depth = 0
    for token in tokens:
        if token.kind is TokenKind.OP:
            depth += {"(": 1, ")": -1}.get(token.text, 0)
            if token.text == ";":
                raise _refusal(sql, "it contains a semicolon")
        if depth < 0:
            raise _refusal(sql, "it closes a parenthesis that it did not open")
    if depth:
        raise _refusal(sql, "it does not close all its parentheses")


def _refusal(sql: str, reason: str) -> SignalRefused:
    return SignalRefused(f"the condition {quote_text(sql)} is not a complete expression: {reason}")
