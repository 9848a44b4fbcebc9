"""What a verification is asked for: tables, share of the keys, repair, and how much its report shows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from airflow_provider_mysql_cdc.cdc.model.stored_record import Record

MAX_EXAMPLES = 100
"""Most examples of each kind that a report holds for one table."""


class RepairMode(StrEnum):
    """Say what a verification does about differences."""

    NO = "no"
    DRY_RUN = "dry-run"
    YES = "yes"


@dataclass(frozen=True, slots=True)
class VerifyRequest(Record):
    """Hold what a verification is asked for.

    Args:
        tables: Regular expressions of tables (``database.table``), as in table.include.list; empty means all captured
            tables.
        sample_percent: Share of the keys that is compared, above 0 and at most 100.
        repair: What is done about differences.
        examples: Examples of each kind of difference in the report, per table.
        show_values: Whether examples hold values of rows; their keys are always shown.
        history: Whether the events of each key are also checked one after the other (``history.key_history``).
        checksums: Whether the server adds up checksums of rows where it can; otherwise tasks encode all rows.
    """

    tables: tuple[str, ...] = ()
    sample_percent: float = 100.0
    repair: RepairMode = RepairMode.NO
    examples: int = 10
    show_values: bool = True
    history: bool = False
    checksums: bool = True
