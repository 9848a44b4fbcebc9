"""How far a stream was behind in the last day: one point for each batch, in one small record beside the offset.

A batch reads up to an end that is fixed when it begins. So when it is committed, every change from before it began is
in Kafka, and until the next one is committed the lag is at most the time since then. Points of runs that found nothing
to do say the same. Nothing is measured for a point: the ledger has it all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.run_tally import current_tally
from airflow_provider_mysql_cdc.cdc.errors import DamagedRecordError
from airflow_provider_mysql_cdc.cdc.metrics.streaming_family import BEHIND, LAST_EVENT, last_change_ms
from airflow_provider_mysql_cdc.cdc.model.clock import now_ms
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Record

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
