"""End a Spark application: its processes on this host, and its driver on a cluster, which spark-submit does not end.

Airflow gives ``on_kill`` five seconds, then it kills the task's process. So each request is short, and a program that
takes longer is left running. Errors are logged with a command that ends the driver by hand: the task ends in any case,
and a driver that keeps running is fenced by the next try.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any

from airflow_provider_mysql_cdc.hooks import kubernetes_secret

log = logging.getLogger(__name__)

TIMEOUT_S = (1.0, 2.0)
"""Seconds to reach a server, and to wait for its answer."""
CREATION_WAIT_S = 1.0
"""Seconds to wait for a pod or an application that spark-submit has just requested."""
KILL_GRACE_S = 3.0
"""Seconds for a driver to end after SIGTERM, of the five that Airflow gives ``on_kill``."""
ACTIVE_STATES = "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"


def kill_process_group(leader: int, is_alive: Callable[[], bool], grace_s: float = KILL_GRACE_S) -> None:
    """Send SIGTERM to a process group, then SIGKILL.

    Args:
        leader: Process id of its leader.
        is_alive: Returns whether the leader still exists.
        grace_s: Seconds between the two signals.
    """
    for sig, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 0.5)):
        try:
            os.killpg(leader, sig)
        except (ProcessLookupError, PermissionError):
            return
        deadline = time.monotonic() + wait_s
        while is_alive() and time.monotonic() < deadline:
            time.sleep(0.05)


def kill_in_cluster(
    driver: Mapping[str, str], *, auth: Any = None, application: str | None = None, env: Mapping[str, str] | None = None
) -> None:
    """End a driver on a cluster, from any process.

    Args:
        driver: From ``CdcSparkSubmitHook.cluster_driver``; empty for a driver that does not run on a cluster.
        auth: Authentication for YARN's resource manager.
        application: YARN's id of the application, when it is known.
        env: Environment of the program ``yarn``.
    """
    if "pod" in driver:
        delete_driver_pod(driver["namespace"], driver["pod"])
        kubernetes_secret.delete_secret(kubernetes_secret.core_api(), driver["namespace"], driver["secret"], TIMEOUT_S)
    elif driver.get("address"):
        kill_with_rest_api(driver["address"], auth, application, driver["tag"])
    elif driver:
        kill_with_yarn_program(application, driver["tag"], env or {})


def delete_driver_pod(namespace: str, name: str) -> None:
    """Delete a driver's pod; Kubernetes deletes its executors' pods with it.

    Args:
        namespace: Its namespace.
        name: Its name, which is known before spark-submit has created it.
    """
    api, deadline = kubernetes_secret.core_api(), time.monotonic() + CREATION_WAIT_S
    while True:
        try:
            # The driver needs no time to clean up: the next try takes over what it has begun.
            api.delete_namespaced_pod(name, namespace, grace_period_seconds=1, _request_timeout=TIMEOUT_S)
        except Exception as error:
            if getattr(error, "status", None) != 404:
                log.error(
                    "The driver could not be ended and keeps running (%s). End it with: kubectl -n %s delete pod %s",
                    error,
                    namespace,
                    name,
                )
                return
            if time.monotonic() < deadline:
                time.sleep(0.2)
                continue
            log.info("There is no driver pod %s/%s.", namespace, name)
            return
        log.info("Deleted the driver pod %s/%s.", namespace, name)
        return


def kill_with_rest_api(address: str, auth: Any, application: str | None, tag: str) -> None:
    """Kill an application over the REST API of YARN's resource manager.

    Source: Hadoop's ResourceManager REST APIs, "Cluster Applications API" and "Cluster Application State API".

    Args:
        address: The resource manager's web address.
        auth: Authentication of the requests; None for none.
        application: The application's id; None when spark-submit was ended before it printed the id.
        tag: The application's tag, by which it is found in that case.
    """
    import requests

    try:
        application_ids = [application] if application else _applications_with_tag(address, auth, tag)
        for id_ in application_ids:
            url = f"{address}/ws/v1/cluster/apps/{id_}/state"
            reply = requests.put(url, json={"state": "KILLED"}, auth=auth, timeout=TIMEOUT_S)
            reply.raise_for_status()
            log.info("Killed application %s.", id_)
        if not application_ids:
            log.info("No application has the tag %s.", tag)
    except requests.RequestException as error:
        log.error(
            "The application could not be ended and keeps running (%s). End it with: yarn application -kill %s",
            error,
            application or f"ID of tag {tag}",
        )


def _applications_with_tag(address: str, auth: Any, tag: str) -> list[str]:
    import requests

    deadline = time.monotonic() + CREATION_WAIT_S
    while True:
        reply = requests.get(
            f"{address}/ws/v1/cluster/apps",
            params={"applicationTags": tag, "states": ACTIVE_STATES},
            auth=auth,
            timeout=TIMEOUT_S,
        )
        reply.raise_for_status()
        apps = (reply.json().get("apps") or {}).get("app") or []
        if apps or time.monotonic() >= deadline:
            return [str(app["id"]) for app in apps]
        time.sleep(0.2)


def kill_with_yarn_program(application: str | None, tag: str, env: Mapping[str, str]) -> None:
    """Kill an application with the program ``yarn``, which may outlive this task.

    Args:
        application: The application's id; None when spark-submit was ended before it printed the id.
        tag: The application's tag, for the message.
        env: The program's environment.
    """
    program = shutil.which("yarn", path=env.get("PATH"))
    if application is None or program is None:
        why = (
            "the program yarn is not on the worker's PATH"
            if application
            else "spark-submit was ended before it printed the application's id"
        )
        log.error(
            "The application could not be ended and may keep running (%s; the Spark connection has no "
            "yarn_resourcemanager_webapp_address). End it with: yarn application -kill %s",
            why,
            application or f"ID of tag {tag}",
        )
        return
    killer = subprocess.Popen(
        [program, "application", "-kill", application],
        env=dict(env),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        log.info("yarn application -kill %s: %s", application, killer.wait(TIMEOUT_S[1]))
    except subprocess.TimeoutExpired:
        log.info("yarn application -kill %s is still running.", application)
