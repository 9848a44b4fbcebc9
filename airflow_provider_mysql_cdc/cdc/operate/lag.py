"""How far the stored offset lies behind the server's binlog.

One look at the server (``read_binlog_state``) serves any number of offsets and thresholds; ``measure_lag`` is pure.
What cannot be judged,
because the offset belongs to another binlog or a batch is unfinished, counts as behind: the drain names what is wrong.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.position import binary_logs, bytes_between, current_offset
from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SourceSettingError
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, comparable, compare_offsets
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members

# Under the other two modes new transactions have no GTID (MySQL manual, "gtid_mode").
_GTID_MODES = ("ON", "ON_PERMISSIVE")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Say how far behind is far enough; the first one reached decides, and without any of them anything new does.

    Args:
        bytes: Bytes of binlog.
        transactions: Transactions, counted by their GTIDs.
        seconds: Seconds since the last batch was settled, when there is anything new.

    Raises:
        ConfigError: One is below 1.
    """

    bytes: int | None = None
    transactions: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and value < 1:
                raise ConfigError(
                    "a threshold is below 1",
                    where=f"{name}_behind={value}",
                    remedy="leave it out; without any threshold, anything new counts",
                )

    @property
    def any(self) -> bool:
        """Whether one is set."""
        return any(value is not None for value in asdict(self).values())

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Thresholds:
        """Read what ``to_json`` wrote."""
        return cls(**data)


@dataclass(frozen=True, slots=True)
class DrainedOffset:
    """Say how far a stream was drained, as the offset store remembers it.

    Args:
        offset: Everything before it stands in Kafka; None when no offset is stored.
        settled_ms: When it was stored, milliseconds since 1970; None when not known.
        pending: Epoch of a batch or snapshot that is not finished, or None.
    """

    offset: BinlogOffset | None = None
    settled_ms: int | None = None
    pending: int | None = None

    @classmethod
    def from_state(cls, state: StoredState | None) -> DrainedOffset:
        """Return what a stored state says."""
        if state is None:
            return cls()
        settled = state.history[-1].at_ms if state.history else None
        return cls(state.committed, settled, state.pending.epoch if state.pending else None)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        offset = self.offset.to_json() if self.offset else None
        return {"offset": offset, "settled_ms": self.settled_ms, "pending": self.pending}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DrainedOffset:
        """Read what ``to_json`` wrote.

        Raises:
            DamagedRecordError: It is something else.
        """
        record = Members(data)
        offset = None if record.value("offset") is None else BinlogOffset.from_json(record.object("offset"))
        return cls(offset, record.value("settled_ms", None), record.value("pending", None))


@dataclass(frozen=True, slots=True)
class BinlogState:
    """Hold one look at a server's binlog.

    Args:
        end_offset: Where it ends, with the GTIDs executed.
        files: Its files in order, with their sizes in bytes.
        gtid_mode: The server's gtid_mode.
        read_ms: When it was looked at, milliseconds since 1970 by this machine's clock.
    """

    end_offset: BinlogOffset
    files: tuple[tuple[str, int], ...]
    gtid_mode: str
    read_ms: int


@dataclass(frozen=True, slots=True)
class Lag:
    """Say how far behind a stored offset is, and whether that is far enough.

    Args:
        reached: Whether a threshold is reached, or something else calls for the drain.
        reason: One sentence for the log.
        bytes: Bytes of binlog between offset and end; None when that means nothing.
        transactions: Transactions between them; None when it cannot be counted.
        seconds: Seconds since the last batch was settled; None when nothing is new or it is not known.
    """

    reached: bool
    reason: str
    bytes: int | None = None
    transactions: int | None = None
    seconds: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return asdict(self)


def read_binlog_state(settings: ConnectionSettings) -> BinlogState:
    """Look at the server's binlog, on a connection of its own that is closed again.

    Args:
        settings: How to reach the server (REPLICATION CLIENT).

    Raises:
        SourceError: The leaf that fits what the server says, for example that binary logging is off.
    """
    with connect(settings) as conn:
        end = current_offset(conn)
        mode = str(fetch_all(conn, "SELECT @@GLOBAL.gtid_mode")[0][0])
        return BinlogState(end, tuple(binary_logs(conn)), mode, time.time_ns() // 1_000_000)


def measure_lag(drained: DrainedOffset, state: BinlogState, thresholds: Thresholds) -> Lag:
    """Decide whether the binlog has moved far enough beyond what was drained.

    Args:
        drained: What the offset store says.
        state: What the server says.
        thresholds: How far is far enough.

    Raises:
        SourceSettingError: Transactions are to be counted and the server gives new ones no GTID.
    """
    if thresholds.transactions is not None and state.gtid_mode not in _GTID_MODES:
        raise SourceSettingError(
            "transactions cannot be counted",
            where=f"transactions_behind={thresholds.transactions}",
            why=f"the server's gtid_mode is {state.gtid_mode}, so its transactions have no GTID",
            remedy="use bytes_behind or seconds_behind, or switch gtid_mode on",
        )
    if drained.pending is not None:
        return Lag(True, f"batch {drained.pending} is not finished")
    offset = drained.offset
    if offset is None:
        return Lag(True, "no offset is stored yet")
    if reason := _unavailable_reason(offset, state):
        return Lag(True, f"the stored offset {offset} is not in the server's binlog: {reason}")
    if compare_offsets(state.end_offset, offset) <= 0:
        return Lag(False, f"nothing new since {offset}", 0, 0, None)
    return _compare_thresholds(drained, offset, state, thresholds)


def _unavailable_reason(offset: BinlogOffset, state: BinlogState) -> str | None:
    """Return why an offset is in no file that the server holds, or None."""
    if not comparable(offset, state.end_offset):
        return f"that is of server {state.end_offset.server_uuid}"
    size = state.end_offset.pos if offset.file == state.end_offset.file else dict(state.files).get(offset.file)
    if size is None:
        return "its file is gone"
    return None if offset.pos <= size else f"the file ends at {size}"


def _compare_thresholds(
    drained: DrainedOffset, offset: BinlogOffset, state: BinlogState, thresholds: Thresholds
) -> Lag:
    size = bytes_between(state.files, offset, state.end_offset)
    transaction_count = _new_transactions(offset, state.end_offset)
    settled = drained.settled_ms
    # By two machines' clocks the batch may have been settled in the future: then nobody knows its age.
    seconds = None if settled is None or settled > state.read_ms else (state.read_ms - settled) / 1000
    # A count or an age that is not known counts as reached: waiting for it would have no end.
    measurements = (
        (thresholds.bytes, size, "bytes"),
        (thresholds.transactions, transaction_count, "transactions"),
        (thresholds.seconds, seconds, "s"),
    )
    reached_limits = [
        f"{have} of {want} {unit}" for want, have, unit in measurements if want and (have is None or have >= want)
    ]
    reached = bool(reached_limits) or not thresholds.any
    lag_text = ", ".join(reached_limits) or f"{size} bytes, {transaction_count} transactions, {seconds} s"
    return Lag(
        reached, f"the binlog ends at {state.end_offset}, {lag_text} beyond {offset}", size, transaction_count, seconds
    )


def _new_transactions(offset: BinlogOffset, end: BinlogOffset) -> int | None:
    if offset.gtids is None or end.gtids is None:
        return None
    new_gtids = GtidSet.parse(end.gtids).subtract(GtidSet.parse(offset.gtids))
    return sum(behind - first for intervals in new_gtids.sets.values() for first, behind in intervals)
