"""The report of a verification as an HTML page: one file without scripts, light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from airflow_provider_mysql_cdc.cdc.verify.report_text import (
    counts_text,
    printable,
    row_text,
    time_text,
    verdict_sentence,
)
from airflow_provider_mysql_cdc.cdc.verify.verdict_totals import (
    count_verdicts,
    most_different,
    position_text,
    tables_by_position,
    unknown_by_reason,
)
from airflow_provider_mysql_cdc.cdc.verify.verify_result import DifferenceKind, Example, TableVerdict, VerifyResult

MAX_EXAMPLES_ON_PAGE = 5_000
"""Examples of all tables together."""

_STYLE = """
:root { color-scheme: light dark; --line: #d0d7de; --soft: #f6f8fa; --text: #1f2328; --page: #ffffff;
  --good: #1a7f37; --bad: #cf222e; --open: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --line: #3d444d; --soft: #151b23; --text: #e6edf3; --page: #0d1117;
  --good: #3fb950; --bad: #f85149; --open: #d29922; } }
body { margin: 2rem auto; padding: 0 1rem; max-width: 75rem; color: var(--text); background: var(--page);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
h1.equal { color: var(--good); } h1.different { color: var(--bad); } h1.not-judged { color: var(--open); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border: 1px solid var(--line); padding: .25rem .6rem; text-align: left; vertical-align: top; }
td.number, th.number { text-align: right; } th { background: var(--soft); }
code { font: 13px/1.4 ui-monospace, monospace; overflow-wrap: anywhere; }
summary { cursor: pointer; }
"""


def report_html(result: VerifyResult) -> str:
    """Return the page.

    Args:
        result: The result, without values that must not be shown (``hide_values``).
    """
    different = most_different(result)
    title = verdict_sentence(result, count_verdicts(result))
    parts = [
        f'<h1 class="{result.verdict.replace(" ", "-")}">{_text(title)}</h1>',
        _pairs(_facts(result)),
        *_differences(different),
        *_not_judged(unknown_by_reason(result)),
        *_positions(result),
        *_others([verdict for verdict in result.tables if verdict.clean]),
    ]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            f"<title>Verification of {_text(result.prefix)}</title>",
            f"<style>{_STYLE}</style></head><body>",
            *parts,
            "</body></html>\n",
        ]
    )


def _facts(result: VerifyResult) -> Iterator[tuple[str, str]]:
    totals, request = count_verdicts(result), result.request
    several = len(tables_by_position(result)) > 1
    yield "compared at", position_text(result)
    if result.offset.gtids and not several:
        yield "GTID set", result.offset.gtids
    yield "from", time_text(result.started_ms)
    yield "to", time_text(result.ended_ms)
    yield "run", result.run
    yield "asked for tables", ", ".join(request.tables) or "all captured"
    yield "keys", "all" if request.sample_percent >= 100 else f"a sample of {request.sample_percent:g} %"
    yield "history of each key", "checked" if request.history else "not checked"
    yield "repair", str(request.repair)
    left_out = f", {totals.unjudged:,} not judged in full" if totals.unjudged else ""
    left_out += f", {totals.not_compared:,} not compared" if totals.not_compared else ""
    by_checksums = f", {totals.by_checksums:,} compared by checksums" if totals.by_checksums else ""
    yield "tables", f"{totals.tables:,}, {totals.different:,} of them with differences{left_out}{by_checksums}"
    yield "rows", f"{totals.rows:,}"
    yield "records", f"{totals.records:,}"
    yield "differences", counts_text(totals.findings) or "none"
    if totals.repaired:
        yield "repaired", counts_text(totals.repaired)
    if result.earlier:
        since = time_text(min(result.earlier.values()))
        yield "verdicts of earlier runs", f"{len(result.earlier):,} tables, since {since}"


def _differences(different: Sequence[TableVerdict]) -> Iterator[str]:
    if not different:
        return
    kinds = [kind for kind in DifferenceKind if any(verdict.findings.get(kind) for verdict in different)]
    yield "<h2>Tables with differences</h2>"
    yield _table(
        ["table", "topic", "rows", "records", *map(str, kinds), "repaired"],
        (
            [
                verdict.table,
                verdict.topic,
                verdict.rows,
                verdict.records,
                *(verdict.findings.get(kind, 0) for kind in kinds),
                sum(verdict.repaired.values()),
            ]
            for verdict in different
        ),
    )
    left = MAX_EXAMPLES_ON_PAGE
    for verdict in different:
        examples = verdict.examples[:left]
        left -= len(examples)
        yield from _details(verdict, examples)
    if omitted := sum(len(verdict.examples) for verdict in different) - (MAX_EXAMPLES_ON_PAGE - left):
        yield f"<p>{omitted:,} more examples are in the JSON report.</p>"


def _details(verdict: TableVerdict, examples: Sequence[Example]) -> Iterator[str]:
    facts = []
    if verdict.columns:
        columns = sorted(verdict.columns.items(), key=lambda item: (-item[1], item[0]))
        facts.append(("columns that differ", ", ".join(f"{name} {count:,}" for name, count in columns)))
    if verdict.repaired:
        facts.append(("repaired", counts_text(verdict.repaired)))
    if verdict.partial_rows:
        facts.append(("rows compared without values that the last event does not say", f"{verdict.partial_rows:,}"))
    if not facts and not examples:
        return
    yield f"<details open><summary>{_text(verdict.table)}: {_text(counts_text(verdict.findings))}</summary>"
    yield _pairs(facts)
    if examples:
        yield _table(
            ["difference", "key", "columns", "in the table", "in the topic", "record"],
            (
                [
                    str(example.finding),
                    _row(example.key),
                    ", ".join(example.columns),
                    _row(example.table_row),
                    _row(example.topic_row),
                    example.record,
                ]
                for example in examples
            ),
            code=True,
        )
    yield "</details>"


def _not_judged(tables_by_reason: Mapping[str, Sequence[str]]) -> Iterator[str]:
    if not tables_by_reason:
        return
    yield "<h2>What could not be judged</h2>"
    for reason, tables in tables_by_reason.items():
        yield f"<details><summary>{_text(reason)}: {len(tables):,} of the tables</summary>"
        yield f"<p>{_text(', '.join(tables))}</p></details>"


def _positions(result: VerifyResult) -> Iterator[str]:
    positions = tables_by_position(result)
    if len(positions) < 2:
        return
    yield "<h2>Positions</h2>"
    for offset, tables in positions.items():
        gtids = f", GTID set {offset.gtids}" if offset.gtids else ""
        yield f"<details><summary>{_text(f'{offset.file}:{offset.pos}')}: {len(tables):,} of the tables</summary>"
        yield f"<p>{_text(', '.join(tables) + gtids)}</p></details>"


def _others(clean: Sequence[TableVerdict]) -> Iterator[str]:
    if not clean:
        return
    yield f"<h2>Without differences</h2><details><summary>{len(clean):,} of the tables</summary>"
    yield _table(["table", "topic", "rows", "records"], ([v.table, v.topic, v.rows, v.records] for v in clean))
    yield "</details>"


def _pairs(pairs: Iterable[tuple[str, str]]) -> str:
    rows = "".join(f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>" for name, value in pairs)
    return f'<div class="scroll"><table>{rows}</table></div>' if rows else ""


def _table(header: Sequence[str], rows: Iterable[Sequence[str | int]], *, code: bool = False) -> str:
    head = "".join(f"<th>{_text(name)}</th>" for name in header)
    body = "\n".join("<tr>" + "".join(_cell(value, code=code) for value in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def _cell(value: str | int, *, code: bool) -> str:
    if isinstance(value, int):
        return f'<td class="number">{value:,}</td>'
    return f"<td><code>{_text(value)}</code></td>" if code and value else f"<td>{_text(value)}</td>"


def _row(row: Mapping[str, Any] | None) -> str:
    return "" if row is None else row_text(row)


def _text(text: str) -> str:
    return escape(printable(text))
