"""Decide when a watched stream needs a drain, so that each piece of work is asked for once.

A request names the end of the binlog at that moment. Until the stream is drained up to there no second one is made,
unless ``retry_after_s`` has passed: the run that it started may have failed. ``next_request`` is pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.commit.reconcile import reconcile
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.job.run_lock import is_held
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, comparable, compare_offsets
from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, VersionedRecord
from airflow_provider_mysql_cdc.cdc.operate.lag import (
    BinlogState,
    DrainedOffset,
    Lag,
    Thresholds,
    binlog_state,
    measure_lag,
)
from airflow_provider_mysql_cdc.cdc.operate.send_signal import peek_ledger
from airflow_provider_mysql_cdc.cdc.operate.source_server import at_server_of_ledger
from airflow_provider_mysql_cdc.cdc.signals.signal_watch import signal_topic_state, waiting_signals


@dataclass(frozen=True, slots=True)
class StreamState:
    """Hold a stream's ledger and its server's binlog at one moment.

    Args:
        drained: How far the stream is drained, according to the ledger.
        binlog: The server's binlog.
        signals: Ids of signals that wait in the ledger (channel ``airflow``) or in the Kafka signal topic.
        running: Whether a run of the stream is active.
    """

    drained: DrainedOffset
    binlog: BinlogState
    signals: frozenset[str] = frozenset()
    running: bool = False


@dataclass(frozen=True, slots=True)
class DrainRequest(VersionedRecord):
    """Hold what was asked for last.

    Args:
        end: The end of the binlog then.
        at_ms: When, in milliseconds since 1970.
        signals: Ids of the signals that waited.
    """

    end: BinlogOffset
    at_ms: Count
    signals: frozenset[str] = frozenset()


def read_stream_state(cfg: ConnectorConfig) -> StreamState:
    """Read the signal topic, whether a run is active, then the ledger, then the server's binlog.

    Args:
        cfg: The connector's configuration.

    Raises:
        CdcError: Kafka or the server cannot be read, or the ledger is damaged.
    """
    with connect(at_server_of_ledger(cfg, newest=True).connection_settings()) as conn:
        topic = signal_topic_state(cfg)
        running = is_held(conn, cfg.topic_prefix)
        ledger = peek_ledger(cfg)  # after the topic: what was read from it meanwhile does not wait any more
        drained = DrainedOffset.from_state(reconcile(None, ledger).state)
        signals = frozenset(ledger.signals) | waiting_signals(cfg, ledger, topic)
        return StreamState(drained, binlog_state(conn), signals, running)


def next_request(
    state: StreamState, thresholds: Thresholds, last: DrainRequest | None, *, retry_after_s: float
) -> tuple[DrainRequest, Lag] | None:
    """Return a request for a drain, and why; None when nothing is due or it was asked for already.

    Args:
        state: The stream and its server.
        thresholds: The lag at which a drain is due.
        last: The last request, or None.
        retry_after_s: Seconds after which work that was asked for and is not done is asked for again.
    """
    if state.running:
        return None  # it drains what is new itself, or the next look finds what it has left
    now_ms = state.binlog.read_ms
    # A clock that was set back makes the last request one of the future; it is as good as old.
    waited = last is not None and not 0 <= now_ms - last.at_ms < retry_after_s * 1000
    new_signals = state.signals - (last.signals if last and not waited else frozenset())
    if last is not None and not waited and not new_signals and not _is_done(last, state):
        return None
    lag = measure_lag(state.drained, state.binlog, thresholds)
    if new_signals:
        lag = replace(lag, reached=True, reason=f"{len(new_signals)} signals wait ({lag.reason})")
    if not lag.reached:
        return None
    return DrainRequest(state.binlog.end_offset, now_ms, state.signals), lag


def _is_done(request: DrainRequest, state: StreamState) -> bool:
    """Return whether the stream is drained to where the binlog ended at the request."""
    offset = state.drained.offset
    if offset is None or state.drained.pending is not None:
        return False
    return not comparable(offset, request.end) or compare_offsets(offset, request.end) >= 0
