"""What the pipeline needs from a sink; Kafka and the in-memory twin both provide it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from airflow_provider_mysql_cdc.cdc.state.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.state.plan import BatchPlan

Headers = Sequence[tuple[str, "bytes | None"]]
SideRecord = tuple[str, "bytes | None", "bytes | None"]
"""Topic, key, value of a record that goes to partition 0 within a commit (marker, schema history)."""


class RecordWriter(Protocol):
    """One transactional writer."""

    def init(self, timeout_s: float = 60.0) -> None:
        """Fence older attempts of the same transactional id."""

    def produce(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int, headers: Headers | None = None
    ) -> None:
        """Add a record to the current transaction."""

    @property
    def bytes_pending(self) -> int:
        """Bytes of keys and values in the current transaction."""

    def commit(self, records: Sequence[SideRecord] = ()) -> None:
        """Add side records and commit."""

    def abort(self) -> None:
        """Throw the current transaction away."""

    def close(self) -> None:
        """Free the client; an open transaction is aborted."""


class LedgerStore(Protocol):
    """The ledger topic."""

    topic: str

    def ensure(self) -> None:
        """Create the topic when it is missing; check it otherwise."""

    def read(
        self, timeout_s: float = 60.0, *, fence_after_s: float | None = None, fence_planner: bool = True
    ) -> LedgerState | None:
        """Return what is committed, or None when the topic does not exist."""

    def begin(self, plan: BatchPlan, planner: RecordWriter | None = None) -> LedgerState:
        """Put a plan in force."""

    def put(self, records: Mapping[str, bytes | None]) -> None:
        """Write other keys in one transaction."""
