"""Let the stored offset follow the ledger while a job is at work, batch after batch."""

from __future__ import annotations

import time
from collections.abc import Callable

from airflow_provider_mysql_cdc.cdc.commit.reconcile import reconcile
from airflow_provider_mysql_cdc.cdc.commit.run_tally import RunTally, counted
from airflow_provider_mysql_cdc.cdc.commit.store import OffsetStore
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.job import wiring
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, same_place


def follow(cfg: ConnectorConfig, store: OffsetStore, log: Callable[[str], None]) -> BinlogOffset | None:
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
    """Return what a run has written, as long as no other run has come after it.

    Args:
        cfg: The connector's configuration.
        run: The run's id.

    Raises:
        CdcError: Kafka cannot be reached.
    """
    tally = counted(wiring.ledger(cfg).peek())
    return tally if tally is not None and tally.run == run else None
