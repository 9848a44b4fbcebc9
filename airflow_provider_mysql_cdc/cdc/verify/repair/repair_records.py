"""The ledger records of repairs: who has repaired which table in which run, at which position, and how much.

A record is written in the Kafka transactions of the repair itself, and counts what all of them have written. So an
attempt that ends in between leaves no doubt about what is repaired.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import REPAIR_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Record, record_location
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind, TableVerdict


@dataclass(frozen=True, slots=True)
class RepairRecord(Record):
    """Say what a run has repaired in a table.

    Args:
        table: ``database.table``.
        owner: Who repaired: ``dag_id/run_id/task_id/map_index``.
        offset: The position at which the table was read last.
        ts_ms: When the last transaction of the repair was written, milliseconds since 1970.
        repaired: Number of differences that are repaired, by kind, of all attempts of the run.
    """

    run: str
    table: str
    topic: str
    owner: str
    offset: BinlogOffset
    ts_ms: Count
    repaired: Mapping[DifferenceKind, Count] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Return its key in the ledger."""
        return repair_key(self.run, self.table)


def repair_key(run: str, table: str) -> str:
    """Return the key of a record in the ledger.

    Args:
        run: Id of the run.
        table: ``database.table``.
    """
    return f"{REPAIR_PREFIX}{run}/{table}"


def with_earlier_repairs(verdicts: Iterable[TableVerdict], repairs: Iterable[RepairRecord]) -> list[TableVerdict]:
    """Return verdicts with what earlier tries of the run have found and repaired, which a comparison no longer finds.

    Args:
        verdicts: The verdicts of a comparison before which the repairs were made.
        repairs: The repairs of the run.
    """
    repaired = {repair.table: repair.repaired for repair in repairs}
    return [
        replace(
            verdict,
            findings=dict(Counter(verdict.findings) + Counter(repaired[verdict.table])),
            repaired=repaired[verdict.table],
        )
        if verdict.table in repaired
        else verdict
        for verdict in verdicts
    ]


def repairs_by_topic(ledger: LedgerState) -> dict[str, dict[bytes | None, int]]:
    """Return the runs that have repaired something in each topic, as headers name them, with the time of the last."""
    found: dict[str, dict[bytes | None, int]] = {}
    for repair in read_repairs(ledger):  # in the order of time
        found.setdefault(repair.topic, {})[repair.run.encode()] = repair.ts_ms
    return found


def read_repairs(ledger: LedgerState, run: str = "") -> list[RepairRecord]:
    """Return what was repaired, in the order of time.

    Args:
        ledger: The ledger.
        run: Id of a run; empty for all.

    Raises:
        DamagedRecordError: This package has not written a record.
    """
    repairs = []
    for key, value in ledger.other_records.items():
        if key.startswith(REPAIR_PREFIX):
            with record_location(f"key {key}"):
                repairs.append(RepairRecord.from_json(value))
    return sorted((repair for repair in repairs if run in ("", repair.run)), key=lambda repair: repair.ts_ms)
