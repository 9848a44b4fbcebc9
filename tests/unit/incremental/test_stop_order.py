"""A stop-snapshot acts on the requests that were made before it, whatever channels both are sent over."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.cases import for_each
from kit.memory_job import config, memory_job
from kit.memory_kafka import MemoryKafka
from kit.store_contract import END, START, plan

from airflow_provider_mysql_cdc.cdc.commit.plan import Marker, encode
from airflow_provider_mysql_cdc.cdc.incremental import signal_processor
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import (
    IncrementalState,
    RequestRecord,
    StopTime,
    read_incremental_state,
)
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.offset import ResumePosition
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.signals.actions import SignalChannel
from airflow_provider_mysql_cdc.cdc.signals.kafka_channel import PollResult, in_time_order
from airflow_provider_mysql_cdc.cdc.signals.signal import Signal
from airflow_provider_mysql_cdc.cdc.signals.table_rows import CommitTime

FUTURE = 2**45
"""A time after every decision of this run, in milliseconds."""


def ask(channel: SignalChannel, ms: int, table: str = "orders", partition: int = 0) -> Signal:
    data = json.dumps({"data-collections": [f"shop.{table}"]})
    name = f"{channel}-{table}-{ms}"
    return Signal(name, "execute-snapshot", data, channel, sent_ms=ms, partition=partition)


def stop(channel: SignalChannel, ms: int, partition: int = 0) -> Signal:
    return Signal(f"stop-{ms}", "stop-snapshot", "{}", channel, sent_ms=ms, partition=partition)


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> JobLedger:
    """Return the ledger of a stream after its first batch."""
    tables = [TableId("shop", name) for name in ("items", "orders")]
    monkeypatch.setattr(signal_processor, "captured_tables", lambda conn, cfg: tables)
    monkeypatch.setattr(signal_processor, "watermark_obstacle", lambda conn, cfg: None)
    cfg = config()
    made = memory_job(monkeypatch, cfg, MemoryKafka())
    made.begin(plan(1, writers=1))
    marker = Marker(1, 0, START, END, ResumePosition(END), True)
    made.commit([SideRecord(cfg.ledger_topic, b"writer/0", encode(marker.to_json()))])
    return made


def run(job: JobLedger, monkeypatch: pytest.MonkeyPatch, lines: list[str], *signals: Signal) -> list[str]:
    """Process signals as one run does, and return the tables that are still to be read."""
    waiting = [signal for signal in signals if signal.channel != "kafka"]
    job.commit([job.record(signal.ledger_key(f"{n}"), signal.to_json()) for n, signal in enumerate(waiting)])
    polled = PollResult([(signal.id, signal) for signal in signals if signal.channel == "kafka"])
    monkeypatch.setattr(signal_processor, "poll_signals", lambda *_: polled)
    signal_processor.process_signals(config(), None, job, job.read(), lines.append)
    return [scan.table.table for scan in read_incremental_state(job.read()).active_scans]


CHANNELS: list[tuple[SignalChannel, SignalChannel]] = [
    ("airflow", "kafka"),
    ("airflow", "source"),
    ("kafka", "airflow"),
    ("kafka", "source"),
    ("source", "airflow"),
    ("source", "kafka"),
]


@pytest.mark.parametrize(("asks", "stops"), CHANNELS)
@pytest.mark.parametrize("runs", [1, 2], ids=["one run", "two runs"])
def test_a_stop_does_not_end_what_was_requested_after_it(
    job: JobLedger,
    monkeypatch: pytest.MonkeyPatch,
    lines: list[str],
    asks: SignalChannel,
    stops: SignalChannel,
    runs: int,
) -> None:
    """The stop is read after the request: its channel is read later, or its topic could not be read before."""
    signals = ask(asks, 2000), stop(stops, 1000)
    if runs == 2:
        assert run(job, monkeypatch, lines, signals[0]) == ["orders"]
        signals = signals[1:]
    assert run(job, monkeypatch, lines, *signals) == ["orders"]
    assert runs == 1 or "continue, because it is not certain" in lines[-1]


@pytest.mark.parametrize(("asks", "stops"), CHANNELS)
@pytest.mark.parametrize("runs", [1, 2], ids=["one run", "two runs"])
def test_a_stop_ends_what_was_requested_before_it(
    job: JobLedger,
    monkeypatch: pytest.MonkeyPatch,
    lines: list[str],
    asks: SignalChannel,
    stops: SignalChannel,
    runs: int,
) -> None:
    signals = ask(asks, 1000), stop(stops, 2000)
    if runs == 2:
        assert run(job, monkeypatch, lines, signals[0]) == ["orders"]
        signals = signals[1:]
    assert run(job, monkeypatch, lines, *signals) == []
    assert not [line for line in lines if "not certain" in line]


def test_a_stop_ends_only_what_is_older(job: JobLedger, monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> None:
    assert run(job, monkeypatch, lines, ask("source", 1000), ask("source", 3000, "items"), stop("kafka", 2000)) == [
        "items"
    ]
    assert "source-items-3000" in " ".join(lines) or "1 table(s) are stopped" in " ".join(lines)


@pytest.mark.parametrize("channel", ["airflow", "source", "kafka"])
def test_the_order_within_a_channel_needs_no_clock(
    job: JobLedger, monkeypatch: pytest.MonkeyPatch, lines: list[str], channel: SignalChannel
) -> None:
    assert run(job, monkeypatch, lines, ask(channel, 2000), stop(channel, 1000)) == []
    assert run(job, monkeypatch, lines, ask(channel, 0), stop(channel, 0)) == []
    assert run(job, monkeypatch, lines, stop(channel, 9000), ask(channel, 8000)) == ["orders"]


@for_each(
    ("record", "stopped_by", "before"),
    [
        (RequestRecord("r", "accepted", ts_ms=9, sequence="source", sent_ms=5), StopTime("source", 0), True),
        (RequestRecord("r", "accepted", ts_ms=9, sequence="source", sent_ms=5), StopTime("airflow", 6), True),
        (RequestRecord("r", "accepted", ts_ms=9, sequence="source", sent_ms=5), StopTime("airflow", 5), False),
        (RequestRecord("r", "accepted", ts_ms=9, sequence="source", sent_ms=5), StopTime("airflow", 0), False),
        (RequestRecord("r", "accepted", ts_ms=9, sequence="source", sent_ms=99), StopTime("airflow", 10), True),
        (RequestRecord("r", "accepted", ts_ms=9), StopTime("airflow", 10), True),
        (RequestRecord("r", "accepted", ts_ms=9), StopTime("airflow", 9), False),
        (RequestRecord("r", "accepted"), StopTime("airflow", 10), False),
        (RequestRecord("r", "accepted", ts_ms=9, sequence="kafka/0", sent_ms=5), StopTime("kafka/1", 5), False),
    ],
    ids=[
        "same channel",
        "later",
        "same time",
        "a stop without a time",
        "a clock that is ahead: it was decided before",
        "no signal made it: it was decided before",
        "no signal made it: it was decided then",
        "no time at all",
        "another partition",
    ],
)
def test_a_request_is_before_a_stop_if_that_is_certain(
    record: RequestRecord, stopped_by: StopTime, before: bool
) -> None:
    assert record.is_before(stopped_by) is before


def test_a_scan_without_a_request_continues() -> None:
    state = IncrementalState()
    assert signal_processor.scans_after_stop(state, None, StopTime("airflow", FUTURE)) == []


def test_the_time_of_a_row_is_that_of_its_commit() -> None:
    asked, stopped = ask("source", 0), stop("source", 0)
    assert CommitTime(1_700_000_000_123_456, 1_700_000_000).sent_ms(asked) == 1_700_000_000_123
    old = CommitTime(0, 1_700_000_000)
    assert old.sent_ms(asked) == 1_700_000_000_999 and old.sent_ms(stopped) == 1_700_000_000_000
    assert CommitTime().sent_ms(asked) == CommitTime().sent_ms(stopped) == 0


def test_times_order_sequences_and_not_what_is_in_one() -> None:
    def ordered(*items: tuple[str, int]) -> Any:
        return [f"{name}{ms}" for name, ms in in_time_order(items, lambda i: i[0], lambda i: i[1])]

    assert ordered(("a", 3), ("a", 1), ("a", 4), ("b", 2), ("b", 0), ("b", 5)) == ["b2", "b0", "a3", "a1", "a4", "b5"]
    assert ordered(("a", 0), ("b", 0), ("c", 0)) == ["a0", "b0", "c0"]
