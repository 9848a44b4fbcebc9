"""Measured runs: what they wrote and cost, as the result file keeps it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

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


class Costs:
    """Return the costs of a run: those of its processes, and of the work outside them."""

    __slots__ = ()
    used: Usage
    beside_s: float
    load: float

    @property
    def cpu_s(self) -> float:
        """Return all CPU seconds."""
        return self.used.cpu_s + self.beside_s

    def costs(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "wall_s": round(self.used.wall_s, 1),
            "cpu_s": round(self.cpu_s, 2),
            "cpu_s_beside": round(self.beside_s, 2),
            "cpu_s_by_kind": {kind: round(s, 2) for kind, s in self.used.cpu_by_kind.items()},
            "cpu_s_busiest": {kind: round(s, 2) for kind, s in self.used.busiest_s.items()},
            "peak_mb": {kind: round(mb) for kind, mb in self.used.peak_mb.items()},
            "load1": round(self.load, 1),
        }


@dataclass(frozen=True, slots=True)
class Run(Costs):
    """Hold one measured run.

    Args:
        side: Name of the side that ran.
        records: Records written to the tables' topics.
        used: What its processes used.
        beside_s: CPU seconds outside of them: planning and settling, which an Airflow task does.
        load: Load of the machine over the last minute at the end.
        native_rows: Rows that the native kernel has decoded.
        lag_s: Seconds from a commit to the reader of its event, by name of the share (``p50``); empty without a steady
            load.
        drains: Number of the drains that each began at a time of its own (``count``), and the median of their wall time
            from planning to settling (``wall_s``); empty for others.
    """

    workload: str
    side: str
    records: int
    used: Usage
    beside_s: float = 0.0
    load: float = 0.0
    native_rows: int = 0
    lag_s: Mapping[str, float] = field(default_factory=dict)
    drains: Mapping[str, float] = field(default_factory=dict)

    @property
    def peak_mb(self) -> float:
        """Return the greatest memory of one process of each kind, together."""
        return sum(self.used.peak_mb.values())

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        found: dict[str, Any] = {
            "workload": self.workload,
            "side": self.side,
            "records": self.records,
            **self.costs(),
            "native_rows": self.native_rows,
        }
        beside = {"lag_s": self.lag_s, "drains": self.drains}
        return {**found, **{name: dict(values) for name, values in beside.items() if values}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Run:
        """Return what ``to_json`` wrote."""
        beside_s = float(data["cpu_s_beside"])
        cpu_by_kind, peak_mb = dict(data["cpu_s_by_kind"]), dict(data["peak_mb"])
        busiest = dict(data.get("cpu_s_busiest", {}))
        cpu_s = float(data["cpu_s"]) - beside_s
        used = Usage(float(data["wall_s"]), cpu_s, cpu_by_kind, peak_mb, busiest_s=busiest)
        load, rows = float(data["load1"]), int(data["native_rows"])
        records, lag_s = int(data["records"]), dict(data.get("lag_s", {}))
        return cls(
            str(data["workload"]),
            str(data["side"]),
            records,
            used,
            beside_s,
            load,
            rows,
            lag_s,
            dict(data.get("drains", {})),
        )
