"""Records of the heartbeat and transaction topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.emit.contracts import Member, Schema, struct

_COMMON = "io.debezium.connector.common"


def _encoded(payload: Mapping[str, Any], schema: Schema | None) -> bytes:
    text = dumps(payload)
    return (text if schema is None else f'{{"schema":{dumps(schema)},"payload":{text}}}').encode()


_HEARTBEAT_KEY = struct([Member("serverName").to_schema()], f"{_COMMON}.ServerNameKey", version=1)
_HEARTBEAT_VALUE = struct([Member("ts_ms", "int64").to_schema()], f"{_COMMON}.Heartbeat", version=1)


def heartbeat_record(
    prefix: str, now_ms: int, *, key_schema: bool = True, value_schema: bool = True
) -> tuple[bytes, bytes]:
    """Return key and value of a heartbeat (STRM-28).

    Args:
        prefix: ``topic.prefix``.
        now_ms: Milliseconds since the epoch.
        key_schema: ``key.converter.schemas.enable``.
        value_schema: ``value.converter.schemas.enable``.
    """
    key = _encoded({"serverName": prefix}, _HEARTBEAT_KEY if key_schema else None)
    return key, _encoded({"ts_ms": now_ms}, _HEARTBEAT_VALUE if value_schema else None)


_TRANSACTION_KEY = struct([Member("id").to_schema()], f"{_COMMON}.TransactionMetadataKey", version=1)
_COLLECTION = struct(
    [Member("data_collection").to_schema(), Member("event_count", "int64").to_schema()],
    "event.collection",
    optional=True,
    version=1,
)
_TRANSACTION_VALUE = struct(
    [
        Member("status").to_schema(),
        Member("id").to_schema(),
        Member("event_count", "int64", optional=True).to_schema(),
        {"type": "array", "items": _COLLECTION, "optional": True, "field": "data_collections"},
        Member("ts_ms", "int64").to_schema(),
    ],
    f"{_COMMON}.TransactionMetadataValue",
    version=1,
)


def transaction_record(
    transaction_id: str,
    now_ms: int,
    counts: Mapping[str, int] | None,
    *,
    recent: bool = True,
    key_schema: bool = True,
    value_schema: bool = True,
) -> tuple[bytes, bytes]:
    """Return key and value of a transaction boundary (TXN-02 to TXN-07, TXN-10 as settled).

    Args:
        transaction_id: GTID, or ``file=...,pos=...``.
        now_ms: Milliseconds since the epoch.
        counts: Events by ``db.table`` for END; None for BEGIN.
        recent: Whether ``ts_ms`` is written; contract 1.9 has no such member.
        key_schema: ``key.converter.schemas.enable``.
        value_schema: ``value.converter.schemas.enable``.
    """
    payload: dict[str, Any] = {"status": "BEGIN" if counts is None else "END", "id": transaction_id}
    payload["event_count"] = None if counts is None else sum(counts.values())
    payload["data_collections"] = (
        None if counts is None else [{"data_collection": n, "event_count": c} for n, c in counts.items()]
    )
    schema = _TRANSACTION_VALUE
    if recent:
        payload["ts_ms"] = now_ms
    else:
        schema = {**schema, "fields": schema["fields"][:-1]}
    key = _encoded({"id": transaction_id}, _TRANSACTION_KEY if key_schema else None)
    return key, _encoded(payload, schema if value_schema else None)
