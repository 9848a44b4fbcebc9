"""Commit timestamps of MySQL's transactions in TiDB's format.

TiDB's timestamp oracle gives each transaction a number: milliseconds since the epoch in the upper 46 bits, a counter
in the lower 18 (TiDB documentation, "TSO in TiDB"). MySQL has no such number. Here it is computed from
values of a transaction in the binlog that every replica repeats: the original commit time in microseconds, and the
transaction's number in its binlog file. So a number stays the same however often the binlog is read, rises with the
order of commits unless the server's clock goes back, and differs unless 256 transactions share a microsecond.
"""

from __future__ import annotations

from dataclasses import dataclass

_LOGICAL_BITS, _SEQUENCE_BITS = 18, 8


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
