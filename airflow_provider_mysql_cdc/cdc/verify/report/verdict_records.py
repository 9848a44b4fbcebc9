"""The ledger records of verifications, without what a report must not show.

The ledger records of verifications: one about the last one as a whole, and one for each table.

The verdict about a table stays until the table is judged again. One that left something open also stays beside later
ones that have not looked at all of it, in a smaller sample for example; of them the worst counts.

What a verification's report must not show: values of masked and hashed columns, or any values at all.

Keys of records are never masked in the topic (``ColumnTreatment``), so a masked column is hidden in them here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import VERIFY_DONE_PREFIX, VERIFY_KEY, VERIFY_TABLE_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import decode, encode
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.model.column_rule import RuleKind
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.stored_record import Record, record_location
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.sink.record_writer import write_plain
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_totals import left_differences
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import (
    HISTORY_DIFFERENCES,
    Example,
    TableVerdict,
    VerifyResult,
)

HIDDEN_VALUE = "***"
_HIDING_RULES = frozenset({RuleKind.MASK, RuleKind.HASH, RuleKind.HASH_V2})


def hide_values(cfg: ConnectorConfig, result: VerifyResult) -> VerifyResult:
    """Return a result without the values that its report must not show."""
    show = result.request.show_values
    return replace(result, tables=tuple(hide_in_verdict(cfg, each, show_values=show) for each in result.tables))


def hide_in_verdict(cfg: ConnectorConfig, verdict: TableVerdict, *, show_values: bool = True) -> TableVerdict:
    """Return a verdict without the values of masked and hashed columns, and of others if they are not shown.

    Those of keys always are.
    """
    db, _, table = verdict.table.partition(".")

    def visible(row: Mapping[str, Any] | None) -> dict[str, Any] | None:
        return None if row is None else hide_in_row(cfg, TableId(db, table), row)

    def hide_in(example: Example) -> Example:
        rows = (example.table_row, example.topic_row) if show_values else (None, None)
        table_row, topic_row = map(visible, rows)
        return replace(
            example, key=hide_in_row(cfg, TableId(db, table), example.key), table_row=table_row, topic_row=topic_row
        )

    return replace(verdict, examples=tuple(map(hide_in, verdict.examples)))


def hide_in_row(cfg: ConnectorConfig, table: TableId, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without the values of masked and hashed columns."""
    return {column: HIDDEN_VALUE if _is_hidden(cfg, table, column) else value for column, value in row.items()}


def _is_hidden(cfg: ConnectorConfig, table: TableId, column: str) -> bool:
    # The type of a column decides only about parameters of its schema.
    return any(rule.kind in _HIDING_RULES for rule in cfg.column_rules(table, column, ""))


def write_verdicts(cfg: ConnectorConfig, ledger: LedgerState, result: VerifyResult, *, over: bool = True) -> None:
    """Write the records of a result.

    They are written like signals, without the driver's transactional id: another run may be draining. The ledger holds
    no value that a report must not show.

    Args:
        cfg: The connector's configuration.
        ledger: The ledger before.
        result: The result.
        over: Whether the verification is over, so that no retry needs to know which groups were compared.

    Raises:
        SinkError: Kafka refuses, or does not answer.
    """
    records = [
        SideRecord(cfg.ledger_topic, key.encode(), None if value is None else encode(value))
        for key, value in verdict_values(ledger, hide_values(cfg, result), over=over)
    ]
    write_plain(cfg.kafka_settings(), records)


def verdict_values(
    ledger: LedgerState, result: VerifyResult, *, over: bool = True
) -> Iterator[tuple[str, dict[str, object] | None]]:
    """Yield key and value of each record to write; the summary makes the others those of the result.

    Verdicts of tables that are not captured any more are deleted: a verification of all tables does not have them.

    Args:
        ledger: The ledger before.
        result: The result.
        over: As for ``write_verdicts``.
    """
    if not result.request.tables:
        for table in ledger.verdicts.keys() - {verdict.table for verdict in result.tables}:
            yield VERIFY_TABLE_PREFIX + table, None
    for verdict in result.tables:
        kept = _RunVerdict(verdict, result.run, result.ended_ms, result.request.sample_percent, result.request.history)
        stored = _stored(ledger, verdict.table)
        earlier = [each for each in stored if each.run != result.run and not kept.covers(each)]
        yield VERIFY_TABLE_PREFIX + verdict.table, _TableVerdicts((*earlier, kept)).to_json()
    yield VERIFY_KEY, result.summary_json()
    for key in done_keys(ledger, except_run="" if over else result.run):
        yield key, None


def read_verify_result(ledger: LedgerState, run: str = "") -> VerifyResult | None:
    """Return the result of the last verification; None if there is none, or it is of another run.

    Args:
        ledger: The ledger.
        run: Id of the run; empty for the last one, whichever that is.

    Raises:
        DamagedRecordError: This package has not written a record.
    """
    summary = ledger.other_records.get(VERIFY_KEY)
    if summary is None or (run and summary["run"] != run):
        return None
    last = [_stored(ledger, table)[-1] for table in sorted(ledger.verdicts)]
    return _result_of(summary, [each for each in last if each.run == summary["run"]])


def read_last_verdicts(ledger: LedgerState) -> VerifyResult | None:
    """Return the verdict that counts about each table, as a result of the last verification; None if there is none.

    Raises:
        DamagedRecordError: This package has not written a record.
    """
    summary = ledger.other_records.get(VERIFY_KEY)
    if summary is None:
        return None
    # Of the verdicts that have left the most open the last one counts.
    by_table = (reversed(_stored(ledger, table)) for table in sorted(ledger.verdicts))
    return _result_of(summary, [max(each, key=lambda verdict: verdict.left_open) for each in by_table])


def _result_of(summary: Mapping[str, Any], verdicts: Sequence[_RunVerdict]) -> VerifyResult:
    """Return a result with these verdicts, of which some are of earlier runs."""
    with record_location(f"key {VERIFY_KEY}"):
        result = VerifyResult.from_json({**summary, "tables": {}, "earlier": {}})
    earlier = {each.verdict.table: each.ended_ms for each in verdicts if each.run != result.run}
    return replace(result, tables=tuple(each.verdict for each in verdicts), earlier=earlier)


def done_keys(ledger: LedgerState, *, except_run: str = "") -> Iterator[str]:
    """Yield the keys of the records that say which tables a verification that goes on has compared.

    Args:
        ledger: The ledger.
        except_run: Id of a run whose records are left out.
    """
    for key, value in ledger.other_records.items():
        if key.startswith(VERIFY_DONE_PREFIX) and (not except_run or value["comparing"]["run"] != except_run):
            yield key


@dataclass(frozen=True, slots=True)
class _RunVerdict(Record):
    """Hold the verdict of a run about a table, and how much of the table the run has looked at."""

    verdict: TableVerdict
    run: str
    ended_ms: int
    sample_percent: float
    history: bool

    @property
    def left_open(self) -> int:
        """Return 2 where differences are left, 1 where something was not judged, 0 where nothing is open."""
        return 2 if left_differences(self.verdict) else int(not self.verdict.judged)

    def covers(self, earlier: _RunVerdict) -> bool:
        """Return whether an earlier verdict need not be kept: it left nothing open, or all of that was judged again."""
        left = left_differences(earlier.verdict).keys()
        if not earlier.left_open:
            return True
        if self.verdict.not_compared is not None:  # it says no less than one that did not compare the table, either
            return earlier.verdict.not_compared is not None and left <= left_differences(self.verdict).keys()
        has_all = self.sample_percent >= earlier.sample_percent
        return has_all and (self.history or not HISTORY_DIFFERENCES & left)


@dataclass(frozen=True, slots=True)
class _TableVerdicts(Record):
    """Hold the verdicts about a table that the ledger keeps, the earlier ones first."""

    verdicts: tuple[_RunVerdict, ...]


def _stored(ledger: LedgerState, table: str) -> tuple[_RunVerdict, ...]:
    """Return the verdicts that the ledger has about a table, the earlier ones first."""
    value = ledger.verdicts.get(table)
    if value is None:
        return ()
    with record_location(f"key {VERIFY_TABLE_PREFIX}{table}"):
        return _TableVerdicts.from_json(decode(value)).verdicts
