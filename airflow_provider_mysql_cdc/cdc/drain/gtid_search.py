"""Search a server's transactions, one after the other, for the place of a GTID set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet, GtidTracker, gtid_source

Place = tuple[str, int]
"""Binlog file and position."""


@dataclass(slots=True)
class GtidSearch:
    """Find the place before which everything of a set stands, and nothing else.

    Transactions of servers that do not count (``gtid.source.*``) may stand on either side of it: those that the set
    lacks may be passed over, those of the set may come after it, because their rows are not written.

    Args:
        stored: The set; the server has executed all of it.
        previous: GTIDs that stand before the transactions searched, or were purged.
        counts: Says of a server's uuid whether its transactions count.

    Attributes:
        place: The place before the first transaction that the set lacks; None at the end of the binlog.
        boundary: The same place as a reader comes to it: the beginning of a file, where it is the first one there.
        next_gtid: GTID of the transaction that begins there.
        errant: Transactions that count and that the set lacks, before the last one of the set.
        passed_over: Transactions that do not count and that the set lacks, before the place.
        repeated: Transactions that do not count, of the set, after the place.
    """

    stored: GtidSet
    previous: GtidSet
    counts: Callable[[str], bool] = lambda uuid: True
    place: Place | None = None
    boundary: Place | None = None
    next_gtid: str | None = None
    errant: GtidSet = field(default_factory=GtidSet)
    passed_over: GtidSet = field(default_factory=GtidSet)
    repeated: GtidSet = field(default_factory=GtidSet)
    _passed: GtidTracker = field(init=False)
    _lacked: GtidTracker = field(init=False)
    _lacked_uncounted: GtidTracker = field(init=False)

    def __post_init__(self) -> None:
        self._passed = GtidTracker(str(self.previous))
        self._forget_place()

    def add(self, gtid: str, at: Place, file_start: Place | None) -> bool:
        """Take the next transaction; return whether the search is over.

        Args:
            gtid: Its GTID.
            at: Its beginning.
            file_start: The beginning of its file, where it is the first transaction there.
        """
        if self.stored.contains(gtid):
            self._passed.add(gtid)
            if self.place is not None:
                self._add_stored_behind(gtid)
            return False
        if self.place is None:
            self.place, self.boundary, self.next_gtid = at, file_start or at, gtid
        if not self.unread():
            return True
        (self._lacked if self.counts(gtid_source(gtid)) else self._lacked_uncounted).add(gtid)
        return False

    def unread(self) -> GtidSet:
        """Return the transactions of the set that were not among those taken."""
        return self.stored.subtract(self._passed.gtid_set())

    def is_out_of_order(self, gtid: str) -> bool:
        """Return whether a statement in a transaction that was just taken may be left out, or be read twice.

        Args:
            gtid: The transaction's GTID.
        """
        return self.place is not None and not self.counts(gtid_source(gtid))

    def _add_stored_behind(self, gtid: str) -> None:
        lacked = self._lacked.gtid_set()
        if not self.counts(gtid_source(gtid)):
            self.repeated = self.repeated.add(gtid)
        elif lacked:
            self.errant = self.errant.union(lacked)
        else:
            self.passed_over = self.passed_over.union(self._lacked_uncounted.gtid_set())
            self.repeated = GtidSet()
            self._forget_place()

    def _forget_place(self) -> None:
        self.place = self.boundary = self.next_gtid = None
        self._lacked, self._lacked_uncounted = GtidTracker(""), GtidTracker("")
