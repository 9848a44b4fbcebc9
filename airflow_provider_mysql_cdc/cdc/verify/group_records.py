"""The ledger records of a verification that goes on: the verdict about each table whose group is compared.

They are no result yet, so the report of the last verification stays what it is until the run has compared all tables.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import VERIFY_DONE_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.pinned_properties import property_pins
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Record, record_location
from airflow_provider_mysql_cdc.cdc.sink.plain_writer import write_plain
from airflow_provider_mysql_cdc.cdc.verify.report.hidden_values import hide_in_verdict
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_records import done_keys
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_totals import left_to_repair
from airflow_provider_mysql_cdc.cdc.verify.report.verify_request import RepairMode, VerifyRequest
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import NotCompared, TableVerdict


@dataclass(frozen=True, slots=True)
class ComparingRun:
    """Name the run that compares.

    Args:
        run: Its id, which all tries have.
        basis: Digest of everything that a verdict depends on beside tables and topics (``verdict_basis``).
        started_ms: When its first try began, milliseconds since 1970.
    """

    run: str
    basis: str
    started_ms: Count


@dataclass(frozen=True, slots=True)
class DoneTable(Record):
    """Hold a verdict of a run that is not over.

    Args:
        comparing: The run.
        ended_ms: When the table's group was compared, milliseconds since 1970.
        verdict: The verdict, with its position.
    """

    comparing: ComparingRun
    ended_ms: Count
    verdict: TableVerdict


def verdict_basis(cfg: ConnectorConfig, request: VerifyRequest) -> str:
    """Return a digest of what was asked for, and of the properties that decide how records look."""
    text = json.dumps([request.to_json(), property_pins(cfg, snapshot=True)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def write_done(cfg: ConnectorConfig, comparing: ComparingRun, ended_ms: int, verdicts: Iterable[TableVerdict]) -> None:
    """Write the verdicts about a group.

    Raises:
        SinkError: Kafka refuses, or does not answer.
    """
    faults.fault_point("verify.before_done")
    records = [
        SideRecord(
            cfg.ledger_topic,
            (VERIFY_DONE_PREFIX + verdict.table).encode(),
            encode(DoneTable(comparing, ended_ms, verdict).to_json()),
        )
        for verdict in (hide_in_verdict(cfg, each) for each in verdicts)
    ]
    write_plain(cfg.kafka_settings(), records)
    faults.fault_point("verify.after_done")


def read_done(ledger: LedgerState, run: str, basis: str, repair: RepairMode) -> list[DoneTable]:
    """Return the verdicts of earlier tries of a run that still count.

    A table that could not be read is compared again. So is one with differences that a repair is asked for: what it has
    to write is not kept.

    Raises:
        DamagedRecordError: This package has not written a record.
    """
    return [
        done
        for done in _all_done(ledger)
        if (done.comparing.run, done.comparing.basis) == (run, basis)
        and done.verdict.not_compared is not NotCompared.UNREAD
        and (repair is RepairMode.NO or not left_to_repair(done.verdict))
    ]


def _all_done(ledger: LedgerState) -> Iterator[DoneTable]:
    for key in done_keys(ledger):
        with record_location(f"key {key}"):
            yield DoneTable.from_json(ledger.other_records[key])
