"""Reconcile the stored offset with the ledger."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_presence import read_existing
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore, StoredState
from airflow_provider_mysql_cdc.cdc.commit.reconcile import Reconciliation, reconcile
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.operate.source_server import at_server_of_ledger

FENCE_AFTER_S = 5.0


def read_ledger(cfg: ConnectorConfig, owner: str = "", stored: StoredState | None = None) -> LedgerState | None:
    """Return the ledger, or None when its topic does not exist.

    A killed writer leaves an open transaction that hides later commits; such a writer is fenced. A live one commits
    within seconds; a slow one of another run is not fenced.

    Args:
        cfg: The connector's configuration.
        owner: The run whose writers may be fenced although they are running.
        stored: The stored state, behind which the ledger may not have gone back.

    Raises:
        RecordsLostError: It has.
        RunInProgressError: A run of another owner is running and hides the end of the ledger.
    """

    def require_sole_run() -> None:
        run_lock.require_sole_run(at_server_of_ledger(cfg).connection_settings(), cfg.topic_prefix, owner)

    ledger = kafka_clients.ledger(cfg)
    if stored is not None:
        ledger.expect(stored.ledger_id, stored.ledger_end)
    return ledger.read(fence_after_s=FENCE_AFTER_S, before_fence=require_sole_run)


def reconcile_store(
    cfg: ConnectorConfig, store: OffsetStore, log: Log, owner: str = ""
) -> tuple[Reconciliation, LedgerState | None]:
    """Reconcile the stored state with the ledger, and store the result.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store.
        log: Receives one line of text.
        owner: ``dag_id/run_id/task_id/map_index``; empty for no run.

    Returns:
        The result, with the state that is stored now, and the ledger.

    Raises:
        LedgerMissingError, LedgerMismatchError, RecordsLostError: A person has to decide.
        OffsetConflictError: Another run changed the stored state at the same time.
        RunInProgressError: Another run is running and hides the end of the ledger.
    """
    stored = store.load()
    offset_stored = stored is not None and stored.committed is not None
    ledger = read_existing(partial(read_ledger, cfg, owner, stored), expect_plan=offset_stored)
    result = reconcile(stored, ledger, at_ms=time.time_ns() // 1_000_000)
    log(result.reason)
    if result.changed:
        result = replace(result, state=store.save(result.state, stored))
    return result, ledger
