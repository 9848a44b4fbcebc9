"""The Airflow-managed offset store: its protocol and its value.

Airflow's asset state has no compare-and-swap (measured), so the store alone cannot exclude a second run; the ledger can
(``takeover.begin_epoch``). Every store still checks what it can, and ``SqlOffsetStore`` does so atomically.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from airflow_provider_mysql_cdc.cdc.commit.ledger_records import SnapshotRecord
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.plan_parts import stored_plan
from airflow_provider_mysql_cdc.cdc.errors import DamagedRecordError, OffsetConflictError, StateError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, moves_back
from airflow_provider_mysql_cdc.cdc.model.stored_record import (
    Count,
    Record,
    VersionedRecord,
    read_as,
    record_location,
)

HISTORY_ROWS = 20
"""Past offsets in the value itself; a store may keep more of them separately."""


@dataclass(frozen=True, slots=True)
class PastOffset(Record):
    """Hold a committed offset of the past.

    Args:
        epoch: Epoch of the batch that ended there.
        offset: The offset.
        at_ms: When it was committed, milliseconds since 1970.
    """

    epoch: Count
    offset: BinlogOffset
    at_ms: Count


@dataclass(frozen=True, slots=True)
class StoredState(VersionedRecord):
    """Hold the state of one topic.prefix between runs.

    Args:
        epoch: Epoch of the newest plan, pending or committed; 0 before the first.
        committed: Everything before this offset is in Kafka; None before the first batch.
        pending: The plan being carried out, or None; a plan of very many topics is stored without them.
        history: Past offsets, oldest first, at most ``HISTORY_ROWS``.
        snapshot: The ledger's record of the last completed snapshot, or None.
        revision: Number of writes; a store raises it with each ``save``.
        ledger_id: Kafka's id of the ledger topic that belongs to this state, or None when not known.
        ledger_end: How far that topic went (``LedgerState.progress_end``) when the state was taken from it.
        stamp: Random id of the last write. A state that was lost and restored counts its revisions from the start; the
            stamp keeps an older run from mistaking one for the other.
    """

    epoch: Count = 0
    committed: BinlogOffset | None = None
    pending: BatchPlan | None = None
    history: tuple[PastOffset, ...] = ()
    snapshot: dict[str, Any] | None = None
    revision: Count = 0
    ledger_id: str | None = None
    ledger_end: Count = 0
    stamp: str = ""

    def with_plan(self, plan: BatchPlan, ledger_id: str | None = None) -> StoredState:
        """Return the state with a plan as pending (the write-ahead step).

        Args:
            plan: The next epoch's plan, or the pending one taken over by another run.
            ledger_id: Kafka's id of the ledger topic, to detect a ledger that was created again.

        Raises:
            StateError: Another plan is pending, or the epoch is not the next one.
        """
        is_takeover = self.pending is not None and (
            self.pending.same_work(plan)
            # A plan that never reached the ledger and is stored without its topics gets a new assignment.
            or (self.pending.omitted_topics is not None and self.pending.same_range(plan))
        )
        if not is_takeover and (self.pending is not None or plan.epoch != self.epoch + 1):
            raise StateError(
                "a new plan cannot be started in this state",
                where=f"epoch {plan.epoch}",
                why=f"the state is at epoch {self.epoch}" + (", still pending" if self.pending else ""),
                remedy="run the task again: it loads the state and reconciles it with the ledger",
                retriable=True,
            )
        return replace(self, epoch=plan.epoch, pending=plan, ledger_id=ledger_id or self.ledger_id)

    def commit(
        self, offset: BinlogOffset, at_ms: int, snapshot: dict[str, Any] | None = None, *, may_move_back: bool = False
    ) -> StoredState:
        """Return the state with the pending plan carried out.

        Args:
            offset: Where the batch ended.
            at_ms: Now, milliseconds since 1970.
            snapshot: The ledger's snapshot record when the plan was a snapshot.
            may_move_back: Whether a new snapshot or a person's reset allows an earlier offset.

        Raises:
            StateError: The offset would move back on the same server.
        """
        if not may_move_back and moves_back(self.committed, offset):
            raise StateError(
                "the stored offset must not move back",
                where=f"{self.committed} to {offset}",
                why="the batch ended before the offset that is already committed",
                remedy="if the stream is meant to move back, reset the offset (DAG mysql_cdc_reset_offset)",
            )
        past = PastOffset(self.epoch, offset, at_ms)
        return replace(
            self,
            committed=offset,
            pending=None,
            history=(*self.history, past)[-HISTORY_ROWS:],
            snapshot=snapshot or self.snapshot,
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON, as Airflow's asset state takes it; a plan of very many topics is stored without them."""
        pending = None if self.pending is None else stored_plan(self.pending)
        return VersionedRecord.to_json(replace(self, pending=pending))

    def check(self) -> None:
        """Check the pending plan and the snapshot.

        Raises:
            ValueError: The text says what is wrong, and where.
            DamagedRecordError: A member of the snapshot is missing, or of another type.
        """
        if self.pending is not None:
            self.pending.check()
        if self.snapshot is not None:
            read_as(SnapshotRecord, self.snapshot, "snapshot")

    @classmethod
    def read(cls, data: Mapping[str, Any], where: str = "") -> StoredState:
        """Read what ``to_json`` wrote.

        Args:
            data: The value.
            where: The store, for errors.

        Raises:
            StoredVersionError: It is of another version.
            DamagedRecordError: It is damaged.
        """
        try:
            with record_location(where):
                return cls.from_json(data)
        except DamagedRecordError as error:
            raise DamagedRecordError(
                "the stored state is damaged",
                where=where,
                why=error.why,
                remedy="delete the stored state; it is restored from the ledger (docs/runbook.md, damaged records)",
            ) from error


class OffsetStore(Protocol):
    """Keep one ``StoredState``."""

    def load(self) -> StoredState | None:
        """Return the state, or None when nothing is stored.

        Raises:
            StateError: It cannot be read.
        """

    def save(self, new: StoredState, expected: StoredState | None) -> StoredState:
        """Replace the state, if it is still the expected one.

        Args:
            new: What to store; its revision is set by the store.
            expected: What ``load`` or the last ``save`` returned; None, or a state that was never saved (revision 0),
                when nothing was stored.

        Returns:
            What is stored now.

        Raises:
            OffsetConflictError: The stored state is no longer the expected one; nothing was written.
            StateError: It cannot be written.
        """


def conflict_error(where: str, expected: StoredState | None, actual: StoredState | None) -> OffsetConflictError:
    """Return the error of a ``save`` whose expected state is outdated.

    Args:
        where: The store.
        expected: The state that the caller expected.
        actual: The stored state.
    """

    def describe(state: StoredState | None) -> str:
        return f"epoch {state.epoch}, revision {state.revision}" if state else "nothing"

    return OffsetConflictError(
        "another run changed the stored offset",
        where=where,
        why=f"expected {describe(expected)}; found {describe(actual)}",
        remedy="run the task again: it loads the state again",
    )


def is_same_write(a: StoredState | None, b: StoredState | None) -> bool:
    """Return whether both states are of the same write; None and a state that was never saved are the same."""

    def identity(state: StoredState | None) -> tuple[int, int, str]:
        return (state.revision, state.epoch, state.stamp) if state is not None and state.revision else (0, 0, "")

    return identity(a) == identity(b)


def next_revision(new: StoredState, previous: StoredState | None) -> StoredState:
    """Return the state as a store writes it: with the next revision and a new stamp.

    Args:
        new: The state to store.
        previous: The state that it replaces.
    """
    return replace(new, revision=(previous.revision if previous else 0) + 1, stamp=secrets.token_hex(8))
