"""Record headers."""

from __future__ import annotations

import os
import time
import uuid

from airflow_provider_mysql_cdc.cdc.model.records import Header


def new_run_id(now_ms: int | None = None) -> str:
    """Return a new UUID of version 7 (RFC 9562: milliseconds first, so that run ids sort by time).

    Args:
        now_ms: Milliseconds since the epoch; the current time when None.
    """
    timestamp_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    raw = bytearray(timestamp_ms.to_bytes(6, "big") + os.urandom(10))
    raw[6] = 0x70 | raw[6] & 0x0F
    raw[8] = 0x80 | raw[8] & 0x3F
    return str(uuid.UUID(bytes=bytes(raw)))


def context_headers(prefix: str, run_id: str, *, connector: str = "mysql", task_id: str = "0") -> list[Header]:
    """Return the four headers of row events, tombstones and schema changes (``extended.headers.enabled``).

    Transaction metadata and heartbeats do not have them.

    Args:
        prefix: ``topic.prefix``.
        run_id: Id of the run, the same in all its records.
        connector: Connector kind.
        task_id: Always ``0`` with Debezium's MySQL connector.
    """
    names = ("connectorLogicalName", "taskId", "connectorName", "runId")
    values = (prefix, task_id, connector, run_id)
    return [(f"__debezium.context.{n}", v.encode()) for n, v in zip(names, values, strict=True)]
