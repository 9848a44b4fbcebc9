"""Who runs a workload, and in which order."""

from __future__ import annotations

from dataclasses import dataclass

from benchlib.debezium_worker import VERSION
from benchlib.flink_worker import NAME as FLINK_NAME


@dataclass(frozen=True, slots=True)
class Side:
    """Name who runs.

    Args:
        name: On the command line and in results.
        native: Whether its decoder is the native kernel.
        provider: Whether it is this provider.
    """

    name: str
    title: str
    native: bool = False
    provider: bool = True


DEBEZIUM = Side("debezium", f"Debezium {VERSION}", provider=False)
FLINK = Side("flink", FLINK_NAME, provider=False)
PYTHON = Side("python", "this provider")
NATIVE = Side("native", "with the native kernel", native=True)
SIDES = {side.name: side for side in (DEBEZIUM, FLINK, PYTHON, NATIVE)}
