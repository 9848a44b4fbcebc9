"""Commit timestamps of MySQL's transactions in TiDB's format.

TiDB's timestamp oracle gives each transaction a number: milliseconds since the epoch in the upper 46 bits, a counter
in the lower 18 (TiDB documentation, "TSO in TiDB"). MySQL has no such number. Here it is computed from values of a
transaction in the binlog: the original commit time in microseconds, which every replica repeats, and the
transaction's number in its binlog file, which is each server's own. A transaction that another server committed, or
one after the clock was set back, may have an earlier time than the transactions before it in the binlog. Its number
is then the next one after theirs, so numbers rise in the order of the binlog, from batch to batch: plans and markers
hold the last one (``BatchPlan.commit_ts``). Rows of a snapshot have the number of their place in that order. Each
writer reads all transactions of a batch, so all compute the same numbers, however often they read it.
"""

from __future__ import annotations

from dataclasses import dataclass

_LOGICAL_BITS, _SEQUENCE_BITS = 18, 8
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


def commit_ts(commit_us: int, sequence_number: int = 0) -> CommitTs:
    """Return the timestamp of a transaction.

    Args:
        commit_us: Original commit time in microseconds since the epoch (GTID event); the event's time where the
            server does not report it (MySQL 5.7).
        sequence_number: ``sequence_number`` of the GTID event; its lowest 8 bits are used. 0 for rows of a snapshot.
    """
    ms, us = divmod(commit_us, 1000)
    return CommitTs(ms << _LOGICAL_BITS | us << _SEQUENCE_BITS | sequence_number & ((1 << _SEQUENCE_BITS) - 1))


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
    """

    last: int = 0

    def next_ts(self, commit_us: int, sequence_number: int) -> CommitTs:
        """Return the timestamp of the next transaction in the binlog.

        Args:
            commit_us: As for ``commit_ts``.
            sequence_number: As for ``commit_ts``.
        """
        ts = commit_ts(commit_us, sequence_number)
        if ts.value > MAX_TS:
            return ts  # its rows fail
        if ts.value <= self.last:
            ts = CommitTs(self.last + 1)
        self.last = ts.value
        return ts
