"""What runs come to by workload and side, and how the sides compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, median

from benchlib.run import Run

PEER_SIDE, BASE_SIDE, BEST_SIDES = "debezium", "python", ("native", "python")
"""Who is compared with; the side without the kernel; whose figures count, the first that ran."""
PEERS: Mapping[str, str] = {PEER_SIDE: "Debezium", "flink": "Flink CDC"}
"""Names of all who are compared with; in a workload that several ran, the first."""
PARTS: Mapping[str, Sequence[str]] = {
    "Python workers: read, decode, produce": ("pyspark.daemon",),
    "Python driver": ("python", "other", "gone"),
    "JVM": ("java",),
    "planning and settling": (),
}
"""Who uses CPU time, with the kinds of processes (``process_tree``); the last one is the work outside of them."""
_WORKER = "pyspark.daemon"
_MAX_RECORD_DIFFERENCE = 0.02
"""Greatest difference between the records of two runs: a snapshot leaves out rows that were changed meanwhile."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Say what the runs of one side come to.

    Args:
        records: Median of the records of a run.
        wall_s: Median of the wall time in seconds.
        cpu_s: Median of the CPU seconds a million records, starts counted.
        steady_s: The same without the start; None where a start is not known.
        spread: Greatest difference from that median, as a share of it.
        busy: Median of the CPU seconds in a second of wall time.
        load: Greatest load of the machine at a run's end.
        native: Rows that the native kernel has decoded, the least of the runs; those of incremental snapshots are not
            counted.
        lag_s: Medians of the lags by name; empty without a steady load.
        parts_s: CPU seconds a million records by what used them (``PARTS``), means of the runs.
        writer_s: Median of the CPU seconds a million records of the busiest Python worker, its start counted; 0 where
            it is not known.
        drain: CPU and wall seconds of a drain (``cpu_s``, ``wall_s``), where each began at a time of its own.
    """

    runs: int
    records: int
    wall_s: float
    cpu_s: float
    steady_s: float | None
    spread: float
    peak_mb: float
    busy: float = 0.0
    load: float = 0.0
    native: int = 0
    lag_s: Mapping[str, float] = field(default_factory=dict)
    parts_s: Mapping[str, float] = field(default_factory=dict)
    writer_s: float = 0.0
    drain: Mapping[str, float] = field(default_factory=dict)


def figures(runs: Sequence[Run], start_s: float | None) -> Figures:
    """Return what runs of one workload by one side come to.

    Args:
        runs: The runs.
        start_s: CPU seconds that a run with next to no records takes; None when that was not measured.

    Raises:
        ValueError: A run wrote another number of records than the others.
    """
    records = sorted(run.records for run in runs)
    steady_load = any(run.lag_s for run in runs)
    if not records[0] or (records[-1] > records[0] * (1 + _MAX_RECORD_DIFFERENCE) and not steady_load):
        raise ValueError(f"{runs[0].side} wrote {sorted(set(records))} records in {runs[0].workload}")
    each = [run.cpu_s / run.records * 1e6 for run in runs]
    middle = median(each)
    starts = None if start_s is None else median(start_s / run.records * 1e6 for run in runs)
    return Figures(
        runs=len(runs),
        records=round(median(records)),
        wall_s=median(run.used.wall_s for run in runs),
        cpu_s=middle,
        steady_s=None if starts is None else max(0.0, middle - starts),
        spread=max(abs(value - middle) for value in each) / middle,
        peak_mb=max(run.peak_mb for run in runs),
        busy=median(run.cpu_s / max(run.used.wall_s, 1e-9) for run in runs),
        load=max(run.load for run in runs),
        native=min(run.native_rows for run in runs),
        lag_s={name: median(run.lag_s[name] for run in runs if run.lag_s) for name in runs[0].lag_s},
        parts_s={part: mean(_part(run, kinds) / run.records * 1e6 for run in runs) for part, kinds in PARTS.items()},
        writer_s=median(run.used.busiest_s.get(_WORKER, 0.0) / run.records * 1e6 for run in runs),
        drain=_drain([run for run in runs if run.drains]),
    )


def _drain(runs: Sequence[Run]) -> dict[str, float]:
    if not runs:
        return {}
    costs = [run.cpu_s / run.drains["count"] for run in runs]
    return {"cpu_s": median(costs), "wall_s": median(run.drains["wall_s"] for run in runs)}


def _part(run: Run, kinds: Sequence[str]) -> float:
    return sum(run.used.cpu_by_kind.get(kind, 0.0) for kind in kinds) if kinds else run.beside_s


@dataclass(frozen=True, slots=True)
class WorkloadLine:
    """Compare the sides in one workload."""

    workload: str
    sides: Mapping[str, Figures]

    @property
    def best(self) -> str | None:
        """Return the side of this provider that counts against targets; None when neither ran."""
        return next((name for name in BEST_SIDES if name in self.sides), None)

    @property
    def peer(self) -> str | None:
        """Return the side that this provider is compared with; None when none ran."""
        return next((name for name in PEERS if name in self.sides), None)

    def ratio(self, side: str, *, steady: bool = False) -> float | None:
        """Return a side's share of the peer's CPU time a record, or a second of a steady load; None without both."""
        ours, theirs = self.sides.get(side), self.sides.get(self.peer or PEER_SIDE)
        if ours is None or theirs is None or side in PEERS:
            return None
        if ours.lag_s:
            return None if steady else ours.busy / theirs.busy
        if not steady:
            return ours.cpu_s / theirs.cpu_s
        return None if ours.steady_s is None or not theirs.steady_s else ours.steady_s / theirs.steady_s


def lines(runs: Iterable[Run], starts: Mapping[str, float]) -> list[WorkloadLine]:
    """Return a line for each workload, in the order in which they ran.

    Args:
        runs: All runs.
        starts: CPU seconds of a start by side.
    """
    found: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        found.setdefault(run.workload, {}).setdefault(run.side, []).append(run)
    return [
        WorkloadLine(workload, {side: figures(some, starts.get(side)) for side, some in sides.items()})
        for workload, sides in found.items()
    ]


def summary(compared: Iterable[WorkloadLine], missed: Iterable[str]) -> str:
    """Return one line of ratios, and what misses its target."""
    parts: dict[str, list[str]] = {PEER_SIDE: []}
    for line in compared:
        ratios = [f"{r:.3f}" for side in (BASE_SIDE, "native") if (r := line.ratio(side)) is not None]
        if ratios and line.peer:
            parts.setdefault(line.peer, []).append(f"{line.workload} {' / '.join(ratios)}")
    by_peer = {PEERS[peer]: ", ".join(some) for peer, some in parts.items()}
    text = f"ratios to Debezium, Python / native kernel: {by_peer.pop(PEERS[PEER_SIDE]) or 'none'}"
    text += "".join(f"; to {peer}: {some}" for peer, some in by_peer.items())
    return text + (f"; missed: {', '.join(wrong)}" if (wrong := list(missed)) else "")
