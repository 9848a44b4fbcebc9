"""What the commit protocol needs from the ledger; implemented for Kafka, and in memory for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.sink.record_writer import RecordWriter

ExtraRecords = Sequence[SideRecord] | Callable[[LedgerState], Sequence[SideRecord]]
"""Records that become visible with a plan, or a function that returns them for the ledger as it is before."""


class LedgerStore(Protocol):
    """The ledger topic."""

    topic: str
    fences: int
    """How often writers were fenced by way of this object."""

    def ensure(self) -> None:
        """Create the topic when it is missing; otherwise check it."""

    def claim(self) -> None:
        """Record that the ledger is this stream's, before its first other record."""

    def read(
        self,
        timeout_s: float = 60.0,
        *,
        fence_after_s: float | None = None,
        fence_planner: bool = True,
        before_fence: Callable[[], None] = lambda: None,
        chunks: bool = True,
    ) -> LedgerState | None:
        """Return what is committed, or None when the topic does not exist."""

    def peek(self) -> LedgerState:
        """Return what is committed before the oldest open transaction; never waits for one."""

    def current_id(self) -> str | None:
        """Return Kafka's id of the topic; None without a topic, and where the brokers know no ids."""

    def begin(
        self, plan: BatchPlan, planner: RecordWriter | None = None, extra_records: ExtraRecords = ()
    ) -> LedgerState:
        """Put a plan in force."""

    def put(self, records: Mapping[str, bytes | None]) -> None:
        """Write further keys in one transaction."""
