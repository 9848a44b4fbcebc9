"""What the ledger says, as one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.known_topics import TOPIC_KEY_PREFIX, KnownTopic
from airflow_provider_mysql_cdc.cdc.commit.plan import (
    CHUNK_PREFIX,
    HISTORY_KEY,
    MAX_WRITERS,
    OUTCOME_KEY,
    PLAN_KEY,
    SIGNAL_CHANNELS,
    SIGNAL_OFFSET_KEY,
    SIGNAL_PREFIX,
    SIGNALS_TAKEN_KEY,
    SNAPSHOT_KEY,
    VIEW_KEY,
    WRITER_PREFIX,
    WRITERS_KEY,
    BatchPlan,
    Marker,
    decode,
)
from airflow_provider_mysql_cdc.cdc.commit.plan_parts import PART_PREFIX, part_number, read_plan
from airflow_provider_mysql_cdc.cdc.commit.run_tally import RUN_KEY, RunTally
from airflow_provider_mysql_cdc.cdc.errors import FencedError, StateError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, comparable, order, same_place
from airflow_provider_mysql_cdc.cdc.model.stored import Members, damaged, members, stored_at
from airflow_provider_mysql_cdc.cdc.model.xa import PreparedXa


@dataclass(frozen=True, slots=True)
class SignalsTaken:
    """Say how far rows of the signal table were read when the stream was moved: further back they come again.

    Args:
        offset: Rows before it were handed over.
        epoch: Epoch of the move; whatever a batch of it or behind it finds there was handed over before.
    """

    offset: BinlogOffset
    epoch: int

    def covers(self, place: BinlogOffset | None, epoch: int) -> bool:
        """Return whether a row was handed over before the move.

        Args:
            place: The boundary before its transaction; None for what is no row of the signal table.
            epoch: Epoch of the batch that found it.
        """
        if place is None or epoch < self.epoch or not comparable(place, self.offset):
            return False
        return order(place, self.offset) < 0

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"offset": self.offset.to_json(), "epoch": self.epoch}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | Members) -> SignalsTaken:
        """Read what ``to_json`` wrote.

        Raises:
            DamagedRecordError: It is something else.
        """
        given = members(data)
        return cls(BinlogOffset.from_json(given.object("offset")), given.whole("epoch"))


@dataclass(frozen=True, slots=True)
class LedgerState:
    """Hold the committed content of the ledger, the last value of each key.

    Args:
        plan: The newest plan, or None when no batch was ever planned.
        markers: The last marker of each writer; of older epochs too.
        chunks: Values of ``chunk/...`` keys, the key without that prefix.
        snapshot: The record of the last snapshot: {"epoch", "status", "offset", ...}.
        outcome: The last outcome that a driver wrote.
        topics: Topics as the last batch left them.
        others: Values of keys that this version does not know.
        topic_id: Kafka's id of the ledger topic; a topic made anew has another one. None when not known.
        parts: Parts of a plan that the ledger holds (``plan_parts``).
        ids: Writers 0 to ids - 1 may have written under this topic.prefix, in whatever plan and attempt.
        signals: Values of ``signal/...`` keys, the key without that prefix: signals that wait for the driver.
    """

    plan: BatchPlan | None = None
    markers: Mapping[int, Marker] = field(default_factory=dict)
    chunks: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    snapshot: dict[str, Any] | None = None
    outcome: dict[str, Any] | None = None
    topics: Mapping[str, KnownTopic] = field(default_factory=dict)
    others: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    topic_id: str | None = None
    ids: int = 0
    parts: int = 0
    signals: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def from_records(
        cls,
        records: Mapping[str, bytes | None],
        topic_id: str | None = None,
        where: Callable[[str], str] = lambda key: f"key {key}",
        *,
        chunks: bool = True,
        whole: bool = True,
    ) -> LedgerState:
        """Build the state from the last value of each key; None is a deleted key.

        Args:
            records: Key to value.
            topic_id: Kafka's id of the topic.
            where: Says for a key where its record stands, for errors.
            chunks: Whether the chunks of a snapshot are wanted.
            whole: Whether the topics of a plan in parts are wanted. What is not committed may lack a part.

        Raises:
            DamagedRecordError: A record is not ours.
        """
        values: dict[str, dict[str, Any]] = {}
        head: dict[str, Any] | None = None
        parts: dict[int, dict[str, Any]] = {}
        markers: list[Marker] = []
        topics: dict[str, KnownTopic] = {}
        ids = 0
        for key, value in records.items():
            if value is None or (not chunks and key.startswith(CHUNK_PREFIX)):
                continue
            with stored_at(where(key)):
                data = decode(value)
                if key == PLAN_KEY:
                    head = data
                elif key.startswith(PART_PREFIX):
                    parts[part_number(key)] = data
                elif key.startswith(WRITER_PREFIX):
                    markers.append(Marker.from_json(data))
                elif key.startswith(TOPIC_KEY_PREFIX):
                    topics[key[len(TOPIC_KEY_PREFIX) :]] = KnownTopic.from_json(data)
                elif key == WRITERS_KEY:
                    ids = Members(data).whole("count", high=MAX_WRITERS)
                else:
                    _check(key, Members(data))
                    values[key] = data
        plan: BatchPlan | None = None
        if head is not None:
            with stored_at(where(PLAN_KEY)):
                plan = read_plan(head, parts) if whole else BatchPlan.from_json(head)
        elif parts and whole:
            raise damaged("the ledger holds parts of a plan without the plan", f"key {PART_PREFIX}{min(parts)}")
        listed, signals = _take(values, CHUNK_PREFIX), _take(values, SIGNAL_PREFIX)
        return cls(
            plan=plan,
            markers={m.writer: m for m in markers},
            chunks=listed,
            snapshot=values.pop(SNAPSHOT_KEY, None),
            outcome=values.pop(OUTCOME_KEY, None),
            signals=signals,
            topics=topics,
            others=values,
            topic_id=topic_id,
            ids=ids,
            parts=max(parts, default=-1) + 1,
        )

    @property
    def empty(self) -> bool:
        """Whether nothing was ever planned or written."""
        return self.plan is None and not self.markers and self.snapshot is None

    def marker(self, writer: int, epoch: int) -> Marker | None:
        """Return a writer's marker in this epoch, or None when it has committed nothing there yet."""
        found = self.markers.get(writer)
        return found if found is not None and found.epoch == epoch else None

    def missing_writers(self) -> tuple[int, ...]:
        """Return the writers of the newest plan that are not done; for a snapshot, all until its record says done."""
        plan = self.plan
        if plan is None or self._snapshot_done(plan):
            return ()
        if plan.kind == "snapshot":
            return tuple(range(plan.writers))
        found = (self.marker(writer, plan.epoch) for writer in range(plan.writers))
        return tuple(writer for writer, m in enumerate(found) if m is None or not m.done)

    def complete(self) -> bool:
        """Return whether the newest plan is carried out completely and committed."""
        return self.plan is not None and not self.missing_writers()

    def end(self) -> BinlogOffset | None:
        """Return the offset that a complete batch leads to, or None when the batch is not complete."""
        plan = self.plan
        if plan is None or not self.complete():
            return None
        if plan.kind == "snapshot" and self.snapshot is not None:
            return BinlogOffset.from_json(self.snapshot["offset"])
        if plan.end.gtids is not None:
            return plan.end
        # The end of an earlier binlog file has no GTID set in the plan; the writers that reached it know the set.
        reached = (m.reached.offset for m in self.markers.values() if m.epoch == plan.epoch)
        known = (offset.gtids for offset in reached if same_place(offset, plan.end))
        return replace(plan.end, gtids=next((gtids for gtids in known if gtids), None))

    def prepared(self) -> tuple[PreparedXa, ...]:
        """Return the XA transactions that a complete drain left undecided; every writer of it saw the same."""
        if self.plan is None or self.plan.kind != "drain" or not self.complete():
            return ()
        marker = self.marker(0, self.plan.epoch)
        return marker.prepared if marker is not None else ()

    @property
    def signals_taken(self) -> SignalsTaken | None:
        """How far rows of the signal table were read when the stream was moved; None where it was not."""
        record = self.others.get(SIGNALS_TAKEN_KEY)
        return None if record is None else SignalsTaken.from_json(record)

    def signals_reached(self) -> BinlogOffset | None:
        """Return up to where the signal table's rows were handed over, also by a batch that is not complete.

        None where the newest plan has handed none over: a reset, or a snapshot that leaves out what came before it.
        """
        plan, end = self.plan, self.end()
        if plan is None or plan.kind == "reset":
            return None
        if end is not None:
            return end
        if plan.kind == "drain":
            marker = self.marker(0, plan.epoch)
            reached = plan.start if marker is None else marker.reached.offset
            origins = {plan.end.file: plan.end.origin, plan.start.file: plan.start.origin}
            return replace(reached, origin=origins.get(reached.file))
        return plan.start if plan.gapless else None

    def _snapshot_done(self, plan: BatchPlan) -> bool:
        record = self.snapshot
        return (
            plan.kind == "snapshot"
            and record is not None
            and int(record.get("epoch", -1)) == plan.epoch
            and record.get("status") == "done"
            and record.get("offset") is not None
        )

    def begun(self) -> bool:
        """Return whether anything of the newest plan is committed: a marker, a snapshot's view or a chunk of it."""
        plan = self.plan
        if plan is None:
            return False
        records = (*self.done_chunks(plan.epoch).values(), *self.others.values())
        return any(m.epoch == plan.epoch for m in self.markers.values()) or any(
            r.get("epoch") == plan.epoch for r in records
        )

    def done_chunks(self, epoch: int) -> dict[str, dict[str, Any]]:
        """Return the records of a snapshot's chunks whose rows are committed; a planned one has no offset yet.

        Args:
            epoch: The snapshot's epoch.
        """
        return {name: r for name, r in self.chunks.items() if r["epoch"] == epoch and "offset" in r}

    def writer_ids(self, writers: int = 0) -> tuple[int, ...]:
        """Return every writer that may still have an open transaction, lowest first.

        Args:
            writers: W of the plan about to begin; its writers are included.
        """
        planned = self.plan.writers if self.plan else 0
        # Ledgers of older versions do not hold the number of ids; there, snapshot tasks name themselves in their chunk
        # records, and how many were started stands beside the chunk list.
        of_chunks = {int(chunk["writer"]) for chunk in self.chunks.values() if "writer" in chunk}
        tasks = int((self.snapshot or {}).get("tasks", 0))
        return tuple(sorted({*self.markers, *of_chunks, *range(max(self.ids, planned, tasks, writers))}))

    def require_plan(self, plan: BatchPlan) -> None:
        """Check that a plan is still the one in force, and carried out by the same attempt.

        Args:
            plan: The plan that the writer was started with.

        Raises:
            FencedError: Another plan, or another attempt at this one, has taken its place.
        """
        here = self.plan
        same = here is not None and here.same_work(plan) and (here.owner, here.attempt) == (plan.owner, plan.attempt)
        if not same:
            raise FencedError(
                "this attempt is no longer in force",
                where=f"epoch {plan.epoch} of {plan.owner or 'unknown'}, attempt {plan.attempt or 'unknown'}",
                why="the ledger holds "
                + (f"epoch {here.epoch} of {here.owner or 'unknown'}, attempt {here.attempt}" if here else "no plan"),
                remedy="nothing: the newer attempt goes on from what is committed",
                retriable=False,
            )

    def plan_in_force(self) -> BatchPlan:
        """Return the plan, with the attempt that carries it out.

        Raises:
            StateError: There is none.
        """
        if self.plan is None:
            raise StateError("the ledger holds no plan", remedy="run the task again", retriable=True)
        return self.plan


def _take(values: dict[str, dict[str, Any]], prefix: str) -> dict[str, dict[str, Any]]:
    """Take the records of a prefix out of others; their keys lose it."""
    return {key[len(prefix) :]: values.pop(key) for key in list(values) if key.startswith(prefix)}


def _check(key: str, given: Members) -> None:
    """Check the members that this version reads of a record whose JSON is kept as it is.

    Raises:
        DamagedRecordError: One is not of its form.
    """
    if key.startswith(CHUNK_PREFIX):
        given.whole("epoch")
        given.text("list", "")
        given.whole("order", 0)
        given.object("chunk")
        if given.value("offset", None) is not None or given.value("rows", None) is not None:
            given.whole("rows")
            given.whole("left_out", 0)
            given.whole("ts_ms", 0)
            given.whole("writer", 0, high=MAX_WRITERS)
            for named in given.objects("names", ()):
                named.text("db"), named.text("table"), named.whole("rows"), named.whole("left_out")
            BinlogOffset.from_json(given.object("offset"))
    elif key == SNAPSHOT_KEY:
        check_snapshot(given)
    elif key == OUTCOME_KEY:
        given.whole("epoch")
        given.each("counts", Members.whole)
    elif key == VIEW_KEY:
        given.whole("epoch")
        BinlogOffset.from_json(given.object("offset"))
    elif key.startswith(SIGNAL_PREFIX):
        check_signal(key, given)
    elif key == SIGNAL_OFFSET_KEY:
        given.text("topic")
        given.text_or_none("id")
        given.whole("offset")
    elif key == SIGNALS_TAKEN_KEY:
        SignalsTaken.from_json(given)
    elif key == RUN_KEY:
        RunTally.from_json(given)
    elif key == HISTORY_KEY:
        given.text("topic")
        given.text_or_none("id")


def check_signal(key: str, given: Members) -> None:
    """Check the record of a signal that waits (``signals.signal.Signal``).

    Args:
        key: Its key.
        given: Its members.

    Raises:
        DamagedRecordError: One is not of its form, or belongs to another channel than the key.
    """
    for name in ("id", "type", "data"):
        given.text(name)
    given.text("refused", "")
    given.whole("sent_us", 0)
    given.whole("epoch", 0)
    given.flag("applied", False)
    if given.value("place", None) is not None:
        BinlogOffset.from_json(given.object("place"))
    if not key.startswith(f"{SIGNAL_PREFIX}{given.one_of('channel', SIGNAL_CHANNELS)}/"):
        raise given.refuse("channel", f"that of the key {key}")


def check_snapshot(given: Members) -> None:
    """Check the record of a snapshot, which the ledger and the stored state both hold.

    Args:
        given: Its members.

    Raises:
        DamagedRecordError: One is not of its form.
    """
    given.whole("epoch")
    given.one_of("status", ("planned", "done"))
    given.whole("tasks", 0, high=MAX_WRITERS)
    if given.value("list", None) is not None:
        given.text("list")
        given.whole("count")
    if given.value("offset", None) is not None:
        BinlogOffset.from_json(given.object("offset"))
