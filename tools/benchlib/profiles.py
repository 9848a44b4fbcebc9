"""Profiles of jobs by stage: taking them, and the file that keeps them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

from benchlib import ours
from benchlib.figures import invalid_reasons
from benchlib.ground import BenchEnvironment, WorkloadRun
from benchlib.loading import load, make_database, make_tables
from benchlib.our_sides import delete_topics, pipeline
from benchlib.sessions import replace_text, unreadable
from benchlib.sides import Side
from benchlib.source import changing_rows
from benchlib.spy import CpuUsage, JobProfiler, kernel_with_lines
from benchlib.stages import CLIENT, STAGES, samples, shares
from benchlib.workload import WORKLOADS, Workload

ROWS: Mapping[str, int] = {"narrow": 1_000_000, "snapshot": 1_000_000, "wide": 200_000, "incremental": 300_000}
"""What is profiled, with how many rows."""
_VERSIONS = ("mysql", "kafka", "python", "kernel")


@dataclass(frozen=True, slots=True)
class Profile:
    """Say where the CPU time of one job went.

    Args:
        workload: The workload.
        side: Who ran it.
        records: Records of its tables, with the changes during an incremental snapshot.
        cpu_us: Microseconds of CPU a record of a run that nothing sampled.
        sampled_us: The same of the run that was sampled.
        samples: Number of samples.
        load: The machine's load at the end.
        stages: Microseconds of CPU a record by stage.
    """

    workload: str
    side: str
    records: int
    cpu_us: float
    sampled_us: float
    samples: int
    load: float
    stages: Mapping[str, float]


@dataclass
class _Incremental(ours.ProviderIncrementalSnapshot):
    """Take an incremental snapshot without Spark."""

    spy: JobProfiler | None = None
    spent: CpuUsage = field(default_factory=CpuUsage)

    def _submit(self, spec: object) -> None:
        assert self.spy is not None
        self.spy.run(spec, self.spent)
        self.jobs += 1


def chosen(names: Sequence[str], scale: float) -> list[list[Workload]]:
    """Return the workloads to profile, those on the same rows together.

    Args:
        names: Their names; others are left out.
        scale: Share of their rows.
    """
    found = [replace(WORKLOADS[name], rows=rows).scaled(scale) for name, rows in ROWS.items() if name in names]
    return [list(some) for _, some in groupby(found, key=lambda workload: workload.rows_as)]


def profiles(
    ground: BenchEnvironment, together: Sequence[Sequence[Workload]], sides: Sequence[Side], folder: Path
) -> Iterator[Profile]:
    """Profile workloads.

    Args:
        ground: The servers.
        together: Workloads by the rows that they share.
        sides: Sides of this provider.
        folder: An empty folder.

    Raises:
        StackError: The kernel cannot be built.
        RuntimeError: A job failed, or wrote other records than there are rows.
    """
    folder.mkdir()
    lines = kernel_with_lines(folder) if any(side.native for side in sides) else None
    spies = {
        (side.name, sampling): JobProfiler(folder, lines if side.native else None, sampling)
        for side in sides
        for sampling in (False, True)
    }
    next(iter(spies.values())).warm()
    for some in together:
        entries = [WorkloadRun(ground, workload, side, folder, 2) for workload in some for side in sides]
        yield from _profile_workload(entries, spies)


def _profile_workload(
    entries: Sequence[WorkloadRun], spies: Mapping[tuple[str, bool], JobProfiler]
) -> Iterator[Profile]:
    source, first = entries[0].ground.source, entries[0].workload
    make_database(source, first)
    make_tables(source, first, first.names)
    ready = {
        (at, number): pipeline(entry, number)
        for at, entry in enumerate(entries)
        for number in (0, 1)
        if entry.workload.kind != "incremental"
    }
    for (at, _), each in ready.items():
        if not entries[at].workload.snapshot:
            each.snapshot()
    load(source, first)
    for at, entry in enumerate(entries):
        spent, counts = [], []
        for number in (0, 1):
            spy, found = spies[entry.side.name, bool(number)], ready.get((at, number))
            one, records = _incremental(entry, number, spy) if found is None else _profile_job(entry, found, spy)
            spent.append(one)
            counts.append(records)
        yield make_profile(entry.workload.name, entry.side.name, counts, spent)


def _profile_job(entry: WorkloadRun, found: Any, spy: JobProfiler) -> tuple[CpuUsage, int]:
    """Drain or snapshot rows that are there."""
    spent, workload = CpuUsage(), entry.workload
    spy.run(found.prepare("snapshot" if workload.snapshot else "drain").spec, spent)
    outcome = found.settle()
    records = sum(outcome.counts.get(found.table_topic(name), 0) for name in workload.names)
    native = outcome.tally.native.rows if outcome.tally else 0
    delete_topics(found)
    if records != workload.rows or bool(native) != entry.side.native:
        raise RuntimeError(f"{workload.name}: {workload.rows} rows became {records} records, {native} by the kernel")
    return spent, records


def _incremental(entry: WorkloadRun, number: int, spy: JobProfiler) -> tuple[CpuUsage, int]:
    """Read a table while it is being changed."""
    ground, workload = entry.ground, entry.workload
    more = ours.properties(ground.source, ground.kafka, entry.prefix(number), {})
    found = pipeline(entry, number, {**more, "table.include.list": workload.included})
    reading = _Incremental(found, ground.cores, native=entry.side.native, spy=spy)
    with changing_rows(ground.source, workload.rows, ours.RATE):
        measured = reading.measure()
    delete_topics(found)
    if wrong := invalid_reasons(measured, workload.rows, ours.RATE):
        raise RuntimeError(f"{workload.name}: {'; '.join(wrong)}")
    return reading.spent, measured.wrote.reads + measured.wrote.changes


def make_profile(workload: str, side: str, records: Sequence[int], spent: Sequence[CpuUsage]) -> Profile:
    """File what was sampled by stage, in the CPU time of the run that was not.

    Args:
        workload: The workload.
        side: Who ran it.
        records: Records of the plain run and of the sampled one.
        spent: What the two used.
    """
    plain, sampled = spent
    found = [each for text in sampled.stacks for each in samples(text)]
    whole = (plain.cpu_s - plain.client_s) / records[0] * 1e6
    stages = {stage: share * whole for stage, share in shares(found, sampled.threads).items()}
    stages[CLIENT] = plain.client_s / records[0] * 1e6
    return Profile(
        workload,
        side,
        records[0],
        cpu_us=round(plain.cpu_s / records[0] * 1e6, 3),
        sampled_us=round(sum((*sampled.threads.values(), sampled.client_s)) / records[1] * 1e6, 3),
        samples=sum(each.count for each in found),
        load=round(os.getloadavg()[0], 2),
        stages={stage: round(stages[stage], 3) for stage in STAGES},
    )


@dataclass(frozen=True, slots=True)
class ProfileSet:
    """Hold one call of the bench with ``--profile``.

    Args:
        about: When, where and of what.
        profiles: What it took.
    """

    about: Mapping[str, Any]
    profiles: tuple[Profile, ...]


def about(measured: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a session says about itself, without the versions of what did not run.

    Args:
        measured: What is known of the session (``sessions.about``).
    """
    versions = {name: measured["versions"][name] for name in _VERSIONS}
    return {**measured, "versions": {**versions, "py-spy": version("py-spy")}}


def read(path: Path) -> ProfileSet | None:
    """Return what a file holds; None when there is no file.

    Args:
        path: The file.

    Raises:
        StackError: It cannot be read, or is no file of profiles.
    """
    if not path.exists():
        return None
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        profiles_read = tuple(Profile(**profile) for profile in raw["profiles"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise unreadable(path, error) from error
    return ProfileSet({k: v for k, v in raw.items() if k != "profiles"}, profiles_read)


def write(path: Path, album: ProfileSet) -> None:
    """Write a file.

    Args:
        path: The file.
        album: What it is to hold.
    """
    lines = ",\n".join(f"  {json.dumps(asdict(profile))}" for profile in album.profiles)
    replace_text(path, f'{{{json.dumps(dict(album.about))[1:-1]},\n "profiles": [\n{lines}\n]}}\n')
