"""How a job ended: every row of the two tables, and no combination without a row."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

from kit.cases import for_each
from kit.store_contract import END, START, plan

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import REPORTED_KEY, RUN_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.commit.run_tally import RunTally, reported_record
from airflow_provider_mysql_cdc.cdc.errors import SinkConnectionError, SourcePrivilegeError
from airflow_provider_mysql_cdc.cdc.job.job_error import job_error_key
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.operate.settle import (
    COUNTS_CASES,
    ERROR_CASES,
    CountsSource,
    ErrorSource,
    TallyState,
    job_outcome,
)

BATCH = plan(2, START, END)
OWNER = "dag/run/task/-1"
SPEC = JobSpec("drain", {}, BATCH.to_json(), OWNER, id="job", run="this")
TALLY = RunTally("this", 2, 1, START, {"topic": 7}, {"d.t": 7})
OUTCOME_ERROR = SinkConnectionError("no broker answers")
JOB_ERROR = SourcePrivilegeError("the account may not read")
BOOLEANS = (True, False)


def stored(complete: bool) -> StoredState:
    return StoredState(epoch=2, committed=END if complete else START, pending=None if complete else BATCH)


def ledger(tally: TallyState = "absent", *, current: bool = True, error: Any = OUTCOME_ERROR) -> LedgerState:
    others: dict[str, Any] = {
        "unreported": {RUN_KEY: TALLY.to_json()},
        "reported": {RUN_KEY: TALLY.to_json(), REPORTED_KEY: reported_record(TALLY, "other")},
        "another run": {RUN_KEY: RunTally("other", 2, 1, START, {"topic": 5}).to_json()},
        "absent": {},
    }[tally]
    last_words = {job_error_key(OWNER): {"job": "job", "owner": OWNER, "error": JOB_ERROR.to_json()}}
    outcome = {"epoch": 2 if current else 1, "counts": {"topic": 3}, "error": error and error.to_json()}
    return LedgerState(plan=BATCH, outcome=outcome, other_records=others | last_words)


def test_no_combination_is_without_a_row() -> None:
    assert set(COUNTS_CASES) == set(product(get_args(TallyState), BOOLEANS))
    assert set(ERROR_CASES) == set(product(BOOLEANS, BOOLEANS, BOOLEANS))


@for_each(("facts", "result"), COUNTS_CASES.items(), ids=str)
def test_every_row_of_counts_and_tally(facts: tuple[TallyState, bool], result: tuple[CountsSource, bool]) -> None:
    tally, current = facts
    outcome = job_outcome(stored(True), ledger(tally, current=current), SPEC)
    counts, keeps_tally = result
    assert outcome.counts == {"tally": {"topic": 7}, "outcome": {"topic": 3}, "none": {}}[counts]
    assert outcome.tally == (TALLY if keeps_tally else None)


@for_each(("facts", "source"), ERROR_CASES.items(), ids=str)
def test_every_row_of_errors(facts: tuple[bool, bool, bool], source: ErrorSource) -> None:
    submission, complete, current = facts
    outcome = job_outcome(stored(complete), ledger(current=current), SPEC if submission else None)
    expected = {"submission": JOB_ERROR, "outcome": OUTCOME_ERROR, "none": None}[source]
    assert (outcome.complete, outcome.offset) == (complete, (END if complete else START).to_json())
    assert type(outcome.error) is type(expected)
    if expected is not None and outcome.error is not None:
        assert (outcome.error.what, outcome.error.can_retry) == (expected.what, expected.can_retry)


@for_each("tally", get_args(TallyState))
def test_without_a_submission_the_newest_tally_counts_whoever_reported_it(tally: TallyState) -> None:
    outcome = job_outcome(stored(True), ledger(tally))
    expected = {"unreported": 7, "reported": 7, "another run": 5, "absent": 3}[tally]
    assert outcome.counts == {"topic": expected}
    assert (outcome.tally is None) == (tally == "absent")


def test_without_a_ledger_nothing_is_known_but_the_state() -> None:
    outcome = job_outcome(StoredState(), None, SPEC)
    assert (outcome.complete, outcome.offset, outcome.counts, outcome.error, outcome.tally) == (
        False,
        None,
        {},
        None,
        None,
    )
    assert job_outcome(stored(True), LedgerState()).complete


def test_an_outcome_without_an_error_and_a_job_that_wrote_none() -> None:
    assert job_outcome(stored(False), ledger(error=None)).error is None
    another = JobSpec("drain", {}, BATCH.to_json(), OWNER, id="another", run="this")
    assert job_outcome(stored(False), ledger(), another).error is None
