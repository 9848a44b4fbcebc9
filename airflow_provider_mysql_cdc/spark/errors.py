"""Named errors across Spark, which brings a task's exception back to the driver as text only."""

from __future__ import annotations

import json

from airflow_provider_mysql_cdc.cdc.errors import CdcError, from_json

MARK = "mysql-cdc-error:"


def named_error(error: BaseException) -> CdcError | None:
    """Return the CdcError behind an error, also one that came back from a task.

    Args:
        error: What a job raised.
    """
    if isinstance(error, CdcError):
        return error
    text = str(error)
    start = text.rfind(MARK)
    if start < 0:
        return None
    try:
        data, _ = json.JSONDecoder().raw_decode(text[start + len(MARK) :])
        return from_json(data)
    except (ValueError, RecursionError):
        return None
