"""What a column that bounds chunks is, how its values stand in a record, in SQL, and in which order they come.

A chunk is a range of the key. Three parties must agree on which rows that is: the SELECT that reads it, the filter
that finds the chunk of an event's key, and a resumed run that reads the bounds back. So a bound has one written form,
checked when it is read (whatever wrote it), and the order of two written forms is the server's order of the values:

=========================  ===============================  ==========================================================
kind                       written form                     why the order is the server's
=========================  ===============================  ==========================================================
SIGNED, UNSIGNED, YEAR     whole number                     numbers
DATE                       ``YYYY-MM-DD``                   equally long digits, the largest unit first, zero dates and
DATETIME n, TIMESTAMP n    ``YYYY-MM-DD hh:mm:ss[.f]``      impossible ones included; TIMESTAMP in UTC on both sides
TIME n                     ``[-]hh[h]:mm:ss[.f]``           compared as microseconds
DECIMAL p s [UNSIGNED]     digits                           compared exactly (``decimal.Decimal`` compares exactly)
BINARY n, VARBINARY        lower-case hexadecimal           bytes; the server does not pad them, a shorter one is less
``charset collation``      text                             only the server knows: it is asked
=========================  ===============================  ==========================================================

A key that begins with another type makes its table one chunk: FLOAT and DOUBLE do not look alike in a query and in a
row event, and MySQL reads no range of an index for a comparison with an ENUM's or a SET's number (EXPLAIN of 9.7.4).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from airflow_provider_mysql_cdc.cdc.ddl.collations import BY_NAME, Collation
from airflow_provider_mysql_cdc.cdc.model.stored_record import is_text, is_whole
from airflow_provider_mysql_cdc.cdc.model.table import Column, quote_name

KeyValue = int | str

INTEGER_TYPES = frozenset({"TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT"})
TEXT_TYPES = frozenset({"CHAR", "VARCHAR"})
SIGNED, UNSIGNED = "SIGNED", "UNSIGNED"
_DATED = ("DATE", "DATETIME", "TIMESTAMP")
_WHOLE = frozenset({"utf8mb4", "utf8mb3", "utf8", "utf16", "utf16le", "utf32", "latin1", "ascii"})
"""Character sets of which Unicode has each character, once."""
_STRICT_DATES = frozenset({"NO_ZERO_DATE", "NO_ZERO_IN_DATE", "TRADITIONAL"})
"""Parts of sql_mode that refuse dates which a table may hold; TRADITIONAL stands for both."""


@dataclass(frozen=True, slots=True)
class KeyKind:
    """Describe one kind of column.

    Args:
        name: The kind as records hold it.
        family: What may take its place without changing the order of what was written: integers, text, or itself.
        form: Returns whether a value is a written form.
        literal: Written form to SQL that compares with the column.
        rank: Written form to a value that Python orders as the server does; None where only the server can.
        apart: Written form to SQL that compares, without the column, with others of the same kind.
        shown: Column name to the SQL expression that gives the written form.
        of_plain: A value as ``decode.codegen.custom_values`` gives it, to the written form.
        kept: Column name to SQL that is true where the written form stands for the value; None where it always does.
    """

    name: str
    family: str
    form: Callable[[Any], bool]
    literal: Callable[[Any], str]
    rank: Callable[[Any], Any] | None
    apart: Callable[[Any], str]
    shown: Callable[[str], str]
    of_plain: Callable[[Any], KeyValue]
    kept: Callable[[str], str] | None = None


def key_kind_of(name: str) -> KeyKind | None:
    """Return the kind of a name, or None when there is no such kind.

    Args:
        name: From ``kind_name``, perhaps by way of a stored record.
    """
    return _kind(name) if isinstance(name, str) else None


def kind_name(column: Column) -> str | None:
    """Return the name of a column's kind; None for a type whose values cannot bound a chunk.

    Args:
        column: The column.
    """
    kind = column.type_name
    if kind in TEXT_TYPES and column.charset == "binary":
        kind = "BINARY" if kind == "CHAR" else "VARBINARY"
    if kind in INTEGER_TYPES:
        return UNSIGNED if column.unsigned else SIGNED
    if kind in TEXT_TYPES:
        return f"{column.charset} {column.collation}"
    if kind in ("DATETIME", "TIMESTAMP", "TIME"):
        return f"{kind} {column.length or 0}"
    if kind == "DECIMAL":
        # DECIMAL alone is DECIMAL(10,0) (MySQL manual, "Fixed-Point Types").
        digits = f"DECIMAL {10 if column.length is None else column.length or 10} {column.scale or 0}"
        return f"{digits} UNSIGNED" if column.unsigned else digits
    if kind == "BINARY":
        return f"BINARY {1 if column.length is None else column.length}"
    return kind if kind in ("DATE", "YEAR", "VARBINARY") else None


def kept_as_shown(columns: Iterable[str], kinds: Iterable[str]) -> str:
    """Return an SQL condition that a key fulfils whose written form may bound a chunk.

    MySQL stores characters that Unicode does not have, and shows all of them as ``?`` or U+FFFD (gbk x'AAA1', sjis
    x'F040', hp8 x'FF'; 9.7.4), or shows two of them alike (cp932 x'ED40' and x'FA5C'). What is shown then is another
    key, which stands elsewhere in the order. Half a pair of surrogates (ucs2 x'D800') comes as bytes that are no UTF-8;
    utf16 has none.

    Args:
        columns: The columns of the key.
        kinds: What each of them is.
    """
    known = zip(columns, map(key_kind_of, kinds), strict=True)
    return " AND ".join(kind.kept(column) for column, kind in known if kind is not None and kind.kept) or "TRUE"


def text_kind(name: str) -> Collation | None:
    """Return the collation of a character column's kind, when MySQL has it and it is of that character set.

    Args:
        name: From ``kind_name``, perhaps by way of a stored record.
    """
    charset, _, collation = name.partition(" ")
    found = BY_NAME.get(collation)
    return found if found is not None and found.charset == charset else None


@contextmanager
def dates_as_stored(conn: Any, kinds: tuple[str, ...]) -> Iterator[None]:
    """Let a session compare with every date that a table may hold, TIMESTAMPs in UTC.

    With NO_ZERO_DATE, NO_ZERO_IN_DATE or without ALLOW_INVALID_DATES a comparison with '2020-02-00' is an
    error (1525, seen on 9.7.4), although tables hold such values from times when the mode was another.

    Args:
        conn: An open connection; one that broke inside is left as it is.
        kinds: Kinds of the columns to be compared; without dates nothing is changed.
    """
    if not any(kind.partition(" ")[0] in _DATED for kind in kinds):
        yield
        return
    with conn.cursor() as cursor:
        cursor.execute("SELECT @@SESSION.sql_mode, @@SESSION.time_zone")
        mode, zone = cursor.fetchone()
        kept = [part for part in str(mode).split(",") if part and part not in _STRICT_DATES]
        cursor.execute("SET SESSION sql_mode = %s, time_zone = '+00:00'", (",".join([*kept, "ALLOW_INVALID_DATES"]),))
    yield
    with conn.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = %s, time_zone = %s", (mode, zone))


# -- the kinds ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _kind(name: str) -> KeyKind | None:
    if name in (SIGNED, UNSIGNED, "YEAR"):
        return _whole(name)
    for form, make in _FORMS:
        if (match := form.fullmatch(name)) is not None:
            return make(name, *(int(number) for number in match.groups() if number is not None))
    found = text_kind(name)
    return None if found is None else _text(name, found)


def _same(value: Any) -> Any:
    return value


def _whole(name: str) -> KeyKind:
    family = "whole" if name in (SIGNED, UNSIGNED) else name
    return KeyKind(name, family, is_whole, str, _same, str, quote_name, int)


def _text(name: str, collation: Collation) -> KeyKind:
    charset, order = quote_name(collation.charset), quote_name(collation.name)

    def apart(value: str) -> str:
        return f"CONVERT({text_literal(value)} USING {charset}) COLLATE {order}"

    def kept(column: str) -> str:
        there_and_back = f"CONVERT(CONVERT({quote_name(column)} USING utf16) USING {charset})"
        return f"CAST({there_and_back} AS BINARY) = CAST({quote_name(column)} AS BINARY)"

    whole = collation.charset in _WHOLE
    return KeyKind(name, "text", is_text, text_literal, None, apart, quote_name, str, None if whole else kept)


def text_literal(value: str) -> str:
    """Return a text as an SQL literal: hexadecimal utf8mb4, so that no SQL mode changes its meaning.

    MySQL converts it to the character set of the column, and compares with the column's collation.
    """
    return f"_utf8mb4 0x{value.encode().hex()}" if value else "_utf8mb4 ''"


def _matching(pattern: str) -> Callable[[Any], bool]:
    form = re.compile(pattern, re.ASCII)
    return lambda value: isinstance(value, str) and form.fullmatch(value) is not None


def _as_char(column: str) -> str:
    return f"CAST({quote_name(column)} AS CHAR)"


def _hex_literal(value: str) -> str:
    return f"x'{value}'"


def _of_ascii(value: str) -> str:
    """Return an ASCII text as bytes, which no character set of the connection concerns."""
    return _hex_literal(value.encode().hex())


def _digits(count: int) -> str:
    return rf"\.\d{{{count}}}" if count else ""


def _dated(name: str, pattern: str) -> KeyKind:
    def literal(value: str) -> str:
        # MySQL makes the column's type of it. ``k <= DATE'2020-02-31'`` finds no row at all on 8.0.15.
        return f"'{value}'"

    return KeyKind(name, name, _matching(pattern), literal, _same, _of_ascii, _as_char, str)


def _date(name: str) -> KeyKind:
    return _dated(name, r"\d{4}-\d\d-\d\d")


def _datetime(name: str, digits: int) -> KeyKind:
    return _dated(name, rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d{_digits(digits)}")


def _time(name: str, digits: int) -> KeyKind:
    def rank(value: str) -> int:
        hours, minutes, seconds = value.lstrip("-").split(":")
        whole, _, fraction = seconds.partition(".")
        micros = ((int(hours) * 60 + int(minutes)) * 60 + int(whole)) * 1_000_000 + int(fraction.ljust(6, "0"))
        return -micros if value.startswith("-") else micros

    form = _matching(rf"-?\d{{2,3}}:\d\d:\d\d{_digits(digits)}")
    return KeyKind(name, name, form, "TIME'{}'".format, rank, lambda v: str(rank(v)), _as_char, str)


def _decimal(name: str, precision: int, scale: int) -> KeyKind:
    def form(value: Any) -> bool:
        return digits(value) and len(value) <= precision + 3

    digits = _matching(r"-?\d+" + _digits(scale))
    return KeyKind(name, name, form, str, Decimal, str, _as_char, lambda value: format(value, "f"))


def _bytes(name: str, *length: int) -> KeyKind:
    digits = _matching(r"(?:[0-9a-f]{2})*")

    def form(value: Any) -> bool:
        return digits(value) and (not length or len(value) == 2 * length[0])

    return KeyKind(
        name, name, form, _hex_literal, bytes.fromhex, _hex_literal, lambda c: f"LOWER(HEX({quote_name(c)}))", bytes.hex
    )


_FORMS: tuple[tuple[re.Pattern[str], Callable[..., KeyKind]], ...] = (
    (re.compile("DATE"), _date),
    (re.compile("(?:DATETIME|TIMESTAMP) ([0-6])"), _datetime),
    (re.compile("TIME ([0-6])"), _time),
    (re.compile("DECIMAL ([1-9]|[1-5][0-9]|6[0-5]) ([12]?[0-9]|30)(?: UNSIGNED)?"), _decimal),
    (re.compile("BINARY (0|[1-9][0-9]{0,2})"), _bytes),
    (re.compile("VARBINARY"), _bytes),
)
