"""What a stream's status says, from ledgers as they can be, and its text for Prometheus."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import PROGRESS_KEY, RUN_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker
from airflow_provider_mysql_cdc.cdc.commit.run_tally import RunTally, current_tally, initial_tally
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.metrics.prometheus_text import Sample, StreamLag, render_text, write_metrics_file
from airflow_provider_mysql_cdc.cdc.metrics.stream_metrics import (
    MAX_NAMES,
    StreamCounts,
    StreamMetrics,
    bounded_names,
    bounded_text,
)
from airflow_provider_mysql_cdc.cdc.metrics.writer_metrics import (
    EventPlace,
    QueueLimits,
    WriterMetrics,
    streaming_metrics,
)
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition
from airflow_provider_mysql_cdc.cdc.operate.stream_status import StreamStatus, committed_start, status_of

pytestmark = pytest.mark.quick
START, END = BinlogOffset("b.000001", 4), BinlogOffset("b.000001", 900)
PLAN = BatchPlan(3, "drain", START, END, 2, owner="dag/run/task/-1", created_ms=5_000)
NO_LAG = StreamLag(0, 0)
EVENT = EventPlace("b.000001", 700, "d.t", "u", "u:7", 5, source_ms=40_000, handled_ms=41_500)
LINE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*",?)*\})? (-?\d+(?:\.\d+)?)')
"""A sample in the text exposition format."""


def marker(writer: int, pos: int, metrics: WriterMetrics, *, done: bool = True) -> Marker:
    offset = BinlogOffset("b.000001", pos)
    return Marker(3, writer, START, END, ResumePosition(offset), done, metrics=metrics)


def status(ledger: LedgerState, lag: StreamLag = NO_LAG, *, active: bool = False) -> StreamStatus:
    return status_of("shop", ledger, lag, active=active, at_ms=50_000)


def parsed(text: str) -> dict[str, float]:
    """Return the samples of a text, as a scraper reads it: help and type first, each name in one group."""
    found: dict[str, float] = {}
    groups: list[str] = []
    for line in text.splitlines():
        if line.startswith("# HELP "):
            groups.append(line.split(" ", 3)[2])
            continue
        if line.startswith("# TYPE "):
            assert line.split(" ")[2] == groups[-1] and line.split(" ")[3] in ("counter", "gauge")
            continue
        match = LINE.fullmatch(line)
        assert match is not None and match[1] == groups[-1], line
        found[match[1] + (match[2] or "")] = float(match[3])
    assert len(groups) == len(set(groups)) and text.endswith("\n")
    return found


def test_writers_are_added_up_and_the_slowest_says_where_the_stream_is() -> None:
    writers = [
        WriterMetrics(StreamCounts(created=2, filtered=1), EVENT, "u:7", position=("b.1000000", 4), connected=True),
        WriterMetrics(StreamCounts(created=3), None, "u:6", position=("b.999999", 80), queued=7, bytes_pending=9),
    ]
    found = streaming_metrics(writers, ["d.t"], QueueLimits(100, 50), 60_000).families(60_000)
    streaming = found["streaming"]
    assert (streaming["BinlogFilename"], streaming["BinlogPosition"]) == ("b.999999", 80)
    assert (streaming["TotalNumberOfEventsSeen"], streaming["TotalNumberOfCreateEventsSeen"]) == (6, 5)
    assert (streaming["QueueRemainingCapacity"], streaming["CurrentQueueSizeInBytes"]) == (93, 9)
    assert streaming["Connected"] is False, "one of two writers"
    assert streaming["MilliSecondsBehindSource"] == 1_500
    assert streaming["MilliSecondsSinceLastEvent"] == 18_500
    assert "last_event_ms" not in streaming


@pytest.mark.req("MET-60")
def test_a_driver_that_died_behind_its_batch_is_added_once_and_its_snapshot_is_not_the_next_runs() -> None:
    earlier = StreamMetrics(StreamCounts(created=10), {"SnapshotCompleted": True}, {"Connected": False}, {}, 1)
    tally = RunTally("a", epoch=2, batches=1, metrics=earlier)
    counted = WriterMetrics(StreamCounts(created=1), EVENT, position=("b.000001", 900))
    ledger = LedgerState(
        PLAN, {0: marker(0, 900, counted), 1: marker(1, 900, counted)}, other_records={RUN_KEY: tally.to_json()}
    )
    found = current_tally(ledger)
    assert found is not None and found.metrics.counts == StreamCounts(created=12)
    stored = LedgerState(PLAN, ledger.markers, other_records={RUN_KEY: found.to_json()})
    again = current_tally(stored)
    assert again is not None and again.metrics == found.metrics
    told = LedgerState(
        PLAN,
        ledger.markers,
        other_records={RUN_KEY: found.to_json(), "told": {"run": "a", "epoch": 3, "by": "a"}},
    )
    following = initial_tally(told, "b")
    assert (following.run, following.metrics.counts, following.metrics.snapshot) == ("b", StreamCounts(created=12), {})
    assert initial_tally(told, "a").metrics.snapshot, "a later try of the run that took it"


def test_progress_counts_until_its_batch_is_complete() -> None:
    live = StreamMetrics(StreamCounts(created=5), streaming={"Connected": True}, at_ms=49_000)
    record = {"epoch": 3, "kind": "drain", "at_ms": 49_000, "metrics": live.to_json(), "tables": []}
    running = LedgerState(PLAN, {}, other_records={PROGRESS_KEY: record})
    found = status(running, active=True)
    assert found.metrics == live and found.progress_ms == 49_000
    assert found.families()["streaming"]["Connected"] is True
    assert "snapshot_tables" not in found.to_json(), "of a driver that takes none, or has none of them"
    reading = [{"table": "d.a", "rows": 7, "estimate": 20}]
    taking = status(LedgerState(PLAN, {}, other_records={PROGRESS_KEY: record | {"tables": reading}}), active=True)
    assert taking.to_json()["snapshot_tables"] == reading
    assert status(running).families()["streaming"]["Connected"] is False, "the driver was killed"
    done = {writer: marker(writer, 900, WriterMetrics(StreamCounts(created=4))) for writer in (0, 1)}
    tally = RunTally("a", epoch=2)
    complete = LedgerState(PLAN, done, other_records={PROGRESS_KEY: record, RUN_KEY: tally.to_json()})
    assert status(complete).metrics.counts == StreamCounts(created=8)
    assert 'mysql_cdc_progress_age_seconds{server="shop"}' in parsed(found.prometheus())
    waits = status(complete, StreamLag(7), active=True)
    assert 'mysql_cdc_progress_age_seconds{server="shop"}' not in parsed(waits.prometheus()), "it waits for changes"
    assert waits.families()["streaming"]["MilliSecondsBehindSource"] == 7
    stale = LedgerState(PLAN, {}, other_records={PROGRESS_KEY: record | {"epoch": 2}})
    assert status(stale, active=True).metrics == StreamMetrics()


def test_everything_before_the_slowest_marker_is_in_kafka() -> None:
    assert committed_start(LedgerState()) is None
    assert committed_start(LedgerState(BatchPlan(1, "snapshot", START, START, 1))) is None
    assert committed_start(LedgerState(PLAN)) == START
    first = marker(0, 900, WriterMetrics())
    assert committed_start(LedgerState(PLAN, {0: first})) == START, "writer 1 has committed nothing"
    found = committed_start(LedgerState(PLAN, {0: first, 1: marker(1, 300, WriterMetrics(), done=False)}))
    assert found is not None and found.pos == 300
    found = committed_start(LedgerState(PLAN, {0: first, 1: marker(1, 900, WriterMetrics())}))
    assert found is not None and found.pos == 900


@pytest.mark.req("MET-34", "MET-57", "MET-58", "MET-59")
def test_the_text_for_prometheus_is_what_a_scraper_reads() -> None:
    snapshot = {"SnapshotRunning": True, "SnapshotCompleted": False, "RowsScanned": {'d."a\\b"\n': 5, "d.b": 7}}
    metrics = StreamMetrics(
        StreamCounts(created=3), snapshot, {"BinlogFilename": "b.000001", "GtidSet": "u:1"}, {"Status": "RUNNING"}, 1
    )
    ledger = LedgerState(PLAN, other_records={RUN_KEY: RunTally("a", epoch=3, metrics=metrics).to_json()})
    outcome = {"ok": False, "error": None, "ts_ms": 49_500, "epoch": 3}
    ledger = LedgerState(PLAN, ledger.markers, other_records=ledger.other_records, outcome=outcome)
    found = parsed(status(ledger, StreamLag(1_234, 99)).prometheus())
    assert found['mysql_cdc_streaming_total_number_of_create_events_seen_total{server="shop"}'] == 3
    assert found['mysql_cdc_lag_seconds{server="shop"}'] == 1.234
    assert found['mysql_cdc_streaming_seconds_behind_source{server="shop"}'] == 1.234, "no run is active"
    assert found['mysql_cdc_snapshot_snapshot_aborted{server="shop"}'] == 1
    unreachable = parsed(status(ledger, StreamLag(why="no answer"), active=None).prometheus())
    assert unreachable['mysql_cdc_snapshot_snapshot_aborted{server="shop"}'] == 0, "its run may be at work"
    assert found['mysql_cdc_snapshot_rows_scanned{server="shop",table="d.\\"a\\\\b\\"\\n"}'] == 5
    assert found['mysql_cdc_schema_history_status_info{server="shop",value="STOPPED"}'] == 1
    assert found['mysql_cdc_last_batch_ok{server="shop"}'] == 0
    assert found['mysql_cdc_last_batch_timestamp_seconds{server="shop"}'] == 49.5
    assert not [name for name in found if "gtid_set" in name], "texts of any length are no labels"


def test_samples_of_several_streams_stand_in_one_group() -> None:
    def sample(stream: str) -> Sample:
        return Sample("up", "gauge", "Whether\nit is", (("server", stream),), 0.5)

    text = render_text([sample("a"), Sample("other", "counter", "x", (), 1.0), sample("b")])
    assert parsed(text.replace("other{}", "other")) == {'up{server="a"}': 0.5, 'up{server="b"}': 0.5, "other": 1.0}
    assert text.startswith("# HELP up Whether\\nit is\n")


def test_a_metrics_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "shop.prom"
    write_metrics_file(str(path), "old\n")
    write_metrics_file(str(path), "new\n")
    assert path.read_text() == "new\n" and [p.name for p in tmp_path.iterdir()] == ["shop.prom"]
    assert path.stat().st_mode & 0o444 == 0o444, "the collector has another account"
    with pytest.raises(ConfigError, match=r"cannot be written"):
        write_metrics_file(str(tmp_path / "missing" / "shop.prom"), "")


def test_what_grows_with_the_number_of_tables_is_bounded() -> None:
    assert len(bounded_names([str(n) for n in range(5_000)])) == MAX_NAMES
    assert bounded_text("a" * 1_000) == "a" * 1_000 and len(bounded_text("a" * 5_000)) == 1_000


def test_the_status_is_json() -> None:
    found: dict[str, Any] = status(LedgerState(PLAN)).to_json()
    assert found["topic.prefix"] == "shop" and found["metrics"] == {}
    assert found["batch"] == {"epoch": 3, "kind": "drain", "complete": False, "owner": "dag/run/task/-1"}
