"""Choose the tables that are compared by checksums first, and what of them is compared row by row afterwards."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.verify.checksum_entries import key_bucket
from airflow_provider_mysql_cdc.cdc.verify.checksum_fold import ChecksumResult
from airflow_provider_mysql_cdc.cdc.verify.checksum_function import buckets_condition
from airflow_provider_mysql_cdc.cdc.verify.checksum_keys import KeySlices
from airflow_provider_mysql_cdc.cdc.verify.compared_table import ComparedTable
from airflow_provider_mysql_cdc.cdc.verify.sql_row_text import SqlTexts
from airflow_provider_mysql_cdc.cdc.verify.verify_request import VerifyRequest


@dataclass(frozen=True, slots=True)
class DifferingKeys:
    """Name the keys of a table that the comparison of rows has to look at, because checksums differ.

    Args:
        table: The table's structure when checksums were compared; with another one, all keys are looked at.
        buckets: Buckets of its keys.
        differing: Those that differ; None for all.
    """

    table: Table
    buckets: int
    differing: frozenset[int] | None = None

    def filter_for(self, compared: ComparedTable, keys: KeySlices, texts: SqlTexts | None) -> KeyFilter | None:
        """Return what tells the keys to look at; None for all.

        Args:
            compared: The table.
            keys: Takes the fields out of its keys.
            texts: Expressions of its rows; None where the server cannot write them.
        """
        if self.differing is None or compared.table != self.table:
            return None
        condition = "" if texts is None else buckets_condition(texts, self.buckets, self.differing)
        return KeyFilter(keys, self.buckets, self.differing, condition)


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Tell which keys are looked at.

    Args:
        keys: Takes the fields out of keys.
        buckets: Buckets of keys.
        differing: Those that are looked at.
        condition: The same in SQL; empty where the server cannot tell.
    """

    keys: KeySlices
    buckets: int
    differing: frozenset[int]
    condition: str = ""

    def has(self, key: bytes | None) -> bool:
        """Return whether a key is looked at; one that is none of the table's is.

        Args:
            key: The record's key.
        """
        bucket = self.bucket_of(key)
        return bucket is None or bucket in self.differing

    def bucket_of(self, key: bytes | None) -> int | None:
        """Return the bucket of a key; None for one that is none of the table's.

        Args:
            key: The record's key.
        """
        fields = None if key is None else self.keys.fields_of(key)
        return None if fields is None else key_bucket(fields, self.buckets)


def may_use_checksums(request: VerifyRequest) -> bool:
    """Return whether a request allows a first pass by checksums: sums of them, or those of each row.

    Args:
        request: What is asked for. A sample of the keys, and their histories, are read record by record.
    """
    return request.sample_percent >= 100 and not request.history


def differing_keys(
    tables: Iterable[ComparedTable],
    buckets: Mapping[int, int],
    result: ChecksumResult,
    compared_by_rows: Container[int] = (),
) -> dict[TableId, DifferingKeys]:
    """Return the keys whose rows have to be compared, by table; tables whose checksums are all equal have none.

    Args:
        tables: The tables that were compared by checksums.
        buckets: Buckets of their keys, by the table's number.
        result: What checksums say.
        compared_by_rows: Numbers of tables of which tasks have compared rows, because their structure has changed.
    """
    found: dict[TableId, DifferingKeys] = {}
    for compared in tables:
        number = compared.number
        if number in compared_by_rows:
            # Tasks that disagree about the structure have compared a part each.
            if number in result.rows or number in result.records or number in result.unjudged:
                found[compared.table.id] = DifferingKeys(compared.table, buckets[number])
            continue
        differing, count = result.differing.get(number, set()), buckets[number]
        if number in result.unjudged or len(differing) * 2 > count:
            found[compared.table.id] = DifferingKeys(compared.table, count)
        elif differing:
            found[compared.table.id] = DifferingKeys(compared.table, count, frozenset(differing))
    return found


def keys_left(differing: Mapping[TableId, DifferingKeys], unread: Container[TableId]) -> dict[TableId, DifferingKeys]:
    """Return the tables of which all rows have to be compared after all, because events have come with other keys.

    The server does not know such keys, so it has left out their rows.

    Args:
        differing: What the comparison has looked at.
        unread: Tables with such events.
    """
    left = {name: keys for name, keys in differing.items() if name in unread and keys.differing is not None}
    return {name: replace(keys, differing=None) for name, keys in left.items()}
