"""The check of a topic of rows without the row before a change, as TiCDC's protocol writes them.

Compared with Debezium's events three things are missing, and each has another rule in its place:

- the row before an UPDATE: the soak's statements count each UPDATE of a row in its column ``ver``
- the row that a DELETE of a table without a key takes away: rows are counted, and each row was written once
- TRUNCATE: the binlog says which transactions truncated the table
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Container, Iterable, Mapping, Sequence

from topiclib.checks import KeyState, TableCheck, TableVerdict
from topiclib.events import Event, EventPosition, Gtid, Layout, Row

_VERSION = "ver"


class RowCheck(TableCheck):
    """Follow one topic of rows in offset order, and compare it with the table.

    Args:
        layout: The table at the end.
        seen: Identities so far, as hashes.
        late: Transactions whose rows are written when they are committed.
        interrupted: Whether the initial snapshot was interrupted.
        ranks: Places of transactions among all, where several servers have logged the stream.
        truncations: Transactions that truncated the table, oldest first.
    """

    def __init__(
        self,
        layout: Layout,
        seen: set[bytes] | None = None,
        late: Container[str] = (),
        *,
        interrupted: bool = False,
        ranks: Mapping[str, int] | None = None,
        truncations: Sequence[Gtid] = (),
    ) -> None:
        super().__init__(layout, seen, late, interrupted=interrupted, ranks=ranks)
        self._truncations = deque(truncations)
        # Rows of a snapshot, which has no number among the transactions: a TRUNCATE may be before or after it.
        self._uncertain = set[Row]()
        self._version = layout.columns.index(_VERSION) if _VERSION in layout.columns else None
        self._written = Counter[Row]()
        self._rows = 0

    def finish(self, rows: Iterable[Row]) -> TableVerdict:
        """Compare with the table; see ``TableCheck.finish``."""
        stored = list(rows)
        if self._layout.key:
            self._apply_truncations(None)
            there = {self._layout.key_of(row) for row in stored}
            for key in self._uncertain - there:
                self._keys[key].row = None
            return super().finish(stored)
        self.verdict.rows_topic, self.verdict.rows_table = self._rows, len(stored)
        if self._rows != len(stored):
            self.verdict.report("rows", f"{self._rows} rows in the topic, {len(stored)} in the table")
        for row in Counter(stored) - self._written:
            self.verdict.report("rows", f"{row!r} is in the table more often than it was written")
        return self.verdict

    # -- tables with a key ------------------------------------------------------------------------------------------

    def _apply_keyed(self, event: Event) -> None:
        if event.position is not None:
            self._apply_truncations(event.position)
        super()._apply_keyed(event)

    def _apply_truncations(self, until: EventPosition | None) -> None:
        """Take the rows away that transactions before a position have truncated; None for all transactions."""
        while self._truncations and (until is None or self._is_before(self._truncations[0], until)):
            self._truncations.popleft()
            for key, state in self._keys.items():
                if state.row is not None and state.last is not None and state.last.position is None:
                    self._uncertain.add(key)
                else:
                    state.row = None

    def _is_before(self, transaction: Gtid, position: EventPosition) -> bool:
        truncated = EventPosition(transaction[0], (transaction[1],))
        same_line = transaction[0] == position.lineage
        return (same_line or bool(self._ranks)) and position.follows(truncated, self._ranks)

    def _check_before_image(self, event: Event, state: KeyState) -> None:
        assert event.key is not None
        known = not (self._interrupted and state.last is None) and event.key not in self._uncertain
        self._uncertain.discard(event.key)
        if known and not self._follows(event, state.row):
            text = repr(event.key)[:120]
            self.verdict.report("gap", f"{event.record}: {event.op} of {text} does not follow from the row before it")
        state.row = event.after

    def _follows(self, event: Event, row: Row | None) -> bool:
        if event.again:
            return row == event.after
        if event.op in "rc" or row is None:
            return event.op in "rc" and row is None
        if event.op == "d" or self._version is None or event.after is None:
            return True
        return bool(event.after[self._version] == row[self._version] + 1)

    # -- tables without a key ---------------------------------------------------------------------------------------

    def _apply_keyless(self, event: Event) -> None:
        if event.key is not None:
            self.verdict.report("key", f"{event.record}: a key, though the table has none")
        if self._interrupted and event.again and not self._reading:
            self._rows = 0  # all rows are read: those of earlier events are among them
            self._written.clear()
        self._reading = event.again
        self._rows += {"d": -1, "u": 0}.get(event.op, 1)
        if event.after is not None:
            self._written[event.after] += 1
