"""A job's spec as a Kubernetes Secret, which only its driver's pod mounts."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_provider_mysql_cdc.cdc.errors import ConfigError, StateError
from airflow_provider_mysql_cdc.cdc.model.job_names import SPEC_FILE

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec

log = logging.getLogger(__name__)

MOUNT_PATH = "/etc/mysql-cdc"
OWNER_LABEL = "mysql-cdc-owner"
TIMEOUT_S = (3.0, 10.0)
"""Seconds to reach the API server, and to wait for its answer."""
POLL_S = 2.0
"""Seconds between two looks whether a driver's pod runs."""
STARTED_PHASES = ("Running", "Succeeded", "Failed")
"""Phases of a pod whose containers have started."""
ABANDONED_S = 3600.0
"""Age from which a Secret counts as left behind, unless its driver's pod waits to be started."""
MAX_SECRET_BYTES = 1_000_000
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


def driver_pod_name(secret: str) -> str:
    """Return the name of the driver's pod that mounts a Secret.

    Args:
        secret: The Secret's name.
    """
    return f"{secret}-driver"


@contextmanager
def mounted_secret(spec: JobSpec, namespace: str) -> Iterator[dict[str, str]]:
    """Create the Secret, and delete it afterwards; and those that were left by tasks whose worker was killed.

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
    if len(text) > MAX_SECRET_BYTES:
        raise ConfigError(
            "the job's spec is too large for a Kubernetes Secret",
            where=f"{len(text)} bytes",
            remedy="use deploy mode client, or capture fewer tables in one stream",
        )
    name, owner = secret_name(spec.id), hashlib.sha256(spec.owner.encode()).hexdigest()[:40]
    body = {
        "metadata": {"name": name, "labels": {OWNER_LABEL: owner}},
        "type": "Opaque",
        "data": {SPEC_FILE: base64.b64encode(text.encode()).decode()},
    }
    with _named_errors(namespace):
        _delete_earlier_tries(api, namespace, owner)
        created = api.create_namespaced_secret(namespace, body, _request_timeout=TIMEOUT_S)
    _delete_abandoned(api, namespace, created)
    try:
        yield {f"spark.kubernetes.driver.secrets.{name}": MOUNT_PATH}
    finally:
        delete_secret(api, namespace, name)


def _delete_earlier_tries(api: Any, namespace: str, owner: str) -> None:
    """Delete what earlier tries of a task have left, with drivers that would wait for it without end.

    A pod whose Secret is missing stays in phase Pending and keeps what it has reserved; source: kubernetes.io,
    "Secrets" (optional Secrets). A driver that runs after all would be fenced.
    """
    secrets = api.list_namespaced_secret(namespace, label_selector=f"{OWNER_LABEL}={owner}", _request_timeout=TIMEOUT_S)
    for old in secrets.items:
        pod = driver_pod_name(old.metadata.name)
        try:
            api.delete_namespaced_pod(pod, namespace, grace_period_seconds=1, _request_timeout=TIMEOUT_S)
            log.info("Deleted the driver pod %s/%s of an earlier try.", namespace, pod)
        except Exception as error:
            if getattr(error, "status", None) != 404:
                raise
        api.delete_namespaced_secret(old.metadata.name, namespace, _request_timeout=TIMEOUT_S)


def _delete_abandoned(api: Any, namespace: str, created: Any) -> None:
    """Delete what tasks have left that no other try comes after; age is told by the API server's own clock.

    Args:
        api: The client.
        namespace: Its namespace.
        created: The Secret that was created just now.
    """
    try:
        secrets = api.list_namespaced_secret(namespace, label_selector=OWNER_LABEL, _request_timeout=TIMEOUT_S).items
        for old in secrets:
            age = created.metadata.creation_timestamp - old.metadata.creation_timestamp
            if age.total_seconds() > ABANDONED_S and _phase(api, namespace, driver_pod_name(old.metadata.name)) in (
                *STARTED_PHASES,
                "",
            ):
                log.info("Secret %s/%s was left by a task that was killed.", namespace, old.metadata.name)
                delete_secret(api, namespace, old.metadata.name)
    except Exception as error:  # the job goes on; another one looks again
        log.warning("Secrets of killed tasks may be left in %s: %s", namespace, _short_message(error))


def _phase(api: Any, namespace: str, pod: str) -> str:
    """Return a pod's phase; empty when there is none."""
    try:
        return str(api.read_namespaced_pod(pod, namespace, _request_timeout=TIMEOUT_S).status.phase)
    except Exception as error:
        if getattr(error, "status", None) != 404:
            raise
        return ""


@contextmanager
def deleted_once_mounted(driver: Mapping[str, str]) -> Iterator[None]:
    """Delete a driver's Secret as soon as its pod runs, while its job goes on inside.

    The volumes of a pod are there before its first container starts, and keep what they hold when their Secret goes.
    Source: kubernetes.io, "Pod Lifecycle" (phase Pending lasts until then) and "Secrets".

    Args:
        driver: From ``CdcSparkSubmitHook.cluster_driver``.
    """
    end = threading.Event()
    thread = threading.Thread(target=_delete_once_mounted, args=(driver, end), name="cdc-secret", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(TIMEOUT_S[1])


def _delete_once_mounted(driver: Mapping[str, str], end: threading.Event) -> None:
    api, namespace = core_api(), driver["namespace"]
    while not end.wait(POLL_S):
        try:
            phase = api.read_namespaced_pod(driver["pod"], namespace, _request_timeout=TIMEOUT_S).status.phase
        except Exception as error:  # it is not there yet, or may not be looked at; the Secret goes with the job then
            if getattr(error, "status", None) in (401, 403):
                return
            continue
        if phase in STARTED_PHASES:
            delete_secret(api, namespace, driver["secret"])
            return


def delete_secret(api: Any, namespace: str, name: str, timeout_s: tuple[float, float] = TIMEOUT_S) -> None:
    """Delete a Secret; what keeps it there is logged, and the next try deletes it.

    Args:
        api: The client.
        namespace: Its namespace.
        name: Its name.
        timeout_s: Seconds to reach the API server, and to wait for its answer.
    """
    try:
        api.delete_namespaced_secret(name, namespace, _request_timeout=timeout_s)
    except Exception as error:
        if getattr(error, "status", None) != 404:
            log.warning("Secret %s/%s is left behind: %s", namespace, name, _short_message(error))


@contextlib.contextmanager
def _named_errors(namespace: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        status = getattr(error, "status", None)
        if status in (401, 403):
            raise ConfigError(
                "Kubernetes does not let the Airflow worker keep the job's secrets",
                where=f"namespace {namespace}",
                why=_short_message(error),
                remedy="allow create, delete and list of secrets, and get and delete of pods, in this namespace",
            ) from None
        raise StateError(
            "the Kubernetes API server did not take the job's Secret",
            where=f"namespace {namespace}",
            why=_short_message(error),
            remedy="run the task again",
            retriable=True,
        ) from None


def _short_message(error: Exception) -> str:
    """Return an error without the request's body."""
    reason = getattr(error, "reason", None)
    status = getattr(error, "status", "")
    return f"{type(error).__name__} {status} {reason}" if reason else f"{type(error).__name__}: {error}"[:300]
