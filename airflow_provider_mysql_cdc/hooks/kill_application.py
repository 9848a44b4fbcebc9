"""End a Spark application: its processes on this host, and its driver on a cluster, which spark-submit does not end.

Airflow gives ``on_kill`` five seconds, then it kills the task's process; so each request is short, and a program that
takes longer goes on by itself. Errors are logged with what a person can do: the task ends in any case, and a driver
that goes on is fenced by the next try.
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
"""Seconds within which what spark-submit has just asked for comes into being."""
KILL_GRACE_S = 3.0
"""Seconds for a driver to end by itself, of the five that Airflow gives ``on_kill``."""
ACTIVE_STATES = "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"


def kill_process_group(leader: int, is_alive: Callable[[], bool], grace_s: float = KILL_GRACE_S) -> None:
    """Ask a process group to end, then end it.

    Args:
        leader: Process id of its leader.
        is_alive: Tells whether the leader is still there.
        grace_s: Seconds between the two.
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
        driver: What ``CdcSparkSubmitHook.cluster_driver`` tells; empty for a driver that runs on no cluster.
        auth: Authentication at YARN's resource manager.
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
    """Delete a driver's pod; its executors' pods belong to it and go with it.

    Args:
        namespace: Its namespace.
        name: Its name, which is known before spark-submit has made it.
    """
    api, deadline = kubernetes_secret.core_api(), time.monotonic() + CREATION_WAIT_S
    while True:
        try:
            # The driver has nothing to tidy up: whoever comes next takes over what it has begun.
            api.delete_namespaced_pod(name, namespace, grace_period_seconds=1, _request_timeout=TIMEOUT_S)
        except Exception as error:
            if getattr(error, "status", None) != 404:
                log.error("The driver goes on: kubectl -n %s delete pod %s (%s)", namespace, name, error)
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
        application: The application's id; None when spark-submit was ended before it told.
        tag: The application's tag, by which it is found then.
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
            log.info("There is no application with the tag %s.", tag)
    except requests.RequestException as error:
        log.error("The application goes on: yarn application -kill %s (%s)", application or f"ID of tag {tag}", error)


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
        application: The application's id; None when spark-submit was ended before it told.
        tag: The application's tag, for the message.
        env: The program's environment.
    """
    program = shutil.which("yarn", path=env.get("PATH"))
    if application is None or program is None:
        why = "no program yarn on the worker's PATH" if application else "spark-submit was ended before it told the id"
        log.error(
            "The application may go on: yarn application -kill %s (%s; the Spark connection names no "
            "yarn_resourcemanager_webapp_address)",
            application or f"ID of tag {tag}",
            why,
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
        log.info("yarn application -kill %s is still at work.", application)
