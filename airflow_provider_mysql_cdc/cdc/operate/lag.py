"""The lag of the stored offset after which a drain is due, and how far the stream was behind in the last day.

Measure the lag of the stored offset after which a drain is due.

One query of the server (``read_binlog_state``) serves any number of offsets and thresholds; ``measure_lag`` is pure. A
lag that cannot be measured, because the offset is of another binlog or a batch is unfinished, counts as reached: the
drain reports what is wrong.

How far a stream was behind in the last day: one point for each batch, in one small record beside the offset.

A batch reads up to an end that is fixed when it begins. So when it is committed, every change from before it began is
in Kafka, and until the next one is committed the lag is at most the time since then. Points of runs that found nothing
to do say the same. Nothing is measured for a point: the ledger has it all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, runtime_checkable

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.position import binary_logs, bytes_between, current_offset
from airflow_provider_mysql_cdc.cdc.binlog.purged_files import PurgeLoss, ServerGtids, purge_loss, unproven_reason
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.commit.run_tally import current_tally
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, DamagedRecordError, SourceSettingError
from airflow_provider_mysql_cdc.cdc.metrics.writer_metrics import BEHIND, LAST_EVENT, last_change_ms
from airflow_provider_mysql_cdc.cdc.model.clock import now_ms
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, comparable, compare_offsets
from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Record
from airflow_provider_mysql_cdc.cdc.operate.source_server import at_server_of

# Under the other two modes new transactions have no GTID (MySQL manual, "gtid_mode").
_GTID_MODES = ("ON", "ON_PERMISSIVE")


@dataclass(frozen=True, slots=True)
class Thresholds(Record):
    """Hold the lag at which a drain is due: any threshold that is reached; without thresholds, any new transaction.

    Args:
        bytes: Bytes of binlog.
        transactions: Transactions, counted by their GTIDs.
        seconds: Seconds since the last batch was committed, when anything is new.

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
                    "a lag threshold is below 1",
                    where=f"{name}_behind={value}",
                    remedy="remove it, or set at least 1; without any threshold, any new transaction counts",
                )

    @property
    def any(self) -> bool:
        """Whether at least one threshold is set."""
        return any(value is not None for value in asdict(self).values())


@dataclass(frozen=True, slots=True)
class DrainedOffset(Record):
    """Hold how far a stream was drained, according to the offset store.

    Args:
        offset: The offset up to which everything is in Kafka; None when no offset is stored.
        settled_ms: When it was stored, in milliseconds since 1970; None when not known.
        pending: Epoch of a batch or snapshot that is not finished, or None.
    """

    offset: BinlogOffset | None = None
    settled_ms: int | None = None
    pending: int | None = None

    @classmethod
    def from_state(cls, state: StoredState | None) -> DrainedOffset:
        """Return the drained offset of a stored state."""
        if state is None:
            return cls()
        settled = state.history[-1].at_ms if state.history else None
        return cls(state.committed, settled, state.pending.epoch if state.pending else None)


@dataclass(frozen=True, slots=True)
class BinlogState:
    """Hold the state of a server's binlog at one moment.

    Args:
        end_offset: The end of the binlog, with the executed GTIDs.
        files: Its files in order, with their sizes in bytes.
        gtids: What the server says of GTIDs.
        read_ms: When it was read, in milliseconds since 1970 by this host's clock.
    """

    end_offset: BinlogOffset
    files: tuple[tuple[str, int], ...]
    gtids: ServerGtids
    read_ms: int


@dataclass(frozen=True, slots=True)
class Lag:
    """Hold the lag of a stored offset, and whether a drain is due.

    Args:
        reached: Whether a threshold is reached, or a drain is due for another reason.
        reason: One sentence for the log.
        bytes: Bytes of binlog between offset and end; None when they cannot be computed.
        transactions: Transactions between them; None when they cannot be counted.
        seconds: Seconds since the last batch was committed; None when nothing is new or the time is not known.
    """

    reached: bool
    reason: str
    bytes: int | None = None
    transactions: int | None = None
    seconds: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return asdict(self)


def read_binlog_state(cfg: ConnectorConfig, drained: DrainedOffset) -> BinlogState:
    """Read the state of the server's binlog, over a connection of its own (REPLICATION CLIENT).

    Args:
        cfg: The connector's configuration.
        drained: The drained offset; of several servers, the one that a drain from there would read is asked.

    Raises:
        SourceError: The subclass that fits the server's error, for example when binary logging is off.
    """
    with connect(at_server_of(cfg, drained.offset, newest=True).connection_settings()) as conn:
        return binlog_state(conn)


def binlog_state(conn: MySqlConnection) -> BinlogState:
    """Return the state of the server's binlog.

    Args:
        conn: An open connection (REPLICATION CLIENT).

    Raises:
        SourceError: As for ``read_binlog_state``.
    """
    end = current_offset(conn)
    # The files come first: should one be purged in between, gtid_purged says what went with it.
    files = tuple(binary_logs(conn))
    return BinlogState(end, files, ServerGtids.read(conn), now_ms())


def measure_lag(drained: DrainedOffset, state: BinlogState, thresholds: Thresholds) -> Lag:
    """Return the lag between what was drained and the end of the binlog.

    Args:
        drained: The drained offset, from the offset store.
        state: The state of the server's binlog.
        thresholds: The lag at which a drain is due.

    Raises:
        SourceSettingError: Transactions must be counted, but the server does not assign GTIDs to new ones.
    """
    if thresholds.transactions is not None and state.gtids.mode not in _GTID_MODES:
        raise SourceSettingError(
            "transactions cannot be counted",
            where=f"transactions_behind={thresholds.transactions}",
            why=f"the server's gtid_mode is {state.gtids.mode}, so its transactions have no GTID",
            remedy="use bytes_behind or seconds_behind, or set gtid_mode to ON",
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
    """Return why the server no longer has an offset in its binlog files, or None."""
    if not comparable(offset, state.end_offset):
        return f"the binlog ends at {state.end_offset} of server {state.end_offset.server_uuid}"
    size = state.end_offset.pos if offset.file == state.end_offset.file else dict(state.files).get(offset.file)
    if size is None and state.files:
        loss = purge_loss(offset, state.files[0][0], state.gtids)
        if loss is not PurgeLoss.POSSIBLE:
            return None if loss is PurgeLoss.NONE else unproven_reason(offset)
    if size is None:
        return "its file was purged"
    return None if offset.pos <= size else f"the file ends at {size}"


def _compare_thresholds(
    drained: DrainedOffset, offset: BinlogOffset, state: BinlogState, thresholds: Thresholds
) -> Lag:
    size = bytes_between(state.files, offset, state.end_offset)
    transaction_count = _new_transactions(offset, state.end_offset)
    settled = drained.settled_ms
    # With the clocks of two hosts the batch may have been stored in the future; its age is then not known.
    seconds = None if settled is None or settled > state.read_ms else (state.read_ms - settled) / 1000
    # A count or an age that is not known counts as reached; otherwise a sensor would wait forever.
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
    return sum(end - first for intervals in new_gtids.sets.values() for first, end in intervals)


KEPT_MS = 26 * 3_600_000
"""Age in milliseconds after which a point is dropped; a plot of a day begins with the point before it."""
SPACING_MS = 300_000
"""Points other than the newest are at least so many milliseconds apart, so that there are at most some 300."""
FILE_BEGIN = 4
"""Position of the first event in a binlog file; a server's own position is behind the events that begin a file."""


@dataclass(frozen=True, slots=True)
class LagPoint(Record):
    """Say what was in Kafka at one moment.

    Args:
        at_ms: When a batch was committed, or a run found nothing to do, milliseconds since 1970.
        until_ms: Every change from before this moment was in Kafka then.
        epoch: The last batch.
        events: Events of the stream since it began.
        event_lag_ms: How long after its commit the batch's last event was handled; None where it had none.
        most_ms: The lag was at most so long since the point before, also where points between the two were dropped;
            0 where there is none before.
    """

    at_ms: Count
    until_ms: Count
    epoch: Count = 0
    events: Count = 0
    event_lag_ms: Count | None = None
    most_ms: Count = 0


@runtime_checkable
class LagPointStore(Protocol):
    """An offset store that also keeps the points; a store need not."""

    def load_points(self) -> list[Any]:
        """Return the points as JSON, oldest first; none where there are none."""

    def save_points(self, points: list[Any]) -> None:
        """Replace the points.

        Args:
            points: As JSON, oldest first.
        """


def with_point(points: Sequence[LagPoint], point: LagPoint) -> list[LagPoint]:
    """Return the points with another one, without those that are too old or too close.

    Args:
        points: The points, oldest first.
        point: The new one.
    """
    kept = [p for p in points if point.at_ms - KEPT_MS <= p.at_ms < point.at_ms]
    most_ms = point.at_ms - kept[-1].until_ms if kept else 0
    if len(kept) > 1 and kept[-1].at_ms - kept[-2].at_ms < SPACING_MS:
        most_ms = max(most_ms, kept.pop().most_ms)
    return [*kept, replace(point, most_ms=most_ms)]


def batch_point(ledger: LedgerState) -> LagPoint | None:
    """Return the point of the last batch; None where it is not complete.

    Args:
        ledger: The ledger.
    """
    plan, outcome = ledger.plan, ledger.outcome
    if plan is None or plan.kind == "reset" or not ledger.complete():
        return None
    ended_ms = int(outcome["ts_ms"]) if outcome is not None and outcome["epoch"] == plan.epoch else now_ms()
    tally = current_tally(ledger)
    if tally is None:
        return None
    streaming = tally.metrics.streaming
    # Attributes stay from batch to batch: only an event of this one says something about it.
    own_event = plan.kind == "drain" and int(streaming.get(LAST_EVENT) or 0) >= plan.created_ms
    lag_ms = int(streaming[BEHIND]) if own_event and BEHIND in streaming else None
    until_ms = plan.created_ms
    if plan.kind == "drain" and plan.end.pos <= FILE_BEGIN:
        # max.batch.bytes ended it before the end of the binlog: what is known is the time of its last event.
        changed_ms = last_change_ms(streaming) if own_event else None
        if changed_ms is None:
            return None
        until_ms = changed_ms
    return LagPoint(ended_ms, until_ms, plan.epoch, tally.metrics.counts.events, lag_ms)


def record_batch(store: object, ledger: LedgerState | None, log: Log) -> None:
    """Add the point of the last batch to a store that keeps points, unless it is there.

    Args:
        store: The offset store.
        ledger: The ledger; None when its topic does not exist.
        log: Takes one line of text: a plot is not worth a failed task.
    """
    if ledger is not None and isinstance(store, LagPointStore) and (point := batch_point(ledger)) is not None:
        _record(store, point, log)


def record_idle(store: object, log: Log) -> None:
    """Add that there was nothing to do just now.

    Args:
        store: The offset store.
        log: Takes one line of text.
    """
    if isinstance(store, LagPointStore):
        _record(store, None, log)


def read_points(store: LagPointStore) -> list[LagPoint]:
    """Return the points of a store, oldest first; those that another program has written are left out.

    Args:
        store: The store.
    """
    return list(_parsed(store.load_points()))


def _parsed(stored: Iterable[Any]) -> Iterable[LagPoint]:
    for entry in stored:
        try:
            yield LagPoint.from_json(entry)
        except DamagedRecordError:
            continue


def _record(store: LagPointStore, point: LagPoint | None, log: Log) -> None:
    try:
        now = now_ms()
        # A clock that was set back leaves points of the future, behind which none would be added until then.
        points = [p for p in read_points(store) if p.at_ms <= now]
        last = points[-1] if points else LagPoint(0, 0)
        if point is None:
            point = LagPoint(now, now, last.epoch, last.events)
        elif point.epoch == last.epoch or point.at_ms <= last.at_ms:
            return
        store.save_points([p.to_json() for p in with_point(points, point)])
    except Exception as error:  # of Airflow or of a database: the offset is what counts
        log(f"the history of the lag could not be written: {type(error).__name__}: {error}")
