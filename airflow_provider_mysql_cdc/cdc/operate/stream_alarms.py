"""Judge a stream: what a person should be told of it before consumers notice. ``judge_status`` is pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.property_names import scrub
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.model.clock import duration_text
from airflow_provider_mysql_cdc.cdc.operate.check_setup import check_setup
from airflow_provider_mysql_cdc.cdc.operate.stream_status import StreamStatus, read_status


@dataclass(frozen=True, slots=True)
class AlarmLimits:
    """Say from when on something is an alarm.

    Args:
        lag_s: Age in seconds of the first change that is not in Kafka; None does not look.
        idle_s: Seconds since the last batch after which changes that wait, with no run active, mean that nobody drains
            the stream; None does not look.
        settings: Whether weak settings of source and Kafka (``mysql-cdc preflight``) are alarms.
    """

    lag_s: float | None = None
    idle_s: float | None = None
    settings: bool = False

    @property
    def any(self) -> bool:
        """Whether there is anything to look at."""
        return self.lag_s is not None or self.idle_s is not None or self.settings


@dataclass(frozen=True, slots=True)
class StreamAlarm:
    """Hold one alarm.

    Args:
        kind: ``failure``, ``deadline``, ``lag``, ``lag-unknown``, ``not-drained``, ``hangs``, ``settings`` or
            ``unreachable``.
        stream: ``topic.prefix``, or the connection where it is not known.
        text: What is wrong, one sentence.
        remedy: What to do; empty if the text says it.
    """

    kind: str
    stream: str
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        remedy = f" What to do: {self.remedy.rstrip('.')}." if self.remedy else ""
        return f"{self.stream}: {self.text.rstrip('.')}.{remedy}"

    def to_json(self) -> dict[str, str]:
        """Return plain JSON."""
        return {"kind": self.kind, "stream": self.stream, "text": self.text, "remedy": self.remedy}


def find_alarms(cfg: ConnectorConfig, limits: AlarmLimits) -> list[StreamAlarm]:
    """Look at a stream; what cannot be read is an alarm too.

    Args:
        cfg: The connector's configuration.
        limits: From when on something is an alarm.
    """
    stream = cfg.topic_prefix
    found: list[StreamAlarm] = []
    try:
        if limits.lag_s is not None or limits.idle_s is not None:
            found += judge_status(read_status(cfg), limits)
        if limits.settings:
            found += [
                StreamAlarm("settings", stream, f"{finding.what} ({finding.why})", finding.fix)
                for report in check_setup(cfg, None)
                for finding in report.findings
            ]
    except CdcError as error:
        found.append(error_alarm("unreachable", stream, error))
    properties = cfg.properties()
    return [replace(a, text=scrub(a.text, properties), remedy=scrub(a.remedy, properties)) for a in found]


def judge_status(status: StreamStatus, limits: AlarmLimits) -> Iterator[StreamAlarm]:
    """Yield the alarms of a status.

    Args:
        status: The status.
        limits: From when on something is an alarm.
    """
    lag, stream = status.lag, status.stream
    age_s = None if lag.milliseconds is None else lag.milliseconds / 1000
    if age_s is None and not _takes_snapshot(status) and not _was_never_started(status):
        yield StreamAlarm("lag-unknown", stream, f"its lag cannot be measured: {lag.why}")
    elif age_s is not None and limits.lag_s is not None and age_s >= limits.lag_s:
        age, allowed = duration_text(age_s), duration_text(limits.lag_s)
        text = f"the first change that is not in Kafka is {age} old, of {allowed} allowed"
        yield StreamAlarm("lag", stream, text, "see whether its drain runs, and what its log says")
    if status.hangs and status.progress_age_ms is not None:
        since = duration_text(status.progress_age_ms / 1000)
        yield StreamAlarm("hangs", stream, f"its run has reported nothing for {since}", "read the run's log")
    idle_s = _idle_seconds(status.batch, status.at_ms)
    waits = age_s is None or age_s > 0
    if limits.idle_s is not None and waits and not status.active and idle_s is not None and idle_s >= limits.idle_s:
        text = f"nobody drains it: changes wait, no run is active, and the last batch ended {duration_text(idle_s)} ago"
        yield StreamAlarm("not-drained", stream, text, "unpause its drain, or see why no run of it starts")


def error_alarm(kind: str, stream: str, error: CdcError) -> StreamAlarm:
    """Return the alarm of an error.

    Args:
        kind: Its kind.
        stream: ``topic.prefix``, or what is known in its place.
        error: The error.
    """
    where, why = f" [{error.where}]" * bool(error.where), f": {error.why}" * bool(error.why)
    return StreamAlarm(kind, stream, f"{type(error).__name__}: {error.what}{where}{why}", error.next_step())


def _takes_snapshot(status: StreamStatus) -> bool:
    """Return whether a run takes a snapshot and reports: until it is complete, no lag can be measured."""
    return bool(status.active) and status.batch.get("kind") == "snapshot" and not status.hangs


def _was_never_started(status: StreamStatus) -> bool:
    """Return whether the source can be asked, and no run of the stream was ever asked for."""
    return status.active is not None and not status.batch


def _idle_seconds(batch: Mapping[str, Any], at_ms: int) -> float | None:
    ended_ms = batch.get("ended_ms")
    return None if ended_ms is None else max(0.0, (at_ms - ended_ms) / 1000)
