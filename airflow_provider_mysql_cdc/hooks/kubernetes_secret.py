"""A job's spec as a Kubernetes Secret, which only its driver's pod mounts."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_provider_mysql_cdc.cdc.errors import ConfigError, StateError
from airflow_provider_mysql_cdc.cdc.model.job_names import SPEC_FILE

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec

log = logging.getLogger(__name__)

MOUNT = "/etc/mysql-cdc"
LABEL = "mysql-cdc-owner"
TIMEOUT_S = (3.0, 10.0)
"""Seconds to reach the API server, and to wait for its answer."""
MOST_BYTES = 1_000_000
"""Kubernetes refuses a Secret beyond 1 MiB."""


def core_api() -> Any:
    """Return Airflow's client of the Kubernetes API."""
    from airflow.providers.cncf.kubernetes.kube_client import get_kube_client

    return get_kube_client()


def secret_name(job: str) -> str:
    """Return the Secret's name.

    Args:
        job: The submission's id.
    """
    return f"mysql-cdc-{job}"


@contextmanager
def of(spec: JobSpec, namespace: str) -> Iterator[dict[str, str]]:
    """Create the Secret, and delete it afterwards; first those of earlier tries of the same task, which may have died.

    Args:
        spec: The job.
        namespace: Namespace of the driver's pod.

    Yields:
        The Spark configuration that mounts it into the driver.

    Raises:
        ConfigError: The service account may not do so, or the spec is too large.
        StateError: The API server does not answer.
    """
    api, namespace = core_api(), namespace or "default"
    text = json.dumps(spec.to_json())
    if len(text) > MOST_BYTES:
        raise ConfigError(
            "the job's spec is too large for a Kubernetes Secret",
            where=f"{len(text)} bytes",
            remedy="use deploy mode client, or capture fewer tables in one stream",
        )
    name, owner = secret_name(spec.id), hashlib.sha256(spec.owner.encode()).hexdigest()[:40]
    body = {
        "metadata": {"name": name, "labels": {LABEL: owner}},
        "type": "Opaque",
        "data": {SPEC_FILE: base64.b64encode(text.encode()).decode()},
    }
    with _judged(namespace):
        for old in api.list_namespaced_secret(
            namespace, label_selector=f"{LABEL}={owner}", _request_timeout=TIMEOUT_S
        ).items:
            api.delete_namespaced_secret(old.metadata.name, namespace, _request_timeout=TIMEOUT_S)
        api.create_namespaced_secret(namespace, body, _request_timeout=TIMEOUT_S)
    try:
        yield {f"spark.kubernetes.driver.secrets.{name}": MOUNT}
    finally:
        forget(api, namespace, name)


def forget(api: Any, namespace: str, name: str) -> None:
    """Delete a Secret; what keeps it there is logged, and the next try deletes it.

    Args:
        api: The client.
        namespace: Its namespace.
        name: Its name.
    """
    try:
        api.delete_namespaced_secret(name, namespace, _request_timeout=TIMEOUT_S)
    except Exception as error:
        if getattr(error, "status", None) != 404:
            log.warning("Secret %s/%s is left behind: %s", namespace, name, _short(error))


@contextlib.contextmanager
def _judged(namespace: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        status = getattr(error, "status", None)
        if status in (401, 403):
            raise ConfigError(
                "Kubernetes does not let the Airflow worker keep the job's secrets",
                where=f"namespace {namespace}",
                why=_short(error),
                remedy="allow create, delete and list of secrets, and get and delete of pods, in this namespace",
            ) from None
        raise StateError(
            "the Kubernetes API server did not take the job's Secret",
            where=f"namespace {namespace}",
            why=_short(error),
            remedy="run the task again",
            retriable=True,
        ) from None


def _short(error: Exception) -> str:
    """Return an error without the request's body."""
    reason = getattr(error, "reason", None)
    status = getattr(error, "status", "")
    return f"{type(error).__name__} {status} {reason}" if reason else f"{type(error).__name__}: {error}"[:300]
