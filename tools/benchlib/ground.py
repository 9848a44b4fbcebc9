"""The servers of a bench, and the inputs of one side for one workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from stacklib.java import Java

from benchlib.run import Run
from benchlib.sides import Side
from benchlib.source import MySqlSource
from benchlib.workload import Workload


@dataclass(frozen=True, slots=True)
class BenchEnvironment:
    """Hold the servers that all workloads share.

    Args:
        registry: Address of the schema registry.
        more: Further properties of this provider.
    """

    source: MySqlSource
    kafka: str
    registry: str
    java: Java
    cores: int = 2
    more: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkloadRun:
    """Hold what one side needs for the runs of one workload.

    Args:
        folder: A folder of its own.
    """

    ground: BenchEnvironment
    workload: Workload
    side: Side
    folder: Path
    repeat: int

    def prefix(self, number: int) -> str:
        """Return the ``topic.prefix`` of a run: letters that names of Avro may have.

        Starts are measured on each server, and all share the broker.
        """
        workload = self.workload
        parts = (workload.name, *((workload.mysql,) if workload.mysql else ()), self.side.name, str(number))
        return f"bench_{'_'.join(parts)}".replace("-", "_").replace(".", "_")


class Contestant(Protocol):
    """Run one workload by one side, several times."""

    def store_position(self) -> None:
        """Store the binlog position before the rows are written; what finds it later does nothing."""

    def run(self, number: int) -> Run:
        """Run once, and return what that cost."""
