"""What a task did, in a sentence or two: the XCom ``summary``.

A task of Airflow 3.3 cannot write a note of its run or of itself: the API of tasks (``execution_api``) has no way to do
so, and the REST API takes notes only from users with a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

SUMMARY_KEY = "summary"
"""Key of the XCom."""
NAMED_TABLES = 5
"""Tables that are named, those with the most records first."""


def summary_text(result: Mapping[str, Any]) -> str:
    """Return what a task did.

    Args:
        result: The task's result.
    """
    parts = (_work(result), _verification(result.get("verification") or {}), _place(result.get("offset") or {}))
    return " ".join(part for part in parts if part)


def _work(result: Mapping[str, Any]) -> str:
    total = sum((result.get("counts") or {}).values())
    reason = str(result.get("reason") or "")
    if not total:
        return f"Nothing was written: {reason.rstrip('.')}." if reason else "Nothing was written."
    batches = int(result.get("batches") or 0)
    within = f" in {_number(batches, 'batch', 'batches')}" if batches else ""
    return f"{_number(total, 'record', 'records')}{within}{_tables(result.get('tables') or {})}."


def _tables(tables: Mapping[str, int]) -> str:
    ordered = sorted(tables.items(), key=lambda table: (-table[1], table[0]))
    named = [f"{unquote(name)} {rows:,}" for name, rows in ordered[:NAMED_TABLES]]
    more = len(ordered) - len(named)
    rest = [f"and {_number(more, 'more table', 'more tables')}"] if more else []
    return f": {', '.join([*named, *rest])}" if named else ""


def _verification(verification: Mapping[str, Any]) -> str:
    if not verification:
        return ""
    compared, different = verification.get("tables_compared", 0), verification.get("tables_different", 0)
    unread, unjudged = (verification.get(f"tables_not_{what}", 0) for what in ("compared", "judged"))
    of = _number(compared, "table was", "tables were")
    differ = f"{different:,} of them {'differs' if different == 1 else 'differ'}" if different else "none differs"
    left_out = f" {_number(unread, 'table was', 'tables were')} not." if unread else ""
    in_part = f" {unjudged - unread:,} could not be judged in full." if unjudged > unread else ""
    return f"{of} compared; {differ}.{left_out}{in_part}"


def _place(offset: Mapping[str, Any]) -> str:
    return f"The stream is at {offset['file']}:{offset['pos']}." if offset.get("file") else ""


def _number(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"
