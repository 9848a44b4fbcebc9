"""A job spec as a Kubernetes Secret that only its driver's pod mounts."""

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
"""Seconds between two checks whether a driver's pod runs."""
STARTED_PHASES = ("Running", "Succeeded", "Failed")
"""Phases of a pod whose containers have started."""
ABANDONED_S = 3600.0
"""Age in seconds from which a Secret counts as abandoned, unless its driver's pod is still pending."""
MAX_SECRET_BYTES = 1_000_000
"""Kubernetes refuses a Secret beyond 1 MiB."""


def core_api() -> Any:
    """Return Airflow's client for the Kubernetes API."""
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
    """Create the Secret and delete it afterwards; also delete Secrets of tasks whose worker was killed.

    Args:
        spec: The job.
        namespace: Namespace of the driver's pod.

    Yields:
        The Spark configuration that mounts it into the driver.

    Raises:
        ConfigError: The service account lacks permissions, or the spec is too large.
        StateError: The API server does not answer.
    """
    api, namespace = core_api(), namespace or "default"
    text = json.dumps(spec.to_json())
    if len(text) > MAX_SECRET_BYTES:
        raise ConfigError(
            "the job spec is too large for a Kubernetes Secret",
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
    """Delete the Secrets of a task's earlier tries, and their drivers, which would wait for their Secret forever.

    A pod whose Secret is missing stays in phase Pending and keeps its reserved resources; source: kubernetes.io,
    "Secrets" (optional Secrets). A driver that starts anyway would be fenced.
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
    """Delete Secrets of tasks that have no later try; their age is measured by the API server's own clock.

    Args:
        api: The client.
        namespace: The namespace.
        created: The Secret that was just created.
    """
    try:
        secrets = api.list_namespaced_secret(namespace, label_selector=OWNER_LABEL, _request_timeout=TIMEOUT_S).items
        for old in secrets:
            age = created.metadata.creation_timestamp - old.metadata.creation_timestamp
            if age.total_seconds() > ABANDONED_S and _phase(api, namespace, driver_pod_name(old.metadata.name)) in (
                *STARTED_PHASES,
                "",
            ):
                log.info("Deleting Secret %s/%s of a task that was killed.", namespace, old.metadata.name)
                delete_secret(api, namespace, old.metadata.name)
    except Exception as error:  # the job continues; a later one tries again
        log.warning(
            "Secrets of killed tasks could not be deleted in namespace %s: %s", namespace, _short_message(error)
        )


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
    """Delete a driver's Secret as soon as its pod runs, while the job runs inside.

    A pod's volumes are mounted before its first container starts, and keep their content when the Secret is deleted.
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
        except Exception as error:  # no pod yet, or no permission; the Secret is then deleted with the job
            if getattr(error, "status", None) in (401, 403):
                return
            continue
        if phase in STARTED_PHASES:
            delete_secret(api, namespace, driver["secret"])
            return


def delete_secret(api: Any, namespace: str, name: str, timeout_s: tuple[float, float] = TIMEOUT_S) -> None:
    """Delete a Secret; an error is logged, and the next try deletes the Secret.

    Args:
        api: The client.
        namespace: The Secret's namespace.
        name: The Secret's name.
        timeout_s: Seconds to reach the API server, and to wait for its answer.
    """
    try:
        api.delete_namespaced_secret(name, namespace, _request_timeout=timeout_s)
    except Exception as error:
        if getattr(error, "status", None) != 404:
            log.warning("Secret %s/%s could not be deleted: %s", namespace, name, _short_message(error))


@contextlib.contextmanager
def _named_errors(namespace: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        status = getattr(error, "status", None)
        if status in (401, 403):
            raise ConfigError(
                "Kubernetes denies the Airflow worker access to the job's Secrets",
                where=f"namespace {namespace}",
                why=_short_message(error),
                remedy="grant the worker's service account create, delete and list of secrets, and get and delete "
                "of pods, in this namespace",
            ) from None
        raise StateError(
            "the Secret of the job could not be created over the Kubernetes API",
            where=f"namespace {namespace}",
            why=_short_message(error),
            remedy="check that the worker reaches the API server; a retry creates the Secret again",
            retriable=True,
        ) from None


def _short_message(error: Exception) -> str:
    """Return an error's text without the request's body."""
    reason = getattr(error, "reason", None)
    status = getattr(error, "status", "")
    return f"{type(error).__name__} {status} {reason}" if reason else f"{type(error).__name__}: {error}"[:300]
