"""Settle a verification, beside which other runs of the stream may drain."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import OffsetConflictError, RepairLimitError, RunInProgressError
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.operate.job_outcome import JobOutcome
from airflow_provider_mysql_cdc.cdc.operate.reconcile_store import read_ledger
from airflow_provider_mysql_cdc.cdc.operate.settle_offset import settle_offset
from airflow_provider_mysql_cdc.cdc.verify.report.hidden_values import hide_values
from airflow_provider_mysql_cdc.cdc.verify.report.report_text import report_text
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_records import read_verify_result

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
