"""The checksum of a row, which Python and the server compute alike, and the statement that adds checksums up."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify.sql_literals import escapes_as_in_sql
from airflow_provider_mysql_cdc.cdc.verify.sql_row_text import SqlTexts

CHECKSUM_BYTES = 8


def checksum_of(text: bytes) -> bytes:
    """Return the checksum of a row: 64 bits of a SHA-256, which every server has (9.6 and later have no MD5()).

    Sums of them are as good as single ones. CRCs are linear: their sums may be equal where rows exchange values.

    Args:
        text: The texts of the key's fields and of the row, one behind the other.
    """
    return hashlib.sha256(escapes_as_in_sql(text)).digest()[:CHECKSUM_BYTES]


def bytes_checksum_of(data: bytes) -> bytes:
    """Return the checksum of a row whose bytes are compared as they are, which the server does not compute.

    Args:
        data: The identity and the row, one behind the other.
    """
    return hashlib.sha256(data).digest()[:CHECKSUM_BYTES]


def sums_sql(table: TableId, texts: SqlTexts, buckets: int, condition: str) -> str:
    """Return a SELECT of bucket, number and sum of checksums of rows.

    The column is named by its place: GROUP BY takes a name for a column of the table first, which may have it.

    A text that is NULL, because the server cannot write it, has no checksum but is counted, so it equals no event.

    Args:
        table: The table.
        texts: Expressions of its rows.
        buckets: Buckets of its keys.
        condition: The WHERE condition.
    """
    digest = f"SHA2(CONCAT({texts.key_fields}, {texts.after}), 256)"
    checksum = f"CAST(CONV(LEFT({digest}, {2 * CHECKSUM_BYTES}), 16, 10) AS UNSIGNED)"
    return (
        f"SELECT {_bucket(texts, buckets)}, COUNT(*), SUM({checksum}) "
        f"FROM {table.quoted()} WHERE {condition} GROUP BY 1"
    )


def buckets_condition(texts: SqlTexts, buckets: int, chosen: Iterable[int]) -> str:
    """Return the condition of the rows in some buckets, and of those whose bucket the server cannot tell.

    Args:
        texts: Expressions of the table's rows.
        buckets: Buckets of its keys.
        chosen: Some of them.
    """
    bucket = _bucket(texts, buckets)
    return f"({bucket} IN ({', '.join(map(str, sorted(chosen)))}) OR {bucket} IS NULL)"


def _bucket(texts: SqlTexts, buckets: int) -> str:
    return f"MOD(CRC32({texts.key_fields}), {buckets})"
