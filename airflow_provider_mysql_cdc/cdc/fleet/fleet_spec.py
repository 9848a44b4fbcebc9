"""The job spec of a fleet: the specs of its streams, in one job spec that travels as any other does."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence

from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members, damaged_record, parse_json, record_location

FLEET_MODE = "fleet"
"""Mode of a job that drains the streams of a fleet."""
STREAM_PREFIX = "stream."
"""Begins the names under which the specs of the streams are among the properties of a fleet's spec."""


def fleet_job(streams: Sequence[JobSpec]) -> JobSpec:
    """Return one job spec that holds those of the streams.

    They are texts among its properties, so what hides the properties of one job hides those of all streams
    (docs/adr/0015-secrets-on-the-way.md).

    Args:
        streams: A complete spec for each stream, at least one, all of the same run.
    """
    texts = {f"{STREAM_PREFIX}{index}": json.dumps(spec.to_json()) for index, spec in enumerate(streams)}
    first = streams[0]
    return JobSpec(FLEET_MODE, dict(texts), {}, first.owner, first.run_for_s, secrets.token_hex(8), first.run)


def fleet_streams(job: JobSpec) -> list[JobSpec]:
    """Return the specs of a fleet's streams, in order.

    Args:
        job: From ``fleet_job``.

    Raises:
        DamagedRecordError: It is something else.
    """
    with record_location("job spec of a fleet"):
        if job.mode != FLEET_MODE or not job.properties:
            raise damaged_record(f"it is a job of mode {job.mode} with {len(job.properties)} properties")
        members = Members(job.properties)
        return [
            JobSpec.from_json(parse_json(members.text(f"{STREAM_PREFIX}{i}").encode()))
            for i in range(len(job.properties))
        ]
