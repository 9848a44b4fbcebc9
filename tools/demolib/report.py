"""The demo's result as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from demolib.airflow_run import RunResult
from demolib.verify import Result

_OPS = (("r", "read"), ("c", "created"), ("u", "updated"), ("d", "deleted"), ("t", "tombstones"))


@dataclass(frozen=True, slots=True)
class Summary:
    """Hold the contents of the report.

    Args:
        runs: The DAG runs in order.
        writer: The writer's report file.
        seconds: How long the demo took.
    """

    runs: Sequence[RunResult]
    writer: Mapping[str, Any]
    result: Result
    seconds: float


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as aligned text; the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = []
    for row in [header, ["-" * w for w in widths], *rows]:
        cells = [
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def percentile(values: Sequence[int], part: float) -> int:
    """Return the value below which ``part`` of the sorted values lie."""
    return values[min(len(values) - 1, int(len(values) * part))] if values else 0


def run_lines(runs: Sequence[RunResult]) -> list[str]:
    """Return one line for every DAG run."""
    rows = [
        [
            run.dag_id,
            run.state,
            f"{run.records:,}",
            f"{run.wall_s:.1f}",
            f"{run.task_s:.1f}",
            f"{run.records / run.task_s:,.0f}" if run.task_s else "-",
        ]
        for run in runs
    ]
    return table(["DAG run", "state", "records", "seconds", "task", "records/s"], rows)


def table_lines(result: Result) -> list[str]:
    """Return one line for every table, and their sum."""
    rows = []
    for v in result.tables:
        verdict = "ok" if v.ok else "FAILED"
        rows.append([v.table, f"{v.rows_table:,}", *(f"{v.ops[o]:,}" for o, _ in _OPS), f"{v.sum_table:016x}", verdict])
    ops = [f"{sum(v.ops[o] for v in result.tables):,}" for o, _ in _OPS]
    total = sum(v.rows_table for v in result.tables)
    rows.append(["all", f"{total:,}", *ops, "", "ok" if result.ok else "FAILED"])
    return table(["table", "rows", *(name for _, name in _OPS), "checksum", "verdict"], rows)


def verification_lines(runs: Sequence[RunResult]) -> list[str]:
    """Return one line for every run of the DAG that verifies."""
    out = []
    for run in runs:
        if found := run.verification:
            verdict = "found nothing" if found["verdict"] == "equal" else f"FOUND {found['findings']}"
            out.append(
                f"{run.dag_id} {verdict} in {found['tables_compared']} tables: {found['rows']:,} rows against "
                f"{found['records']:,} records, at {found['offset']['file']}:{found['offset']['pos']}"
            )
    return out


def is_verified(runs: Sequence[RunResult]) -> bool:
    """Return whether the DAG that verifies has run, and found nothing."""
    found = [run.verification["verdict"] == "equal" for run in runs if run.verification]
    return bool(found) and all(found)


def lines(summary: Summary) -> list[str]:
    """Return the whole report."""
    result, writer = summary.result, summary.writer
    lags = sorted(lag for v in result.tables for lag in v.lags_ms)
    transactions = sum(writer.get("transactions", {}).values())
    seconds = max(float(writer.get("seconds", 0)), 0.1)
    events = sum(v.events for v in result.tables)
    out = [
        "",
        *run_lines(summary.runs),
        "",
        *table_lines(result),
        "",
        f"writer: {transactions:,} transactions in {seconds:.0f} s ({transactions / seconds:,.0f}/s), among them "
        f"{writer.get('transactions', {}).get('wholesale, compressed', 0):,} compressed and one ALTER TABLE",
        f"lag from commit to Kafka, of {len(lags):,} streamed events: median {percentile(lags, 0.5) / 1000:.1f} s, "
        f"95% {percentile(lags, 0.95) / 1000:.1f} s, most {percentile(lags, 1) / 1000:.1f} s",
        f"read again by an ad-hoc snapshot: {sum(v.again for v in result.tables):,} rows",
        f"verified {events:,} records in {result.seconds:.0f} s: every topic equals its table, no identity twice, "
        "every key in binlog order, the ALTER in the schema change topic"
        if result.ok
        else f"VERIFICATION FAILED, {events:,} records read in {result.seconds:.0f} s:",
        *(f"  {line}" for line in result.lines()[:40]),
        *verification_lines(summary.runs),
        f"took {summary.seconds:.0f} s",
    ]
    return out
