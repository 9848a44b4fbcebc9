"""What must hold of an interrupted snapshot and of the windows that finish it, judged at every commit.

* A commit is one of the attempt in force.
* Of each key a consumer sees its values in their order: no row behind a newer event, no event behind a row that
  contains it; each event once. No row is read twice, and none in two formats, unless its scan
  began again.
* When a table's view or scan is read to its end, its topic equals the table at the position of the stream.
* The offset is stored only when every event before it is committed, and it never moves back.
* In the end nothing is left to be read, and the topic of each table that is captured equals it. Rows that a statement
  changed without events, after their table was read, are excepted, as behind any snapshot.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

from snapshot_source import CAPTURED, Rows, Tables, TableSource
from stream_oracle import Entry, Reads

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import (
    DONE_RANGE_PREFIX,
    PLAN_KEY,
    SCAN_PREFIX,
    SNAPSHOT_KEY,
    VIEW_KEY,
)
from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import DoneKeyRange, TableScan, advance_cursor
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId

State = tuple[bool, int]
"""Whether a consumer has the row, and the change that it has seen last."""


class TableOracle:
    """Judge commits and offsets."""

    def __init__(self, source: TableSource, prefix: str) -> None:
        self._source = source
        self._names = {f"{prefix}.{table}": table for table in CAPTURED}
        self.attempt = ""
        self._plan: BatchPlan | None = None
        self._view: BinlogOffset | None = None
        self._books = False
        self.seen: dict[TableId, dict[int, State]] = {table: {} for table in CAPTURED}
        self._events: set[tuple[TableId, int, int]] = set()
        self._reads = Reads()
        self._read: dict[tuple[TableId, int], set[int]] = defaultdict(set)
        self._formats: dict[tuple[TableId, int], str] = {}
        self._done: dict[int, dict[str, DoneKeyRange]] = defaultdict(dict)
        self._ended: set[int] = set()
        self._passed: set[int] = set()
        self._unread: set[int] = set()
        self._excepted: dict[int, int] = {}
        self._removed: dict[TableId, int] = {}
        self._high = 0
        self.windows = self.handed_over = 0

    def begun(self, plan: BatchPlan) -> None:
        """Take note that an attempt is in force."""
        self.attempt = plan.attempt

    def offset_lost(self) -> None:
        """Take note that the stored offset was lost."""
        self._high = 0

    # -- commits --------------------------------------------------------------------------------------------------

    def committed(self, entries: Iterable[Entry], ledger: Iterable[SideRecord]) -> None:
        """Judge a transaction that is committed."""
        read: int | None = None
        for _, key, text, _ in ledger:
            name, data = (key or b"").decode(), json.loads(text) if text else None
            if name == PLAN_KEY:
                self._begin(BatchPlan.from_json(data))
            elif name == VIEW_KEY:
                self._view = BinlogOffset.from_json(data["offset"]) if data is not None else None
            elif name.startswith(SCAN_PREFIX):
                self._scan(int(name.removeprefix(SCAN_PREFIX)), data)
            elif name.startswith(DONE_RANGE_PREFIX):
                order = int(name.removeprefix(DONE_RANGE_PREFIX).partition("/")[0])
                read = order if data is not None else read
                self._done[order].pop(name, None)
                if data is not None:
                    self._done[order][name] = DoneKeyRange.from_json(data)
            elif name == SNAPSHOT_KEY and data is not None and data["status"] == "done":
                self._hand_over()
        for entry in entries:
            self._judge(entry, read)
        if read is not None and self._ends(read):
            self._finish(read)

    def _judge(self, e: Entry, order: int | None) -> None:
        assert e.attempt == self.attempt, f"{e} is of an attempt that is no longer in force"
        table = self._names[e.topic]
        _, last = self.seen[table].get(e.key, (False, -2))
        if e.kind == "r":
            read = self._read[table, self._reads.read_of(order)]
            assert e.key not in read, f"{e}: its row comes twice"
            read.add(e.key)
            assert e.n >= last, f"{e}: its row comes behind {last}"
            format_ = self._formats.setdefault((table, self._reads.read_of(order)), e.salt)
            assert e.salt == format_, f"{e}: its table is read in two formats"
        else:
            assert (table, e.key, e.n) not in self._events, f"{e} comes twice"
            self._events.add((table, e.key, e.n))
            assert e.n > last, f"{e} comes behind {last}"
        self.seen[table][e.key] = e.kind != "d", e.n

    # -- tables ---------------------------------------------------------------------------------------------------

    def _scan(self, order: int, data: Any) -> None:
        scan = TableScan.from_json(data) if data is not None else None
        self._reads.noted(order, scan, self._view)
        if scan is not None and not scan.ended:
            self._ended.discard(order)
        elif scan is not None and order not in self._ended:
            self._ended.add(order)  # it had nothing to read
            assert scan.state == "done", f"{scan} is given up"
            assert self._plan is not None
            for at in (self._plan.start.pos, self._plan.end.pos):
                self._unread -= {state.id for name, state in self._source.tables_at(at).items() if name == scan.table}

    def _ends(self, order: int) -> bool:
        scan, _ = advance_cursor(self._reads.scans[order], self._done[order].values())
        return scan.ended

    def _finish(self, order: int) -> None:
        """Take note that a scan is read to its end, where the stream stands."""
        self._ended.add(order)
        self.windows += 1
        assert self._plan is not None
        scan, tables = self._reads.scans[order], self._source.tables_at(self._plan.end.pos)
        if (state := tables.get(scan.table)) is not None:
            self._unread.discard(state.id)
            self._excepted.pop(state.id, None)
            self._whole(scan.table, state, f"{scan} is read to its end", ignored=self._changed_beyond(scan))

    def _changed_beyond(self, scan: TableScan) -> set[int]:
        """Return the keys behind a scan's last key that later events have.

        The last key is looked for behind the position of the stream, where rows of it may have been deleted already.
        """
        assert self._plan is not None
        steps = self._source.steps(self._plan.end.pos, self._source.address.binlog.end())
        keys = {key for _, step, _ in steps for table, key, _, _ in step.records if table == scan.table}
        return set() if scan.last_key is None else {key for key in keys if key > int(scan.last_key[0])}

    def _hand_over(self) -> None:
        """Take note that a snapshot is finished as it is; windows read the tables of its scans."""
        assert self._view is not None
        self._books = True
        scans = self._reads.active()
        waits = {scan.table for scan in scans}
        assert len(waits) == len(scans), f"a table has two scans: {scans}"
        self.handed_over += bool(waits)
        for table, state in self._source.tables_at(self._view.pos).items():
            if table in waits:
                self._unread.add(state.id)
            elif table in CAPTURED:
                self._whole(table, state, f"the view is finished at {self._view}")
            else:
                self._excepted[state.id] = -1

    def _begin(self, plan: BatchPlan) -> None:
        """Follow tables through the statements that a batch passes, once."""
        self._plan = plan
        if plan.kind != "drain" or plan.epoch in self._passed:
            return
        self._passed.add(plan.epoch)
        for name, state in self._source.tables_at(plan.start.pos).items():
            if name not in CAPTURED and state.id in self._unread:  # it is no longer captured
                self._unread.discard(state.id)
        for before, step, after in self._source.steps(plan.start.pos, plan.end.pos):
            if step.changed_tables:
                self._pass(before, after, step.n)

    def _pass(self, before: Tables, after: Tables, n: int) -> None:
        for name, state in after.items():
            if before.get(name) != state and state.id not in self._unread:
                self._excepted[state.id] = n
            if before.get(name) != state and not state.rows:
                self._unread.discard(state.id)  # each row that it will have is in an event
        for name, state in before.items():
            if after.get(name) != state:
                self._removed[name] = n

    def _whole(self, table: TableId, state: Rows, when: str, excepted: int = -2, ignored: Collection[int] = ()) -> None:
        """Check that a topic equals its table."""
        seen, removed = self.seen[table], self._removed.get(table, -2)
        wrong = {
            key: (n, seen.get(key))
            for key, n in state.rows.items()
            if n > excepted and key not in ignored and seen.get(key) != (True, n)
        }
        assert not wrong, f"{when}, and {table} has (value, seen): {wrong}"
        ghosts = {
            key: n
            for key, (alive, n) in seen.items()
            if alive and key not in state.rows and key not in ignored and n > removed
        }
        assert not ghosts, f"{when}, and {table} has no longer {ghosts}"

    # -- the offset, and the end ----------------------------------------------------------------------------------

    def stored(self, state: StoredState) -> None:
        """Judge the stored offset."""
        if state.committed is None or state.pending is not None:
            return
        assert self._books, "an offset is stored, and the snapshot is not finished"
        assert self._view is not None
        at = state.committed.pos
        assert at >= max(self._high, self._view.pos), f"the offset moved back to {state.committed}"
        self._high = at
        self._require_events(at)

    def _require_events(self, at: int) -> None:
        assert self._view is not None
        missing = [
            record
            for _, step, _ in self._source.steps(self._view.pos, at)
            for record in step.records
            if record[0] in CAPTURED and (record[0], record[1], record[3]) not in self._events
        ]
        assert not missing, f"the stream has passed {at}, but {missing} are nowhere"

    def finished(self, at: BinlogOffset) -> None:
        """Check that each table was read, and that each topic equals its table.

        Args:
            at: Where the stream stands.
        """
        for table, state in self._source.tables_at(at.pos).items():
            if table in CAPTURED:
                assert state.id not in self._unread, f"{table} was not read when its snapshot was interrupted, or later"
                self._whole(table, state, "the stream has come to its end", self._excepted.get(state.id, -2))
        self._require_events(at.pos)
