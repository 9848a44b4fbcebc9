"""Let the stored offset and what a task tells follow the ledger."""

from __future__ import annotations

import time

from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.commit.reconcile import reconcile
from airflow_provider_mysql_cdc.cdc.commit.run_tally import TOLD_KEY, RunTally, of_run, teller, told_record, untold
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import CdcError, RunInProgressError
from airflow_provider_mysql_cdc.cdc.formats import wiring
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.job.job_error import TELL_S
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, same_place
from airflow_provider_mysql_cdc.cdc.sink.plain_writer import write_plain


def follow(cfg: ConnectorConfig, store: OffsetStore, log: Log) -> BinlogOffset | None:
    """Move the stored offset to the end of the last batch that stands in Kafka; return it when it has moved.

    The ledger is read up to its oldest open transaction, which belongs to the job: nothing waits and no writer is
    fenced, and what lies behind it is for the next look. What cannot be brought together is left to the settling after
    the job, which names it.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store.
        log: Takes one line of text.

    Raises:
        CdcError: Kafka or the store cannot be reached, or both contradict each other.
    """
    stored = store.load()
    ledger = wiring.ledger(cfg).peek()
    if stored is None or ledger.plan is None:
        return None
    result = reconcile(stored, ledger, at_ms=time.time_ns() // 1_000_000)
    before, after = stored.committed, result.state.committed
    if not result.changed or after is None or (before is not None and same_place(before, after)):
        return None
    store.save(result.state, stored)
    log(f"the stored offset moves to {after} while the job goes on (batch {result.state.epoch})")
    return after


def tally_of(cfg: ConnectorConfig, run: str) -> RunTally | None:
    """Return what a run has written; None when it has written nothing, or another run tells of it.

    Args:
        cfg: The connector's configuration.
        run: The run's id.

    Raises:
        CdcError: Kafka cannot be reached.
    """
    ledger = wiring.ledger(cfg).peek()
    tally = of_run(ledger, run)
    return tally if tally is not None and teller(ledger, tally) in (None, run) else None


def left_untold(cfg: ConnectorConfig, owner: str) -> RunTally | None:
    """Return what runs before have written and nobody has told of, when no driver is at work that will.

    Args:
        cfg: The connector's configuration.
        owner: ``dag_id/run_id/task_id/map_index`` of this run.

    Raises:
        CdcError: Server or Kafka cannot be reached.
    """
    try:
        run_lock.require_nobody_else(cfg.connection_settings(), cfg.topic_prefix, owner)
    except RunInProgressError:
        return None
    ledger = wiring.ledger(cfg).peek()
    return untold(ledger) if ledger.plan is not None and ledger.complete() else None


def note_told(cfg: ConnectorConfig, tally: RunTally, run: str, log: Log) -> None:
    """Write down that a task that succeeds has told of a tally; who comes next would tell of it again.

    Args:
        cfg: The connector's configuration.
        tally: What it has told of.
        run: The task's run.
        log: Takes one line of text.
    """
    try:
        record = (cfg.ledger_topic, TOLD_KEY.encode(), encode(told_record(tally, run)))
        write_plain(cfg.kafka_settings(), [record], timeout_s=TELL_S)
    except CdcError as error:
        log(f"the next run tells of these batches again: {type(error).__name__}: {error.message()}")
