"""What the bench is to show: one row a target, and what each comes to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from benchlib.earlier_commit import NAME as EARLIER_NAME
from benchlib.result import BASE, EARLIER, PEER, Line

Lines = Mapping[str, Line]
FULL = 5_000_000
"""Records that targets of CPU time are about: of fewer, starts are most of the time, and are left out."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Say how a target stands.

    Args:
        about: What is wanted.
        value: What was measured.
        limit: What is wanted of it.
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

    def judge(self, found: Lines) -> Verdict | None:
        """Return how it stands.

        Args:
            found: Lines by workload.
        """


@dataclass(frozen=True, slots=True)
class Share:
    """Want at most some share of Debezium's CPU time a record.

    Args:
        workload: Where.
        limit: The share.
        steady: Whether starts are left out of ``FULL`` records, too.
        side: The side, whose starts count always; None for the best.
    """

    workload: str
    limit: float
    steady: bool = False
    side: str | None = None

    def judge(self, found: Lines) -> Verdict | None:
        """Return how it stands."""
        line = found.get(self.workload)
        side = self.side or (line.best if line else None)
        if line is None or side is None or side not in line.sides:
            return None
        steady = self.steady or (self.side is None and line.sides[side].records < FULL)
        value = line.ratio(side, steady=steady)
        about = f"{self.workload}{' without start' * steady}{f' in {self.side}' if self.side else ''}"
        return None if value is None else Verdict(about, value, self.limit)


@dataclass(frozen=True, slots=True)
class NoDearer:
    """Want the side without the kernel to cost no more than before there was one.

    Where the commit of that time ran as well, the two are compared; Debezium's time, which the share was measured by,
    differs from machine to machine more than theirs.

    Args:
        workload: Where.
        limit: Share of Debezium's CPU time a record, starts counted, that was measured at that commit.
    """

    workload: str
    limit: float

    def judge(self, found: Lines) -> Verdict | None:
        """Return how it stands."""
        line = found.get(self.workload)
        if line is None or BASE not in line.sides or EARLIER not in line.sides:
            return Share(self.workload, self.limit, side=BASE).judge(found)
        value = line.sides[BASE].cpu_s / line.sides[EARLIER].cpu_s
        return Verdict(f"{self.workload} in {BASE} against {EARLIER_NAME}", value, 1.0)


@dataclass(frozen=True, slots=True)
class Memory:
    """Want at most some share of Debezium's memory.

    Args:
        workload: Where.
        limit: The share.
    """

    workload: str
    limit: float

    def judge(self, found: Lines) -> Verdict | None:
        """Return how it stands."""
        line = found.get(self.workload)
        if line is None or line.best is None or PEER not in line.sides:
            return None
        value = line.sides[line.best].peak_mb / line.sides[PEER].peak_mb
        return Verdict(f"{self.workload} memory", value, self.limit)


@dataclass(frozen=True, slots=True)
class Wall:
    """Want at least some times the records a second of Debezium.

    Args:
        workload: Where.
        limit: How many times.
    """

    workload: str
    limit: float

    def judge(self, found: Lines) -> Verdict | None:
        """Return how it stands."""
        line = found.get(self.workload)
        if line is None or line.best is None or PEER not in line.sides:
            return None
        value = line.sides[PEER].wall_s / line.sides[line.best].wall_s
        return Verdict(f"{self.workload} wall, times", value, self.limit, at_most=False)


@dataclass(frozen=True, slots=True)
class Beside:
    """Want one workload to be as much dearer or faster than another as is said.

    Args:
        workload: The one.
        other: The other.
        limit: What is wanted.
        wall: Whether the other's wall time over the one's is compared, in place of the one's CPU time over the other's.
    """

    workload: str
    other: str
    limit: float
    wall: bool = False

    def judge(self, found: Lines) -> Verdict | None:
        """Return how it stands."""
        one, other = found.get(self.workload), found.get(self.other)
        if one is None or other is None or one.best is None or one.best not in other.sides:
            return None
        mine, theirs = one.sides[one.best], other.sides[one.best]
        if self.wall:
            speed = theirs.wall_s / mine.wall_s
            return Verdict(f"{self.workload} against {self.other}, times", speed, self.limit, at_most=False)
        return Verdict(f"{self.workload} against {self.other}", mine.cpu_s / theirs.cpu_s, self.limit)


@dataclass(frozen=True, slots=True)
class Relief:
    """Want the busiest of several writers to use so many times less CPU than one writer alone.

    Where MySQL and Kafka share the machine's processors with the writers, wall time cannot show what a processor for
    each writer would bring; this can, and memory bandwidth aside it is the same.

    Args:
        workload: The one with several writers.
        other: The one with one.
        limit: How many times.
    """

    workload: str
    other: str
    limit: float

    def judge(self, found: Lines) -> Verdict | None:
        """Return how it stands."""
        one, other = found.get(self.workload), found.get(self.other)
        if one is None or other is None or one.best is None or one.best not in other.sides:
            return None
        mine, alone = one.sides[one.best].writer_s, other.sides[one.best].writer_s
        if not mine or not alone:
            return None
        return Verdict(
            f"{self.workload}, CPU of the busiest writer, times less", alone / mine, self.limit, at_most=False
        )


@dataclass(frozen=True, slots=True)
class Linear:
    """Want the CPU time a record, starts left out, to be the same however many there are.

    Args:
        workloads: The workloads.
        limit: Greatest difference as a share of the least.
    """

    workloads: Sequence[str]
    limit: float

    def judge(self, found: Lines) -> Verdict | None:
        """Return how it stands."""
        some = [found[name] for name in self.workloads if name in found]
        costs = [f for line in some if line.best and (f := line.sides[line.best].steady_s)]
        if len(costs) < 2 or len(costs) < len(self.workloads):
            return None
        return Verdict("linear, greatest difference", max(costs) / min(costs) - 1, self.limit)


_COMPARED = ("narrow", "narrow-schemas", "wide", "snapshot")
_SHARED = ("tables", "hot")
TARGETS: tuple[Target, ...] = (
    Share("narrow", 1 / 6),
    Share("narrow", 1 / 10, steady=True),
    Share("wide", 1 / 10),
    Share("narrow-schemas", 1 / 10),
    Share("wide-schemas", 1 / 10),
    Share("snapshot", 1 / 6),
    Share("incremental", 1 / 6),
    NoDearer("narrow", 0.27),
    NoDearer("narrow-schemas", 0.21),
    NoDearer("wide", 0.41),
    NoDearer("wide-schemas", 0.37),
    NoDearer("snapshot", 0.29),
    Beside("avro", "narrow", 1.0),
    *(Memory(name, 1 / 5) for name in _COMPARED),
    *(Wall(name, 4.0) for name in _COMPARED),
    Linear([f"linear-{n}m" for n in (1, 2, 4, 8)], 0.10),
    *(Beside(f"{name}-cores-2", f"{name}-cores-1", 1.6, wall=True) for name in _SHARED),
    *(Relief(f"{name}-writers-2", f"{name}-writers-1", 1.6) for name in _SHARED),
)


def verdicts(compared: Sequence[Line]) -> list[Verdict]:
    """Return how each target stands that was measured.

    Args:
        compared: The lines.
    """
    found = {line.workload: line for line in compared}
    return [verdict for target in TARGETS if (verdict := target.judge(found)) is not None]
