"""A ledger that is known to hold a plan is looked at again before it is taken for gone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kit.memory_kafka import MemoryKafka, MemoryWriter
from kit.memory_ledger import MemoryLedger
from kit.store_contract import END, START, plan
from pipelinelib.stand_ins import MemoryOffsetStore

from airflow_provider_mysql_cdc.cdc.commit import ledger_state as known_ledger
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState, read_existing
from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import Marker
from airflow_provider_mysql_cdc.cdc.commit.takeover import join_plan, read_as_planner
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import LedgerMissingError
from airflow_provider_mysql_cdc.cdc.model.offset import ResumePosition
from airflow_provider_mysql_cdc.cdc.operate import stored_offset as reconciling

BLIND = 3


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that goes on only while somebody sleeps."""
    slept: list[float] = []
    monkeypatch.setattr(known_ledger, "time", SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append))
    return slept


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> MemoryLedger:
    """A ledger with a complete first batch, whose broker shows nothing of it the next times that it is asked."""
    made = MemoryLedger(MemoryKafka(), "ledger.p", "p")
    made.ensure()
    first = made.begin(plan(writers=1)).plan_in_force()
    only = MemoryWriter(made._kafka, "p.0")
    join_plan(made, first, only, 0)
    only.commit([Marker(1, 0, START, END, ResumePosition(END, 0), done=True).record("ledger.p")])
    whole, asked = made.read, iter(range(100))
    blind: Any = lambda *given, **named: None if next(asked) < BLIND else whole(*given, **named)  # noqa: E731
    monkeypatch.setattr(made, "read", blind)
    return made


def test_a_plan_is_put_in_force_when_the_broker_shows_the_one_before_it(
    ledger: MemoryLedger, waits: list[float]
) -> None:
    assert ledger.begin(plan(2, END, END.with_position(END.file, 900))).plan_in_force().epoch == 2
    assert len(waits) == BLIND


def test_whoever_moves_the_offset_by_hand_finds_it_too(ledger: MemoryLedger, waits: list[float]) -> None:
    found = read_as_planner(ledger, expect_plan=True)
    assert found is not None and found.complete() and len(waits) == BLIND


def test_the_first_plan_waits_for_nothing(waits: list[float]) -> None:
    made = MemoryLedger(MemoryKafka(), "ledger.p", "p")
    made.ensure()
    assert made.begin(plan()).plan_in_force().epoch == 1 and waits == []


def test_stored_offset_and_ledger_agree_when_the_broker_shows_the_ledger(
    ledger: MemoryLedger, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciling, "read_ledger", lambda *_: ledger.read())
    store, cfg = MemoryOffsetStore(), ConnectorConfig.__new__(ConnectorConfig)
    store.save(StoredState(epoch=1, committed=END), None)
    assert reconciling.reconcile_store(cfg, store, [].append)[0].action == "none"
    assert len(waits) == BLIND


def test_where_nothing_is_stored_the_first_look_counts(waits: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciling, "read_ledger", lambda *_: None)
    cfg = ConnectorConfig.__new__(ConnectorConfig)
    assert reconciling.reconcile_store(cfg, MemoryOffsetStore(), [].append)[0].action == "fresh" and waits == []


@pytest.mark.parametrize("shown", [None, LedgerState()], ids=["no topic", "nothing in it"])
def test_a_ledger_that_stays_away_is_gone(waits: list[float], shown: LedgerState | None) -> None:
    assert read_existing(lambda: shown, expect_plan=True) is shown
    assert sum(waits) >= known_ledger.MISSING_TIMEOUT_S
    waits.clear()
    assert read_existing(lambda: shown, expect_plan=False) is shown and waits == []


def test_a_plan_without_its_ledger_is_refused(waits: list[float]) -> None:
    made = MemoryLedger(MemoryKafka(), "ledger.p", "p")
    made.ensure()
    with pytest.raises(LedgerMissingError):
        made.begin(plan(2))
    assert sum(waits) >= known_ledger.MISSING_TIMEOUT_S
