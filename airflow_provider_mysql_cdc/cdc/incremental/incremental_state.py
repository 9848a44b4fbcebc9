"""Ad-hoc snapshots in the ledger: one record for each scan of a table and each stretch that is done; none grows.

``incremental/scan/<n>`` is the scan of a table, ``incremental/done/<scan>/<n>`` a stretch whose rows are committed
behind a gap or in the round at work, ``incremental/request/<id>`` what became of a signal that asked for scans, and
``incremental/state`` what concerns all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast, get_args

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import DoneStretch, Stretch, TableScan, fold
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members, members, stored_at

STATE_KEY = "incremental/state"
SCAN_PREFIX = "incremental/scan/"
DONE_PREFIX = "incremental/done/"
REQUEST_PREFIX = "incremental/request/"
KEPT_SCANS = 5000
"""Scans that are ended and still remembered, for who asks how they ended."""
KEPT_REQUESTS = 1000

Change = tuple[str, dict[str, Any] | None]
"""A key of the ledger and its new value; None deletes it."""
Verdict = Literal["accepted", "refused"]


@dataclass(frozen=True, slots=True)
class Request:
    """Say what became of a signal that asked for scans.

    Args:
        id: The signal's id.
        verdict: Whether it was accepted.
        first: ``order`` of its first scan.
        tables: Number of its scans; they have consecutive orders.
        reason: Why it was refused.
        ts_ms: When, milliseconds since 1970.
    """

    id: str
    verdict: Verdict
    first: int = 0
    tables: int = 0
    reason: str = ""
    ts_ms: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "id": self.id,
            "verdict": self.verdict,
            "first": self.first,
            "tables": self.tables,
            "reason": self.reason,
            "ts_ms": self.ts_ms,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | Members) -> Request:
        """Read what ``to_json`` wrote.

        Raises:
            DamagedRecordError: It is something else.
        """
        given = members(data)
        return cls(
            given.text("id"),
            cast(Verdict, given.one_of("verdict", get_args(Verdict))),
            given.whole("first", 0),
            given.whole("tables", 0),
            given.text("reason", ""),
            given.whole("ts_ms", 0),
        )


@dataclass(frozen=True, slots=True)
class Books:
    """Hold all ad-hoc snapshots of a stream.

    Args:
        scans: By their order.
        done: Stretches that are done and that no cursor has passed.
        requests: What became of signals, by their ids.
        paused: Whether nothing is read until a signal says so.
        next_order: ``order`` of the next scan.
    """

    scans: Mapping[int, TableScan] = field(default_factory=dict)
    done: tuple[DoneStretch, ...] = ()
    requests: Mapping[str, Request] = field(default_factory=dict)
    paused: bool = False
    next_order: int = 0

    @property
    def active(self) -> list[TableScan]:
        """Return the scans that are not ended, in their order; blocking ones come first."""
        return sorted((s for s in self.scans.values() if not s.ended), key=lambda s: (s.kind != "blocking", s.order))

    @property
    def work(self) -> list[TableScan]:
        """Return what a round has to do now: nothing while paused, only the blocking ones while there are any."""
        active = [] if self.paused else self.active
        blocking = [s for s in active if s.kind == "blocking"]
        return blocking or active

    def with_scans(self, scans: Iterable[TableScan]) -> Books:
        """Return the books with scans added or replaced."""
        return replace(self, scans={**self.scans, **{s.order: s for s in scans}})

    def with_request(self, request: Request) -> Books:
        """Return the books with a request added; the oldest without work are forgotten beyond ``KEPT_REQUESTS``."""
        requests = {**self.requests, request.id: request}
        if (over := len(requests) - KEPT_REQUESTS) > 0:
            at_work = {scan.request for scan in self.active} | {request.id}
            over_with = sorted((r for r in requests.values() if r.id not in at_work), key=lambda r: r.ts_ms)
            for late in over_with[:over]:
                del requests[late.id]
        return replace(self, requests=requests)

    def folded(self) -> Books:
        """Return the books with every cursor moved as far as it goes; stretches of ended scans are forgotten."""
        mine: dict[int, list[DoneStretch]] = {}
        for stretch in self.done:
            mine.setdefault(stretch.stretch.scan, []).append(stretch)
        scans, rest = dict(self.scans), []
        for order, done in mine.items():
            if order in scans:
                scans[order], left = fold(scans[order], done)
                rest += [] if scans[order].ended else left
        return replace(self, scans=scans, done=tuple(rest))

    def pruned(self) -> Books:
        """Return the books without the oldest of the scans that are ended, beyond ``KEPT_SCANS``."""
        ended = sorted(order for order, scan in self.scans.items() if scan.ended)
        late = set(ended[: max(0, len(ended) - KEPT_SCANS)])
        return replace(self, scans={order: scan for order, scan in self.scans.items() if order not in late})

    def without_stretches(self, scans: Collection[int]) -> Books:
        """Return the books without the stretches of some scans, which begin anew.

        Args:
            scans: Orders of the scans.
        """
        return replace(self, done=tuple(d for d in self.done if d.stretch.scan not in scans))

    def done_of(self, scan: int) -> list[DoneStretch]:
        """Return a scan's stretches that are done behind a gap, in their order."""
        return sorted((d for d in self.done if d.stretch.scan == scan), key=lambda d: d.stretch.number)


def books_of(ledger: LedgerState) -> Books:
    """Return what the ledger says.

    Args:
        ledger: The ledger.

    Raises:
        DamagedRecordError: A record is not of its form.
    """
    scans: dict[int, TableScan] = {}
    done: list[DoneStretch] = []
    requests: dict[str, Request] = {}
    for key, value in ledger.others.items():
        with stored_at(f"key {key}"):
            if key.startswith(SCAN_PREFIX):
                scan = TableScan.from_json(value)
                scans[scan.order] = scan
            elif key.startswith(DONE_PREFIX):
                done.append(DoneStretch.from_json(value))
            elif key.startswith(REQUEST_PREFIX):
                request = Request.from_json(value)
                requests[request.id] = request
    with stored_at(f"key {STATE_KEY}"):
        state = Members(ledger.others.get(STATE_KEY, {}))
        # Also when the record is lost, no scan takes the number of another, nor its stretches.
        used = [0, state.whole("next_order", 0), *(order + 1 for order in scans), *(d.stretch.scan + 1 for d in done)]
        return Books(scans, tuple(done), requests, state.flag("paused", False), max(used))


def changes(before: Books, after: Books) -> list[Change]:
    """Return what has to be written to get from one to the other; stretches are only ever deleted.

    Args:
        before: What the ledger says.
        after: What it shall say.
    """
    then, now = _records(before), _records(after)
    out: list[Change] = [(key, value) for key, value in now.items() if then.get(key) != value]
    return sorted([*out, *((key, None) for key in then.keys() - now.keys())], key=lambda change: change[0])


def done_key(stretch: Stretch) -> str:
    """Return the ledger key under which a stretch is said to be done."""
    return DONE_PREFIX + stretch.id


def _records(books: Books) -> dict[str, dict[str, Any]]:
    return {
        STATE_KEY: {"paused": books.paused, "next_order": books.next_order},
        **{f"{SCAN_PREFIX}{order}": scan.to_json() for order, scan in books.scans.items()},
        **{f"{REQUEST_PREFIX}{name}": request.to_json() for name, request in books.requests.items()},
        **{done_key(d.stretch): d.to_json() for d in books.done},
    }
