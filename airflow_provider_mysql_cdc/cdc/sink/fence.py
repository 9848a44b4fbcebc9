"""Fence the writers of a topic.prefix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from airflow_provider_mysql_cdc.cdc.sink.record_writer import transactional_id
from airflow_provider_mysql_cdc.cdc.sink.writer import SHORT_TIMEOUT_MS, TransactionalWriter


def fence(
    kafka_settings: Mapping[str, Any],
    prefix: str,
    writers: Iterable[int | str],
    timeout_s: float = 60.0,
    *,
    transaction_timeout_ms: int = SHORT_TIMEOUT_MS,
) -> None:
    """Fence writers of a topic.prefix: their open transactions are aborted, and whatever they still send is refused.

    Each new epoch begins by fencing every writer that the ledger or the last plan names (``LedgerState.writer_ids``).
    So no writer that is left over from a plan with more writers can commit, and no open transaction hides what others
    have committed to the ledger.

    Args:
        kafka_settings: Client settings.
        prefix: topic.prefix.
        writers: Writer numbers.
        timeout_s: Seconds to wait for each writer.
        transaction_timeout_ms: A transaction timeout that the brokers accept; nothing is written, so it may be short.

    Raises:
        SinkConnectionError: Kafka cannot be reached in time.
        SinkError: Kafka refuses.
    """

    def fence_writer(writer: int | str) -> None:
        writer_id = transactional_id(prefix, writer)
        with TransactionalWriter(kafka_settings, writer_id, transaction_timeout_ms=transaction_timeout_ms) as client:
            client.init(timeout_s)

    ids = sorted(set(writers), key=str)
    if not ids:
        return
    with ThreadPoolExecutor(max_workers=min(4, len(ids))) as pool:
        for done in [pool.submit(fence_writer, writer) for writer in ids]:
            done.result()
