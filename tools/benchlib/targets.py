"""What the bench is to show: one row a target, and what each comes to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from benchlib.result import BASE_SIDE, PEER_SIDE, Figures, WorkloadLine
from benchlib.workload import ROWS_PER_STREAM, WORKLOADS

Lines = Mapping[str, WorkloadLine]
FULL_SCALE_ROWS = 5_000_000
"""Records that targets of CPU time are about: of fewer, starts are most of the time, and are left out."""


@dataclass(frozen=True, slots=True)
class TargetVerdict:
    """Hold the result of a target.

    Args:
        limit: The required value of it.
        at_most: Whether it is to lie below the limit, or above.
    """

    about: str
    value: float
    limit: float
    at_most: bool = True

    @property
    def missed(self) -> bool:
        """Return whether the target is missed."""
        return self.value > self.limit if self.at_most else self.value < self.limit

    @property
    def text(self) -> str:
        """Return target and value in a few words."""
        return f"{self.about} {self.value:.3g} ({'>' if self.at_most else '<'} {self.limit:.3g})"


class Target(Protocol):
    """Judge lines; None when what it is about was not measured."""

    def judge(self, lines: Lines) -> TargetVerdict | None:
        """Return the result."""


@dataclass(frozen=True, slots=True)
class CpuShare:
    """Want at most some share of Debezium's CPU time a record.

    Args:
        steady: Whether starts are left out of ``FULL_SCALE_ROWS`` records, too.
        side: The side, whose starts count always; None for the best.
    """

    workload: str
    limit: float
    steady: bool = False
    side: str | None = None

    def judge(self, lines: Lines) -> TargetVerdict | None:
        """Return the result."""
        line = lines.get(self.workload)
        side = self.side or (line.best if line else None)
        if line is None or side is None or side not in line.sides:
            return None
        steady = self.steady or (self.side is None and line.sides[side].records < FULL_SCALE_ROWS)
        value = line.ratio(side, steady=steady)
        about = f"{self.workload}{' without start' * steady}{f' in {self.side}' if self.side else ''}"
        return None if value is None else TargetVerdict(about, value, self.limit)


@dataclass(frozen=True, slots=True)
class MemoryShare:
    """Want at most some share of Debezium's memory."""

    workload: str
    limit: float

    def judge(self, lines: Lines) -> TargetVerdict | None:
        """Return the result."""
        line = lines.get(self.workload)
        if line is None or line.best is None or PEER_SIDE not in line.sides:
            return None
        value = line.sides[line.best].peak_mb / line.sides[PEER_SIDE].peak_mb
        return TargetVerdict(f"{self.workload} memory", value, self.limit)


@dataclass(frozen=True, slots=True)
class Throughput:
    """Want at least some times the records a second of Debezium."""

    workload: str
    limit: float

    def judge(self, lines: Lines) -> TargetVerdict | None:
        """Return the result."""
        line = lines.get(self.workload)
        if line is None or line.best is None or PEER_SIDE not in line.sides:
            return None
        value = line.sides[PEER_SIDE].wall_s / line.sides[line.best].wall_s
        return TargetVerdict(f"{self.workload} wall, times", value, self.limit, at_most=False)


@dataclass(frozen=True, slots=True)
class WorkloadRatio:
    """Want one workload to be as much dearer or faster than another as is said.

    Args:
        wall: Whether the other's wall time over the one's is compared, in place of the one's CPU time over the other's.
    """

    workload: str
    other: str
    limit: float
    wall: bool = False

    def judge(self, lines: Lines) -> TargetVerdict | None:
        """Return the result."""
        one, other = lines.get(self.workload), lines.get(self.other)
        if one is None or other is None or one.best is None or one.best not in other.sides:
            return None
        value_here, value_there = one.sides[one.best], other.sides[one.best]
        if self.wall:
            speed = value_there.wall_s / value_here.wall_s
            return TargetVerdict(f"{self.workload} against {self.other}, times", speed, self.limit, at_most=False)
        return TargetVerdict(f"{self.workload} against {self.other}", value_here.cpu_s / value_there.cpu_s, self.limit)


@dataclass(frozen=True, slots=True)
class WriterSpeedup:
    """Want the busiest of several writers to use so many times less CPU than one writer alone.

    Where MySQL and Kafka share the machine's processors with the writers, wall time cannot show what a processor for
    each writer would bring; this can, and memory bandwidth aside it is the same.

    Args:
        workload: The one with several writers.
        other: The one with one.
    """

    workload: str
    other: str
    limit: float

    def judge(self, lines: Lines) -> TargetVerdict | None:
        """Return the result."""
        one, other = lines.get(self.workload), lines.get(self.other)
        if one is None or other is None or one.best is None or one.best not in other.sides:
            return None
        busiest, alone = one.sides[one.best].writer_s, other.sides[one.best].writer_s
        if not busiest or not alone:
            return None
        return TargetVerdict(
            f"{self.workload}, CPU of the busiest writer, times less", alone / busiest, self.limit, at_most=False
        )


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Want the CPU time a record, starts left out, to be the same however many there are.

    Args:
        limit: Greatest difference as a share of the least.
    """

    workloads: Sequence[str]
    limit: float

    def judge(self, lines: Lines) -> TargetVerdict | None:
        """Return the result."""
        some = [lines[name] for name in self.workloads if name in lines]
        costs = [f for line in some if line.best and (f := line.sides[line.best].steady_s)]
        if len(costs) < 2 or len(costs) < len(self.workloads):
            return None
        return TargetVerdict("linear, greatest difference", max(costs) / min(costs) - 1, self.limit)


@dataclass(frozen=True, slots=True)
class Lag:
    """Want a reader of a steady load to be at most some seconds behind the commits.

    Args:
        share: Of which share of all events (``lag.SHARES``).
    """

    workload: str
    share: str
    limit: float

    def judge(self, lines: Lines) -> TargetVerdict | None:
        """Return the result."""
        best = _best(lines, self.workload)
        if best is None or self.share not in best.lag_s:
            return None
        return TargetVerdict(f"{self.workload} lag {self.share}", best.lag_s[self.share], self.limit)


@dataclass(frozen=True, slots=True)
class SteadyShare:
    """Want at most some share of the CPU time that the peer takes for the same steady load in the same time."""

    workload: str
    limit: float

    def judge(self, lines: Lines) -> TargetVerdict | None:
        """Return the result."""
        line = lines.get(self.workload)
        value = line.ratio(line.best) if line is not None and line.best is not None else None
        return None if value is None else TargetVerdict(f"{self.workload}, share of CPU", value, self.limit)


@dataclass(frozen=True, slots=True)
class DrainCost:
    """Want a drain that begins at a time of its own to take at most some seconds.

    Args:
        what: ``cpu_s`` of all processes, or ``wall_s``.
    """

    workload: str
    limit: float
    what: str

    def judge(self, lines: Lines) -> TargetVerdict | None:
        """Return the result."""
        best = _best(lines, self.workload)
        if best is None or not best.drain:
            return None
        return TargetVerdict(f"{self.workload}, {self.what} of a drain", best.drain[self.what], self.limit)


@dataclass(frozen=True, slots=True)
class StreamCost:
    """Want a stream of a fleet to cost at most so much CPU time a drain, its share of the start included.

    Args:
        workload: The fleet; fewer streams than it has at scale 1 are not judged, because they share the start.
    """

    workload: str
    limit: float

    def judge(self, lines: Lines) -> TargetVerdict | None:
        """Return the result."""
        best = _best(lines, self.workload)
        if best is None or best.records < ROWS_PER_STREAM * WORKLOADS[self.workload].tables:
            return None
        value = best.cpu_s * ROWS_PER_STREAM / 1e6
        return TargetVerdict(f"{self.workload}, CPU s a stream and drain", value, self.limit)


def _best(lines: Lines, workload: str) -> Figures | None:
    """Return the figures of the side that a workload's targets are about."""
    line = lines.get(workload)
    return None if line is None or line.best is None else line.sides[line.best]


_COMPARED = ("narrow", "narrow-schemas", "wide", "snapshot")
_SHARED = ("tables", "hot")
TARGETS: tuple[Target, ...] = (
    CpuShare("narrow", 1 / 6),
    CpuShare("narrow", 1 / 10, steady=True),
    CpuShare("wide", 1 / 10),
    CpuShare("narrow-schemas", 1 / 10),
    CpuShare("wide-schemas", 1 / 10),
    CpuShare("snapshot", 1 / 6),
    CpuShare("incremental", 1 / 6),
    # Without the kernel: what was measured before there was one.
    CpuShare("narrow", 0.27, side=BASE_SIDE),
    CpuShare("narrow-schemas", 0.21, side=BASE_SIDE),
    CpuShare("wide", 0.41, side=BASE_SIDE),
    CpuShare("wide-schemas", 0.37, side=BASE_SIDE),
    CpuShare("snapshot", 0.29, side=BASE_SIDE),
    WorkloadRatio("avro", "narrow", 1.0),
    WorkloadRatio("unwrap", "narrow", 1.2),
    WorkloadRatio("verify", "snapshot", 0.55),
    WorkloadRatio("verify-rows", "snapshot", 1.3),
    *(MemoryShare(name, 1 / 5) for name in _COMPARED),
    *(Throughput(name, 4.0) for name in _COMPARED),
    StreamCost("fleet-quiet", 0.25),
    LinearScaling([f"linear-{n}m" for n in (1, 2, 4, 8)], 0.10),
    *(WorkloadRatio(f"{name}-cores-2", f"{name}-cores-1", 1.6, wall=True) for name in _SHARED),
    DrainCost("connect-each-minute", 1.3, "cpu_s"),
    DrainCost("connect-each-minute", 3.0, "wall_s"),
    SteadyShare("connect-each-minute", 1.0),
    SteadyShare("lag-run-for", 0.8),
    SteadyShare("lag-run-for-5000", 0.4),
    Lag("lag-run-for", "p50", 0.3),
    Lag("lag-run-for", "p95", 0.6),
    *(WriterSpeedup(f"{name}-writers-2", f"{name}-writers-1", 1.6) for name in _SHARED),
)


def verdicts(compared: Sequence[WorkloadLine]) -> list[TargetVerdict]:
    """Return the result of each target that was measured."""
    lines = {line.workload: line for line in compared}
    return [verdict for target in TARGETS if (verdict := target.judge(lines)) is not None]
