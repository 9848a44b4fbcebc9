"""SQL expressions that give a row of a table as its record's text in JSON, so that the server can add up checksums.

Of the usual types the server can write what the encoders write (``sql_value_text``). The expressions read the columns
by their names, and no alias. The session has to be one of ``prepare_session``: in utf8mb4, its time zone UTC.

What a caller has to know:

- Texts of the two sides are equal only after ``escapes_as_in_sql`` of the record's text, which changes few texts.
- An expression is NULL where a value cannot be written in SQL (a date that the calendar does not have), and where a
  text becomes longer than ``max_allowed_packet``. A NULL is another text than that of any record, but aggregate
  functions leave it out: count the texts that are not NULL beside the rows.
- Two rows with different records have different texts. A text may differ from the record's, though, for a value that
  the encoder refuses.
- With ``column.exclude.list`` or masks ``after`` may not say which row it is of: two rows that have changed
  places are only told by a checksum over ``key_fields`` and ``after`` together.
- MySQL 9.6 and later have no MD5() and SHA1() any more (9.7.4: error 1305, unless a component is installed); SHA2() and
  CRC32() are there from 5.7 on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import constant_text, key_columns, value_columns
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import quote
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.model.avro_names import field_name
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from airflow_provider_mysql_cdc.cdc.verify.read.entries import SAMPLE_MARK, SAMPLE_SHARES, sampled_shares
from airflow_provider_mysql_cdc.cdc.verify.read.sql_literals import escapes_as_in_sql, sql_literal
from airflow_provider_mysql_cdc.cdc.verify.read.sql_value_text import QuotedSql, SqlRequest, value_sql

_Parts = list["str | _SqlPart"]
CHECKSUM_BYTES = 8


class SqlTexts(NamedTuple):
    """Hold SQL expressions of the fields of a row's key, and of the row after an event, from brace to brace."""

    key_fields: str
    after: str


class _SqlPart(NamedTuple):
    """Hold an expression; what stands beside it in a text is literal."""

    sql: str


def sql_texts(cfg: ConnectorConfig, table: Table) -> SqlTexts | None:
    """Return the expressions of a table's rows; None where the server cannot write one of its columns as records do.

    Raises:
        SchemaError: As for ``table_options``.
        ConfigError: As for ``table_options``.
    """
    if cfg.is_ticdc or cfg.is_avro("key") or cfg.is_avro("value"):
        return None
    options = table_options.table_options(cfg, table)
    envelope = table_options.envelope_text(cfg, table, options)
    keys = key_columns(table, options)
    key = _members(keys, options, envelope, in_key=True)
    after = _members(value_columns(table, options), options, envelope, in_key=False)
    if not keys or key is None or after is None:
        return None
    ending = "".join(f",{quote(name)}:{quote(value)}" for name, value in options.key_fields)
    return SqlTexts(_concat(["{", *key, f"{ending}}}"]), _concat(["{", *after, "}"]))


def _members(
    columns: Iterable[Column], options: DecoderOptions, envelope: EnvelopeText, *, in_key: bool
) -> _Parts | None:
    parts: _Parts = []
    for column in columns:
        value = _value(column, options, envelope, in_key=in_key)
        if value is None:
            return None
        comma = "," if parts else ""
        parts += [f"{comma}{quote(field_name(column.name, options.field_names))}:", *value]
    return parts


def _value(column: Column, options: DecoderOptions, envelope: EnvelopeText, *, in_key: bool) -> _Parts | None:
    change = None if in_key else options.treatment(column).change
    if (constant := constant_text(change)) is not None:
        return [constant]
    if change is not None or options.custom(column) is not None:
        return None
    null = envelope.null_text.get(column.name, "null") if options.replace_null_with_default else "null"
    request = SqlRequest(column, options, _sql_text(null))
    sql = value_sql(request)
    if sql is None:
        return None
    text: _Parts = ['"', _SqlPart(sql), '"'] if isinstance(sql, QuotedSql) else [_SqlPart(sql)]
    if not column.nullable:
        return text
    # A function that gives NULL for a value must not make it look like a NULL of the table.
    return [_SqlPart(f"IF({request.name} IS NULL, {_sql_text(null)}, {_concat(text)})")]


def _concat(parts: _Parts) -> str:
    arguments: list[str] = []
    literal = ""
    for part in parts:
        if isinstance(part, _SqlPart):
            if literal:
                arguments.append(_sql_text(literal))
            arguments.append(part.sql)
            literal = ""
        else:
            literal += part
    if literal:
        arguments.append(_sql_text(literal))
    return arguments[0] if len(arguments) == 1 else f"CONCAT({', '.join(arguments)})"


def _sql_text(text: str) -> str:
    return sql_literal(escapes_as_in_sql(text.encode()).decode())


def table_mark(number: int) -> bytes:
    """Return what checksums of a table's rows begin with: equal rows that move to another table do not add up."""
    return b"%d" % number


def sums_sql(table: TableId, number: int, texts: SqlTexts, buckets: int, condition: str) -> str:
    """Return a SELECT of bucket, number and sum of checksums of rows; the table has this number.

    The column is named by its place: GROUP BY takes a name for a column of the table first, which may have it. A text
    that is NULL, because the server cannot write it, has no checksum but is counted, so it equals no event.
    """
    digest = f"SHA2(CONCAT('{table_mark(number).decode()}', {texts.key_fields}, {texts.after}), 256)"
    checksum = f"CAST(CONV(LEFT({digest}, {2 * CHECKSUM_BYTES}), 16, 10) AS UNSIGNED)"
    return (
        f"SELECT {_bucket(texts, buckets)}, COUNT(*), SUM({checksum}) "
        f"FROM {table.quoted()} WHERE {condition} GROUP BY 1"
    )


def buckets_condition(texts: SqlTexts, buckets: int, chosen: Iterable[int]) -> str:
    """Return the condition of the rows in some buckets, and of those whose bucket the server cannot tell."""
    bucket = _bucket(texts, buckets)
    return f"({bucket} IN ({', '.join(map(str, sorted(chosen)))}) OR {bucket} IS NULL)"


def sample_condition(texts: SqlTexts, percent: float) -> str:
    """Return the condition of the rows in a sample (``entries.is_sampled``), and of those that may be in it."""
    share = f"MOD(CRC32(CONCAT('{SAMPLE_MARK}', {texts.key_fields})), {SAMPLE_SHARES})"
    return f"({share} < {sampled_shares(percent)!r} OR {share} IS NULL)"


def _bucket(texts: SqlTexts, buckets: int) -> str:
    return f"MOD(CRC32({texts.key_fields}), {buckets})"
