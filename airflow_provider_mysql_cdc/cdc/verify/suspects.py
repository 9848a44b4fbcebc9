"""Suspects: rows of which a comparison has found that topic and table disagree, to be read once more and repaired."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.verify.compared_table import ComparedTable
from airflow_provider_mysql_cdc.cdc.verify.folding import FoundDifference
from airflow_provider_mysql_cdc.cdc.verify.structure_versions import TableVersions
from airflow_provider_mysql_cdc.cdc.verify.verify_result import STATE_DIFFERENCES, DifferenceKind

Bounds = Mapping[int, tuple[int, int]]
"""First offset of a topic, and the offset after its last record, by partition."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """Hold one difference.

    Args:
        kind: MISSING, GHOST or DIFFERING.
        key: Canonical bytes of the row's identity.
        event_row: Canonical bytes of the values after the last event; None where the row does not exist after it.
        record: Partition and offset of the last event; None where there is none, or the table has no key.
    """

    kind: DifferenceKind
    key: bytes
    event_row: bytes | None = None
    record: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class TableSuspects:
    """Hold the suspects of one table.

    Args:
        structure: The table at the position of the comparison.
        topic: Its topic.
        suspects: The suspects; of a table without a key each stands for all equal rows.
        compared: The records of the topic that the comparison has read.
        versions: The structures that the table has had; None where events are not told apart by them.
    """

    structure: Table
    topic: str
    suspects: tuple[Suspect, ...]
    compared: Bounds
    versions: TableVersions | None = None

    @property
    def table(self) -> TableId:
        """Return the table's name."""
        return self.structure.id


def collect_suspects(
    tables: Iterable[ComparedTable],
    found: Iterable[FoundDifference],
    unjudged: Mapping[TableId, Iterable[DifferenceKind]],
    compared: Mapping[str, Bounds],
    versions: Mapping[TableId, TableVersions] = MappingProxyType({}),
) -> tuple[TableSuspects, ...]:
    """Return the suspects of all tables that have some.

    Args:
        tables: The tables that were compared.
        found: All differences that were found.
        unjudged: Kinds of differences that the configuration or the topic's retention makes, by table: no suspects.
        compared: The records of each topic that the comparison has read.
        versions: The structures that tables have had.
    """
    by_number: dict[int, list[Suspect]] = {}
    for each in found:
        if each.kind in STATE_DIFFERENCES:
            suspect = Suspect(each.kind, each.key, each.event_row, each.record)
            by_number.setdefault(each.table, []).append(suspect)
    collected = []
    for table in tables:
        excluded = frozenset(unjudged.get(table.table.id, ()))
        suspects = tuple(s for s in by_number.get(table.number, ()) if s.kind not in excluded)
        if suspects:
            bounds = compared.get(table.topic, {})
            collected.append(TableSuspects(table.table, table.topic, suspects, bounds, versions.get(table.table.id)))
    return tuple(collected)
