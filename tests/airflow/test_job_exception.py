"""What a task ends with: the job's own error first, then a driver's words, then its exit code."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException
from fakes import FakeOutcome

from airflow_provider_mysql_cdc.cdc.errors import (
    BinlogPurgedError,
    CdcError,
    ConfigError,
    FencedError,
    SinkAuthorizationError,
    SinkConnectionError,
    SinkError,
)
from airflow_provider_mysql_cdc.operators.task_error import JobEnd, TaskFailedError, TaskRetryError

LOST = FakeOutcome(complete=False)
POD = RuntimeError("Spark application x failed (phase=Failed exit_code={} reason=Error)")
SUBMIT = AirflowException("Cannot execute: x. Error code is: 0. Kubernetes spark exit code is: {}")
YARN = RuntimeError("ended with final status: FAILED\nDiagnostics: User application exited with status {}")


def ends(outcome: Any, failure: Exception | None = None, words: CdcError | None = None) -> tuple[type | None, str]:
    """Return the kind and the text of what a task ends with."""
    ended = JobEnd(failure, words).exception(outcome)
    return (None if ended is None else type(ended)), str(ended)


@pytest.mark.parametrize("words", [None, SinkError("said on this host", retriable=True)])
@pytest.mark.parametrize("complete", [True, False])
def test_the_error_of_this_submission_comes_first(words: CdcError | None, complete: bool) -> None:
    outcome = FakeOutcome(complete=complete, error=BinlogPurgedError("binlog.000001 is gone"))
    kind, text = ends(outcome, RuntimeError("x"), words)
    assert kind is TaskFailedError and text.startswith("BinlogPurgedError: binlog.000001 is gone")


def test_one_that_was_overtaken_after_all_was_done_is_done() -> None:
    fenced = FencedError("a newer attempt has taken over", retriable=False)
    assert ends(FakeOutcome(error=fenced), RuntimeError("x"))[0] is None
    assert ends(FakeOutcome(complete=False, error=fenced))[0] is TaskFailedError


@pytest.mark.parametrize("failure", [POD, SUBMIT, YARN])
@pytest.mark.parametrize(("code", "kind"), [(78, TaskFailedError), (75, TaskRetryError), (137, TaskRetryError)])
def test_without_any_words_the_exit_code_decides(failure: Exception, code: int, kind: type) -> None:
    failure = type(failure)(str(failure).format(code))
    found, text = ends(LOST, failure)
    assert found is kind and "without finishing its batch" in text and str(code) in text


def test_a_job_that_vanished_is_tried_again() -> None:
    assert ends(LOST)[0] is TaskRetryError
    assert ends(LOST, RuntimeError("Diagnostics: Application killed by user"))[0] is TaskRetryError


@pytest.mark.parametrize(("retry", "kind"), [(True, TaskRetryError), (False, TaskFailedError)])
def test_an_unreachable_ledger_does_not_hide_what_the_driver_said(retry: bool, kind: type) -> None:
    ended = JobEnd(RuntimeError("x"), ConfigError("said", retriable=retry)).unsettled_exception(
        SinkConnectionError("no broker")
    )
    assert type(ended) is kind and str(ended).startswith("ConfigError: said.")


def test_an_unreachable_ledger_is_judged_itself() -> None:
    ended = JobEnd(RuntimeError("the pod failed"), None).unsettled_exception(
        SinkConnectionError("no broker", why="refused")
    )
    assert type(ended) is TaskRetryError
    assert "SinkConnectionError" in str(ended) and "refused; error of the job: the pod failed" in str(ended)
    denied = JobEnd(RuntimeError("x"), None).unsettled_exception(SinkAuthorizationError("not allowed"))
    assert type(denied) is TaskFailedError
    given_up = JobEnd(RuntimeError("exit_code=78"), None).unsettled_exception(SinkConnectionError("no broker"))
    assert type(given_up) is TaskFailedError
    assert type(JobEnd(None, None).unsettled_exception(ConfigError("x"))) is TaskFailedError
