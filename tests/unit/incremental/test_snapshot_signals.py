"""Which tables a signal reads again, and what becomes of one that names none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.cases import for_each
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.incremental import signal_processor
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import IncrementalState
from airflow_provider_mysql_cdc.cdc.incremental.signal_processor import SignalProcessor
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.signals.signal import Signal

CAPTURED = [TableId("shop", name) for name in ("items", "log", "orders")]


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> SignalProcessor:
    monkeypatch.setattr(signal_processor, "captured_tables", lambda conn, cfg: CAPTURED)
    monkeypatch.setattr(signal_processor, "watermark_obstacle", lambda conn, cfg: None)
    job: Any = None
    return SignalProcessor(config(), None, job, LedgerState(), lambda line: None, IncrementalState())


def asked(*tables: str) -> Signal:
    return Signal("ad-hoc-1", "execute-snapshot", json.dumps({"data-collections": tables}), "source")


def scanned(processor: SignalProcessor) -> list[str]:
    return [str(scan.table) for _, scan in sorted(processor.state.scans.items())]


def notices(processor: SignalProcessor) -> list[str]:
    return [str(notification.type) for notification in processor.notifications]


@pytest.mark.req("INC-04")
@pytest.mark.parametrize(
    ("named", "read"),
    [
        (["shop.orders"], ["orders"]),
        (["shop.orders", "shop.items"], ["orders", "items"]),
        (["shop.(items|log)"], ["items", "log"]),
        (["shop.*"], ["items", "log", "orders"]),
        (["shop.gone", "shop.log"], ["log"]),
    ],
)
def test_the_tables_that_a_signal_names_are_read_and_no_others(
    processor: SignalProcessor, named: list[str], read: list[str]
) -> None:
    processor.process(asked(*named))
    assert scanned(processor) == [f"shop.{name}" for name in read] and processor.refused == []
    assert notices(processor)[0] == "STARTED" and "COMPLETED" not in notices(processor)


@pytest.mark.req("INC-07")
def test_a_signal_that_names_no_table_is_done_at_once(processor: SignalProcessor) -> None:
    processor.process(asked())
    assert scanned(processor) == [] and processor.refused == []
    assert notices(processor) == ["STARTED", "COMPLETED"]
    assert processor.state.requests["ad-hoc-1"].verdict == "accepted"


@pytest.mark.req("INC-47")
@for_each(
    ("stopped", "aborted"),
    [
        (["shop.orders", "shop.items"], [("ad-hoc-1", "shop.orders,shop.items")]),
        (["shop.(items|orders)"], [("ad-hoc-1", "shop.items,shop.orders")]),
        ([], [("ad-hoc-1", "shop.items,shop.orders")]),
        (["shop.log"], [("ad-hoc-1", "")]),
        (["shop.gone", "shop.orders"], [("ad-hoc-1", "shop.orders")]),
    ],
)
def test_a_stop_is_reported_with_the_tables_in_its_order_also_if_it_stops_none(
    processor: SignalProcessor, stopped: list[str], aborted: list[tuple[str, str]]
) -> None:
    """Debezium (``checkAndProcessStopFlag``) reports a stop of tables that are not read, and none when nothing runs."""
    for running in (True, False):
        processor.state, processor.notifications = IncrementalState(), []
        if running:
            processor.process(asked("shop.items", "shop.orders"))
        processor.process(Signal("stop", "stop-snapshot", json.dumps({"data-collections": stopped}), "source"))
        found = [(n.id, n.additional_data["data_collections"]) for n in processor.notifications if n.type == "ABORTED"]
        assert found == (aborted if running else [])
