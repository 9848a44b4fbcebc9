"""Kinds of explained differences in statements and in what Debezium's DDL parser makes of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from prooflib.values import in_row, in_stream, is_default, of_members, texts

if TYPE_CHECKING:
    from prooflib.differ import Difference


def schema_change(d: Difference) -> bool:
    """Return whether the record is a schema change."""
    return any(r is not None and isinstance(r.payload, dict) and "ddl" in r.payload for r in d.pair)


def unselected_key(d: Difference) -> bool:
    """Return whether a snapshot's key has something else for a column that the values do not have."""
    record = d.pair[1]
    if record is None or not record.snapshot or d.path[:2] != ("key", "payload") or len(d.path) != 3:
        return False
    after = record.payload.get("after") if isinstance(record.payload, dict) else None
    return isinstance(after, dict) and d.path[2] not in after


def stale_query(d: Difference) -> bool:
    """Return whether the recorded schema change has the query of an earlier change of rows."""
    return schema_change(d) and d.ours is None and isinstance(d.theirs, str)


def unclosed_comment(d: Difference) -> bool:
    """Return whether the recorded statement lacks the end of the executable comment that ends ours."""
    return texts(d) and "/*!" in d.theirs and re.sub(r"\s*\*/$", "", d.ours) == d.theirs != d.ours


def cut_create(d: Difference) -> bool:
    """Return whether the recorded statement lacks the first word of our CREATE UNIQUE INDEX."""
    return texts(d) and re.sub(r"^CREATE\s+(?=UNIQUE\b)", "", d.ours, flags=re.IGNORECASE) == d.theirs != d.ours


_QUOTED = re.compile(
    r"""(--[^\n]*|\#[^\n]*|/\*(?!!).*?\*/|'(?:''|[^'\\]|\\.)*'|`[^`]*`)|"((?:[^"\\]|\\.|"")*)\"""", re.DOTALL
)
# Words that Debezium puts into backticks where they are names.
_BACKTICKED = re.compile(
    r"`(CUME_DIST|DENSE_RANK|FIRST_VALUE|JSON_TABLE|LAG|LAST_VALUE|LEAD|NTH_VALUE|NTILE|PERCENT_RANK|RANK|ROW_NUMBER"
    r"|AUTO|MANUAL|OFFLINE|ONLINE|PARALLEL|QUALIFY|TABLESAMPLE|URL|VECTOR)`",
    re.IGNORECASE,
)


def requoted(d: Difference) -> bool:
    """Return whether the recorded statement has other quotes: strings in single ones, some names in backticks."""
    if not texts(d):
        return False
    single = _QUOTED.sub(lambda m: m[1] if m[1] is not None else "'" + m[2].replace("'", "''") + "'", d.ours)
    return _BACKTICKED.sub(r"\1", single) == _BACKTICKED.sub(r"\1", d.theirs)


_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


def unescaped(ours: str, theirs: str) -> bool:
    """Return whether a text has the backslash escapes of SQL where ours has the characters that they represent."""
    if "\\" not in theirs:
        return False
    return re.sub(r"\\([^,])", lambda m: _ESCAPES.get(m[1], m[1]), theirs) == ours


def backslashes(d: Difference) -> bool:
    """Return whether the recorded text has the backslash escapes of SQL where ours has the characters that they
    represent.

    In a row it holds for the value of an ENUM in the stream, whose members came from a statement, and for a NULL that
    the default replaces.
    """
    if not texts(d) or not unescaped(d.ours, d.theirs):
        return False
    return not in_row(d) or (in_stream(d) and of_members(d)) or is_default(d)


def added_on_update(d: Difference) -> bool:
    """Return whether only ours counts a column as generated, which a recorded statement added in parentheses."""
    if (d.ours, d.theirs) != (True, False) or len(d.path) < 2:
        return False
    name = re.escape(d.path[-2][1:-1])
    added = re.compile(
        rf"\bADD\s+(COLUMN\s+)?\((?:.*[,\s])?`?{name}`?\s[^,]*\bON\s+UPDATE\b", re.IGNORECASE | re.DOTALL
    )
    return any(added.search(change.payload["ddl"] or "") for change in d.context.statements)


_LIKE = re.compile(r"CREATE\s+TABLE\b.*\bLIKE\b", re.IGNORECASE | re.DOTALL)


def _altered(d: Difference) -> tuple[Any, Any] | None:
    """Return both tables of a schema change that alters one, or copies one that may have been altered before."""
    if not schema_change(d) or None in d.pair:
        return None
    payloads = [r.payload for r in d.pair if r is not None]
    changes = [p["tableChanges"] for p in payloads]
    if any(len(c) != 1 or c[0]["table"] is None for c in changes):
        return None
    if any(c[0]["type"] != "ALTER" for c in changes) and not all(_LIKE.match(p["ddl"] or "") for p in payloads):
        return None
    ours, theirs = (c[0]["table"] for c in changes)
    return ours, theirs


def overlooked_charset(d: Difference) -> bool:
    """Return whether an altered or copied table has another default character set, or a column the recorded default."""
    tables = _altered(d)
    if tables is None or not texts(d):
        return False
    ours, theirs = (t["defaultCharsetName"] for t in tables)
    return bool(ours != theirs and theirs == d.theirs)
