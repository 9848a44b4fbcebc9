"""Move Airflow's offset after each batch, while a task waits for its Spark job."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_provider_mysql_cdc.cdc.model.log import Log

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig

FollowedStream = tuple["ConnectorConfig", "OffsetStore", Log]
LEDGER_POLL_S = 10.0
"""Seconds between two reads of the ledger."""
POLL_BACKOFF = 20
"""The pause after a read is at least this many times the read's duration."""
JOIN_TIMEOUT_S = 30.0
"""Seconds to wait for a read in progress when the job has ended."""


@contextmanager
def following_ledger(cfg: ConnectorConfig, store: OffsetStore, log: Log) -> Iterator[None]:
    """Let the stored offset follow the ledger inside; errors are left to the settlement after the job.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store; its accessor may be used in another thread (Airflow's channel has a lock).
        log: Takes one line of text.
    """
    with following_ledgers([(cfg, store, log)]):
        yield


@contextmanager
def following_ledgers(streams: Sequence[FollowedStream]) -> Iterator[None]:
    """Let the stored offset of each stream follow its ledger inside, one after the other.

    Args:
        streams: What ``following_ledger`` takes, for each stream.
    """
    end = threading.Event()
    thread = threading.Thread(target=_follow, args=(streams, end), name="cdc-follow", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(JOIN_TIMEOUT_S)


def _follow(streams: Sequence[FollowedStream], end: threading.Event) -> None:
    from airflow_provider_mysql_cdc.cdc.operate.offset_from_ledger import follow_ledger

    pause = LEDGER_POLL_S
    while not end.wait(pause):
        started = time.monotonic()
        for cfg, store, log in streams:
            if end.is_set():
                return
            try:
                follow_ledger(cfg, store, log)
            except Exception as error:  # also of the store's database; the job must not end because of this thread
                log(f"The stored offset could not be moved yet: {type(error).__name__}: {error}")
        pause = max(LEDGER_POLL_S, POLL_BACKOFF * (time.monotonic() - started))
