"""What goes with TiCDC's protocol, and what has no place in it."""

from __future__ import annotations

from typing import Any

from airflow_provider_mysql_cdc.cdc.config import column_fields, event_fields
from airflow_provider_mysql_cdc.cdc.config.enums import EventContract
from airflow_provider_mysql_cdc.cdc.config.field import Field, Lookup
from airflow_provider_mysql_cdc.cdc.config.registry_fields import (
    HEADER_ID_SERIALIZER,
    KEY_AVRO,
    SUBJECT_STRATEGIES,
    VALUE_AVRO,
)

_ROWS_ONLY = "its topics hold rows only"
# Property, the values that are refused (None: any that is given), why, what to do.
_REFUSED_SETTINGS: tuple[tuple[Field[Any], Any, str, str], ...] = (
    (event_fields.EVENT_CONTRACT, EventContract.OLD, "its records have their own format", "Remove it"),
    (event_fields.PROVIDE_TRANSACTION_METADATA, True, _ROWS_ONLY, "Set enable-tidb-extension=true instead"),
    (event_fields.INCLUDE_SCHEMA_CHANGES, True, "the protocol has no records for statements", "Remove it"),
    (column_fields.TRANSFORMS, None, "its dispatchers choose the topics", "Use dispatchers"),
    (column_fields.CONVERTERS, None, "its types are TiDB's", "Remove it"),
    *(
        (field, None, "keys and values have one registry, that of values", "Remove it, or set it for value.converter")
        for field in KEY_AVRO.all()
    ),
    *(
        (VALUE_AVRO.subjects, name, "its subjects are <topic>-key and <topic>-value", "Remove it")
        for name in SUBJECT_STRATEGIES[1:]
    ),
    (VALUE_AVRO.ids, HEADER_ID_SERIALIZER, "its ids are in front of the bytes", "Remove it"),
)


def ticdc_problems(get: Lookup) -> list[tuple[Field[Any], str, str]]:
    """Return what does not go with ``value.format=ticdc-avro``: property, why, what to do.

    Args:
        get: Reads properties.
    """
    problems = [
        (field, why, fix)
        for field, refused, why, fix in _REFUSED_SETTINGS
        if get.is_set(field) and (refused is None or get[field] == refused)
    ]
    if get[event_fields.HEARTBEAT_INTERVAL_MS]:
        problems.append((event_fields.HEARTBEAT_INTERVAL_MS, _ROWS_ONLY, "Remove it"))
    return problems
