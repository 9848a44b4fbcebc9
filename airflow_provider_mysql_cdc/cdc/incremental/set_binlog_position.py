"""The signal set-binlog-position: from the next batch on, the stream continues at another position of the binlog.

The move is a plan of kind ``reset``, as when an operator resets the offset. It is written to the ledger in one
transaction with all other effects of the signals, so that the next run finds both or neither.
Source: Debezium 3.6.1, ``SetBinlogPositionSignal``; there, too, the new position is used at the next start.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from airflow_provider_mysql_cdc.cdc.binlog.position import check_available, end_of_binlog
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import PROCESSED_SIGNALS_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState, ProcessedSignals
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, reset_plan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.failover.failover import place_on_server
from airflow_provider_mysql_cdc.cdc.drain.failover.requested_position import position_at, position_of_gtids
from airflow_provider_mysql_cdc.cdc.drain.failover.reset_structures import history_covers, schema_records
from airflow_provider_mysql_cdc.cdc.errors import (
    BinlogCorruptError,
    BinlogPurgedError,
    ConfigError,
    SchemaError,
    UnsupportedEventError,
)
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.offset import (
    BinlogOffset,
    comparable,
    compare_offsets,
    moves_back,
    same_position,
)
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.signals.actions import SetBinlogPosition, SignalRefused
from airflow_provider_mysql_cdc.cdc.signals.signal import pending_signals

_REFUSED_ERRORS = (ConfigError, BinlogPurgedError, SchemaError, BinlogCorruptError, UnsupportedEventError)
"""Errors of the requested position itself: the signal is refused, and the drain continues."""


@dataclass(frozen=True, slots=True)
class PositionMove:
    """Hold a move of the stream.

    Args:
        origin: Its position.
        target: Its new position; the same as ``origin`` if there is nothing to do.
        history_records: Table structures for the schema history, if it does not contain those at the target.
    """

    origin: BinlogOffset
    target: BinlogOffset
    history_records: tuple[SideRecord, ...] = ()

    @property
    def needed(self) -> bool:
        """Whether the target is another position."""
        return not same_position(self.origin, self.target)

    @property
    def moves_back(self) -> bool:
        """Whether changes are published again, instead of being skipped."""
        return moves_back(self.origin, self.target)

    def log_line(self) -> str:
        """Return the effect of the move, for the log."""
        if not self.needed:
            return f"the stream is already at {describe_offset(self.target)}"
        effect = (
            "the changes in between are published again" if self.moves_back else "the changes in between are skipped"
        )
        return (
            f"the stream continues at {describe_offset(self.target)} instead of {describe_offset(self.origin)}: "
            f"{effect}"
        )

    def notification_data(self) -> dict[str, str]:
        """Return the members of the notification."""
        direction = ("back" if self.moves_back else "forward") if self.needed else "none"
        return {"from": describe_offset(self.origin), "to": describe_offset(self.target), "direction": direction}


def describe_offset(offset: BinlogOffset) -> str:
    """Return an offset as text: file and position, and the GTID set if it is known."""
    return f"{offset} ({offset.gtids})" if offset.gtids else str(offset)


def find_move(
    cfg: ConnectorConfig, conn: MySqlConnection, job: JobLedger, ledger: LedgerState, action: SetBinlogPosition
) -> PositionMove:
    """Return the move that a signal requests, after checking that the stream can continue there.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        job: The ledger; nothing is written.
        ledger: Its content; its last batch is complete.
        action: The signal.

    Raises:
        SignalRefused: The server does not have the position, it is no transaction boundary, or the table structures
            there are unknown.
        CdcError: The source or Kafka cannot be reached.
    """
    origin = ledger.end()
    if origin is None:
        raise SignalRefused("the stream has no position yet: take a snapshot, or drain, first")
    settings = cfg.connection_settings()
    try:
        binlog_end = end_of_binlog(conn, settings)
        if action.gtids is not None:
            target = position_of_gtids(cfg, conn, binlog_end, GtidSet.parse(action.gtids))
        else:
            assert action.file is not None and action.pos is not None  # read_action
            target = position_at(conn, settings, binlog_end, action.file, action.pos)
        move = PositionMove(origin, target.remembering(origin))
        if not move.needed or history_covers(cfg, conn, target, origin):
            return move
        records, _ = schema_records(cfg, job, target, _next_epoch(ledger))
        return replace(move, history_records=tuple(records))
    except _REFUSED_ERRORS as error:
        raise SignalRefused(error.message()) from error


def move_plan(ledger: LedgerState, move: PositionMove, owner: str) -> BatchPlan:
    """Return the plan that moves the stream.

    Args:
        ledger: The ledger.
        move: The move.
        owner: The id of this run.
    """
    return reset_plan(_next_epoch(ledger), move.target, owner, time.time_ns() // 1_000_000)


def _next_epoch(ledger: LedgerState) -> int:
    return ledger.plan_in_force().epoch + 1


def signals_taken_records(job: JobLedger, ledger: LedgerState, epoch: int) -> list[SideRecord]:
    """Return the records that store up to which position rows of the signal table were read, when the stream is moved.

    After a move back the same rows are read again, but their signals were carried out or are pending in the ledger.

    Args:
        job: The ledger.
        ledger: Its content.
        epoch: Epoch of the move.
    """
    reached, before = ledger.signal_table_offset(), ledger.processed_signals
    if reached is None or (
        before and comparable(before.offset, reached) and compare_offsets(before.offset, reached) >= 0
    ):
        return []
    records = [job.record(PROCESSED_SIGNALS_KEY, ProcessedSignals(reached, epoch).to_json())]
    if before is not None:
        # Pending signals that were read again after an earlier move would seem to be new.
        topic = records[0].topic
        records += [
            SideRecord(topic, k.encode(), None)
            for k, s in pending_signals(ledger.signals)
            if before.covers(s.position, s.epoch)
        ]
    return records


def signals_taken_before(cfg: ConnectorConfig, conn: MySqlConnection, ledger: LedgerState) -> ProcessedSignals | None:
    """Return up to which position the signal table was read before the stream was moved; None if all rows are new.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        ledger: The ledger.

    Raises:
        SourceError: The server cannot be queried.
    """
    taken = ledger.processed_signals
    if taken is None:
        return None
    try:
        place = place_on_server(cfg, conn, taken.offset)
        return replace(taken, offset=check_available(conn, cfg.connection_settings(), place))
    except BinlogPurgedError:
        return None  # of another binlog, or of purged files: the stream is after it
