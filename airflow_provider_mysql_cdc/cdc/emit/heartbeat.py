"""Records of the heartbeat and transaction topics, and the keys of records that are not row events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow_provider_mysql_cdc.cdc.convert.connect_schema import ConnectSchema
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.emit.contracts import Member, struct
from airflow_provider_mysql_cdc.cdc.model.topic_transforms import Destination

_COMMON_PACKAGE = "io.debezium.connector.common"
_SCHEMA_VERSIONS = {True: 1, False: None}
"""Schema version of Debezium's own records; contract 1.9 has none (read from Debezium 1.9.7)."""


def _json_bytes(payload: Mapping[str, Any], schema: ConnectSchema | None) -> bytes:
    text = dumps(payload)
    return (text if schema is None else f'{{"schema":{dumps(schema)},"payload":{text}}}').encode()


_HEARTBEAT_SCHEMAS = {
    recent: (
        struct([Member("serverName").to_schema()], f"{_COMMON_PACKAGE}.ServerNameKey", version=version),
        struct([Member("ts_ms", "int64").to_schema()], f"{_COMMON_PACKAGE}.Heartbeat", version=version),
    )
    for recent, version in _SCHEMA_VERSIONS.items()
}


def heartbeat_record(
    prefix: str, now_ms: int, *, recent: bool = True, key_schema: bool = True, value_schema: bool = True
) -> tuple[bytes, bytes]:
    """Return key and value of a heartbeat (STRM-28).

    Args:
        prefix: ``topic.prefix``.
        now_ms: Milliseconds since the epoch.
        recent: Whether the format is that of Debezium 3, not 1.9.
        key_schema: ``key.converter.schemas.enable``.
        value_schema: ``value.converter.schemas.enable``.
    """
    schemas = _HEARTBEAT_SCHEMAS[recent]
    key = _json_bytes({"serverName": prefix}, schemas[0] if key_schema else None)
    return key, _json_bytes({"ts_ms": now_ms}, schemas[1] if value_schema else None)


def _transaction_value(*, recent: bool) -> ConnectSchema:
    version = _SCHEMA_VERSIONS[recent]
    counts = [Member("data_collection").to_schema(), Member("event_count", "int64").to_schema()]
    collection = struct(counts, "event.collection" if recent else None, optional=recent, version=version)
    members = [
        Member("status").to_schema(),
        Member("id").to_schema(),
        Member("event_count", "int64", optional=True).to_schema(),
        {"type": "array", "items": collection, "optional": True, "field": "data_collections"},
    ]
    if recent:
        members.append(Member("ts_ms", "int64").to_schema())
    return struct(members, f"{_COMMON_PACKAGE}.TransactionMetadataValue", version=version)


_TRANSACTION_SCHEMAS = {
    recent: (
        struct([Member("id").to_schema()], f"{_COMMON_PACKAGE}.TransactionMetadataKey", version=version),
        _transaction_value(recent=recent),
    )
    for recent, version in _SCHEMA_VERSIONS.items()
}


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
        recent: Whether the format is that of Debezium 3; 1.9 has no ``ts_ms``.
        key_schema: ``key.converter.schemas.enable``.
        value_schema: ``value.converter.schemas.enable``.
    """
    payload: dict[str, Any] = {"status": "BEGIN" if counts is None else "END", "id": transaction_id}
    payload["event_count"] = None if counts is None else sum(counts.values())
    payload["data_collections"] = (
        None if counts is None else [{"data_collection": n, "event_count": c} for n, c in counts.items()]
    )
    if recent:
        payload["ts_ms"] = now_ms
    schemas = _TRANSACTION_SCHEMAS[recent]
    key = _json_bytes({"id": transaction_id}, schemas[0] if key_schema else None)
    return key, _json_bytes(payload, schemas[1] if value_schema else None)


def routed_key(destination: Destination, key: bytes | None, *, schema: bool) -> bytes | None:
    """Return the key of a schema change, transaction or heartbeat record at its destination.

    The logical table router treats them like events: their key schema gets the new topic's name, and every key the
    field; the value stays.

    Args:
        destination: The topic and key of the record after the transforms.
        key: Its key before the transforms.
        schema: ``key.converter.schemas.enable``: the key is an object of schema and payload.
    """
    if key is None or (destination.key_name is None and not destination.key_fields):
        return key
    record_key: dict[str, Any] = json.loads(key)
    payload = record_key["payload"] if schema else record_key
    payload.update(destination.key_fields)
    if schema:
        key_schema = record_key["schema"]
        key_schema["fields"] += [Member(name).to_schema() for name, _ in destination.key_fields]
        key_schema["name"] = destination.key_name
    return dumps(record_key).encode()
