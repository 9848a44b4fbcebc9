"""The header of records that a repair writes: it settles what is before them, of their key and in their partition.

A repair writes the row of a key as it is, or that there is none. So what was wrong with earlier records of the key
leads consumers nowhere any longer, and verifications do not report it again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from airflow_provider_mysql_cdc.cdc.model.records import Header, Headers

_PLACE = re.compile(rb"(?<!\d)(\d{1,9})@(\d{1,18})(?!\d)")
REPAIR_HEADER = "cdc-repair"
"""Header of every record that a repair writes: the id of its run."""

SETTLED_HEADER = "cdc-repair-settles"
"""Header of a row that a repair writes, or deletes, with the places of records that have no key to write behind."""


def settled_header(places: Iterable[tuple[int, int]]) -> list[Header]:
    """Return the header that names records without keys as settled; none where there are none.

    Args:
        places: Their partitions and offsets.
    """
    text = ",".join(f"{partition}@{offset}" for partition, offset in sorted(places))
    return [(SETTLED_HEADER, text.encode())] if text else []


def settled_places(headers: Headers) -> Iterator[tuple[int, int]]:
    """Yield partitions and offsets of the records that such a header names.

    Args:
        headers: The record's headers.
    """
    for name, content in headers or ():
        if name == SETTLED_HEADER and content is not None:
            for partition, offset in _PLACE.findall(content):
                yield int(partition), int(offset)


def is_repair(headers: Headers) -> bool:
    """Return whether a repair has written a record.

    Args:
        headers: The record's headers.
    """
    for name, _ in headers or ():  # asked of each record, so no generator  # noqa: SIM110
        if name == REPAIR_HEADER:
            return True
    return False
