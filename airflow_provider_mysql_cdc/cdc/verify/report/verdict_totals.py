"""Totals of a verification over its tables, for its reports, the task's result and its error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.model.offset import file_number
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import (
    DifferenceKind,
    TableVerdict,
    VerdictKind,
    VerifyResult,
    counts_json,
)


@dataclass(frozen=True, slots=True)
class VerdictTotals:
    """Count over all tables.

    Args:
        tables: Tables that were compared, or were to be.
        different: Tables with differences of any kind.
        rows: Rows that were compared.
        records: Records that were read.
        findings: Differences by kind.
        repaired: Differences that were repaired, by kind.
        not_compared: Tables that were not compared.
        unjudged: Tables that were not compared, or not in full, and in which nothing was found.
        equal: Tables without differences that were compared in full.
        left: Tables with differences that were not repaired.
        by_checksums: Tables of which checksums were equal, so that rows were not compared one by one.
    """

    tables: int
    different: int
    rows: int
    records: int
    findings: Mapping[DifferenceKind, int]
    repaired: Mapping[DifferenceKind, int]
    not_compared: int = 0
    by_checksums: int = 0
    unjudged: int = 0
    equal: int = 0
    left: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "tables_compared": self.tables - self.not_compared,
            "tables_different": self.different,
            "tables_not_compared": self.not_compared,
            "tables_not_judged": self.unjudged,
            "rows": self.rows,
            "records": self.records,
            "findings": counts_json(self.findings),
            "repaired": counts_json(self.repaired),
        }


def bounded_json(
    result: VerifyResult, most: int, of_table: Callable[[TableVerdict], dict[str, Any]] = TableVerdict.counts_json
) -> dict[str, Any]:
    """Return a result as plain JSON of bounded size: totals, and the tables with differences before all others.

    Args:
        result: The result.
        most: Number of tables.
        of_table: What is told of a table.
    """
    # Those that were not judged come before those without differences.
    others = sorted((v for v in result.tables if not v.different), key=lambda v: (v.judged, v.table))
    listed = [*most_different(result), *others][:most]
    tables = {verdict.table: of_table(verdict) for verdict in listed}
    totals = count_verdicts(result).to_json()
    return result.summary_json() | totals | {"tables": tables, "tables_omitted": len(result.tables) - len(listed)}


def count_verdicts(result: VerifyResult) -> VerdictTotals:
    """Return the totals."""
    findings: Counter[DifferenceKind] = Counter()
    repaired: Counter[DifferenceKind] = Counter()
    for verdict in result.tables:
        findings.update(verdict.findings)
        repaired.update(verdict.repaired)
    return VerdictTotals(
        len(result.tables),
        sum(verdict.different for verdict in result.tables),
        sum(verdict.rows for verdict in result.tables),
        sum(verdict.records for verdict in result.tables),
        in_order(findings),
        in_order(repaired),
        sum(verdict.not_compared is not None for verdict in result.tables),
        sum(verdict.by_checksums for verdict in result.tables),
        sum(verdict.verdict is VerdictKind.NOT_JUDGED for verdict in result.tables),
        sum(verdict.verdict is VerdictKind.EQUAL for verdict in result.tables),
        sum(bool(left_differences(verdict)) for verdict in result.tables),
    )


def in_order(counts: Mapping[DifferenceKind, int]) -> dict[DifferenceKind, int]:
    """Return counts in the order in which the kinds are declared, without zeros."""
    return {kind: counts[kind] for kind in DifferenceKind if counts.get(kind)}


def left_differences(verdict: TableVerdict) -> dict[DifferenceKind, int]:
    """Return the differences that were not repaired, by kind."""
    return in_order({kind: max(0, n - verdict.repaired.get(kind, 0)) for kind, n in verdict.findings.items()})


def left_to_repair(verdict: TableVerdict) -> int:
    """Return the number of differences that a repair still has to mend."""
    return max(0, sum(left_differences(verdict).values()) - verdict.lasting)


def position_text(result: VerifyResult) -> str:
    """Return the position at which tables were compared, or the first and the last one."""
    compared = {verdict.offset or result.offset for verdict in result.tables} or {result.offset}
    positions = sorted(compared, key=lambda offset: (file_number(offset.file), offset.pos))
    first, last = (f"{offset.file}:{offset.pos}" for offset in (positions[0], positions[-1]))
    return first if len(positions) == 1 else f"{len(positions):,} positions from {first} to {last}"


def most_different(result: VerifyResult) -> list[TableVerdict]:
    """Return the verdicts with differences, those with the most first."""
    different = [verdict for verdict in result.tables if verdict.different]
    return sorted(different, key=lambda verdict: (-sum(verdict.findings.values()), verdict.table))


def unknown_by_reason(result: VerifyResult) -> dict[str, list[str]]:
    """Return what cannot be judged, with the names of the tables that it holds for."""
    tables: dict[str, list[str]] = {}
    for verdict in result.tables:
        for reason in verdict.unknown:
            tables.setdefault(reason, []).append(verdict.table)
    return tables
