"""Runs of the bench, what they come to by workload, and whether a target is missed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchlib.costs import Costs
from benchlib.process_tree import Usage


@dataclass(frozen=True, slots=True)
class Run(Costs):
    """Hold one measured run.

    Args:
        workload: Its workload.
        name: Who ran.
        records: Records written to the table's topic.
        used: What its processes used.
        beside_s: CPU seconds beside them: planning and settling, which an Airflow task does.
        load: Load of the machine over the last minute at the end.
    """

    workload: str
    name: str
    records: int
    used: Usage
    beside_s: float = 0.0
    load: float = 0.0

    @property
    def peak_mb(self) -> float:
        """Return the greatest memory of the processes of each kind, together."""
        return sum(self.used.peak_mb.values())

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "workload": self.workload,
            "name": self.name,
            "records": self.records,
            **self.costs(),
        }


@dataclass(frozen=True, slots=True)
class Figures:
    """Say what the runs of one side come to.

    Args:
        runs: Number of runs.
        records: Records of a run.
        wall_s: Median of the wall time in seconds.
        cpu_s: Median of the CPU seconds a million records, starts counted.
        steady_s: The same without the start; None where a start is not known.
        spread: Greatest difference from that median, as a share of it.
        peak_mb: Greatest memory.
    """

    runs: int
    records: int
    wall_s: float
    cpu_s: float
    steady_s: float | None
    spread: float
    peak_mb: float


def figures(runs: Sequence[Run], start_s: float | None) -> Figures:
    """Return what runs of one workload by one side come to.

    Args:
        runs: The runs.
        start_s: CPU seconds that a run with next to no records takes; None when that was not measured.

    Raises:
        ValueError: A run wrote another number of records than the others.
    """
    records = {run.records for run in runs}
    if len(records) != 1 or not (count := records.pop()):
        raise ValueError(f"{runs[0].name} wrote {sorted({r.records for r in runs})} records in {runs[0].workload}")
    each = [run.cpu_s / count * 1e6 for run in runs]
    middle = median(each)
    return Figures(
        runs=len(runs),
        records=count,
        wall_s=median(run.used.wall_s for run in runs),
        cpu_s=middle,
        steady_s=None if start_s is None else max(0.0, middle - start_s / count * 1e6),
        spread=max(abs(value - middle) for value in each) / middle,
        peak_mb=max(run.peak_mb for run in runs),
    )


@dataclass(frozen=True, slots=True)
class Line:
    """Compare both sides in one workload.

    Args:
        workload: Its name.
        ours: This provider's figures.
        theirs: Debezium's, or None when it did not run.
        target: Greatest share that is wanted, or None.
    """

    workload: str
    ours: Figures
    theirs: Figures | None
    target: float | None

    @property
    def ratio(self) -> float | None:
        """Return our share of their CPU time a record, starts counted."""
        return None if self.theirs is None else self.ours.cpu_s / self.theirs.cpu_s

    @property
    def steady_ratio(self) -> float | None:
        """Return the same without starts."""
        theirs = None if self.theirs is None else self.theirs.steady_s
        return None if self.ours.steady_s is None or not theirs else self.ours.steady_s / theirs

    @property
    def missed(self) -> bool:
        """Return whether there is a target that is missed."""
        return self.target is not None and self.ratio is not None and self.ratio > self.target


def lines(
    runs: Iterable[Run], ours: str, theirs: str, starts: Mapping[str, float], targets: Mapping[str, float | None]
) -> list[Line]:
    """Return a line for each workload, in the order in which they ran.

    Args:
        runs: All runs.
        ours: The name of this side.
        theirs: The name of the other.
        starts: CPU seconds of a start by name.
        targets: Greatest share by workload.
    """
    found: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        found.setdefault(run.workload, {}).setdefault(run.name, []).append(run)
    return [
        Line(
            workload,
            figures(sides[ours], starts.get(ours)),
            figures(sides[theirs], starts.get(theirs)) if theirs in sides else None,
            targets.get(workload),
        )
        for workload, sides in found.items()
        if ours in sides
    ]


_HEAD = (
    "| workload | who | records | wall s | CPU s a million | without start | spread | peak MB | ratio | without start |"
)


def table(compared: Iterable[Line], ours: str, theirs: str) -> str:
    """Return the report as a Markdown table.

    Args:
        compared: The lines.
        ours: The name of this side.
        theirs: The name of the other.
    """
    out = [_HEAD, "|---|---|---|---|---|---|---|---|---|---|"]
    for line in compared:
        for name, found in ((theirs, line.theirs), (ours, line.ours)):
            if found is not None:
                own = name == ours
                cells = (line.ratio, line.steady_ratio) if own else (None, None)
                out.append(f"| {line.workload} | {name} | {_cells(found)} | {_share(cells[0])} | {_share(cells[1])} |")
    return "\n".join(out)


def _cells(found: Figures) -> str:
    steady = "" if found.steady_s is None else f"{found.steady_s:.1f}"
    return (
        f"{found.records:,} | {found.wall_s:.0f} | {found.cpu_s:.1f} | {steady} | "
        f"{found.spread:.0%} | {found.peak_mb:.0f}"
    )


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def summary(compared: Iterable[Line]) -> str:
    """Return one line of ratios; what misses its target is marked."""
    parts = []
    for line in compared:
        if line.ratio is None:
            continue
        wanted = f" (> {line.target:.3f})" if line.missed and line.target is not None else ""
        parts.append(f"{line.workload} {line.ratio:.3f}{wanted}")
    return "ratios to Debezium: " + (", ".join(parts) or "none")
