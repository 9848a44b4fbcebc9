"""Where an event is in the binlog, as a number that orders events."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, file_number
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import Row

_COMMIT_TS = "_tidb_commit_ts"
_POSITION_BITS = 44
"""Bits of an order for the position in a file; MySQL's files may grow beyond 4 GiB with a large transaction."""
_EPOCH_S = 1_577_836_800
_SECONDS, _FILES, _PLACES = 29, 3, 32
"""Bits of an order by time: seconds since 2020, the last bits of the file's number, and of the position."""


def source_order(source: Row) -> int:
    """Return where an event is in the binlog, as a number; 0 where its source block does not say."""
    commit_ts = commit_ts_of(source)
    if commit_ts is not None:
        return commit_ts
    file, pos = source.get("file"), source.get("pos")
    if not isinstance(file, str) or not isinstance(pos, int):
        return 0
    try:
        return position_order(file_number(file), pos)
    except ValueError:
        return 0


def commit_ts_of(source: Row) -> int | None:
    """Return TiCDC's timestamp of an event; None where it has none."""
    commit_ts = source.get(_COMMIT_TS)
    return commit_ts if isinstance(commit_ts, int) else None


def position_order(file: int, pos: int) -> int:
    """Return a place in the binlog as a number of 64 bits."""
    return (file << _POSITION_BITS | pos) & 0xFFFF_FFFF_FFFF_FFFF


def place_order(offset: BinlogOffset) -> int:
    """Return a transaction boundary as such a number."""
    return position_order(file_number(offset.file), offset.pos)


def time_of(source: Row) -> int:
    """Return when an event was committed, as a number that is the same for events of one millisecond; 0 if unknown."""
    commit_ts, at_ms = commit_ts_of(source), source.get("ts_ms")
    if commit_ts is not None:
        return commit_ts
    return at_ms if isinstance(at_ms, int) else 0


def time_order(source: Row) -> int:
    """Return when an event was logged, as such a number; within one second, where it is in the binlog.

    Positions begin anew on another server, but the binlog of a replica keeps the time of the source.
    """
    order, at_ms = source_order(source), source.get("ts_ms")
    if not order or not isinstance(at_ms, int) or _COMMIT_TS in source:
        return order
    seconds = max(0, min(at_ms // 1000 - _EPOCH_S, (1 << _SECONDS) - 1))
    file, pos = order >> _POSITION_BITS, order & ((1 << _POSITION_BITS) - 1)
    place = (file & ((1 << _FILES) - 1)) << _PLACES | min(pos, (1 << _PLACES) - 1)
    return seconds << (_FILES + _PLACES) | place
