"""Move Airflow's offset behind each batch, while a task waits for its Spark job."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_provider_mysql_cdc.cdc.model.log import Log

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig

LEDGER_POLL_S = 10.0
"""Seconds between two looks at the ledger."""
POLL_BACKOFF = 20
"""A look that takes long is followed by this many times its duration."""
JOIN_TIMEOUT_S = 30.0
"""Seconds for a look to end when the job has."""


@contextmanager
def following_ledger(cfg: ConnectorConfig, store: OffsetStore, log: Log) -> Iterator[None]:
    """Let the stored offset follow the ledger inside; what goes wrong is left to the settling afterwards.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store; its accessor may be used in another thread (Airflow's channel has a lock).
        log: Takes one line of text.
    """
    end = threading.Event()
    thread = threading.Thread(target=_follow, args=(cfg, store, log, end), name="cdc-follow", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(JOIN_TIMEOUT_S)


def _follow(cfg: ConnectorConfig, store: OffsetStore, log: Log, end: threading.Event) -> None:
    from airflow_provider_mysql_cdc.cdc.operate.ledger_follower import follow_ledger

    pause = LEDGER_POLL_S
    while not end.wait(pause):
        started = time.monotonic()
        try:
            follow_ledger(cfg, store, log)
        except Exception as error:  # of the store's database too; the job goes on whatever this thread meets
            log(f"the stored offset stays where it is for now: {type(error).__name__}: {error}")
        pause = max(LEDGER_POLL_S, POLL_BACKOFF * (time.monotonic() - started))
