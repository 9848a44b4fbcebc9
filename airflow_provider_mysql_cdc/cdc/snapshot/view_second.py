"""Wait until the view of a snapshot has a time of its own.

Rows of a snapshot have the position and time of its view, in whole seconds as Debezium writes it. Of a table without a
key nothing else tells that a row was read once more.
"""

from __future__ import annotations

import time
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import VIEW_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState

_PAUSE_S = 0.05


def wait_for_next_second(conn: Any, ledger: LedgerState) -> None:
    """Return when the server's second is another one than that of the last view; that takes a second at most.

    Args:
        conn: An open connection.
        ledger: The ledger, with the view of the last snapshot if there was one.
    """
    last_ms = ledger.other_records.get(VIEW_KEY, {}).get("ts_ms")
    while last_ms is not None and last_ms // 1000 == fetch_all(conn, "SELECT UNIX_TIMESTAMP()")[0][0]:
        time.sleep(_PAUSE_S)
