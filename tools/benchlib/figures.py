"""What a measured snapshot of a running stream has written, and whether the run is valid."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchlib.process_tree import Usage

READ_OP = b'"op":"r"'
"""What the value of a row that was read holds, and no other: inside a text the quotes are escaped."""


@dataclass(frozen=True, slots=True)
class WrittenRecords:
    """Count what a run wrote to a table's topic.

    Args:
        reads: Rows that were read.
        keys: Different keys among them.
        changes: Other records: changes of the stream, and tombstones.
    """

    reads: int
    keys: int
    changes: int


def count_written(records: Iterable[tuple[bytes | None, bytes | None]]) -> WrittenRecords:
    """Count records.

    Args:
        records: Key and value of each, as JSON without blanks.
    """
    keys: set[bytes | None] = set()
    reads = changes = 0
    for key, value in records:
        if value is not None and READ_OP in value:
            reads += 1
            keys.add(key)
        else:
            changes += 1
    return WrittenRecords(reads, len(keys), changes)


@dataclass(frozen=True, slots=True)
class Measured:
    """Hold one measured run.

    Args:
        name: Who ran.
        wrote: What it wrote.
        used: What its processes used.
        beside_s: CPU seconds outside of them: planning and looking at the ledger, which an Airflow task does.
        load: Load of the machine over the last minute at the end.
    """

    name: str
    wrote: WrittenRecords
    used: Usage
    beside_s: float = 0.0
    load: float = 0.0


MAX_MISSING_SHARE = 0.02
"""Highest share of rows that may come as events and not from the snapshot."""
MIN_CONCURRENT_SHARE = 0.1
"""Least share of the writer's changes that belongs to the run; those after the last window wait for the next drain."""


def invalid_reasons(run: Measured, rows: int, rate: float) -> list[str]:
    """Return why a run counts for nothing; an empty list says that it counts.

    Args:
        run: The run.
        rows: Rows of the table.
        rate: Changes that the writer makes in a second.
    """
    wrote, reasons = run.wrote, []
    if wrote.keys != wrote.reads:
        reasons.append(f"{run.name} read {wrote.reads - wrote.keys} row(s) twice")
    if wrote.reads < rows * (1 - MAX_MISSING_SHARE):
        reasons.append(f"{run.name} read {wrote.reads} of {rows} rows")
    if wrote.changes < (expected_changes := run.used.wall_s * rate) * MIN_CONCURRENT_SHARE:
        reasons.append(f"{run.name} wrote {wrote.changes} of about {expected_changes:.0f} changes of the stream")
    return reasons
