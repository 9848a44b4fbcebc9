"""Keys of records that are no row events, behind the transforms."""

from __future__ import annotations

import json
from typing import Any

from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.emit.contracts import Member
from airflow_provider_mysql_cdc.cdc.model.routing import Destination


def routed_key(to: Destination, key: bytes | None, *, schema: bool) -> bytes | None:
    """Return the key of a schema change, transaction or heartbeat record at its destination.

    The logical table router treats them like events: their key schema gets the new topic's name, and every key the
    field; the value stays.

    Args:
        to: Where the record goes.
        key: Its key before the transforms.
        schema: ``key.converter.schemas.enable``: the key is an object of schema and payload.
    """
    if key is None or (to.key_name is None and not to.key_fields):
        return key
    whole: dict[str, Any] = json.loads(key)
    payload = whole["payload"] if schema else whole
    payload.update(to.key_fields)
    if schema:
        described = whole["schema"]
        described["fields"] += [Member(name).to_schema() for name, _ in to.key_fields]
        described["name"] = to.key_name
    return dumps(whole).encode()
