"""What tests ask of the records of a topic."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord


def payload(data: bytes | None) -> Any:
    """Return the payload of a key or value written by the JSON converter, with or without schema."""
    if data is None:
        return None
    found = json.loads(data)
    return found["payload"] if isinstance(found, dict) and set(found) == {"schema", "payload"} else found


def compacted(records: list[TopicRecord]) -> dict[str, Any]:
    """Return the last value per key, tombstones removed."""
    state: dict[str, Any] = {}
    for record in records:
        key = json.dumps(payload(record.key), sort_keys=True)
        value = payload(record.value)
        if value is None or value["op"] == "d":
            state.pop(key, None)
        else:
            state[key] = value["after"]
    return state


def require_chain(records: list[TopicRecord]) -> None:
    """Fail unless each event of a key continues what the one before left, and no row was read twice.

    A window may read a row after events of it: it has then what the events left. Rows of different structures are
    compared by the columns that both have.
    """
    last: dict[str, Any] = {}
    read: set[str] = set()
    for record in records:
        key, value = json.dumps(payload(record.key), sort_keys=True), payload(record.value)
        if value is None:
            assert last.get(key) is None, (key, "a tombstone without a delete")
            continue
        if value["op"] == "r":
            assert key not in read, (key, "was read twice")
            read.add(key)
        if key in last:
            row, before = value["after" if value["op"] == "r" else "before"], last[key]
            assert (row is None) == (before is None), (key, value["op"], before, row)
            if row is not None:
                common = row.keys() & before.keys()
                assert {n: row[n] for n in common} == {n: before[n] for n in common}, (key, value["op"])
        last[key] = value["after"]


def duplicates(records: list[TopicRecord]) -> list[bytes]:
    """Return the event identities that occur more than once (header cdc-id)."""
    ids = [dict(r.headers)["cdc-id"] for r in records]
    return [i for i, n in Counter(ids).items() if n > 1]
