"""The error that a job ended with, in the ledger, where the operator reads it in every deploy mode.

The record holds the id of the submission, so the error of an older attempt or of another run is never mistaken for this
one's. It is written outside of any transaction, because a job that fails may hold no transactional id (another run is
active, the source refuses) and must not take one over to report its error. In a ledger topic of another stream nothing
is written: the operator finds that out itself when it reads the topic.
"""

from __future__ import annotations

import re
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import JOB_ERROR_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.property_names import scrub
from airflow_provider_mysql_cdc.cdc.errors import CdcError, StateError, from_json
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.sink.record_writer import write_plain

JOB_ERROR_KEYS = 64
"""Number of ledger keys that hold job errors; the ledger does not grow with the number of failed runs."""
WRITE_TIMEOUT_S = 20.0
"""Seconds for which a failed job tries to write its error."""
_MAX_ERROR_CHARS = 2000
# Stack frames of a Java exception, which the driver's log holds anyway.
_JAVA_FRAMES = re.compile(r"\n\s+at [\w.$/<>]+\([^\n]*")
# The properties that lead to the ledger; the driver's host may be unable to read one of the others.
_LEDGER_PROPERTIES = ("kafka.", "database.", "topic.prefix", "ledger.", "producer.override.", "admin.override.")


def job_error_key(owner: str) -> str:
    """Return the ledger key of a run's error.

    Args:
        owner: ``dag_id/run_id/task_id/map_index``.
    """
    return f"{JOB_ERROR_PREFIX}{zlib.crc32(owner.encode()) % JOB_ERROR_KEYS}"


@contextmanager
def reporting_job_error(
    spec: JobSpec, log: Log, to_named_error: Callable[[BaseException], CdcError | None]
) -> Iterator[None]:
    """Write the error that the job inside ends with into the ledger, and raise it again as a named error.

    Args:
        spec: The job.
        log: Takes one line of text.
        to_named_error: Returns the named error that caused another one, or None when there is none.

    Raises:
        CdcError: The error that the job ended with.
    """
    try:
        yield
    except Exception as error:
        named_error = to_named_error(error)
        if named_error is None:
            log(scrub(traceback.format_exc(), spec.properties))
            named_error = unexpected_error(error, spec)
        write_job_error(spec, named_error, log)
        if named_error is error:
            raise
        raise named_error from None


def unexpected_error(error: BaseException, spec: JobSpec) -> CdcError:
    """Return the named error for an unexpected one, for example a lost executor or a bug.

    Args:
        error: What was raised.
        spec: The job, whose secrets the text must not show.
    """
    return StateError(
        "the job ended with an unexpected error",
        where=f"{spec.mode} of {spec.owner}",
        why=scrub(_JAVA_FRAMES.sub("", f"{type(error).__name__}: {error}"), spec.properties)[:_MAX_ERROR_CHARS],
        remedy="read the driver's log; a retry continues after the last committed marker",
        retriable=True,
    )


def write_job_error(spec: JobSpec, error: CdcError, log: Log) -> None:
    """Write the error that a submission ended with; a failure to write it is only logged.

    Args:
        spec: The job; without an id nothing is written, because no operator reads it.
        error: The error.
        log: Takes one line of text.
    """
    if not spec.id:
        return
    try:
        cfg = _ledger_config(spec.properties)
        value = {"job": spec.id, "owner": spec.owner, "error": error.to_json(), "ts_ms": time.time_ns() // 1_000_000}
        record = SideRecord(cfg.ledger_topic, job_error_key(spec.owner).encode(), encode(value))
        kafka_clients.ledger(cfg).claim()  # nothing is written into another stream's ledger
        write_plain(cfg.kafka_settings(), [record], timeout_s=WRITE_TIMEOUT_S)
    except CdcError as write_error:
        log(f"the error could not be written to the ledger: {type(write_error).__name__}: {write_error.message()}")


def read_job_error(ledger: LedgerState | None, owner: str, job: str) -> CdcError | None:
    """Return the error that a submission ended with, or None when it has written none.

    Args:
        ledger: The ledger.
        owner: ``dag_id/run_id/task_id/map_index``.
        job: The submission's id.
    """
    record = (ledger.other_records if ledger is not None else {}).get(job_error_key(owner), {})
    return from_json(record["error"]) if job and record.get("job") == job else None


def _ledger_config(properties: Mapping[str, Any]) -> ConnectorConfig:
    """Return the configuration, or only the part that leads to the ledger when this host cannot read all of it."""
    try:
        return ConnectorConfig.from_properties(dict(properties))
    except CdcError:
        return ConnectorConfig.from_properties(
            {n: v for n, v in properties.items() if n.startswith(_LEDGER_PROPERTIES)}
        )
