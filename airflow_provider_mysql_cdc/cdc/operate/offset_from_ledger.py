"""Update the stored offset, and the counts that a task reports, from the ledger."""

from __future__ import annotations

import time

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import REPORTED_KEY
from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.commit.reconcile import reconcile
from airflow_provider_mysql_cdc.cdc.commit.run_tally import (
    RunTally,
    reported_by,
    reported_record,
    tally_of_run,
    unreported_tally,
)
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import CdcError, RunInProgressError
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.job.job_error import WRITE_TIMEOUT_S
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, same_position
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.operate.lag_history import record_batch
from airflow_provider_mysql_cdc.cdc.operate.source_server import at_server_of_ledger
from airflow_provider_mysql_cdc.cdc.sink.plain_writer import write_plain


def follow_ledger(cfg: ConnectorConfig, store: OffsetStore, log: Log) -> BinlogOffset | None:
    """Move the stored offset to the end of the last batch that is complete in Kafka; return it when it has moved.

    The ledger is read up to its oldest open transaction, which belongs to the job: nothing waits, no writer is fenced,
    and later records are read the next time. A contradiction between state and ledger is reported by ``settle_offset``
    after the job.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store.
        log: Receives one line of text.

    Raises:
        CdcError: Kafka or the store cannot be reached, or they contradict each other.
    """
    stored = store.load()
    ledger = kafka_clients.ledger(cfg).peek()
    if stored is None or ledger.plan is None:
        return None
    result = reconcile(stored, ledger, at_ms=time.time_ns() // 1_000_000)
    before, after = stored.committed, result.state.committed
    if not result.changed or after is None or (before is not None and same_position(before, after)):
        return None
    store.save(result.state, stored)
    record_batch(store, ledger, log)
    log(f"the stored offset moves to {after} while the job is running (batch {result.state.epoch})")
    return after


def tally_of(cfg: ConnectorConfig, run_id: str) -> RunTally | None:
    """Return the counts of a run; None when it has written nothing, or another run reports them.

    Args:
        cfg: The connector's configuration.
        run_id: The run's id.

    Raises:
        CdcError: Kafka cannot be reached.
    """
    ledger = kafka_clients.ledger(cfg).peek()
    tally = tally_of_run(ledger, run_id)
    return tally if tally is not None and reported_by(ledger, tally) in (None, run_id) else None


def tally_of_ended_run(cfg: ConnectorConfig, owner: str) -> RunTally | None:
    """Return the counts of earlier runs that no task has reported; None while a driver is running that will.

    Args:
        cfg: The connector's configuration.
        owner: ``dag_id/run_id/task_id/map_index`` of this run.

    Raises:
        CdcError: The server or Kafka cannot be reached.
    """
    try:
        run_lock.require_sole_run(at_server_of_ledger(cfg).connection_settings(), cfg.topic_prefix, owner)
    except RunInProgressError:
        return None
    ledger = kafka_clients.ledger(cfg).peek()
    return unreported_tally(ledger) if ledger.plan is not None and ledger.complete() else None


def mark_reported(cfg: ConnectorConfig, tally: RunTally, run_id: str, log: Log) -> None:
    """Record in the ledger that a successful task has reported a tally; otherwise the next run reports it again.

    Args:
        cfg: The connector's configuration.
        tally: The tally that it reported.
        run_id: The task's run.
        log: Receives one line of text.
    """
    try:
        record = SideRecord(cfg.ledger_topic, REPORTED_KEY.encode(), encode(reported_record(tally, run_id)))
        write_plain(cfg.kafka_settings(), [record], timeout_s=WRITE_TIMEOUT_S)
    except CdcError as error:
        log(f"the next run will report these batches again: {type(error).__name__}: {error.message()}")
