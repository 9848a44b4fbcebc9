"""What must hold of the whole stream, judged at every commit and whenever the stored offset moves.

A **life** of the stream begins with a snapshot, and where a person moved the offset. Promises in each of them:

* a commit is one of the attempt in force: nothing that was set aside or taken over becomes visible any more;
* each event at most once, and in order within its partition; each key in one partition, as long as the configuration is
  the same; no event behind a row that holds it, and no row behind an event that it does not hold;
* no row is read twice, unless its scan began again; a scan that has ended has read each key;
* when the offset moves, every event of the binlog in which the life began, up to there, is committed, or is contained
  in a row of a finished snapshot; and the offset stays in that binlog, and moves back only when it was lost;
* a topic that lost records by hand gets no more in that life from whoever begins later.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from stream_source import KEYS, TABLES, Source, table_of

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import (
    DONE_RANGE_PREFIX,
    PLAN_KEY,
    SCAN_PREFIX,
    SNAPSHOT_KEY,
    VIEW_KEY,
)
from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.incremental.scan_updates import initial_request_id
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import TableScan
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord


def value(kind: str, n: int, plan: BatchPlan, salt: int) -> bytes:
    """Return the value of a record.

    Args:
        kind: ``r`` for a row of a snapshot, ``c`` for an event.
        n: The event, or the last one that the row contains.
        plan: The plan that the record belongs to.
        salt: The configuration.
    """
    return f"{kind} {n} {plan.epoch} {plan.attempt} {salt}".encode()


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of a table's topic."""

    topic: str
    topic_id: str
    partition: int
    key: int
    kind: str
    n: int
    epoch: int
    attempt: str
    salt: str

    @classmethod
    def of(cls, topic: str, topic_id: str, partition: int, key: bytes | None, text: bytes | None) -> Entry:
        """Read a record that carries what ``value`` returns."""
        kind, n, epoch, attempt, salt = (text or b"").decode().split(" ")
        return cls(topic, topic_id, partition, json.loads(key or b"")["id"], kind, int(n), int(epoch), attempt, salt)


class Reads:
    """Tell the reads of a table apart: a view, the scan that goes on with it, and each scan that began again."""

    def __init__(self) -> None:
        self.scans: dict[int, TableScan] = {}
        self._reads: dict[int, int] = {}
        self._count = 0

    def noted(self, order: int, scan: TableScan | None, view: BinlogOffset | None) -> None:
        """Take note of a scan's record.

        Args:
            order: The scan's order.
            scan: The scan; None if it was deleted.
            view: The position of the snapshot's view.
        """
        before = self.scans.pop(order, None)
        if scan is None:
            return
        goes_on = scan.initial and scan.state == "running" and scan.start_offset == view
        if before is None and goes_on:
            self._reads[order] = 0
        elif before is None or _begins_again(before, scan):
            self._count += 1
            self._reads[order] = self._count
        self.scans[order] = scan

    def read_of(self, order: int | None) -> int:
        """Return the number of a scan's read, 0 for that of the view."""
        return 0 if order is None else self._reads[order]

    def request_of(self, order: int | None, epoch: int) -> str:
        """Return the request that a scan belongs to; that of a snapshot's view is the one that would finish it."""
        return initial_request_id(epoch) if order is None else self.scans[order].request

    def active(self) -> list[TableScan]:
        """Return the scans of interrupted snapshots that have not ended."""
        return [scan for scan in self.scans.values() if scan.initial and not scan.ended]


def _begins_again(before: TableScan, scan: TableScan) -> bool:
    """Return whether a scan reads its table from the start; one waits again, from where the offset was moved to."""
    if before.state == "running" and scan.state == "waiting":
        return True
    return (before.start_offset, before.format_digest) != (scan.start_offset, scan.format_digest)


class Oracle:
    """Judge commits and offsets."""

    def __init__(self, source: Source, partitions: dict[str, int]) -> None:
        self._source, self._partitions = source, partitions
        self.attempt, self._clock = "", 0
        self._plans: dict[int, BatchPlan] = {}
        self._books: dict[int, BinlogOffset] = {}
        self._begun: dict[str, int] = {}
        self._reads = Reads()
        self._seen: dict[int, set[tuple[str, int, int]]] = defaultdict(set)
        self._read: dict[tuple[str, int], set[int]] = defaultdict(set)
        self._rows: dict[int, dict[int, int]] = defaultdict(dict)
        self._last: dict[tuple[int, str, int, int], int] = {}
        self._homes: dict[tuple[int, int, str], tuple[str, int]] = {}
        self._filled: dict[str, set[int]] = defaultdict(set)
        self._deleted: list[tuple[str, int, set[int]]] = []
        self._high: dict[int, GtidSet] = {}
        self._view: BinlogOffset | None = None

    def life(self, epoch: int) -> int:
        """Return the life to which an epoch belongs, named after the epoch that began it."""
        begins = [e for e, plan in self._plans.items() if plan.kind != "drain" and e <= epoch]
        return max(begins, default=0)

    def begun(self, plan: BatchPlan) -> None:
        """Take note that an attempt is in force: whoever began it believes that nobody else can commit."""
        self._clock += 1
        self.attempt = plan.attempt
        self._begun[plan.attempt] = self._clock

    def topic_deleted(self, topic: str) -> None:
        """Take note that a topic and its records were deleted by hand."""
        self._clock += 1
        self._deleted.append((topic, self._clock, self._filled.pop(topic, set())))

    def committed(self, entries: Iterable[Entry], ledger: Iterable[SideRecord]) -> None:
        """Judge a transaction that is committed."""
        order: int | None = None
        ended: list[TableScan] = []
        for _, key, text, _ in ledger:
            name, data = (key or b"").decode(), json.loads(text) if text else None
            if name.startswith(SCAN_PREFIX):
                scan = TableScan.from_json(data) if data is not None else None
                self._reads.noted(int(name.removeprefix(SCAN_PREFIX)), scan, self._view)
                ended += [scan] if scan is not None and scan.initial and scan.state == "done" else []
            elif name.startswith(DONE_RANGE_PREFIX) and data is not None:
                order = int(data["key_range"]["scan_number"])
            elif name == VIEW_KEY:
                self._view = BinlogOffset.from_json(data["offset"]) if data is not None else None
            elif name == PLAN_KEY:
                plan = BatchPlan.from_json(data)
                self._plans[plan.epoch] = plan
            elif name == SNAPSHOT_KEY and data is not None and data["status"] == "done":
                self._books[int(data["epoch"])] = BinlogOffset.from_json(data["offset"])
        for entry in entries:
            self._judge(entry, self.life(entry.epoch), order)
        for scan in ended:
            lacks = [key for key in TABLES[scan.table] if not any(key in rows for rows in self._rows.values())]
            assert not lacks, f"{scan} has ended without {lacks}"

    def _judge(self, e: Entry, life: int, order: int | None) -> None:
        assert e.attempt == self.attempt, f"{e} is of an attempt that is no longer in force"
        seen, rows = self._seen[life], self._rows[life]
        if e.kind == "r":
            read = self._read[self._reads.request_of(order, life), self._reads.read_of(order)]
            assert e.key not in read, f"{e}: its row comes twice"
            read.add(e.key)
            last = max((n for at, n in self._last.items() if (at[0], at[3]) == (life, e.key)), default=-1)
            assert e.n >= max(last, rows.get(e.key, -1)), f"{e}: its row comes behind {last}"
            rows[e.key] = e.n
        else:
            assert (e.kind, e.n, e.key) not in seen, f"{e} comes twice"
            seen.add((e.kind, e.n, e.key))
            assert e.n > rows.get(e.key, -2), f"{e} is contained in the row before it ({rows[e.key]})"
            last = self._last.get((life, e.topic_id, e.partition, e.key), -1)
            assert e.n > last, f"{e} comes behind {last}"
            self._last[life, e.topic_id, e.partition, e.key] = e.n
        home = self._homes.setdefault((life, e.key, e.salt), (e.topic_id, e.partition))
        assert home[1] == e.partition or home[0] != e.topic_id, f"{e} has moved from partition {home[1]}"
        begun = self._begun[e.attempt]
        late = [at for topic, at, lives in self._deleted if topic == e.topic and life in lives and at < begun]
        assert not late, f"{e} stands in a topic whose records of this life were deleted before its attempt began"
        self._filled[e.topic].add(life)

    def offset_lost(self) -> None:
        """Take note that the stored offset was lost; who read it before may bring an old one back."""
        self._high.clear()

    def stored(self, state: StoredState) -> None:
        """Judge the stored offset."""
        if state.committed is None or state.pending is not None:
            return
        life, at = self.life(state.epoch), state.committed
        assert life, f"{at} is stored, and no life of the stream has begun"
        snapshot = self._plans[life].kind == "snapshot"
        assert not snapshot or life in self._books, f"{at} is stored, and the books of snapshot {life} are open"
        start = self._books[life] if snapshot else self._plans[life].end
        same_server = at.server_uuid == start.server_uuid
        same_binlog = self._source.life(at) is self._source.life(start)
        assert same_binlog or not same_server, f"the offset went from {start} ({start.origin}) to {at} ({at.origin})"
        begun, reached = self._source.executed_at(start), self._source.executed_at(at)
        assert at.gtids is None or GtidSet.parse(at.gtids) == reached, f"{at} has the GTIDs {at.gtids}, not {reached}"
        assert reached.contains(str(self._high.get(life, begun))), f"the offset moved back to {at}"
        if snapshot and life not in self._high:
            self._whole(life, start)
        self._high[life] = reached
        drained = [c for c in self._source.all_changes() if reached.contains(c.gtid) and not begun.contains(c.gtid)]
        missing = [c for c in drained if not self._told(life, c.key, c.n)]
        assert not missing, f"{start} to {at} of epoch {life} is stored, but {missing} are nowhere"

    def _told(self, life: int, key: int, n: int) -> bool:
        if ("c", n, key) in self._seen[life]:
            return True
        return any(self._rows[s].get(key, -2) >= n for s in self._books if s <= life)

    def _whole(self, life: int, start: BinlogOffset) -> None:
        """Check that a finished snapshot has each key, with all that lies before the drain behind it."""
        rows, before = self._rows[life], self._source.life(start).rows(start.pos)
        waits = {scan.table for scan in self._reads.active()}
        keys = [key for key in range(KEYS) if table_of(key) not in waits]
        behind = [key for key in keys if key not in rows or rows[key] < before[key]]
        assert not behind, f"snapshot {life} lacks {behind}"
        plan = self._plans[life]
        if plan.gapless:
            gap = [c.n for _, c in self._source.life(plan.start).between(plan.start.pos, start.pos)]
            assert not gap, f"snapshot {life} left {gap} out of the stream"
