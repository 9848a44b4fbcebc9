"""How a Spark job ended, from the reconciled state and the ledger: a pure function over two tables of cases.

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

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import RUN_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.commit.run_tally import RunTally, current_tally, reported_by, tally_of_run
from airflow_provider_mysql_cdc.cdc.errors import CdcError, from_json
from airflow_provider_mysql_cdc.cdc.job.job_error import read_job_error
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec

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
