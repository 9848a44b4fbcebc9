"""Read events in JSON, with or without schemas."""

from __future__ import annotations

from typing import Any

import orjson

from airflow_provider_mysql_cdc.cdc.verify.event_record import EventRecord, UnreadableRecord


class PlainJsonReader:
    """Read the records of a topic in JSON."""

    def read(self, key: bytes | None, value: bytes | None) -> EventRecord:
        """Return what a record says; arguments and errors as for ``EventReader``."""
        try:
            key_fields = None if key is None else _payload(orjson.loads(key))
            if value is None:
                return EventRecord("", key_fields, None, None, {})
            event = _payload(orjson.loads(value))
            return EventRecord(
                event["op"], key_fields, event.get("before"), event.get("after"), event.get("source") or {}
            )
        except (ValueError, KeyError, TypeError) as error:
            raise UnreadableRecord(f"{type(error).__name__}: {error}") from None


def _payload(document: Any) -> Any:
    return document["payload"] if set(document) == {"schema", "payload"} else document
