"""Build the verdict about each table from what the buckets found."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify.compare.event_entries import is_raw
from airflow_provider_mysql_cdc.cdc.verify.compare.folding import BucketResult, FoundDifference, TableCounts
from airflow_provider_mysql_cdc.cdc.verify.history.batch_counts import LostRecords
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import row_values
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import (
    LASTING_DIFFERENCES,
    DifferenceKind,
    Example,
    NotCompared,
    TableVerdict,
    VerifyRequest,
)
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import ComparedTable
from airflow_provider_mysql_cdc.cdc.verify.verify_operations import UnreadableRecords

_UNPLACED_EVENTS = "events from before the key was changed do not say the present one"
_KEPT_RECORDS = (
    "an earlier record is their last one under a key of message.key.columns that they no longer have, as after a "
    "change without an event; consumers by that key keep it, unless another row has the key now"
)
_MAX_COLUMNS = 10
_PARTIAL_ROWS = "their last events do not say these values, or under an earlier declaration that does not tell them"
_UNORDERED = (
    "deletes of TiCDC's protocol have no time, and the changes of a transaction the same one, so it is not known which "
    "event of several partitions is the last one"
)


@dataclass(slots=True)
class TopicComparison:
    """Hold everything that a verification has found out.

    Args:
        found: What the buckets found.
        unjudged: Kinds of differences that are not judged, with their reasons, by table.
        unread: Why a table could not be read.
        unreadable: Records that are no events.
        gone: Topics of tables that were dropped or renamed before they could be compared.
        unchecked: What is not checked of the histories or transactions of a table, by number.
        by_checksums: Numbers of tables whose rows were not compared, because checksums are equal.
        lost: What topics have lost of batches, by the number of their first table.
    """

    tables: Sequence[ComparedTable]
    found: BucketResult
    unjudged: Mapping[TableId, Mapping[DifferenceKind, str]] = field(default_factory=dict)
    unread: Mapping[TableId, str] = field(default_factory=dict)
    unreadable: Sequence[UnreadableRecords] = ()
    gone: Mapping[TableId, str] = field(default_factory=dict)
    unchecked: Mapping[int, str] = field(default_factory=dict)
    by_checksums: Container[int] = ()
    lost: Mapping[int, Sequence[LostRecords]] = field(default_factory=dict)


def build_verdicts(comparison: TopicComparison, request: VerifyRequest) -> tuple[TableVerdict, ...]:
    """Return the verdicts, in the order of the tables' names."""
    gone = "it was dropped or renamed meanwhile"
    verdicts = [_verdict(compared, comparison, request) for compared in comparison.tables]
    verdicts += [_not_compared(str(n), topic, NotCompared.UNREAD, gone) for n, topic in comparison.gone.items()]
    return tuple(sorted(verdicts, key=lambda verdict: verdict.table))


def _verdict(compared: ComparedTable, comparison: TopicComparison, request: VerifyRequest) -> TableVerdict:
    table = compared.table.id
    name = str(table)
    if (reason := comparison.unread.get(table)) is not None:
        return _not_compared(name, compared.topic, NotCompared.UNREAD, reason)
    reason = comparison.found.undecidable.get(compared.number)
    counts = comparison.found.counts.get(compared.number, TableCounts())
    if reason:
        number = counts.differences.get(DifferenceKind.UNREADABLE, 0)
        findings = {DifferenceKind.UNREADABLE: number} if number else {}
        return replace(_not_compared(name, compared.topic, NotCompared.UNDECIDABLE, reason), findings=findings)
    unjudged = comparison.unjudged.get(table, {})
    findings = {kind: number for kind, number in counts.differences.items() if kind not in unjudged and number}
    unreadable = [report for report in comparison.unreadable if report.topic == compared.topic]
    if unsettled := sum(report.number for report in unreadable):
        findings[DifferenceKind.UNREADABLE] = findings.get(DifferenceKind.UNREADABLE, 0) + unsettled
    examples = [
        _example(compared, found, request)
        for found in comparison.found.found
        if found.table == compared.number and found.kind not in unjudged
    ]
    examples += [
        Example(DifferenceKind.UNREADABLE, {}, (), None, None, f"{place}: {reason}")
        for report in unreadable
        for place, reason in report.examples
    ]
    lost = comparison.lost.get(compared.number, ())
    if number := sum(each.expected - each.found for each in lost):
        findings[DifferenceKind.LOST_RECORD] = number
        examples += [_lost_example(compared, each) for each in lost]
    return TableVerdict(
        name,
        compared.topic,
        rows=counts.rows,
        records=counts.events,
        findings=findings,
        columns=counts.columns if DifferenceKind.DIFFERING in findings else {},
        unjudged=_unjudged_number(counts, unjudged),
        unknown=(
            *_unknown_sentences(counts, unjudged),
            *_unsettled_sentences(unreadable),
            *_transaction_sentences(compared, comparison),
        ),
        examples=_limited(examples, request.examples),
        lasting=unsettled + sum(findings.get(kind, 0) for kind in LASTING_DIFFERENCES),
        by_checksums=compared.number in comparison.by_checksums,
    )


def _not_compared(table: str, topic: str, why: NotCompared, reason: str) -> TableVerdict:
    return TableVerdict(table, topic, unknown=(f"the table was not compared: {reason}",), not_compared=why)


def _unjudged_number(counts: TableCounts, unjudged: Mapping[DifferenceKind, str]) -> int:
    """Return how many rows, keys and values were seen that are not judged."""
    rows = sum(counts.differences.get(kind, 0) for kind in unjudged)
    return rows + counts.partial + counts.unplaced + counts.undecided + counts.kept


def _unknown_sentences(counts: TableCounts, unjudged: Mapping[DifferenceKind, str]) -> list[str]:
    sentences = []
    for kind, reason in unjudged.items():
        number = counts.differences.get(kind, 0)
        sentences.append(f"{kind} rows are not judged ({number:,} seen): {reason}")
    if counts.unplaced:
        sentences.append(f"{counts.unplaced:,} rows or events are not judged: {_UNPLACED_EVENTS}")
    if counts.kept:
        sentences.append(f"{counts.kept:,} rows are not judged: {_KEPT_RECORDS}")
    if counts.partial:
        columns = sorted(counts.partial_columns)
        more = f" and {len(columns) - _MAX_COLUMNS:,} more" if len(columns) > _MAX_COLUMNS else ""
        named = ", ".join(columns[:_MAX_COLUMNS]) + more
        sentences.append(f"{counts.partial:,} rows are not judged in columns {named}: {_PARTIAL_ROWS}")
    if counts.undecided:
        sentences.append(f"{counts.undecided:,} keys are not judged: {_UNORDERED}")
    return sentences


def _unsettled_sentences(unreadable: Sequence[UnreadableRecords]) -> Iterator[str]:
    """Yield what no repair can settle: rows that cannot be written, and records of which no key says their row."""
    if number := sum(report.number for report in unreadable):
        yield f"{number:,} unreadable cannot be repaired: records without a key of one row, or rows of the table"


def _transaction_sentences(compared: ComparedTable, comparison: TopicComparison) -> Iterator[str]:
    if (reason := comparison.unchecked.get(compared.number)) is not None:
        yield reason
    if number := comparison.found.unjudged_transactions.get(compared.number, 0):
        yield f"{number:,} transactions are older than the first records of their topics, and may have lost events"


def _example(compared: ComparedTable, found: FoundDifference, request: VerifyRequest) -> Example:
    show = request.show_values
    key = row_values(found.key) if show or not compared.keyless else {}
    if is_raw(found.key):
        key = {}
    record = "" if found.record is None else f"{compared.topic}[{found.record[0]}]@{found.record[1]}"
    record = ": ".join(text for text in (record, found.reason) if text)
    return Example(
        found.kind,
        key,
        found.columns,
        row_values(found.row) if show and found.row is not None else None,
        row_values(found.event_row) if show and found.event_row is not None else None,
        record,
    )


def _lost_example(compared: ComparedTable, lost: LostRecords) -> Example:
    batch = lost.batch
    ended = datetime.fromtimestamp(batch.ended_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    text = f"{compared.topic}: {lost.found:,} of {lost.expected:,} records of batch {batch.epoch}, until {ended}"
    return Example(DifferenceKind.LOST_RECORD, {}, record=text)


def _limited(examples: Sequence[Example], most: int) -> tuple[Example, ...]:
    """Return at most so many examples of each kind."""
    kept: dict[DifferenceKind, list[Example]] = {}
    for example in examples:
        of_kind = kept.setdefault(example.finding, [])
        if len(of_kind) < most:
            of_kind.append(example)
    return tuple(example for of_kind in kept.values() for example in of_kind)
