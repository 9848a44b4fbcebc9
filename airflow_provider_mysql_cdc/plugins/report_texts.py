"""Texts of a report that stand in logs of tasks, which not everybody may read who may read a DAG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_BATCH = ("error", "owner")
_ERROR = ("where", "why", "owner")
_LISTS: Mapping[str, tuple[str, ...]] = {"errors": _ERROR, "scans": ("reason",), "requests": ("reason",)}
"""Lists of a report, and what of their entries may have statements, conditions or names of other DAGs."""


def without_log_texts(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report without such texts; what happened, and what to do, is left.

    Args:
        report: What was read of a pipeline.
    """
    found = dict(report)
    if isinstance(status := found.get("status"), Mapping) and isinstance(batch := status.get("batch"), Mapping):
        found["status"] = {**status, "batch": _without(batch, _BATCH)}
    if isinstance(inner := found.get("report"), Mapping):
        lists = {name: [_without(each, hidden) for each in inner.get(name) or ()] for name, hidden in _LISTS.items()}
        found["report"] = {**inner, **lists}
    return found


def without_examples(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report of a verification without values of rows, what its errors say, and whose run it was.

    Args:
        report: What was read of the last verification.
    """
    tables = {name: _without(table, ("examples", "unknown")) for name, table in report.get("tables", {}).items()}
    return {name: value for name, value in report.items() if name != "run"} | {"tables": tables}


def _without(entry: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in names}
