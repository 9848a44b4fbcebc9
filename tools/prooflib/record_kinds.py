"""Kinds of explained differences in whole records: those that one capture has and the other has not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from prooflib.ddl_kinds import schema_change
from prooflib.records import Record

if TYPE_CHECKING:
    from prooflib.differ import Difference

_KEY_CHANGE = ("__debezium.newkey", "__debezium.oldkey")
_LIKE = re.compile(r"CREATE\b.*\bLIKE\b.*", re.IGNORECASE | re.DOTALL)
_WITHOUT_COMMENT = re.compile(r"(?:ALTER|RENAME)\b(?!.*\bCOMMENT\b).*", re.IGNORECASE | re.DOTALL)


def truncation(d: Difference) -> bool:
    """Return whether the record is a truncate event."""
    return all(r is not None and isinstance(r.payload, dict) and r.payload.get("op") == "t" for r in d.pair)


def _ours_only(d: Difference) -> bool:
    return d.path[0] == "record" and d.pair[0] is not None and d.pair[1] is None


def after_the_end(d: Difference) -> bool:
    """Return whether our record is after all records of its partition in the recorded capture.

    A record that ours has twice is reported as another difference.
    """
    return _ours_only(d) and not d.context.followed and not d.context.repeated


def partial_update(d: Difference) -> bool:
    """Return whether only ours has a record of an UPDATE: of the row, or the three of a changed key."""
    ours = d.pair[0]
    if ours is None or not _ours_only(d) or d.context.repeated:
        return False
    if isinstance(ours.payload, dict) and ours.payload.get("op") == "u":
        return True
    return any(name in _KEY_CHANGE for name, _ in ours.headers)


def undecided_xa(d: Difference) -> bool:
    """Return whether only the recorded capture has a streamed row, of an XA transaction (it names no thread).

    One that was committed looks the same: the entries of the list name the rows that were rolled back.
    """
    ours, theirs = d.pair
    if d.path[0] != "record" or ours is not None or theirs is None or not isinstance(theirs.payload, dict):
        return False
    if "__op" in theirs.payload:  # behind transforms nothing else of the event is left
        return theirs.payload["__op"] in ("c", "u", "d")
    source = theirs.payload.get("source") or {}
    return (
        source.get("snapshot") == "false"
        and source.get("thread") is None
        and theirs.payload.get("op") in ("c", "u", "d")
    )


def doubled_header(d: Difference) -> bool:
    """Return whether a recorded tombstone has headers at its end twice that ours has once."""
    if d.path != ("headers", "(names)") or any(r is None or r.value is not None for r in d.pair):
        return False
    added = len(d.theirs) - len(d.ours)
    return added > 0 and d.theirs == [*d.ours, *d.ours[-added:]]


def defaulted_snapshot(d: Difference) -> bool:
    """Return whether the recorded stream has null where ours says that no snapshot wrote the record."""
    return d.theirs is None and d.ours == "false" and d.path[-1] == "snapshot"


def copied_comment(d: Difference) -> bool:
    """Return whether the recorded CREATE TABLE ... LIKE lacks the comment of our table."""
    return _lacks_text(d) and all(_is_change(r, "CREATE", _LIKE) for r in d.pair)


def kept_comment(d: Difference) -> bool:
    """Return whether the recorded ALTER or RENAME TABLE, which names no comment, lacks that of our table."""
    return _lacks_text(d) and all(_is_change(r, "ALTER", _WITHOUT_COMMENT) for r in d.pair)


def _lacks_text(d: Difference) -> bool:
    return d.theirs is None and isinstance(d.ours, str) and bool(d.ours) and schema_change(d)


def _is_change(record: Record | None, kind: str, statement: re.Pattern[str]) -> bool:
    if record is None or [c["type"] for c in record.payload["tableChanges"]] != [kind]:
        return False
    return statement.fullmatch(record.payload["ddl"] or "") is not None
