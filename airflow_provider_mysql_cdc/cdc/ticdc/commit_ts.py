"""Commit timestamps of MySQL's transactions in TiDB's format.

TiDB's timestamp oracle gives each transaction a number: milliseconds since the epoch in the upper 46 bits, a counter
in the lower 18 (TiDB documentation, "TSO in TiDB"). MySQL has no such number. Here it is computed from values of a
transaction in the binlog that every replica repeats: the original commit time in microseconds, and the number in its
GTID. A transaction without a GTID has its number in the binlog file instead, which is each server's own. A transaction
that another server committed, or one after the clock was set back, may have an earlier time than the transactions
before it in the binlog. Its number is then the next one after theirs, so numbers rise in the order of the binlog, from
batch to batch: plans and markers hold the last one (``BatchPlan.commit_ts``). Rows of a snapshot have the number of
their place in that order. Each writer reads all transactions of a batch, so all compute the same numbers, however
often they read it, and on whichever server that has executed them in the same order.

A writer that goes on behind its marker does not go below the marker's number, and gives the rest of a transaction
the number that its committed part has: a server with another order may have computed others.
"""

from __future__ import annotations

from dataclasses import dataclass

_LOGICAL_BITS, _NUMBER_BITS = 18, 8
MAX_TS = 2**63 - 1
"""The highest timestamp that an Avro long holds."""


@dataclass(frozen=True, slots=True)
class CommitTs:
    """Hold one commit timestamp.

    Args:
        value: ``_tidb_commit_ts``.
    """

    value: int

    @property
    def physical_ms(self) -> int:
        """Return ``_tidb_commit_physical_time``: milliseconds since the epoch."""
        return self.value >> _LOGICAL_BITS


def transaction_number(gtid: str | None, sequence_number: int) -> int:
    """Return the number that tells a transaction from others of the same microsecond.

    Args:
        gtid: Its GTID, which is the same on every server; None for an anonymous transaction.
        sequence_number: ``sequence_number`` of the GTID event, which each server counts for itself.
    """
    return sequence_number if gtid is None else int(gtid.rpartition(":")[2])


def commit_ts(commit_us: int, number: int = 0) -> CommitTs:
    """Return the timestamp of a transaction.

    Args:
        commit_us: Original commit time in microseconds since the epoch (GTID event); the event's time where the
            server does not report it (MySQL 5.7).
        number: Its number (``transaction_number``), of which the lowest 8 bits are used. 0 for rows of a snapshot.
    """
    ms, us = divmod(commit_us, 1000)
    return CommitTs(ms << _LOGICAL_BITS | us << _NUMBER_BITS | number & ((1 << _NUMBER_BITS) - 1))


def view_ts(ts_ms: int, floor: int) -> int:
    """Return the timestamp of the rows of a snapshot's view, which is not before what was written earlier.

    Args:
        ts_ms: The server's time when the view was opened, milliseconds since the epoch.
        floor: The highest timestamp that an earlier record has.
    """
    return max(commit_ts(ts_ms * 1000).value, floor)


@dataclass(slots=True)
class CommitClock:
    """Give the transactions of a batch timestamps that rise.

    Args:
        last: The highest timestamp that an earlier transaction has.
        committed: The highest one of those that an earlier attempt of the writer has committed; 0 where there is none.
    """

    last: int = 0
    committed: int = 0
    _begins_at: tuple[str, int] = ("", 0)
    _previous: int = 0

    def next_ts(self, begins_at: tuple[str, int], commit_us: int, number: int) -> CommitTs:
        """Return the timestamp of the next transaction in the binlog, or of the last one if it is read again.

        Args:
            begins_at: Binlog file and position before the transaction.
            commit_us: As for ``commit_ts``.
            number: As for ``commit_ts``.
        """
        ts = commit_ts(commit_us, number)
        if ts.value > MAX_TS:
            return ts  # its rows fail
        if begins_at != self._begins_at:
            self._previous, self._begins_at = self.last, begins_at
            self.last = max(ts.value, self.last + 1)
        return CommitTs(self.last)

    def continue_behind(self, begins_at: tuple[str, int] | None) -> None:
        """Go on behind what an earlier attempt of the writer has committed.

        Args:
            begins_at: Binlog file and position before the transaction of which only a part is committed; None where
                the transactions are committed as a whole.
        """
        if begins_at is None:
            self.last = max(self.last, self.committed)
        elif self.committed and begins_at != self._begins_at:
            self._begins_at, self.last = begins_at, self.committed

    def last_before(self, boundary: tuple[str, int]) -> int:
        """Return the highest timestamp of the transactions before a boundary, which is the last one that was passed.

        Args:
            boundary: Binlog file and position; the next transaction may have begun, but none of its rows was read.
        """
        return self._previous if boundary == self._begins_at else self.last
