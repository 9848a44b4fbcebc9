"""Suspects: keys of which a comparison has found that topic and table disagree, or that their records are not right.

A repair lists them (``listed_keys``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.verify.compare.folding import FoundDifference
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import LASTING_DIFFERENCES, DifferenceKind
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import ComparedTable
from airflow_provider_mysql_cdc.cdc.verify.structures.structure_versions import TableVersions

Bounds = Mapping[int, tuple[int, int]]
"""First offset of a topic, and the offset after its last record, by partition."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """Hold the differences of one key.

    Args:
        kinds: Their number, by kind.
        key: Canonical bytes of the row's identity, or of a key that names no row (``event_entries.is_raw``).
        event_row: Canonical bytes of the values after the last event; None where the row does not exist after it.
        record: Partition and offset of the last event; None where there is none, or the table has no key.
        places: Records whose keys consumers have to forget in their partitions.
    """

    kinds: Mapping[DifferenceKind, int]
    key: bytes
    event_row: bytes | None = None
    record: tuple[int, int] | None = None
    places: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class TableSuspects:
    """Hold the suspects of one table.

    Args:
        structure: The table at the position of the comparison.
        suspects: The suspects; of a table without a key each stands for all equal rows.
        versions: The structures that the table has had; None where events are not told apart by them.
    """

    structure: Table
    topic: str
    suspects: tuple[Suspect, ...]
    versions: TableVersions | None = None

    @property
    def table(self) -> TableId:
        """Return the table's name."""
        return self.structure.id


def collect_suspects(
    tables: Iterable[ComparedTable],
    found: Iterable[FoundDifference],
    unjudged: Mapping[TableId, Collection[DifferenceKind]],
    versions: Mapping[TableId, TableVersions] = MappingProxyType({}),
) -> tuple[TableSuspects, ...]:
    """Return the suspects of all tables that have some.

    Args:
        tables: The tables that were compared.
        found: All differences that were found.
        unjudged: Kinds of differences that the configuration or the topic's retention makes, by table: no suspects.
        versions: The structures that tables have had.
    """
    by_number: dict[int, list[FoundDifference]] = {}
    for each in found:
        by_number.setdefault(each.table, []).append(each)
    collected = []
    for table in tables:
        excluded = {*unjudged.get(table.table.id, ()), *LASTING_DIFFERENCES}
        suspects = _by_key(d for d in by_number.get(table.number, ()) if d.kind not in excluded)
        if suspects:
            collected.append(TableSuspects(table.table, table.topic, suspects, versions.get(table.table.id)))
    return tuple(collected)


def _by_key(found: Iterable[FoundDifference]) -> tuple[Suspect, ...]:
    by_key: dict[bytes, list[FoundDifference]] = {}
    for each in found:
        by_key.setdefault(each.key, []).append(each)
    return tuple(_suspect(key, of_key) for key, of_key in by_key.items())


def _suspect(key: bytes, found: list[FoundDifference]) -> Suspect:
    kinds: dict[DifferenceKind, int] = {}
    for each in found:
        kinds[each.kind] = kinds.get(each.kind, 0) + 1
    event_row = next((each.event_row for each in found if each.event_row is not None), None)
    last = next((each.last for each in found if each.last is not None), None)
    places = sorted({place for each in found for place in each.places})
    return Suspect(kinds, key, event_row, last, tuple(places))
