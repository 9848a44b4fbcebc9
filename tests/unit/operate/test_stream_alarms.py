"""When a stream is an alarm, judged from its status."""

from __future__ import annotations

from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SinkConnectionError
from airflow_provider_mysql_cdc.cdc.metrics.prometheus_text import StreamLag
from airflow_provider_mysql_cdc.cdc.metrics.stream_metrics import StreamMetrics
from airflow_provider_mysql_cdc.cdc.model.finding import WARNING, Finding
from airflow_provider_mysql_cdc.cdc.operate import stream_report
from airflow_provider_mysql_cdc.cdc.operate.check_setup import SystemReport
from airflow_provider_mysql_cdc.cdc.operate.stream_report import AlarmLimits, StreamAlarm, find_alarms, judge_status
from airflow_provider_mysql_cdc.cdc.operate.stream_status import StreamStatus

pytestmark = pytest.mark.quick
NOW_MS = 10_000_000
LIMITS = AlarmLimits(lag_s=900, idle_s=3600)
CFG = ConnectorConfig.from_properties(
    {
        "topic.prefix": "shop",
        "database.hostname": "h",
        "database.user": "u",
        "database.password": "pa55",
        "kafka.bootstrap.servers": "k:1",
    }
)


def status(
    lag_s: float | None = 0,
    *,
    active: bool | None = False,
    ended_s: float | None = 60,
    reported_s: float | None = None,
    **of_batch: Any,
) -> StreamStatus:
    lag = StreamLag(why="it is away") if lag_s is None else StreamLag(int(lag_s * 1000), 1)
    batch: dict[str, Any] = {} if ended_s is None else {"ok": True, "ended_ms": NOW_MS - int(ended_s * 1000)}
    batch |= of_batch
    progress = None if reported_s is None else NOW_MS - int(reported_s * 1000)
    return StreamStatus("shop", NOW_MS, active, lag, StreamMetrics(), batch, progress)


@for_each(
    ("found", "kinds"),
    [
        (status(), []),
        (status(ended_s=99_999), []),  # nothing happens at the source
        (status(899), []),
        (status(900), ["lag"]),
        (status(5, ended_s=3599), []),
        (status(5, ended_s=3600), ["not-drained"]),
        (status(5, ended_s=3600, active=True), []),
        (status(1000, ended_s=3600), ["lag", "not-drained"]),
        (status(5, ended_s=None), []),  # its first snapshot is under way, or was never asked for
        (status(None), ["lag-unknown"]),
        (status(None, ended_s=None), []),  # nobody has asked for its first snapshot
        (status(None, ended_s=None, active=None), ["lag-unknown"]),  # and its source cannot be asked
        (status(None, ended_s=3600), ["lag-unknown", "not-drained"]),
        (status(active=True, reported_s=61), ["hangs"]),
        (status(active=True, reported_s=59), []),
        (status(reported_s=61), []),
        # A run that drains batch after batch waits for changes, for an hour on an idle source.
        (status(active=True, reported_s=3600, complete=True), []),
        # The first snapshot takes hours; one that hangs, or whose run has ended, is another matter.
        (status(None, active=True, ended_s=None, kind="snapshot", reported_s=5, complete=False), []),
        (status(None, active=True, ended_s=None, kind="snapshot", complete=False), []),
        (status(None, active=True, kind="snapshot", reported_s=61, complete=False), ["lag-unknown", "hangs"]),
        (status(None, ended_s=None, kind="snapshot", reported_s=5, complete=False), ["lag-unknown"]),
        (status(None, active=True, kind="drain", reported_s=5, complete=False), ["lag-unknown"]),
    ],
)
def test_kinds(found: StreamStatus, kinds: list[str]) -> None:
    assert [alarm.kind for alarm in judge_status(found, LIMITS)] == kinds


def test_what_is_not_limited_is_no_alarm() -> None:
    late = status(99_999, ended_s=99_999)
    assert [a.kind for a in judge_status(late, AlarmLimits(idle_s=3600))] == ["not-drained"]
    assert [a.kind for a in judge_status(late, AlarmLimits(lag_s=900))] == ["lag"]
    assert not AlarmLimits().any and AlarmLimits(settings=True).any


def test_texts_are_for_people() -> None:
    lag, idle = judge_status(status(7200, ended_s=200_000), LIMITS)
    assert str(lag) == (
        "shop: the first change that is not in Kafka is 2 h old, of 15 min allowed. "
        "What to do: see whether its drain runs, and what its log says."
    )
    assert "the last batch ended 2.3 d ago" in str(idle)
    assert str(StreamAlarm("x", "shop", "it rains.")) == "shop: it rains."


def test_weak_settings_and_what_cannot_be_read_are_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    weak = Finding(WARNING, "binlog files are kept for 1 hour", "a drain may come too late", "keep them longer")
    monkeypatch.setattr(stream_report, "check_setup", lambda cfg, state: [SystemReport("MySQL", "", [weak])])
    (found,) = find_alarms(CFG, AlarmLimits(settings=True))
    assert (found.kind, found.remedy) == ("settings", "keep them longer")
    assert "1 hour (a drain may come too late)" in found.text

    def fail(cfg: ConnectorConfig) -> StreamStatus:
        raise SinkConnectionError("no broker answers", where="k:1", why="u:pa55 is refused", remedy="start one")

    monkeypatch.setattr(stream_report, "read_status", fail)
    (found,) = find_alarms(CFG, LIMITS)
    assert (found.kind, found.text) == ("unreachable", "SinkConnectionError: no broker answers [k:1]: u:*** is refused")
