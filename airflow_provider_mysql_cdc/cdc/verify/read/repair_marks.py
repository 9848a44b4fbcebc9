"""The header of records that a repair writes: it settles what is before them, of their key and in their partition.

A repair writes the row of a key as it is, or that there is none. So what was wrong with earlier records of the key
leads consumers nowhere any longer, and verifications do not report it again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from airflow_provider_mysql_cdc.cdc.model.records import Header, Headers
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord

_PLACE = re.compile(rb"(?<!\d)(\d{1,9})@(\d{1,18})(?!\d)")
REPAIR_HEADER = "cdc-repair"
"""Header of every record that a repair writes: the id of its run."""

SETTLED_HEADER = "cdc-repair-settles"
"""Header of a row that a repair writes, or deletes, with the places of records that have no key to write behind."""


def settled_header(places: Iterable[tuple[int, int]]) -> list[Header]:
    """Return the header that names records without keys as settled; none where there are none."""
    text = ",".join(f"{partition}@{offset}" for partition, offset in sorted(places))
    return [(SETTLED_HEADER, text.encode())] if text else []


def settled_places(headers: Headers) -> Iterator[tuple[int, int]]:
    """Yield partitions and offsets of the records that such a header names."""
    for name, content in headers or ():
        if name == SETTLED_HEADER and content is not None:
            for partition, offset in _PLACE.findall(content):
                yield int(partition), int(offset)


def without_unknown_repair(record: TopicRecord, runs: Mapping[bytes | None, int]) -> TopicRecord:
    """Return a record without the marks of a repair if it is of none of these runs: other hands have written them.

    Args:
        record: The record.
        runs: The runs that have repaired something in the topic, as the ledger says, and when they wrote the last of
            it. What has a later time has copied the marks.
    """
    of_runs = (runs.get(run, -1) for name, run in record.headers or () if name == REPAIR_HEADER)
    if all(record.timestamp_ms <= last_ms for last_ms in of_runs):
        return record
    return replace(record, headers=tuple(h for h in record.headers if h[0] not in (REPAIR_HEADER, SETTLED_HEADER)))


def is_repair(headers: Headers) -> bool:
    """Return whether a repair has written a record."""
    for name, _ in headers or ():  # asked of each record, so no generator  # noqa: SIM110
        if name == REPAIR_HEADER:
            return True
    return False
