"""How a verification ends beside other runs of its stream."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.memory_job import config
from kit.verify_results import CUSTOMERS, verify_result
from pipelinelib.stand_ins import MemoryOffsetStore

from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.errors import (
    CdcError,
    OffsetConflictError,
    RepairLimitError,
    RunInProgressError,
    SinkConnectionError,
    StateError,
)
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.operate import settle
from airflow_provider_mysql_cdc.cdc.operate import settle as settling
from airflow_provider_mysql_cdc.cdc.operate.settle import JobOutcome, settle_verification, verification_of_run
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_records import verdict_values

pytestmark = pytest.mark.quick

SPEC = JobSpec("verify", {}, {}, "dag/run/verify/-1", id="0", run="dag/run/verify/-1#0")


def ledger(run: str = SPEC.run) -> LedgerState:
    values = verdict_values(build_ledger_state({}), verify_result(CUSTOMERS, run=run))
    return build_ledger_state({key: None if value is None else encode(value) for key, value in values})


class Rig:
    """What settling finds: an outcome, a ledger, and other runs that are in the way some times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.outcome, self.ledger = JobOutcome(complete=True, offset=None, counts={}), ledger()
        self.busy: list[CdcError] = []
        self.lines: list[str] = []
        monkeypatch.setattr(settling, "settle_offset", lambda *_: self._answer(self.outcome))
        monkeypatch.setattr(settling, "read_ledger", lambda *_: self._answer(self.ledger))
        monkeypatch.setattr(settle, "read_ledger", lambda *_: self._answer(self.ledger))
        monkeypatch.setattr(settling, "RETRY_INTERVAL_S", 0.0)
        self.patience = monkeypatch

    def _answer(self, found: Any) -> Any:
        if self.busy:
            raise self.busy.pop(0)
        return found

    def settle(self) -> JobOutcome:
        return settle_verification(config(), MemoryOffsetStore(), self.lines.append, SPEC)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


@pytest.mark.parametrize("complete", [True, False], ids=["idle", "another run drains"])
def test_the_verdicts_decide_and_not_the_batch_of_another_run(rig: Rig, complete: bool) -> None:
    rig.outcome = replace(rig.outcome, complete=complete)
    assert rig.settle().complete
    rig.ledger = ledger("another")
    assert not rig.settle().complete


def test_an_error_of_the_job_stands_although_verdicts_of_an_earlier_try_are_there(rig: Rig) -> None:
    rig.outcome = replace(rig.outcome, error=StateError("the comparison failed"))
    outcome = rig.settle()
    assert not outcome.complete and outcome.error is not None


def test_what_was_found_is_reported_where_too_much_differs_for_a_repair(rig: Rig) -> None:
    rig.outcome = replace(rig.outcome, error=RepairLimitError("5,000 rows differ, more than a repair may write"))
    assert not rig.settle().complete
    assert [line for line in rig.lines if line.startswith("Every topic of s equals its table")]


def test_a_transaction_of_another_run_is_waited_for(rig: Rig) -> None:
    busy = [RunInProgressError("it hides the end"), OffsetConflictError("it stored something")]
    rig.busy = [*busy]
    assert rig.settle().complete and rig.busy == []
    rig.busy = [*busy]
    assert verification_of_run(config(), SPEC.owner, SPEC.run).verdict == "equal" and rig.busy == []


def test_it_is_not_waited_for_without_end_and_other_errors_are_not_waited_out(rig: Rig) -> None:
    rig.busy = [SinkConnectionError("no broker answers"), RunInProgressError("never reached")]
    with pytest.raises(SinkConnectionError):
        rig.settle()
    rig.patience.setattr(settling, "MIN_PATIENCE_S", -1.0)
    rig.patience.setattr(settling.time, "monotonic", iter([0.0, 1e9]).__next__)
    with pytest.raises(RunInProgressError, match="never reached"):
        rig.settle()


def test_a_result_of_another_run_is_none(rig: Rig) -> None:
    rig.ledger = ledger("another")
    with pytest.raises(StateError, match="the verification ended without a result") as caught:
        verification_of_run(config(), SPEC.owner, SPEC.run)
    assert caught.value.can_retry
