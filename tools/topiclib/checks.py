"""The check of one topic: does it contain all changes of its table, once and in order? No I/O."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from topiclib.events import Event, Layout, Row
from topiclib.wire import RecordError

_EXAMPLES = 3
_MASK = (1 << 64) - 1


@dataclass(slots=True)
class Problem:
    """Count one kind of violation.

    Args:
        count: How often it was met.
        examples: The first few, in words.
    """

    count: int = 0
    examples: list[str] = field(default_factory=list)


@dataclass(slots=True)
class TableVerdict:
    """Say what was found for one table.

    Args:
        events: Records read, tombstones included.
        ops: Records by op; ``t`` is a tombstone.
        rows_topic: Rows of the compacted topic.
        rows_table: Rows of the table.
        sum_topic: Checksum of the compacted topic's rows, in no order.
        sum_table: Checksum of the table's rows.
        lags_ms: Milliseconds from commit to Kafka of every streamed event.
        problems: Violations by kind: ``unreadable``, ``twice``, ``order``, ``partition``, ``gap``, ``tombstone``,
            ``key``, ``rows``.
        again: Rows that ad-hoc snapshots read.
    """

    table: str
    events: int = 0
    ops: Counter[str] = field(default_factory=Counter)
    rows_topic: int = 0
    rows_table: int = 0
    sum_topic: int = 0
    sum_table: int = 0
    lags_ms: list[int] = field(default_factory=list)
    problems: dict[str, Problem] = field(default_factory=dict)
    again: int = 0

    @property
    def ok(self) -> bool:
        """Return whether nothing is wrong."""
        return not self.problems

    def report(self, kind: str, text: str) -> None:
        """Take note of a violation."""
        problem = self.problems.setdefault(kind, Problem())
        problem.count += 1
        if len(problem.examples) < _EXAMPLES:
            problem.examples.append(text)

    def lines(self) -> list[str]:
        """Return the violations as text."""
        return [
            f"{self.table}: {kind} ({problem.count}): {example}"
            for kind, problem in self.problems.items()
            for example in problem.examples
        ]


def checksum(rows: Iterable[Row]) -> int:
    """Return the sum of the rows' hashes: the same for the same rows in any order."""
    total = 0
    for row in rows:
        total += int.from_bytes(hashlib.blake2b(repr(row).encode(), digest_size=8).digest(), "big")
    return total & _MASK


@dataclass(slots=True)
class KeyState:
    """Hold what is known of a key.

    Args:
        partition: Its partition, None before the first record of a topic.
        row: The row after its last event, None for a deleted row.
        tombstone_due: Whether a tombstone has to follow.
    """

    partition: int | None
    row: Row | None = None
    tombstone_due: bool = False
    last: Event | None = None


class TableCheck:
    """Follow one topic in offset order and say at the end whether it equals the table.

    Args:
        layout: The table at the end.
        seen: Identities met so far, as hashes; shared by all tables, because an identity is unique among them all.
        late: Transactions (``GTID source:number``) whose rows are written when they are committed, not at their place
            in the binlog: those prepared with XA. Their order is followed by the rows alone.
        interrupted: Whether the stream began before all rows were read, as of an interrupted snapshot: then the first
            event of a row may be of any kind.
        ranks: Places of transactions (``GTID source:number``) among all, where the stream was read from several
            servers: the numbers of each, and its files and positions, are a sequence of their own.
    """

    def __init__(
        self,
        layout: Layout,
        seen: set[bytes] | None = None,
        late: Container[str] = (),
        *,
        interrupted: bool = False,
        ranks: Mapping[str, int] | None = None,
    ) -> None:
        self._ranks = ranks
        self.verdict = TableVerdict(layout.name)
        self._late, self._interrupted = late, interrupted
        self._layout = layout
        self._seen = set() if seen is None else seen
        self._keys: dict[Row, KeyState] = {}
        self._bag: Counter[Row] = Counter()
        self._tombstone_due = self._reading = False
        self._last: dict[int, Event] = {}

    def feed(self, events: Iterable[Event | RecordError]) -> TableCheck:
        """Take the topic's events, each partition's in offset order."""
        for event in events:
            self.verdict.events += 1
            if isinstance(event, RecordError):
                self.verdict.report("unreadable", str(event))
                continue
            self.verdict.ops[event.op] += 1
            self.verdict.again += event.again
            if event.lag_ms is not None:
                self.verdict.lags_ms.append(event.lag_ms)
            self._identity(event)
            self._order(event)
            if event.op == "x":
                self._truncate()
            elif self._layout.key:
                self._apply_keyed(event)
            else:
                self._apply_keyless(event)
        return self

    def next_topic(self) -> None:
        """Continue with the table's topic after a RENAME: its keys look different there."""
        for state in self._keys.values():
            state.partition = None

    def present_keys(self) -> set[Row]:
        """Return the keys whose rows are in the compacted topic."""
        return {key for key, state in self._keys.items() if state.row is not None}

    def finish(self, rows: Iterable[Row]) -> TableVerdict:
        """Compare with the table.

        Args:
            rows: All rows of the table, values by the layout's columns.
        """
        verdict, stored = self.verdict, list(rows)
        for state in self._keys.values():
            if state.tombstone_due and state.last is not None:
                verdict.report("tombstone", f"none follows the delete of {_show(state.last.key)}")
        if self._tombstone_due:
            verdict.report("tombstone", "none follows the last delete")
        if self._layout.key:
            topic = {key: state.row for key, state in self._keys.items() if state.row is not None}
            compacted = list(topic.values())
            self._compare_keyed(topic, stored)
        else:
            compacted = list(self._bag.elements())
            self._compare_keyless(stored)
        verdict.rows_topic, verdict.rows_table = len(compacted), len(stored)
        verdict.sum_topic, verdict.sum_table = checksum(compacted), checksum(stored)
        if (verdict.rows_topic, verdict.sum_topic) != (verdict.rows_table, verdict.sum_table):
            verdict.report(
                "rows",
                f"{verdict.rows_topic} rows with checksum {verdict.sum_topic:016x} in the topic, "
                f"{verdict.rows_table} with {verdict.sum_table:016x} in the table",
            )
        return verdict

    # -- every event ------------------------------------------------------------------------------------------------

    def _identity(self, event: Event) -> None:
        mark = hashlib.blake2b(event.identity, digest_size=16).digest()
        if mark in self._seen:
            self.verdict.report("twice", f"{event.record}: identity {event.identity[-80:]!r} occurred before")
        self._seen.add(mark)

    def _order(self, event: Event) -> None:
        """Within a partition streamed events follow each other as in the binlog."""
        if event.position is None or self._is_late(event):
            return
        before = self._last.get(event.partition)
        if before is not None and not self._after(event, before):
            self.verdict.report("order", f"{event.record}: {_name(event)} comes after {_name(before)}")
        self._last[event.partition] = event

    def _is_late(self, event: Event) -> bool:
        position = event.position
        return position is not None and position.transaction in self._late

    def _after(self, event: Event, before: Event) -> bool:
        """Return whether an event comes after another one in the binlog; rows of the first snapshot before all
        changes.
        """
        files = self._ranks is None and event.file is not None and before.file is not None
        if files and event.file < before.file:  # type: ignore[operator]
            return False
        if event.position is None:
            return event.again
        return before.position is None or event.position.follows(before.position, self._ranks)

    def _truncate(self) -> None:
        """Take all rows away: TRUNCATE."""
        self._bag.clear()
        for state in self._keys.values():
            state.row = None

    # -- tables with a key ------------------------------------------------------------------------------------------

    def _apply_keyed(self, event: Event) -> None:
        if event.key is None:
            self.verdict.report("key", f"{event.record}: no key")
            return
        state = self._keys.get(event.key)
        if state is None:
            state = self._keys[event.key] = KeyState(event.partition)
        if state.partition is None:
            state.partition = event.partition
        elif state.partition != event.partition:
            self.verdict.report("partition", f"{event.record}: {_show(event.key)} was in {state.partition} before")
        late = self._is_late(event) or (state.last is not None and self._is_late(state.last))
        if state.last is not None and not late and not self._after(event, state.last):
            self.verdict.report(
                "order", f"{event.record}: {_show(event.key)}: {_name(event)}, {_name(state.last)} before"
            )
        for side in (event.before, event.after):
            if side is not None and self._layout.key_of(side) != event.key:
                self.verdict.report("key", f"{event.record}: key {_show(event.key)}, row {_show(side)}")
        if event.op == "t":
            if not state.tombstone_due:
                self.verdict.report("tombstone", f"{event.record}: no delete of {_show(event.key)} comes before it")
            state.tombstone_due = False
        else:
            self._check_before_image(event, state)
        state.last = event

    def _check_before_image(self, event: Event, state: KeyState) -> None:
        """The row before an event is the row after the event before it: so a lost event is found whatever follows
        it.
        """
        if state.tombstone_due:
            self.verdict.report("tombstone", f"{event.record}: none between the delete of {_show(event.key)} and this")
        # The stream is paused while a row is read again: the row is the topic's last state of it.
        expected = event.after if event.again else event.before if event.op in "ud" else None
        if state.row != expected and not (self._interrupted and state.last is None):
            self.verdict.report(
                "gap", f"{event.record}: {event.op} of {_show(event.key)} does not follow from the event before it"
            )
        state.row = event.after
        state.tombstone_due = event.op == "d"

    def _compare_keyed(self, topic: dict[Row, Row], stored: list[Row]) -> None:
        report = self.verdict.report
        missing = set(topic)
        for row in stored:
            key = self._layout.key_of(row)
            missing.discard(key)
            found = topic.get(key)
            if found is None:
                report("rows", f"{_show(key)} is in the table only")
            elif found != row:
                pairs = zip(self._layout.columns, found, row, strict=True)
                report(
                    "rows",
                    f"{_show(key)}: " + "; ".join(f"{c}: {_show(a)}, table {_show(b)}" for c, a, b in pairs if a != b),
                )
        for key in sorted(missing, key=repr):
            report("rows", f"{_show(key)} is in the topic only")

    # -- tables without a key ---------------------------------------------------------------------------------------

    def _apply_keyless(self, event: Event) -> None:
        if event.key is not None:
            self.verdict.report("key", f"{event.record}: a key, though the table has none")
        if (event.op == "t") != self._tombstone_due:
            self.verdict.report("tombstone", f"{event.record}: a delete is not followed by its tombstone")
        self._tombstone_due = event.op == "d"
        if self._interrupted and event.again and not self._reading:
            self._bag.clear()  # all rows are read: those that earlier events told of are among them
        self._reading = event.again
        if event.op in "ud":
            if event.before is None or (self._bag[event.before] <= 0 and not self._interrupted):
                self.verdict.report(
                    "gap", f"{event.record}: {event.op} of a row that was not there: {_show(event.before)}"
                )
            else:
                self._bag[event.before] -= 1
        if event.after is not None:
            self._bag[event.after] += 1

    def _compare_keyless(self, stored: list[Row]) -> None:
        table = Counter(stored)
        for row in (self._bag - table) + (table - self._bag):
            self.verdict.report("rows", f"{self._bag[row]} times in the topic, {table[row]} in the table: {_show(row)}")


def check_table(layout: Layout, events: Iterable[Event | RecordError], rows: Iterable[Row]) -> TableVerdict:
    """Return the verdict on one table.

    Args:
        layout: The table at the end.
        events: Its topic's events, each partition's in offset order.
        rows: All rows of the table.
    """
    return TableCheck(layout).feed(events).finish(rows)


def _name(event: Event) -> str:
    return f"{event.op} {event.identity[-60:].decode('utf-8', 'replace')}"


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
