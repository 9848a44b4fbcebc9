"""How each kind of workload is measured, and the order of the runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from benchlib.connect_sides import ProviderOverConnect
from benchlib.debezium_sides import DebeziumDrain, DebeziumIncremental, DebeziumSnapshot, DebeziumSteadyLoad
from benchlib.fleet_sides import ProviderFleet
from benchlib.flink_sides import FlinkDrain
from benchlib.ground import BenchEnvironment, Contestant, WorkloadRun
from benchlib.loading import change, load, make_database, make_tables
from benchlib.our_sides import (
    ProviderEachMinute,
    ProviderIncremental,
    ProviderSteadyLoad,
    ProviderStream,
    ProviderVerification,
)
from benchlib.run import Run
from benchlib.sides import DEBEZIUM, FLINK, Side
from benchlib.workload import Workload

ContestantFactory = Callable[[WorkloadRun], Contestant]


@dataclass(frozen=True, slots=True)
class WorkloadRunners:
    """Say how this provider and its peers run a kind of workload.

    Args:
        peers: Peers by side; only those that have something like it.
    """

    provider: ContestantFactory
    peers: Mapping[str, ContestantFactory]


RUNNERS = {
    "drain": WorkloadRunners(ProviderStream, {DEBEZIUM.name: DebeziumDrain, FLINK.name: FlinkDrain}),
    "snapshot": WorkloadRunners(ProviderStream, {DEBEZIUM.name: DebeziumSnapshot}),
    "verify": WorkloadRunners(ProviderVerification, {}),
    "verify-rows": WorkloadRunners(ProviderVerification, {}),
    "incremental": WorkloadRunners(ProviderIncremental, {DEBEZIUM.name: DebeziumIncremental}),
    "run_for": WorkloadRunners(ProviderSteadyLoad, {DEBEZIUM.name: DebeziumSteadyLoad}),
    "each_minute": WorkloadRunners(ProviderEachMinute, {}),
    "connect_each_minute": WorkloadRunners(ProviderOverConnect, {DEBEZIUM.name: DebeziumSteadyLoad}),
    "fleet": WorkloadRunners(ProviderFleet, {}),
}


_MANY_TABLES = 1_000


@dataclass(frozen=True, slots=True)
class Repeats:
    """Say how often each side runs.

    Args:
        provider: Runs of a side of this provider.
        peers: Runs of a peer.
    """

    provider: int
    peers: int

    def of(self, workload: Workload, side: Side) -> int:
        """Return the runs of a side; a steady load, and tables whose structures alone take minutes, are run once."""
        once = workload.seconds or workload.tables > _MANY_TABLES
        return 1 if once else self.provider if side.provider else self.peers


def group_by_rows(workloads: Sequence[Workload]) -> list[list[Workload]]:
    """Return neighbours that are measured on the same rows."""
    return [list(some) for _, some in groupby(workloads, key=lambda workload: workload.rows_as)]


def measure_workloads(
    ground: BenchEnvironment, workloads: Sequence[Workload], sides: Sequence[Side], repeats: Repeats, folder: Path
) -> Iterator[Run]:
    """Let all sides store their start position, write the rows, and let the sides run each workload in turn."""
    with ExitStack() as open_contestants:
        yield from _measure(ground, workloads, sides, repeats, folder, open_contestants)


def _measure(
    ground: BenchEnvironment,
    workloads: Sequence[Workload],
    sides: Sequence[Side],
    repeats: Repeats,
    folder: Path,
    open_contestants: ExitStack,
) -> Iterator[Run]:
    entered: list[list[tuple[WorkloadRun, Contestant]]] = []
    for workload in workloads:
        entries = [WorkloadRun(ground, workload, side, folder / workload.name / side.name, 1) for side in sides]
        entries = [replace(e, repeat=repeats.of(workload, e.side)) for e in entries if can_run(workload, e.side)]
        entered.append([(e, _make_contestant(e)) for e in entries])
    source, first = ground.source, workloads[0]
    make_database(source, first)
    # All but the first are made in the stream, so that a run meets them for the first time, and makes their topics.
    make_tables(source, first, first.names[:1])
    if first.change is not None:
        load(source, first)
    for _, contestant in (each for some in entered for each in some):
        if isinstance(contestant, AbstractContextManager):  # it has servers of its own
            open_contestants.enter_context(contestant)
        contestant.store_position()
    make_tables(source, first, first.names[1:])
    (load if first.change is None else change)(source, first)
    for some in entered:
        for number in range(max((entry.repeat for entry, _ in some), default=0)):
            for entry, contestant in some:
                if number < entry.repeat:
                    yield contestant.run(number)


def can_run(workload: Workload, side: Side) -> bool:
    """Return whether a side runs a workload: this provider all, a peer those that name it."""
    return side.provider or (side.name == workload.peer and side.name in RUNNERS[workload.kind].peers)


def _make_contestant(entry: WorkloadRun) -> Contestant:
    entry.folder.mkdir(parents=True)
    kind = RUNNERS[entry.workload.kind]
    return kind.provider(entry) if entry.side.provider else kind.peers[entry.side.name](entry)
