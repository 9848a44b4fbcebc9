"""The ledger records of verifications: one about the last one as a whole, and one for each table.

The verdict about a table stays until the table is judged again. One that left something open also stays beside later
ones that have not looked at all of it, in a smaller sample for example; of them the worst counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import VERIFY_DONE_PREFIX, VERIFY_KEY, VERIFY_TABLE_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import decode, encode
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members, record_location
from airflow_provider_mysql_cdc.cdc.sink.plain_writer import write_plain
from airflow_provider_mysql_cdc.cdc.verify.report.hidden_values import hide_values
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_totals import left_differences
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import (
    HISTORY_DIFFERENCES,
    TableVerdict,
    VerifyResult,
)


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
        earlier = [each.to_json() for each in stored if each.run != result.run and not kept.covers(each)]
        yield VERIFY_TABLE_PREFIX + verdict.table, kept.to_json() | {"earlier": earlier}
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
    verdicts = {}
    for table, value in sorted(ledger.verdicts.items()):
        with record_location(f"key {VERIFY_TABLE_PREFIX}{table}"):
            verdict = decode(value)
            if verdict["run"] == summary["run"]:
                verdicts[table] = verdict
    with record_location(f"key {VERIFY_KEY}"):
        return VerifyResult.from_json({**summary, "tables": verdicts, "earlier": {}})


def read_last_verdicts(ledger: LedgerState) -> VerifyResult | None:
    """Return the verdict that counts about each table, as a result of the last verification; None if there is none.

    Raises:
        DamagedRecordError: This package has not written a record.
    """
    summary = ledger.other_records.get(VERIFY_KEY)
    if summary is None:
        return None
    verdicts, earlier = {}, dict[str, int]()
    for table, value in sorted(ledger.verdicts.items()):
        with record_location(f"key {VERIFY_TABLE_PREFIX}{table}"):
            record = decode(value)
            # Of the verdicts that have left the most open the last one counts.
            verdict = max([record, *reversed(record["earlier"])], key=lambda each: each["left_open"])
            verdicts[table] = verdict
            if verdict["run"] != summary["run"]:
                earlier[table] = verdict["ended_ms"]
    with record_location(f"key {VERIFY_KEY}"):
        return VerifyResult.from_json({**summary, "tables": verdicts, "earlier": earlier})


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
class _RunVerdict:
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

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        members = {
            "run": self.run,
            "ended_ms": self.ended_ms,
            "sample_percent": self.sample_percent,
            "history": self.history,
            "left_open": self.left_open,
        }
        return members | self.verdict.to_json()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> _RunVerdict:
        """Read what ``to_json`` wrote."""
        record = Members(data)
        return cls(
            TableVerdict.from_json(record),
            record.text("run"),
            record.integer("ended_ms"),
            record.number("sample_percent"),
            record.flag("history"),
        )


def _stored(ledger: LedgerState, table: str) -> list[_RunVerdict]:
    """Return the verdicts that the ledger has about a table, the earlier ones first."""
    value = ledger.verdicts.get(table)
    if value is None:
        return []
    with record_location(f"key {VERIFY_TABLE_PREFIX}{table}"):
        record = decode(value)
        return [_RunVerdict.from_json(each) for each in (*record["earlier"], record)]
