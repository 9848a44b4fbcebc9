"""The kinds of columns that can bound chunks and key ranges: how their values are stored and written in SQL.

A bound is read in one run and compared by the server in another one. So it has one written form, which is validated
when it is read, and which the server converts back to the same value of the column:

=========================  ===============================  ==========================================================
kind                       written form                     note
=========================  ===============================  ==========================================================
SIGNED, UNSIGNED, YEAR     whole number
DATE                       ``YYYY-MM-DD``                   zero dates and impossible ones included
DATETIME n, TIMESTAMP n    ``YYYY-MM-DD hh:mm:ss[.f]``      the same; TIMESTAMP in UTC
TIME n                     ``[-]hh[h]:mm:ss[.f]``
DECIMAL p s [UNSIGNED]     digits
BINARY n, VARBINARY        lower-case hexadecimal           the server does not pad them, a shorter one is less
``charset collation``      text                             in Unicode
=========================  ===============================  ==========================================================

A table whose key begins with another type is one chunk: FLOAT and DOUBLE differ between a query and a row event, and
MySQL uses no index range for a comparison with the number of an ENUM or a SET (EXPLAIN of 9.7.4).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from airflow_provider_mysql_cdc.cdc.ddl.collations import COLLATIONS_BY_NAME, Collation
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family
from airflow_provider_mysql_cdc.cdc.model.stored_record import is_integer, is_text
from airflow_provider_mysql_cdc.cdc.model.table import Column, quote_name

KeyValue = int | str

SIGNED, UNSIGNED = "SIGNED", "UNSIGNED"
_DATE_TYPES = ("DATE", "DATETIME", "TIMESTAMP")
_UNICODE_CHARSETS = frozenset({"utf8mb4", "utf8mb3", "utf8", "utf16", "utf16le", "utf32", "latin1", "ascii"})
"""Character sets whose characters all exist in Unicode, each once."""
_STRICT_DATES = frozenset({"NO_ZERO_DATE", "NO_ZERO_IN_DATE", "TRADITIONAL"})
"""Parts of sql_mode that refuse dates which a table may hold; TRADITIONAL stands for both."""


@dataclass(frozen=True, slots=True)
class KeyColumnKind:
    """Describe one kind of column.

    Args:
        name: The name of the kind in stored records.
        is_written_form: Returns whether a value is a valid written form.
        literal: Converts a written form to an SQL literal to be compared with the column.
        select_expression: Returns the SQL expression that selects the written form of a column.
        roundtrip_condition: Returns an SQL condition that is true if the written form of a column represents the value;
            None if it always does.
    """

    name: str
    is_written_form: Callable[[Any], bool]
    literal: Callable[[Any], str]
    select_expression: Callable[[str], str]
    roundtrip_condition: Callable[[str], str] | None = None


def key_kind_of(name: str) -> KeyColumnKind | None:
    """Return the kind of a name, or None if it does not exist.

    Args:
        name: From ``kind_name``, possibly read from a stored record.
    """
    return _parse_kind(name) if isinstance(name, str) else None


def check_bounds(columns: Sequence[str], kinds: Sequence[str], bounds: Mapping[str, Sequence[KeyValue] | None]) -> None:
    """Check stored bounds, which become part of SQL: one value for each column, of the column's kind.

    Args:
        columns: The columns.
        kinds: The kind of each column.
        bounds: The bounds, by the name of their member.

    Raises:
        ValueError: The text says what is wrong, and where (``stored_record.Record.check``).
    """
    if not all(columns):
        raise ValueError("Expected names of columns - at `$.columns`")
    known = [kind for kind in map(key_kind_of, kinds) if kind is not None]
    if not len(known) == len(kinds) == len(columns):
        raise ValueError(
            "Expected a known kind for each column: SIGNED, DATE, a character set and its collation - at `$.kinds`"
        )
    for name, bound in bounds.items():
        if bound is None:
            continue
        fitting = [is_text(value) or is_integer(value) for value in bound] == [True] * len(known)
        if not known or not fitting or not all(k.is_written_form(v) for v, k in zip(bound, known, strict=True)):
            raise ValueError(f"Expected a value of its column's kind for each column - at `$.{name}`")


def kind_name(column: Column) -> str | None:
    """Return the name of a column's kind; None for a type whose values cannot bound a chunk.

    Args:
        column: The column.
    """
    return KIND_NAMES[column.family](column) if column.mysql_type.key_range else None


def _integer_name(column: Column) -> str:
    return UNSIGNED if column.unsigned else SIGNED


def _decimal_name(column: Column) -> str:
    # DECIMAL alone is DECIMAL(10,0) (MySQL manual, "Fixed-Point Types").
    digits = f"DECIMAL {10 if column.length is None else column.length or 10} {column.scale or 0}"
    return f"{digits} UNSIGNED" if column.unsigned else digits


def _text_name(column: Column) -> str:
    if column.charset == "binary":
        return _bytes_name(replace(column, type_name=column.mysql_type.binary_type))
    return f"{column.charset} {column.collation}"


def _bytes_name(column: Column) -> str:
    if column.type_name == "BINARY":
        return f"BINARY {1 if column.length is None else column.length}"
    return column.type_name


def _type_name(column: Column) -> str:
    return column.type_name


def _fraction_name(column: Column) -> str:
    return f"{column.type_name} {column.length or 0}"


KIND_NAMES: dict[Family, Callable[[Column], str]] = {
    Family.INTEGER: _integer_name,
    Family.DECIMAL: _decimal_name,
    Family.TEXT: _text_name,
    Family.BYTES: _bytes_name,
    Family.DATE: _type_name,
    Family.TIME: _fraction_name,
    Family.DATETIME: _fraction_name,
    Family.TIMESTAMP: _fraction_name,
    Family.YEAR: _type_name,
}


def key_roundtrip_condition(columns: Iterable[str], kinds: Iterable[str]) -> str:
    """Return an SQL condition that is true for keys whose written form may bound a chunk.

    MySQL stores characters that do not exist in Unicode and returns all of them as ``?`` or U+FFFD (gbk x'AAA1', sjis
    x'F040', hp8 x'FF'; 9.7.4), or returns two of them as the same one (cp932 x'ED40' and x'FA5C'). The returned text is
    then another key with another place in the order. Half of a surrogate pair (ucs2 x'D800') is returned as bytes that
    are no valid UTF-8; utf16 has none.

    Args:
        columns: The columns of the key.
        kinds: The kind of each column.
    """
    parsed_kinds = zip(columns, map(key_kind_of, kinds), strict=True)
    return (
        " AND ".join(
            kind.roundtrip_condition(column)
            for column, kind in parsed_kinds
            if kind is not None and kind.roundtrip_condition
        )
        or "TRUE"
    )


def kind_collation(name: str) -> Collation | None:
    """Return the collation of a character column's kind; None if MySQL does not have it for that character set.

    Args:
        name: From ``kind_name``, possibly read from a stored record.
    """
    charset, _, collation = name.partition(" ")
    known_collation = COLLATIONS_BY_NAME.get(collation)
    return known_collation if known_collation is not None and known_collation.charset == charset else None


@contextmanager
def stored_dates_allowed(conn: MySqlConnection, kinds: tuple[str, ...]) -> Iterator[None]:
    """Let a session compare with every date that a table may contain, and with TIMESTAMPs in UTC.

    With NO_ZERO_DATE, NO_ZERO_IN_DATE or without ALLOW_INVALID_DATES, a comparison with '2020-02-00' is an error (1525,
    seen on 9.7.4), although tables may contain such values, written under another SQL mode.

    Args:
        conn: An open connection; its session is not restored after an error.
        kinds: Kinds of the columns to be compared; without dates nothing is changed.
    """
    if not any(kind.partition(" ")[0] in _DATE_TYPES for kind in kinds):
        yield
        return
    with conn.cursor() as cursor:
        cursor.execute("SELECT @@SESSION.sql_mode, @@SESSION.time_zone")
        mode, zone = cursor.fetchone()
        remaining_modes = [part for part in str(mode).split(",") if part and part not in _STRICT_DATES]
        cursor.execute(
            "SET SESSION sql_mode = %s, time_zone = '+00:00'", (",".join([*remaining_modes, "ALLOW_INVALID_DATES"]),)
        )
    yield
    with conn.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = %s, time_zone = %s", (mode, zone))


# -- the kinds ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _parse_kind(name: str) -> KeyColumnKind | None:
    if name in (SIGNED, UNSIGNED, "YEAR"):
        return _integer_kind(name)
    for pattern, build_kind in _KIND_PATTERNS:
        if (match := pattern.fullmatch(name)) is not None:
            return build_kind(name, *(int(number) for number in match.groups() if number is not None))
    collation = kind_collation(name)
    return None if collation is None else _text_kind(name, collation)


def _integer_kind(name: str) -> KeyColumnKind:
    return KeyColumnKind(name, is_integer, str, quote_name)


def _text_kind(name: str, collation: Collation) -> KeyColumnKind:
    charset = quote_name(collation.charset)

    def roundtrip_condition(column: str) -> str:
        roundtrip = f"CONVERT(CONVERT({quote_name(column)} USING utf16) USING {charset})"
        return f"CAST({roundtrip} AS BINARY) = CAST({quote_name(column)} AS BINARY)"

    is_unicode = collation.charset in _UNICODE_CHARSETS
    return KeyColumnKind(name, is_text, text_literal, quote_name, None if is_unicode else roundtrip_condition)


def text_literal(value: str) -> str:
    """Return a text as an SQL literal in hexadecimal utf8mb4, which has the same meaning in every SQL mode.

    MySQL converts it to the character set of the column and compares with the column's collation.
    """
    return f"_utf8mb4 0x{value.encode().hex()}" if value else "_utf8mb4 ''"


def _pattern_check(pattern: str) -> Callable[[Any], bool]:
    compiled = re.compile(pattern, re.ASCII)
    return lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None


def _as_char(column: str) -> str:
    return f"CAST({quote_name(column)} AS CHAR)"


def _hex_literal(value: str) -> str:
    return f"x'{value}'"


def _fraction_pattern(count: int) -> str:
    return rf"\.\d{{{count}}}" if count else ""


def _date_like_kind(name: str, pattern: str) -> KeyColumnKind:
    def literal(value: str) -> str:
        # MySQL converts it to the column's type. ``k <= DATE'2020-02-31'`` finds no row at all on 8.0.15.
        return f"'{value}'"

    return KeyColumnKind(name, _pattern_check(pattern), literal, _as_char)


def _date_kind(name: str) -> KeyColumnKind:
    return _date_like_kind(name, r"\d{4}-\d\d-\d\d")


def _datetime_kind(name: str, digits: int) -> KeyColumnKind:
    return _date_like_kind(name, rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d{_fraction_pattern(digits)}")


def _time_kind(name: str, digits: int) -> KeyColumnKind:
    is_written_form = _pattern_check(rf"-?\d{{2,3}}:\d\d:\d\d{_fraction_pattern(digits)}")
    return KeyColumnKind(name, is_written_form, "TIME'{}'".format, _as_char)


def _decimal_kind(name: str, precision: int, scale: int) -> KeyColumnKind:
    def is_written_form(value: Any) -> bool:
        return is_decimal_text(value) and len(value) <= precision + 3

    is_decimal_text = _pattern_check(r"-?\d+" + _fraction_pattern(scale))
    return KeyColumnKind(name, is_written_form, str, _as_char)


def _binary_kind(name: str, *length: int) -> KeyColumnKind:
    is_hex_text = _pattern_check(r"(?:[0-9a-f]{2})*")

    def is_written_form(value: Any) -> bool:
        return is_hex_text(value) and (not length or len(value) == 2 * length[0])

    return KeyColumnKind(name, is_written_form, _hex_literal, lambda c: f"LOWER(HEX({quote_name(c)}))")


_KIND_PATTERNS: tuple[tuple[re.Pattern[str], Callable[..., KeyColumnKind]], ...] = (
    (re.compile("DATE"), _date_kind),
    (re.compile("(?:DATETIME|TIMESTAMP) ([0-6])"), _datetime_kind),
    (re.compile("TIME ([0-6])"), _time_kind),
    (re.compile("DECIMAL ([1-9]|[1-5][0-9]|6[0-5]) ([12]?[0-9]|30)(?: UNSIGNED)?"), _decimal_kind),
    (re.compile("BINARY (0|[1-9][0-9]{0,2})"), _binary_kind),
    (re.compile("VARBINARY"), _binary_kind),
)
