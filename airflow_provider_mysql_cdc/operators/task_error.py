"""The exceptions that tasks and their Spark jobs end with, and how Airflow logs them: once, in four lines.

The exceptions that tasks end with, and how Airflow logs them: once, in four lines, without a traceback.

Airflow 3.3 logs what a task raises with ``log.exception("Task failed with exception")``
(``airflow.sdk.execution_time.task_runner``). A processor of structlog turns this record into the error's four lines.
The traceback with all causes is logged at level DEBUG before it.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_provider_mysql_cdc.cdc.errors import (
    CdcError,
    FencedError,
    OffsetConflictError,
    RunInProgressError,
    StateError,
    StreamsFailedError,
)

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.operate.settle import JobOutcome


WIDTH = 120
"""Characters of a line."""
MAX_CHARS = {"what": 200, "where": 200, "why": 300, "remedy": 600}
"""The parts of an error are cut to so many characters."""
_CUT = " ... (whole text at level DEBUG)"
_NO_BREAK = "\N{NO-BREAK SPACE}"
_RECORD = "Task failed with exception"


class NamedTaskError(AirflowException):  # type: ignore[misc]
    """End a task with a named error.

    Args:
        error: The error.
    """

    def __init__(self, error: CdcError) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.error,)


class TaskRetryError(NamedTaskError):
    """End a task with an error after which Airflow retries it."""


class TaskFailedError(NamedTaskError, AirflowFailException):  # type: ignore[misc]
    """End a task for good."""


def airflow_error(error: CdcError) -> TaskRetryError | TaskFailedError:
    """Return the Airflow exception that lets Airflow retry the task, or fails it for good, depending on the error.

    Args:
        error: The error.
    """
    processors = structlog.get_config()["processors"]
    if shorten_record not in processors:
        processors.insert(0, shorten_record)  # loggers that exist already use this list too
    return TaskRetryError(error) if error.can_retry else TaskFailedError(error)


def short_text(error: CdcError) -> str:
    """Return what a person reads first: what, where, why and what to do, each on a line of its own.

    Args:
        error: The error.
    """
    if isinstance(error, StreamsFailedError):  # a line for each stream, of any number of streams
        return f"{type(error).__name__}: {error.what}. {error.retry_hint()}\n{error.why}"
    parts = (
        f"{type(error).__name__}: {_cut(error.what, 'what')}. {error.retry_hint().replace(' ', _NO_BREAK)}",
        error.where and f"Where: {_cut(error.where, 'where')}",
        error.why and f"Why: {_cut(error.why, 'why')}",
        f"What to do: {_cut(error.next_step(), 'remedy')}.",
    )
    wrapper = textwrap.TextWrapper(WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(wrapper.fill(part) for part in parts if part).replace(_NO_BREAK, " ")


def _cut(text: str, part: str) -> str:
    words, limit = " ".join(text.split()).rstrip("."), MAX_CHARS[part]
    return words if len(words) <= limit else words[:limit] + _CUT


def shorten_record(logger: Any, method: str, record: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace the traceback in the record of a failed task by the error's short text; a processor of structlog.

    Args:
        logger: Not used.
        method: Name of the level.
        record: The members of the log record.
    """
    exc_info = record.get("exc_info")
    raised = sys.exc_info()[1] if exc_info is True else exc_info
    if method == "debug" or not isinstance(raised, NamedTaskError):
        return record
    structlog.get_logger(__name__).debug("The error with its traceback and causes", exc_info=raised)
    text = short_text(raised.error)
    record["event"] = text if record.get("event") == _RECORD else f"{record.get('event')}: {text}"
    del record["exc_info"]
    return record


# How spark-submit, trackers and cluster managers report the exit code of a driver.
# Source: SparkSubmitHook._poll_k8s_driver_via_api and its exit code of the log's last container status (6.3.4);
# org.apache.spark.deploy.yarn.ApplicationMaster, "User application exited with status" (4.3).
_EXIT_CODE = re.compile(r"(?:exit[_ ]code(?: is)?|error code is|exited with status)[=:]? ?(\d+)", re.IGNORECASE)
_EXIT_FAIL = 78
# SparkSubmitHook repeats the command and the last lines of its output, which the task log has already (6.3.4).
_SUBMIT_FAILED = re.compile(r"Cannot execute: .*?\. Error code is: (-?\d+)\.", re.DOTALL)
_OUTPUT_TAIL = "\nLast spark-submit output:\n"
_JAVA_ERROR = re.compile(
    r"^(?:Exception in thread|Caused by:|Error:|\w+(?:\.\w+)+(?:Exception|Error)\b).*", re.MULTILINE
)
OTHER_RUN_ERRORS = (RunInProgressError, OffsetConflictError)


@dataclass(frozen=True, slots=True)
class JobEnd:
    """Choose what the task ends with after its job has ended: success, or an exception with or without a retry.

    The error that this submission wrote into the ledger comes first, because every deploy mode has the ledger; then the
    error in the output of a driver on this host; then the exit code that the cluster manager reports.

    Args:
        failure: What submitting or tracking the job raised.
        driver_error: The named error in the output of a driver on this host.
    """

    failure: Exception | None
    driver_error: CdcError | None

    def exception(self, outcome: JobOutcome) -> TaskRetryError | TaskFailedError | None:
        """Return the exception that the task ends with; None when the job succeeded.

        Args:
            outcome: How the job ended according to the ledger.
        """
        if outcome.error is not None and not (outcome.complete and isinstance(outcome.error, FencedError)):
            return airflow_error(outcome.error)
        if outcome.complete:
            return None
        return airflow_error(
            self.driver_error
            or StateError(
                "the Spark job ended without finishing its batch",
                why=failure_text(self.failure) if self.failure else "the ledger has no outcome of this batch",
                remedy="read the driver's log; a retry continues from the last committed marker",
                retriable=not self._is_permanent(),
            )
        )

    def unsettled_exception(self, error: CdcError) -> TaskRetryError | TaskFailedError:
        """Return the exception that the task ends with when ledger and offset store cannot be reconciled.

        Args:
            error: Why they cannot.
        """
        if self.failure is None or self.driver_error is not None:
            return airflow_error(self.driver_error or error)
        return airflow_error(
            type(error)(
                f"the Spark job failed, and its result cannot be read from the ledger: {error.what}",
                where=error.where,
                why=f"{error.why}; error of the job: {failure_text(self.failure)}",
                remedy=error.remedy,
                retriable=error.can_retry and not self._is_permanent(),
            )
        )

    def _is_permanent(self) -> bool:
        """Return whether the driver's exit code says that a retry cannot help."""
        return str(_EXIT_FAIL) in _EXIT_CODE.findall(str(self.failure))


def failure_text(failure: Exception) -> str:
    """Return what submitting or tracking a job raised, without the command and the output, which the log has already.

    Args:
        failure: The exception.
    """
    text, _, output = str(failure).partition(_OUTPUT_TAIL)
    cause = _JAVA_ERROR.search(output)
    return _SUBMIT_FAILED.sub(r"spark-submit ended with exit code \1", text) + (f": {cause[0]}" if cause else "")


def is_other_run_error(error: Exception) -> bool:
    """Return whether an error says that another run of the stream is active.

    Args:
        error: What a job ended with.
    """
    return isinstance(error.error if isinstance(error, (TaskRetryError, TaskFailedError)) else error, OTHER_RUN_ERRORS)
