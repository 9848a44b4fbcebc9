"""Lines of captures, and what the comparison says of two of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from prooflib.differ import Difference, compare
from prooflib.kinds import CONFIGURED, KINDS, holds
from prooflib.records import parse_records

OURS, THEIRS = "7694e365-e5a1-11f1-968e-02fc00000001", "e62e8b76-e57c-11f1-a402-02fc00000001"
RUNS = {"ours": "01a1fe19-e889-779b-8cd0-c4aeea4e1be8", "theirs": "01a1fd20-0000-7000-8000-c4aeea4e1be8"}
BEGAN = {side: int(run.replace("-", "")[:12], 16) for side, run in RUNS.items()}
"""When the runs began, in milliseconds since 1970; ours was days after the recorded one."""
TS = BEGAN["theirs"] + 1000


def row(
    after: dict[str, Any] | None,
    *,
    fields: list[dict[str, Any]] | None = None,
    before: dict[str, Any] | None = None,
    pos: int = 100,
    ts: int = TS,
    uuid: str = THEIRS,
    op: str = "c",
    **source: Any,
) -> dict[str, Any]:
    """Return a row event with its schema."""
    columns = [{"type": "struct", "field": part, "fields": fields or []} for part in ("before", "after")]
    block = {
        "ts_ms": ts,
        "snapshot": "false",
        "ts_us": ts * 1000 + 1,
        "ts_ns": (ts * 1000 + 1) * 1000,
        "server_id": 1,
        "gtid": f"{uuid}:7",
        "file": "binlog.000001",
        "pos": pos,
        "row": 0,
        "thread": 9,
        **source,
    }
    payload = {"before": before, "after": after, "source": block, "op": op, "ts_ms": ts + 5}
    return {"schema": {"type": "struct", "fields": columns}, "payload": payload}


def line(
    value: Any,
    *,
    key: Any = 1,
    topic: str = "cap.d.t",
    run: str = RUNS["theirs"],
    raw: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> str:
    """Return a line of a capture."""
    key_text = "null" if key is None else json.dumps({"schema": {}, "payload": {"id": key}}, separators=(",", ":"))
    text = raw if raw is not None else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    named = [{n: v} for n, v in {"__debezium.context.runId": run, **(headers or {})}.items()]
    shown = json.dumps(named, separators=(",", ":"))
    return f'{{"topic":"{topic}","partition":0,"key":{key_text},"value":{text},"headers":{shown}}}'


def compared(ours: list[str], theirs: list[str]) -> tuple[Difference, ...]:
    """Return the differences of two captures."""
    return compare(parse_records(ours, "ours"), parse_records(theirs, "theirs")).differences


def differences(ours: list[str], theirs: list[str]) -> list[tuple[str, str]]:
    """Return path and values of the differences of two captures."""
    return [(d.where, d.values()) for d in compared(ours, theirs)]


def column(called: str, kind: str = "string", **more: Any) -> list[dict[str, Any]]:
    """Return the schema of a row of one column."""
    return [{"type": kind, "optional": True, "field": called, **more}]


def kinds_of(
    ours: Any,
    theirs: Any,
    *,
    fields: list[dict[str, Any]],
    snapshot: str = "false",
    stream: Any = None,
    settings: Mapping[str, str] | None = None,
) -> set[str]:
    """Return the kinds that hold for a difference of column ``c``.

    Args:
        ours: Our value.
        theirs: The recorded value.
        fields: The row's schema.
        snapshot: The ``snapshot`` of the source block.
        stream: What both captures' streams have of the same row of a snapshot, in a list; None for no such row.
        settings: Properties of the recorded connector.
    """
    op = "c" if snapshot == "false" else "r"
    lines = [[line(row({"c": v}, fields=fields, snapshot=snapshot, op=op))] for v in (ours, theirs)]
    for side in lines:
        side += [line(row({"c": value}, fields=fields), key=2) for value in stream or ()]
    (found,) = compared(*lines)
    return kinds(found, settings)


def kinds(found: Difference, settings: Mapping[str, str] | None = None) -> set[str]:
    """Return the kinds that hold for a difference, ``any`` left out."""
    return {name for name in {*KINDS, *CONFIGURED} if name != "any" and holds(name, found, settings)}
