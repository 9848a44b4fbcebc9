"""The header of records that a repair writes: it settles what is before them, of their key and in their partition.

A repair writes the row of a key as it is, or that there is none. So what was wrong with earlier records of the key
leads consumers nowhere any longer, and verifications do not report it again.
"""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.model.records import Headers

REPAIR_HEADER = "cdc-repair"
"""Header of every record that a repair writes: the id of its run."""


def is_repair(headers: Headers) -> bool:
    """Return whether a repair has written a record.

    Args:
        headers: The record's headers.
    """
    return any(name == REPAIR_HEADER for name, _ in headers or ())
