"""How a Spark job ended, where that leaves the stored offset, and what a verification has found.

How a Spark job ended, from the reconciled state and the ledger: a pure function over two tables of cases.

``complete`` and ``offset`` follow from the state alone: nothing is pending, and an offset is stored. The counts and the
tally depend on whose tally the ledger holds (``run_tally``), and on whether its outcome record is of the last batch:

===================================  ==================  ===========  ========
tally in the ledger                  outcome record      counts       tally
===================================  ==================  ===========  ========
of the run, ``unreported``           any                 the tally's  returned
of the run, ``reported`` by another  any                 the tally's  None
of ``another run``                   any                 none         None
``absent``                           of the last batch   its counts   None
``absent``                           missing or older    none         None
===================================  ==================  ===========  ========

The error depends on whose outcome is requested. A submitted job has an error record of its own, under the id of the
submission; it is returned for a complete batch too, because a run can fail after its last batch:

==================  ==========  ==================  =======================================
outcome of          batch       outcome record      error
==================  ==========  ==================  =======================================
a submission        any         any                 the submission's error record, or None
the last batch      complete    any                 None
the last batch      incomplete  of the last batch   its error, or None
the last batch      incomplete  missing or older    None
==================  ==========  ==================  =======================================
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import RUN_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore, StoredState
from airflow_provider_mysql_cdc.cdc.commit.run_tally import RunTally, current_tally, reported_by, tally_of_run
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import (
    CdcError,
    DifferencesFoundError,
    NotJudgedError,
    OffsetConflictError,
    RepairLimitError,
    RunInProgressError,
    StateError,
    from_json,
)
from airflow_provider_mysql_cdc.cdc.faults import fault_point
from airflow_provider_mysql_cdc.cdc.job.job_error import read_job_error
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.operate.lag import record_batch
from airflow_provider_mysql_cdc.cdc.operate.stored_offset import read_ledger, reconcile_store
from airflow_provider_mysql_cdc.cdc.verify.report.report_text import (
    counts_text,
    difference_step,
    report_text,
    unjudged_step,
)
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_records import (
    hide_values,
    read_last_verdicts,
    read_verify_result,
)
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_totals import left_differences, most_different, position_text
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import VerifyResult

TallyState = Literal["unreported", "reported", "another run", "absent"]
CountsSource = Literal["tally", "outcome", "none"]
ErrorSource = Literal["submission", "outcome", "none"]

COUNTS_CASES: Mapping[tuple[TallyState, bool], tuple[CountsSource, bool]] = {
    ("unreported", True): ("tally", True),
    ("unreported", False): ("tally", True),
    ("reported", True): ("tally", False),
    ("reported", False): ("tally", False),
    ("another run", True): ("none", False),
    ("another run", False): ("none", False),
    ("absent", True): ("outcome", False),
    ("absent", False): ("none", False),
}
"""By the tally's state and whether the outcome record is of the last batch: where the counts come from, and whether the
tally is returned."""

ERROR_CASES: Mapping[tuple[bool, bool, bool], ErrorSource] = {
    (True, True, True): "submission",
    (True, True, False): "submission",
    (True, False, True): "submission",
    (True, False, False): "submission",
    (False, True, True): "none",
    (False, True, False): "none",
    (False, False, True): "outcome",
    (False, False, False): "none",
}
"""By whether the outcome of a submission is requested, whether the batch is complete, and whether the outcome record is
of the last batch: where the error comes from."""


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """Say how a job ended.

    Args:
        complete: Whether everything planned is committed and the stored offset has moved.
        offset: The stored offset as JSON.
        counts: Records by topic, of all batches of the run.
        error: The error that the job reported; next to a complete batch, the error that followed its last batch.
        tally: What the run has written; None when the ledger does not say, or another run reports it.
    """

    complete: bool
    offset: dict[str, Any] | None
    counts: dict[str, int]
    error: CdcError | None = None
    tally: RunTally | None = None


def job_outcome(state: StoredState, ledger: LedgerState | None, spec: JobSpec | None = None) -> JobOutcome:
    """Return how a job ended.

    Args:
        state: The state after it was reconciled with the ledger.
        ledger: The ledger; None when its topic does not exist.
        spec: The job that was submitted; None for the last batch, whichever run and try wrote it.
    """
    run_id = spec.run if spec is not None else ""
    tally = None if ledger is None else tally_of_run(ledger, run_id) if run_id else current_tally(ledger)
    outcome = _last_outcome(ledger)
    complete = state.pending is None and state.committed is not None
    counts_source, keep_tally = COUNTS_CASES[_tally_state(ledger, tally, run_id), outcome is not None]
    error_source = ERROR_CASES[spec is not None, complete, outcome is not None]
    counts: Mapping[CountsSource, Mapping[str, int]] = {
        "tally": {} if tally is None else tally.counts,
        "outcome": {} if outcome is None else outcome["counts"],
        "none": {},
    }
    errors: Mapping[ErrorSource, CdcError | None] = {
        "submission": None if spec is None else read_job_error(ledger, spec.owner, spec.id),
        "outcome": from_json(outcome["error"]) if outcome and outcome["error"] else None,
        "none": None,
    }
    return JobOutcome(
        complete,
        state.committed.to_json() if state.committed else None,
        {str(topic): int(count) for topic, count in counts[counts_source].items()},
        errors[error_source],
        tally if keep_tally else None,
    )


def _tally_state(ledger: LedgerState | None, tally: RunTally | None, run_id: str) -> TallyState:
    if ledger is None or (tally is None and RUN_KEY not in ledger.other_records):
        return "absent"
    if tally is None:
        return "another run"
    return "reported" if run_id and reported_by(ledger, tally) not in (None, run_id) else "unreported"


def _last_outcome(ledger: LedgerState | None) -> dict[str, Any] | None:
    """Return the outcome record when it is of the plan in force, otherwise None."""
    if ledger is None or not ledger.outcome:
        return None
    epoch = ledger.plan.epoch if ledger.plan else 0
    return ledger.outcome if ledger.outcome["epoch"] == epoch else None


def settle_offset(cfg: ConnectorConfig, store: OffsetStore, log: Log, spec: JobSpec | None = None) -> JobOutcome:
    """Move the stored offset to the last batch that is complete in Kafka, however the job ended.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store.
        log: Receives one line of text.
        spec: The job that was submitted; None for the last batch, whichever run and try wrote it.

    Returns:
        How the job ended; ``job_outcome`` lists the cases.

    Raises:
        CdcError: As ``reconcile_store``.
    """
    fault_point("airflow.before_commit")
    result, ledger = reconcile_store(cfg, store, log)
    record_batch(store, ledger, log)
    return job_outcome(result.state, ledger, spec)


RETRY_INTERVAL_S = 2.0
MIN_PATIENCE_S = 60.0
"""Seconds for which the ledger is read again at least, while the open transaction of another run hides its end."""

T = TypeVar("T")


def settle_verification(cfg: ConnectorConfig, store: OffsetStore, log: Log, spec: JobSpec) -> JobOutcome:
    """Move the stored offset as after a drain, and say whether the verdicts were written.

    A batch of another run that is not complete says nothing about the verification; that run moves the offset itself.
    Where so much differs that nothing was repaired, the report is logged, because the job ends with an error.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store.
        log: Receives one line of text.
        spec: The job that was submitted.

    Raises:
        CdcError: As ``settle_offset``.
    """

    def settle() -> JobOutcome:
        outcome = settle_offset(cfg, store, log, spec)
        ledger = read_ledger(cfg, spec.owner)
        result = None if ledger is None else read_verify_result(ledger, spec.run)
        if result is not None and isinstance(outcome.error, RepairLimitError):
            log(report_text(hide_values(cfg, result)))
        return replace(outcome, complete=result is not None and outcome.error is None)

    return beside_other_runs(cfg, settle)


def beside_other_runs(cfg: ConnectorConfig, read: Callable[[], T]) -> T:
    """Return what a function returns; call it again while an active run of the stream is in its way.

    Args:
        cfg: The connector's configuration.
        read: The function.

    Raises:
        RunInProgressError, OffsetConflictError: The other run is in the way for longer than its transactions last.
    """
    deadline = time.monotonic() + max(MIN_PATIENCE_S, 2 * cfg[F.COMMIT_INTERVAL_MS] / 1000)
    while True:
        try:
            return read()
        except (RunInProgressError, OffsetConflictError):
            if time.monotonic() >= deadline:
                raise
        time.sleep(RETRY_INTERVAL_S)


NOT_JUDGED_EXIT = 3
"""Exit code of ``mysql-cdc verify`` where no difference is known, and something was not judged."""
_MAX_LISTED = 5


def verification_of_run(cfg: ConnectorConfig, owner: str, run_id: str) -> VerifyResult:
    """Return the result that a job has written, without the values that must not be shown.

    Args:
        cfg: The connector's configuration.
        owner: ``dag_id/run_id/task_id/map_index``.
        run_id: Id of the run, as in the job's spec.

    Raises:
        StateError: There is none.
    """
    ledger = beside_other_runs(cfg, lambda: read_ledger(cfg, owner))
    result = None if ledger is None else read_verify_result(ledger, run_id)
    if result is None:
        raise StateError(
            "the verification ended without a result",
            where=f"topic.prefix={cfg.topic_prefix}, run {run_id}",
            why="the ledger has no verdicts of this run; another verification may have replaced them",
            remedy="read the driver's log, and run the task again; it compares again",
            retriable=True,
        )
    return hide_values(cfg, result)


def last_verification(cfg: ConnectorConfig) -> VerifyResult | None:
    """Return the last verdict about each table, without the values that must not be shown; None if there is none.

    Raises:
        SinkError: Kafka does not answer.
    """
    result = read_last_verdicts(kafka_clients.ledger(cfg).peek())
    return None if result is None else hide_values(cfg, result)


def differences_error(result: VerifyResult) -> DifferencesFoundError | None:
    """Return the error that says which differences are left; None without any."""
    left = [(verdict, counts) for verdict in most_different(result) if (counts := left_differences(verdict))]
    if not left:
        return None
    listed = [f"{verdict.table}: {counts_text(counts)}" for verdict, counts in left[:_MAX_LISTED]]
    more = [f"and {len(left) - _MAX_LISTED:,} more"] if len(left) > _MAX_LISTED else []
    return DifferencesFoundError(
        f"{len(left):,} of {len(result.tables):,} tables differ from their topics",
        where="; ".join([*listed, *more]),
        why=f"topic.prefix={result.prefix} was compared at {position_text(result)}; the report in "
        "this log has examples",
        remedy=difference_step(result),
    )


def not_judged_error(result: VerifyResult) -> NotJudgedError | None:
    """Return the error that names the tables that were not judged, or not in full; None when there is none."""
    unjudged = [verdict for verdict in result.tables if not verdict.judged]
    if not unjudged and result.tables:
        return None
    listed = [f"{verdict.table}: {'; '.join(verdict.unknown)}" for verdict in unjudged[:_MAX_LISTED]]
    more = [f"and {len(unjudged) - _MAX_LISTED:,} more"] if len(unjudged) > _MAX_LISTED else []
    return NotJudgedError(
        f"{len(unjudged):,} of {len(result.tables):,} tables could not be judged in full",
        where="; ".join([*listed, *more]),
        why=f"topic.prefix={result.prefix} was compared at {position_text(result)}; it is not known whether these "
        "topics equal their tables",
        remedy=unjudged_step(result),
    )


def exit_code(result: VerifyResult) -> int:
    """Return 1 if differences are left, 3 if something could not be judged, 0 if every topic equals its table."""
    if differences_error(result) is not None:
        return 1
    return 0 if not_judged_error(result) is None else NOT_JUDGED_EXIT
