"""The exceptions that tasks end with, and how Airflow logs them: once, in four lines, without a traceback.

Airflow 3.3 logs what a task raises with ``log.exception("Task failed with exception")``
(``airflow.sdk.execution_time.task_runner``). A processor of structlog turns this record into the error's four lines.
The traceback with all causes is logged at level DEBUG before it.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import MutableMapping
from typing import Any

import structlog
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_provider_mysql_cdc.cdc.errors import CdcError, StreamsFailedError

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
