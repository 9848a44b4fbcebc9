"""Keys of records that are not row events, after the transforms."""

from __future__ import annotations

import json
from typing import Any

from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.emit.contracts import Member
from airflow_provider_mysql_cdc.cdc.model.topic_transforms import Destination


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
