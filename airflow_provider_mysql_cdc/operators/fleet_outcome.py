"""What a fleet's task says of its streams: a table in its log, its result, and the error that lists each failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import CdcError, StreamsFailedError
from airflow_provider_mysql_cdc.operators.task_result import summary_text

DRAINED, IDLE, GAVE_WAY, FAILED = "drained", "nothing new", "gave way", "failed"
"""States of a stream."""
XCOM_PREFIX = "stream_"
"""Begins the key of the XCom of a stream; its name follows."""
NAMED_STREAMS = 10
"""Streams that an error names which several have in common."""


@dataclass(frozen=True, slots=True)
class StreamOutcome:
    """Say what happened to one stream.

    Args:
        stream: Its ``topic.prefix``, or its connection where the configuration cannot be read.
        conn_id: Its connection.
        state: One of the states above.
        result: As the result of a drain's task; empty where it has failed.
        error: What it has failed with.
    """

    stream: str
    conn_id: str
    state: str
    result: Mapping[str, Any] = field(default_factory=dict)
    error: CdcError | None = None

    @property
    def records(self) -> int:
        """Records that it has written."""
        return sum((self.result.get("counts") or {}).values())

    def to_json(self) -> dict[str, Any]:
        """Return it as the XCom of the stream."""
        error = {} if self.error is None else {"error": self.error.to_json()}
        return {"stream": self.stream, "conn_id": self.conn_id, "state": self.state, **self.result, **error}

    def line(self) -> str:
        """Return what it says in the table of the log, without the stream's name."""
        if self.error is not None:
            return f"{type(self.error).__name__}: {self.error.message()}"
        return summary_text(self.result)

    def remembered(self) -> dict[str, Any]:
        """Return what a deferred task needs to know of it when it continues."""
        return {
            "state": self.state,
            "reason": str(self.result.get("reason") or ""),
            "error": None if self.error is None else self.error.to_json(),
        }


def outcome_table(outcomes: Sequence[StreamOutcome]) -> list[str]:
    """Return a line for each stream, those that failed last, where a reader looks first.

    Args:
        outcomes: What happened to each.
    """
    width = max((len(outcome.stream) for outcome in outcomes), default=0)
    ordered = sorted(outcomes, key=lambda outcome: (outcome.error is not None, outcome.stream))
    return [f"{o.stream:<{width}}  {o.state:<{len(IDLE)}}  {o.line()}" for o in ordered]


def fleet_result(outcomes: Sequence[StreamOutcome]) -> dict[str, Any]:
    """Return the result of the task; what each stream did in detail is in the XCom of the stream.

    Args:
        outcomes: What happened to each.
    """
    counts: dict[str, int] = {}
    for outcome in outcomes:
        for topic, records in (outcome.result.get("counts") or {}).items():
            counts[topic] = counts.get(topic, 0) + records
    streams = {
        outcome.stream: {"state": outcome.state, "records": outcome.records, "offset": outcome.result.get("offset")}
        for outcome in outcomes
    }
    complete = all(outcome.error is None for outcome in outcomes)
    return {"complete": complete, "counts": counts, "streams": streams}


def fleet_summary(outcomes: Sequence[StreamOutcome]) -> str:
    """Return in a sentence what the task did.

    Args:
        outcomes: What happened to each.
    """
    states = [outcome.state for outcome in outcomes]
    known = [f"{states.count(state)} {state}" for state in (DRAINED, IDLE, GAVE_WAY, FAILED) if state in states]
    records = sum(outcome.records for outcome in outcomes)
    return f"{len(outcomes)} streams: {', '.join(known)}. {records:,} records."


def _shortened(streams: Sequence[str]) -> str:
    """Return the first ones of the streams that have failed with the same error; the task's log has all of them."""
    more = len(streams) - NAMED_STREAMS
    return ", ".join(streams[:NAMED_STREAMS]) + (f" and {more} more" if more > 0 else "")


def fleet_error(outcomes: Sequence[StreamOutcome]) -> StreamsFailedError | None:
    """Return the error that lists the failed streams with their remedies, and whether a retry helps; None without one.

    A server that is down fails all of its streams with one message, which is there once.

    Args:
        outcomes: What happened to each.
    """
    failed = [(outcome, outcome.error) for outcome in outcomes if outcome.error is not None]
    if not failed:
        return None
    names: dict[str, list[str]] = {}
    for outcome, _ in failed:
        names.setdefault(" ".join(outcome.line().split()), []).append(outcome.stream)
    return StreamsFailedError(
        f"{len(failed)} of {len(outcomes)} streams were not drained",
        why="\n".join(f"{_shortened(streams)}: {line}" for line, streams in names.items()),
        remedy="do for each of these streams what its line says; the other streams are drained, and a retry drains "
        "what is left",
        retriable=any(error.can_retry for _, error in failed),
    )
