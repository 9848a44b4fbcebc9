"""The exception that an Airflow task ends with when its Spark job has ended, for every deploy mode."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_mysql_cdc.cdc.errors import (
    CdcError,
    FencedError,
    OffsetConflictError,
    RunInProgressError,
    StateError,
)
from airflow_provider_mysql_cdc.operators.task_error import TaskFailedError, TaskRetryError, airflow_error

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.operate.job_outcome import JobOutcome

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
