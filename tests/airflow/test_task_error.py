"""What a failed task says: four lines, once, at level ERROR; everything at level DEBUG."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_provider_mysql_cdc.cdc.errors import (
    BinlogPurgedError,
    CdcError,
    ConfigError,
    LedgerMissingError,
    SinkConnectionError,
    from_message,
)
from airflow_provider_mysql_cdc.operators import task_error
from airflow_provider_mysql_cdc.operators.task_error import (
    WIDTH,
    airflow_error,
    failure_text,
    short_text,
    shorten_record,
)

GONE = LedgerMissingError(
    "the ledger is gone",
    where="topic shop-ledger",
    why="it has no records.",
    remedy="run DAG mysql_cdc_reset_offset with offset=stored",
)


def test_an_error_is_what_where_why_and_what_to_do() -> None:
    assert short_text(GONE).splitlines() == [
        "LedgerMissingError: the ledger is gone. A retry will not help.",
        "Where: topic shop-ledger",
        "Why: it has no records",
        "What to do: run DAG mysql_cdc_reset_offset with offset=stored (DAGs of "
        "airflow_provider_mysql_cdc.example_dags).",
    ]


def test_an_error_without_a_remedy_gives_the_advice_of_its_class() -> None:
    assert short_text(SinkConnectionError("no broker")).splitlines() == [
        "SinkConnectionError: no broker. A retry can help.",
        f"What to do: {SinkConnectionError.advice}",
    ]


def test_a_long_error_is_cut_and_wrapped_for_a_screen() -> None:
    error = ConfigError("a " * 500, where="b\n" * 500, why="java.lang.Error: x\n" * 500, remedy="d " * 250)
    text = short_text(error)
    assert max(map(len, text.splitlines())) <= WIDTH and len(text.splitlines()) < 20
    text = text.replace("\n    ", " ")
    assert text.count("level DEBUG") == 3 and text.count("d ") > 245, "what to do is not cut so soon"


@pytest.mark.parametrize("retriable", [True, False])
def test_the_exception_decides_about_a_retry_and_can_be_copied(retriable: bool) -> None:
    raised = airflow_error(BinlogPurgedError("gone", where="here", retriable=retriable))
    assert isinstance(raised, AirflowException) and isinstance(raised, AirflowFailException) is not retriable
    copied = pickle.loads(pickle.dumps(raised))
    assert (type(copied), str(copied)) == (type(raised), str(raised)) and copied.error.where == "here"


class Debug:
    """Stand in for a logger."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def debug(self, event: str, **members: Any) -> None:
        self.records.append({"event": event, **members})


def test_airflow_s_record_becomes_the_short_text_and_debug_has_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    debug = Debug()
    monkeypatch.setattr(task_error.structlog, "get_logger", lambda name: debug)
    try:
        raise airflow_error(GONE) from RuntimeError("Cannot execute: spark-submit")
    except AirflowException as raised:
        record = shorten_record(None, "error", {"event": "Task failed with exception", "exc_info": True})
        assert record == {"event": short_text(GONE)}
        assert [r["exc_info"] for r in debug.records] == [raised]
        same = {"event": "The error with its traceback and causes", "exc_info": raised}
        assert shorten_record(None, "debug", dict(same)) == same
        other = shorten_record(None, "error", {"event": "An alert failed", "exc_info": raised})
        assert other == {"event": f"An alert failed: {short_text(GONE)}"}


def test_the_record_of_another_exception_keeps_its_traceback() -> None:
    try:
        raise AirflowException("x")
    except AirflowException:
        record = {"event": "Task failed with exception", "exc_info": True}
        assert shorten_record(None, "error", dict(record)) == record


@pytest.mark.parametrize("retriable", [True, False])
@pytest.mark.parametrize("parts", [{}, {"where": "a.b:1"}, {"why": "x. y"}, {"remedy": "z"}, vars(GONE)])
def test_a_driver_s_line_is_read_as_the_error_that_it_was(parts: dict[str, Any], retriable: bool) -> None:
    parts = {name: text for name, text in parts.items() if name in ("where", "why", "remedy")}
    error = LedgerMissingError("the ledger is gone", **parts, retriable=retriable)
    read = from_message(f"LedgerMissingError: {error.message()}")
    assert type(read) is LedgerMissingError and read.message() == error.message()
    assert (read.what, read.where, read.can_retry) == (error.what, error.where, retriable)


def test_any_other_line_is_kept_as_what_happened() -> None:
    assert from_message("NewError: something").what == "something"
    assert type(from_message("NewError: something")) is CdcError
    assert from_message("NewError: something", retriable=True).can_retry


def test_what_spark_submit_raises_is_told_without_its_command_and_output() -> None:
    failed = AirflowException(
        "Cannot execute: spark-submit --master yarn --conf a=b. Error code is: 1.\nLast spark-submit output:\nINFO a\n"
        'Exception in thread "main" java.lang.IllegalStateException: no disk\n\tat a.b.C(D.java:1)'
    )
    cause = 'Exception in thread "main" java.lang.IllegalStateException: no disk'
    assert failure_text(failed) == f"spark-submit ended with exit code 1: {cause}"
    assert failure_text(RuntimeError("ended with state FAILED")) == "ended with state FAILED"
