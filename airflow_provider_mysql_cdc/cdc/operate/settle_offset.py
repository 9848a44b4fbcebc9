"""Settle the stored offset after a job: move it to the last batch that is complete in Kafka."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.faults import fault_point
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.operate.job_outcome import JobOutcome, job_outcome
from airflow_provider_mysql_cdc.cdc.operate.lag_history import record_batch
from airflow_provider_mysql_cdc.cdc.operate.reconcile_store import reconcile_store


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
