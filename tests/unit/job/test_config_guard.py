"""Beginning a plan under today's settings, over the in-memory twins."""

from __future__ import annotations

import pytest
from kit.memory_job import config, memory_job
from kit.memory_kafka import MemoryKafka
from kit.store_contract import START, plan

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker
from airflow_provider_mysql_cdc.cdc.config.pinned_properties import property_pins
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.job.config_guard import begin_pinned_plan
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.offset import ResumePosition

BEFORE, AFTER = config(), config(message__key__columns="d.t:a")


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> JobLedger:
    return memory_job(monkeypatch, BEFORE, MemoryKafka())


def of_before() -> BatchPlan:
    return plan(pins=property_pins(BEFORE, snapshot=False))


def mark(job: JobLedger, *done: bool) -> None:
    records = [Marker(1, n, START, START, ResumePosition(START, 0), d) for n, d in enumerate(done)]
    job.commit([m.record(BEFORE.ledger_topic) for m in records])


def test_a_plan_of_which_nothing_is_committed_takes_todays_settings(job: JobLedger) -> None:
    begin_pinned_plan(BEFORE, job, of_before())
    ledger, taken = begin_pinned_plan(AFTER, job, of_before())
    assert taken.pins == property_pins(AFTER, snapshot=False) != property_pins(BEFORE, snapshot=False)
    assert job.read().plan_in_force().pins == ledger.plan_in_force().pins == taken.pins
    assert job.read().plan_in_force().attempt == taken.attempt


def test_a_plan_of_which_a_part_is_committed_goes_on_under_its_own_settings_only(job: JobLedger) -> None:
    begin_pinned_plan(BEFORE, job, of_before())
    mark(job, False)
    with pytest.raises(ConfigError, match=r"message\.key\.columns"):
        begin_pinned_plan(AFTER, job, of_before())
    _, taken = begin_pinned_plan(BEFORE, job, of_before())
    assert taken.pins == property_pins(BEFORE, snapshot=False)


def test_a_plan_that_is_complete_asks_for_nothing(job: JobLedger) -> None:
    begin_pinned_plan(BEFORE, job, of_before())
    mark(job, True, True)
    ledger, _ = begin_pinned_plan(AFTER, job, of_before())
    assert ledger.complete()
