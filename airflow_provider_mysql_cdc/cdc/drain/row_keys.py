"""The keys by which a window recognises a row of its view in the stream: those of the table, as the server has them.

The keys of events are not enough, because several rows may have the same one: dates with a month or day 0 become the
first day of 1970, years below 100 become others, and all numbers but 0 of a BOOL become true. Here these are MySQL's
own text.

Some values have the same text in MySQL itself. A row event holds the number of an ENUM's member, the bits of a SET and
the bytes of a text, but SELECT shows ``''`` for an invalid ENUM and for a member ``''``, and ``?`` for each character
that Unicode does not have. A view can then not tell which of the rows an event changed (``shared_key_check``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import orjson

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns
from airflow_provider_mysql_cdc.cdc.model.charset_decoders import shared_characters
from airflow_provider_mysql_cdc.cdc.model.mysql_types import TEMPORAL_FAMILIES, Family
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table

TextCheck = Callable[[str], bool]


def row_key_options(table: Table) -> DecoderOptions:
    """Return the options of a decoder that gives the columns of the table's own key as the key of its records.

    Args:
        table: The table.
    """
    options = DecoderOptions(
        key_columns=table.key_columns(), included=(), tombstones=False, skipped_ops=frozenset(), read_op="r"
    )
    converted = any(
        column.family in TEMPORAL_FAMILIES or options.boolean_test(column) for column in key_columns(table, options)
    )
    return replace(options, flat=converted)


def shared_key_check(table: Table) -> Callable[[bytes], bool] | None:
    """Return what says whether another row may have the same key; None where each row has its own.

    Args:
        table: The table.
    """
    checks = {
        column.name: check
        for column in key_columns(table, row_key_options(table))
        if (check := _text_check(column)) is not None
    }
    if not checks:
        return None

    def is_shared(key: bytes) -> bool:
        values = orjson.loads(key)
        return any(check(values[name]) for name, check in checks.items())

    return is_shared


def _enum_check(column: Column) -> TextCheck | None:
    # The number 0, an invalid member, is shown as ''.
    shared = frozenset(text for text, count in Counter(("", *column.enum_values)).items() if count > 1)
    return shared.__contains__ if shared else None


def _set_check(column: Column) -> TextCheck | None:
    members = ("", *column.enum_values)
    return None if len(members) == len({*members}) else lambda text: True


def _characters_check(column: Column) -> TextCheck | None:
    name = column.charset or "utf8mb4"
    return None if name == "binary" or not shared_characters(name) else partial(_has_shared_character, name)


def _has_shared_character(charset: str, text: str) -> bool:
    return not shared_characters(charset).isdisjoint(text)


_CHECKS: dict[Family, Callable[[Column], TextCheck | None]] = {
    Family.ENUM: _enum_check,
    Family.SET: _set_check,
    Family.TEXT: _characters_check,
}


def _text_check(column: Column) -> TextCheck | None:
    make_check = _CHECKS.get(column.family)
    return None if make_check is None else make_check(column)
