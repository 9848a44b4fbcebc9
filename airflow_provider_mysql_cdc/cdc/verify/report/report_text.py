"""The report of a verification as text, for a task log or a terminal."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from airflow_provider_mysql_cdc.cdc.verify.report.verdict_totals import (
    VerdictTotals,
    count_verdicts,
    in_order,
    left_differences,
    most_different,
    position_text,
    unknown_by_reason,
)
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import (
    LASTING_DIFFERENCES,
    STATE_DIFFERENCES,
    DifferenceKind,
    Example,
    RepairMode,
    TableVerdict,
    VerifyResult,
)

WIDTH = 120
"""Characters of a line."""
MAX_TABLE_LINES = 50
"""Tables with differences that have a line of counts."""
MAX_DETAILED_TABLES = 20
"""Tables with differences that have examples."""
_MAX_NAME_LENGTH = 48
_MAX_SHOWN_NAMES = 5
_COLUMN_KINDS = (DifferenceKind.MISSING, DifferenceKind.GHOST, DifferenceKind.DIFFERING)
_REPAIR_STEPS = {
    RepairMode.NO: "run mysql_cdc_verify with repair=dry-run, then with repair=yes",
    RepairMode.DRY_RUN: "run mysql_cdc_verify with repair=yes",
    RepairMode.YES: "read in the log why rows were not repaired, then run mysql_cdc_verify with repair=yes again",
}
_HEADER = ("table", "rows", "records", *map(str, _COLUMN_KINDS), "other", "repaired")


def report_text(result: VerifyResult) -> str:
    """Return the report: the verdict, a line for each table with differences, examples, and totals of the others.

    Args:
        result: The result, without values that must not be shown (``hide_values``).
    """
    totals, different = count_verdicts(result), most_different(result)
    lines = [verdict_sentence(result, totals), *_wrap(_circumstances(result), "  ")]
    if different:
        lines += ["", *_count_table(different[:MAX_TABLE_LINES]), *_omitted(different, MAX_TABLE_LINES, "")]
        for verdict in different[:MAX_DETAILED_TABLES]:
            lines += ["", *_details(verdict, result.earlier)]
        lines += _omitted(different, MAX_DETAILED_TABLES, " without examples here")
    lines += ["", *_totals(totals, result)]
    lines += [line for reason, tables in unknown_by_reason(result).items() for line in _not_judged(reason, tables)]
    return "\n".join([*lines, *_wrap(f"what to do: {step}", "")] if (step := next_step(result)) else lines)


def verdict_sentence(result: VerifyResult, totals: VerdictTotals) -> str:
    """Return the verdict in one sentence."""
    prefix, judged = printable(result.prefix), ", as far as it can be judged" if unknown_by_reason(result) else ""
    chosen = " that was compared" if result.request.tables or result.earlier else ""
    tables = f"{_plural(totals.tables, 'table')} of {prefix}"
    if not totals.tables:
        return f"No table of {prefix} was compared."
    if totals.unjudged and not totals.different:
        others = "; every other topic equals its table" if totals.equal else ""
        return f"{totals.unjudged:,} of {tables} could not be judged in full{others}."
    unjudged = f" {_plural(totals.unjudged, 'table')} could not be judged in full." if totals.unjudged else ""
    if not totals.different:
        return f"Every topic of {prefix}{chosen} equals its table{judged}: {_plural(totals.tables, 'table')} compared."
    if not totals.left:
        return f"{totals.different:,} of {tables} differed from their topics; all differences are repaired.{unjudged}"
    if any(totals.findings.get(kind) for kind in STATE_DIFFERENCES):
        return f"{totals.different:,} of {tables} differ from their topics.{unjudged}"
    equal = "" if unjudged else f"; every topic{chosen} equals its table{judged}"
    return f"{totals.different:,} of {tables} have records that are not as expected{equal}.{unjudged}"


def next_step(result: VerifyResult) -> str:
    """Return what to do about all that is open; empty where nothing is."""
    return "; ".join(step for step in (difference_step(result), unjudged_step(result)) if step)


def difference_step(result: VerifyResult) -> str:
    """Return what to do about the differences that are left; empty without any."""
    kinds = {kind for verdict in result.tables for kind in left_differences(verdict)}
    if not kinds:
        return ""
    steps = ["find out what has changed them (docs/verify.md lists causes)"]
    if not LASTING_DIFFERENCES.issuperset(kinds):
        steps.append(f"to write the rows as they are now, {_REPAIR_STEPS[result.request.repair]}")
    if not STATE_DIFFERENCES.issuperset(kinds):
        steps.append("records stay in a topic; docs/verify.md says what a repair does about them")
    return "; ".join(steps)


def unjudged_step(result: VerifyResult) -> str:
    """Return what to do about tables that were not judged in full; empty without any."""
    if result.tables and all(verdict.judged for verdict in result.tables):
        return ""
    return (
        "remove the causes, or read the tables again (mysql_cdc_snapshot with again=true), and run mysql_cdc_verify "
        "again; otherwise leave these tables out of its tables, or set fail_on_not_judged=False"
    )


def counts_text(counts: Mapping[DifferenceKind, int]) -> str:
    """Return counts as in ``missing 3, ghost 1``."""
    return ", ".join(f"{kind} {count:,}" for kind, count in in_order(counts).items())


def time_text(at_ms: int) -> str:
    """Return a time in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def row_text(row: Mapping[str, Any]) -> str:
    """Return a row on one line, without characters that a terminal or a log acts on."""
    return printable(json.dumps(dict(row), ensure_ascii=False, default=str))


def printable(text: str) -> str:
    """Return a text in which characters that are not printable are escaped."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _circumstances(result: VerifyResult) -> str:
    request = result.request
    duration_s = max(0, result.ended_ms - result.started_ms) / 1000
    return "; ".join(
        [
            f"compared at {position_text(result)}",
            f"{time_text(result.started_ms)}, {duration_s:,.0f} s",
            f"tables: {printable(', '.join(request.tables)) or 'all captured'}",
            "all keys" if request.sample_percent >= 100 else f"{request.sample_percent:g} % of the keys",
            *(["the history of each key too"] if request.history else []),
            f"repair: {request.repair}",
            f"run {printable(result.run)}",
            *(
                [
                    f"of {_plural(len(result.earlier), 'table')} the verdict of an earlier run counts, "
                    f"since {time_text(min(result.earlier.values()))}"
                ]
                if result.earlier
                else []
            ),
        ]
    )


def _count_table(verdicts: Sequence[TableVerdict]) -> list[str]:
    rows = [_HEADER, *map(_count_cells, verdicts)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    return [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _count_cells(verdict: TableVerdict) -> tuple[str, ...]:
    other = sum(count for kind, count in verdict.findings.items() if kind not in _COLUMN_KINDS)
    counts = (
        verdict.rows,
        verdict.records,
        *(verdict.findings.get(kind, 0) for kind in _COLUMN_KINDS),
        other,
        sum(verdict.repaired.values()),
    )
    return (_cut(printable(verdict.table), _MAX_NAME_LENGTH), *(f"{count:,}" for count in counts))


def _details(verdict: TableVerdict, earlier: Mapping[str, int]) -> Iterator[str]:
    yield _cut(f"{printable(verdict.table)} in topic {printable(verdict.topic)}", WIDTH)
    facts = [counts_text(verdict.findings)]
    if verdict.repaired:
        facts.append(f"repaired: {counts_text(verdict.repaired)}")
    if verdict.columns:
        columns = sorted(verdict.columns.items(), key=lambda item: (-item[1], item[0]))
        facts.append("columns that differ: " + ", ".join(f"{printable(name)} {count:,}" for name, count in columns))
    if verdict.table in earlier:
        facts.append(f"found by an earlier run, {time_text(earlier[verdict.table])}, and not judged again since")
    yield from _wrap("; ".join(facts), "  ")
    for example in verdict.examples:
        yield from (f"  {line}" for line in example_lines(example, WIDTH - 2))


def example_lines(example: Example, width: int) -> Iterator[str]:
    """Yield the lines of an example.

    Args:
        example: The example, without values that must not be shown.
        width: Characters of a line.
    """
    parts = [f"{example.finding}: {row_text(example.key)}"]
    if example.columns:
        parts.append("differs in " + ", ".join(map(printable, example.columns)))
    if example.record:
        parts.append(f"at {printable(example.record)}")
    yield _cut("- " + ", ".join(parts), width)
    for name, row in (("table", example.table_row), ("topic", example.topic_row)):
        if row is not None:
            shown = {column: row[column] for column in example.columns if column in row} or row
            yield _cut(f"    {name}: {row_text(shown)}", width)


def _totals(totals: VerdictTotals, result: VerifyResult) -> Iterator[str]:
    yield f"{_plural(totals.tables, 'table')}, {_plural(totals.rows, 'row')}, {_plural(totals.records, 'record')}; " + (
        f"{_plural(totals.equal, 'table')} without differences"
        + (f"; {_plural(totals.unjudged, 'table')} not judged in full" if totals.unjudged else "")
        + (f"; {totals.not_compared:,} not compared" if totals.not_compared else "")
        + (f"; {totals.by_checksums:,} compared by checksums" if totals.by_checksums else "")
    )
    if totals.findings:
        yield from _wrap(f"differences: {counts_text(totals.findings)}", "")
    if totals.repaired:
        yield from _wrap(f"repaired: {counts_text(totals.repaired)}", "")
    elif totals.findings and result.request.repair is RepairMode.DRY_RUN:
        yield "nothing was repaired: it was a dry run"


def _not_judged(reason: str, tables: Sequence[str]) -> Iterator[str]:
    yield from _wrap(f"not judged: {printable(reason)} ({_names(tables)})", "")


def _names(tables: Sequence[str]) -> str:
    shown = ", ".join(map(printable, tables[:_MAX_SHOWN_NAMES]))
    rest = len(tables) - _MAX_SHOWN_NAMES
    return f"{shown} and {rest:,} more" if rest > 0 else shown


def _omitted(verdicts: Sequence[TableVerdict], shown: int, how: str) -> Iterable[str]:
    rest = verdicts[shown:]
    if rest:
        count = sum(sum(verdict.findings.values()) for verdict in rest)
        yield f"and {_plural(len(rest), 'table')} more with {_plural(count, 'difference')}{how}"


def _wrap(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ", break_on_hyphens=False)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
