"""How each kind of workload is measured, and the order of the runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from benchlib.debezium_sides import DebeziumDrain, DebeziumIncremental, DebeziumSnapshot, DebeziumSteadyLoad
from benchlib.earlier_sides import Earlier
from benchlib.flink_sides import FlinkDrain
from benchlib.ground import Contestant, Entry, Ground
from benchlib.loading import load, make_database, make_tables
from benchlib.our_sides import OurEachMinute, OurIncremental, OurSteadyLoad, OurStream
from benchlib.run import Run
from benchlib.sides import DEBEZIUM, EARLIER, FLINK, Side
from benchlib.workload import Workload

Enter = Callable[[Entry], Contestant]


@dataclass(frozen=True, slots=True)
class Kind:
    """Say how this provider and its peers run a kind of workload.

    Args:
        ours: This provider.
        theirs: Peers by side; only those that have something like it.
    """

    ours: Enter
    theirs: Mapping[str, Enter]


KINDS = {
    "drain": Kind(OurStream, {DEBEZIUM.name: DebeziumDrain, FLINK.name: FlinkDrain, EARLIER.name: Earlier}),
    "snapshot": Kind(OurStream, {DEBEZIUM.name: DebeziumSnapshot, EARLIER.name: Earlier}),
    "incremental": Kind(OurIncremental, {DEBEZIUM.name: DebeziumIncremental}),
    "run_for": Kind(OurSteadyLoad, {DEBEZIUM.name: DebeziumSteadyLoad}),
    "each_minute": Kind(OurEachMinute, {}),
}


_MANY = 1_000


@dataclass(frozen=True, slots=True)
class Repeats:
    """Say how often each side runs.

    Args:
        ours: Runs of a side of this provider.
        theirs: Runs of a peer.
    """

    ours: int
    theirs: int

    def of(self, workload: Workload, side: Side) -> int:
        """Return the runs of a side; a steady load, and tables whose structures alone take minutes, are run once.

        Args:
            workload: The workload.
            side: The side.
        """
        once = workload.seconds or workload.tables > _MANY
        return 1 if once else self.ours if side.ours else self.theirs


def groups(workloads: Sequence[Workload]) -> list[list[Workload]]:
    """Return neighbours that are measured on the same rows.

    Args:
        workloads: All that are to be measured.
    """
    return [list(some) for _, some in groupby(workloads, key=lambda workload: workload.rows_as)]


def measured(
    ground: Ground, workloads: Sequence[Workload], sides: Sequence[Side], repeats: Repeats, folder: Path
) -> Iterator[Run]:
    """Let all find their place, write the rows, and let the sides run each workload by turns.

    Args:
        ground: The servers.
        workloads: Workloads on the same rows.
        sides: Who runs, in this order.
        repeats: How often.
        folder: A new folder.
    """
    entered: list[list[tuple[Entry, Contestant]]] = []
    for workload in workloads:
        entries = [Entry(ground, workload, side, folder / workload.name / side.name, 1) for side in sides]
        entries = [replace(e, repeat=repeats.of(workload, e.side)) for e in entries if runs_it(workload, e.side)]
        entered.append([(e, _enter(e)) for e in entries])
    source, first = ground.source, workloads[0]
    make_database(source, first)
    # All but the first are made in the stream, so that a run meets them for the first time, and makes their topics.
    make_tables(source, first, first.names[:1])
    for _, contestant in (each for some in entered for each in some):
        contestant.find_place()
    make_tables(source, first, first.names[1:])
    load(source, first)
    for some in entered:
        for number in range(max((entry.repeat for entry, _ in some), default=0)):
            for entry, contestant in some:
                if number < entry.repeat:
                    yield contestant.run(number)


def runs_it(workload: Workload, side: Side) -> bool:
    """Return whether a side runs a workload: this provider all, a peer those that name it, an earlier one what it can.

    Args:
        workload: The workload.
        side: The side.
    """
    if side == EARLIER:
        return side.name in KINDS[workload.kind].theirs and workload.peer == DEBEZIUM.name
    return side.ours or (side.name == workload.peer and side.name in KINDS[workload.kind].theirs)


def _enter(entry: Entry) -> Contestant:
    entry.folder.mkdir(parents=True)
    kind = KINDS[entry.workload.kind]
    return kind.ours(entry) if entry.side.ours else kind.theirs[entry.side.name](entry)
