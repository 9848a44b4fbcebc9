"""What of the tables that are compared by checksums is compared by value afterwards: keys that differ, of a sample."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.verify.compare.checksum_entries import RecordSlices, key_bucket
from airflow_provider_mysql_cdc.cdc.verify.compare.checksum_fold import ChecksumResult
from airflow_provider_mysql_cdc.cdc.verify.read.entries import is_sampled
from airflow_provider_mysql_cdc.cdc.verify.read.sql_literals import escapes_as_in_sql
from airflow_provider_mysql_cdc.cdc.verify.read.sql_row_text import SqlTexts, buckets_condition, sample_condition
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import ComparedTable


@dataclass(frozen=True, slots=True)
class DifferingKeys:
    """Name the keys of a table that the comparison by value has to look at, because checksums differ.

    Args:
        table: The table's structure when checksums were compared; with another one, all keys are looked at.
        buckets: Buckets of its keys.
        differing: Those that differ; None for all.
    """

    table: Table
    buckets: int
    differing: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Tell which keys are looked at; one that is none of the table's always is.

    Args:
        slices: Takes the fields out of keys.
        buckets: Buckets of keys.
        differing: Those that are looked at; None for all.
        sample_percent: Share of the keys that is looked at.
        texts: Expressions of the table's rows; None where the server cannot tell.
    """

    slices: RecordSlices
    buckets: int
    differing: frozenset[int] | None
    sample_percent: float = 100.0
    texts: SqlTexts | None = None

    def has(self, key: bytes | None) -> bool:
        """Return whether a key is looked at."""
        fields = self.fields_of(key)
        return fields is None or self.differs(fields)

    def fields_of(self, key: bytes | None) -> bytes | None:
        """Return the fields of a key; None for one that is none of the table's."""
        return None if key is None else self.slices.fields_of(key)

    def differs(self, fields: bytes) -> bool:
        """Return whether a key with these fields is in the sample, and its bucket is looked at."""
        in_bucket = self.differing is None or key_bucket(fields, self.buckets) in self.differing
        return in_bucket and self.is_sampled(fields)

    def is_sampled(self, fields: bytes) -> bool:
        """Return whether a key with these fields is in the sample."""
        return is_sampled(escapes_as_in_sql(fields), self.sample_percent)

    @property
    def sampled(self) -> str:
        """The condition of the rows in the sample, in SQL; empty where the server cannot tell, or for all."""
        is_sample = self.texts is not None and self.sample_percent < 100
        return sample_condition(self.texts, self.sample_percent) if self.texts is not None and is_sample else ""

    @property
    def condition(self) -> str:
        """The condition of the rows that are looked at, in SQL; empty where the server cannot tell, or for all."""
        if self.texts is None:
            return ""
        differing = "" if self.differing is None else buckets_condition(self.texts, self.buckets, self.differing)
        return " AND ".join(filter(None, (differing, self.sampled)))


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
        compared_by_rows: Numbers of tables of which tasks have compared rows, as their records have to be read.
    """
    found: dict[TableId, DifferingKeys] = {}
    for compared in tables:
        number = compared.number
        if number in compared_by_rows:
            continue
        differing, count = result.differing.get(number, set()), buckets[number]
        if number in result.unjudged:
            found[compared.table.id] = DifferingKeys(compared.table, count)
        elif differing:
            found[compared.table.id] = DifferingKeys(compared.table, count, frozenset(differing))
    return found


def keys_left(differing: Mapping[TableId, DifferingKeys], unread: Container[TableId]) -> dict[TableId, DifferingKeys]:
    """Return the tables of which all rows have to be compared after all, because events have come with other keys.

    The server does not know such keys, so it has left out their rows.
    """
    left = {name: keys for name, keys in differing.items() if name in unread and keys.differing is not None}
    return {name: replace(keys, differing=None) for name, keys in left.items()}
