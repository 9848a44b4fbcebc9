"""The signal with which a stream reads the tables that joined it, where the configuration says so."""

from __future__ import annotations

import hashlib
import json

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import unread_tables
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.enums import NewTablesMode
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import IncrementalState
from airflow_provider_mysql_cdc.cdc.incremental.scan_updates import STOP_REASON
from airflow_provider_mysql_cdc.cdc.signals.signal import Signal, build_signal
from airflow_provider_mysql_cdc.cdc.signals.table_names import entry_for

_ID_PREFIX = "new-tables-"


def new_tables_signal(cfg: ConnectorConfig, ledger: LedgerState, state: IncrementalState) -> Signal | None:
    """Return the signal that reads the tables that were never read; None where nothing is to be requested.

    Its id stands for these tables and for when they joined, so one that was carried out is not sent again; nor is a
    table read again of which a person has stopped the snapshot. A signal that was refused is sent again.

    Args:
        cfg: The connector's configuration.
        ledger: The ledger's content.
        state: The state of ad-hoc snapshots.
    """
    if cfg[F.SNAPSHOT_NEW_TABLES] is not NewTablesMode.INCREMENTAL:
        return None
    left_alone = {scan.table for scan in state.active_scans if scan.condition is None} | {
        scan.table
        for scan in state.scans.values()
        if scan.reason == STOP_REASON and scan.request.startswith(_ID_PREFIX)
    }
    unread = [each for table, each in unread_tables(ledger).items() if table not in left_alone and cfg.captures(table)]
    joined = "|".join(f"{each.table.path()}@{each.where}" for each in unread)
    id_ = f"{_ID_PREFIX}{hashlib.sha256(joined.encode()).hexdigest()[:16]}"
    request = state.requests.get(id_)
    if not unread or (request is not None and request.verdict == "accepted"):
        return None
    data = {"data-collections": [entry_for(each.table) for each in unread], "type": "incremental"}
    return build_signal(id_, "execute-snapshot", json.dumps(data), "airflow")
