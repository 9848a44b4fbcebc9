"""Kill means kill: on_kill ends drivers on YARN and Kubernetes, over their APIs with the real clients."""

from __future__ import annotations

import json
import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_apis import Api, served
from fakes import FakeSubmit
from kit.spark_cluster import wait_until
from kubernetes import client

from airflow_provider_mysql_cdc.cdc.errors import ConfigError, StateError
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.hooks import kill_application as application_end
from airflow_provider_mysql_cdc.hooks import kubernetes_secret
from airflow_provider_mysql_cdc.hooks.spark_python import driver_env
from airflow_provider_mysql_cdc.hooks.spark_submit import CdcSparkSubmitHook
from airflow_provider_mysql_cdc.hooks.spec_delivery import deliver_spec

JOB = "0123456789abcdef"
SPEC = JobSpec("drain", {"database.password": "M4rked-s3cret"}, {}, "dag/run/task/-1", id=JOB)
APP, TAG, POD = "application_1_0002", f"mysql-cdc-{JOB}", f"mysql-cdc-{JOB}-driver"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    with served() as found:
        configuration = client.Configuration(host=found.address)
        core = client.CoreV1Api(client.ApiClient(configuration))
        monkeypatch.setattr(kubernetes_secret, "core_api", lambda: core)
        yield found


def hook_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, conf: Any = None, **extra: Any) -> Any:
    """Return a hook for a cluster, and give it a job."""
    submit = FakeSubmit(tmp_path / "spark")
    spark = {"conn_type": "spark", "host": host, "extra": {"deploy-mode": "cluster", **extra}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CDC", json.dumps(spark))
    env = driver_env({"PATH": os.environ["PATH"], "SPARK_HOME": str(submit.folder)})
    return CdcSparkSubmitHook(conn_id="spark_cdc", driver_env=env, conf=conf)


def kill(hook: Any) -> None:
    """Let Airflow end a task whose job is submitted."""
    with deliver_spec(SPEC, hook.driver_target) as given:
        hook.use_delivery(given)
        hook.on_kill()


@pytest.mark.parametrize("told", [APP, None])
def test_an_application_on_yarn_ends_over_the_resource_manager(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str | None
) -> None:
    api.apps = {
        "application_1_0001": {"tags": "mysql-cdc-other", "state": "RUNNING"},
        APP: {"tags": f"mine,{TAG}", "state": "ACCEPTED"},
    }
    hook = hook_for(
        tmp_path, monkeypatch, "yarn", {"spark.yarn.tags": "mine"}, yarn_resourcemanager_webapp_address=api.address
    )
    hook._yarn_application_id = told
    kill(hook)
    assert hook._conf["spark.yarn.tags"] == f"mine,{TAG}"
    assert {id_: app["state"] for id_, app in api.apps.items()} == {"application_1_0001": "RUNNING", APP: "KILLED"}


def test_without_the_resource_manager_s_address_yarn_s_own_program_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = hook_for(tmp_path, monkeypatch, "yarn")
    program, said = tmp_path / "spark" / "bin" / "yarn", tmp_path / "said"
    program.write_text(f'#!/bin/sh\necho "$@" > {said}\n')
    program.chmod(0o755)
    hook._yarn_application_id = APP
    kill(hook)
    assert said.read_text() == f"application -kill {APP}\n"


def test_what_cannot_be_ended_is_said_with_the_command_that_does(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    api.refuse = 403
    hook = hook_for(tmp_path, monkeypatch, "yarn", yarn_resourcemanager_webapp_address=api.address)
    hook._yarn_application_id = APP
    kill(hook)
    application_end.kill_with_yarn_program(APP, TAG, {"PATH": "/nowhere"})
    application_end.delete_driver_pod("jobs", POD)
    text = caplog.text
    assert text.count(f"yarn application -kill {APP}") == 2
    assert f"kubectl -n jobs delete pod {POD}" in text


@pytest.mark.parametrize("late", [0, 2])
def test_a_driver_on_kubernetes_ends_with_its_pod_and_its_secret(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    api.pods = {POD: late, "another-driver": 0}
    hook = hook_for(tmp_path, monkeypatch, "k8s://https://one:443", namespace="jobs")
    with deliver_spec(SPEC, hook.driver_target) as given:
        hook.use_delivery(given)
        assert set(api.secrets) == {TAG}
        hook.on_kill()  # Airflow may kill the process next, and nothing after this line runs
        assert api.pods == {"another-driver": 0} and api.secrets == {}
        assert api.asked[-2:] == [
            f"DELETE /api/v1/namespaces/jobs/pods/{POD}",
            f"DELETE /api/v1/namespaces/jobs/secrets/{TAG}",
        ]


def test_a_pod_that_never_came_is_not_waited_for_long(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    application_end.delete_driver_pod("jobs", POD)
    assert f"There is no driver pod jobs/{POD}" in caplog.text


def test_the_spec_is_a_secret_of_its_try_and_earlier_tries_leave_none(api: Api) -> None:
    other = JobSpec("drain", {}, {}, "dag/run/other/-1", id="aa")
    with kubernetes_secret.mounted_secret(other, "jobs"):
        kept = dict(api.secrets)
        killed = kubernetes_secret.mounted_secret(SPEC, "jobs")
        killed.__enter__()  # its task is killed and never leaves
        again = JobSpec("drain", SPEC.properties, {}, SPEC.owner, id="ff")
        with kubernetes_secret.mounted_secret(again, "jobs") as conf:
            assert conf == {"spark.kubernetes.driver.secrets.mysql-cdc-ff": "/etc/mysql-cdc"}
            assert set(api.secrets) == {"mysql-cdc-ff", *kept}
    assert api.secrets == {}


def test_a_driver_that_waits_for_the_secret_of_a_killed_try_goes_with_it(api: Api) -> None:
    """Without its Secret a pod stays Pending for ever, and keeps what it has reserved."""
    api.pods = {POD: 0}
    killed = kubernetes_secret.mounted_secret(SPEC, "jobs")
    killed.__enter__()
    again = JobSpec("drain", {}, {}, SPEC.owner, id="ff")
    with kubernetes_secret.mounted_secret(again, "jobs"):
        assert (set(api.secrets), api.pods) == ({"mysql-cdc-ff"}, {})


def test_secrets_that_no_other_try_comes_after_go_with_the_next_job(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    """Of tasks that were killed before their pod ran, and are never tried again."""
    phases, killed = {"a": None, "b": "Pending", "c": "Succeeded", "d": None}, []
    for job in phases:
        api.now = "2026-11-23T08:59:59Z" if job != "d" else "2026-11-23T09:30:00Z"
        killed.append(kubernetes_secret.mounted_secret(JobSpec("drain", {}, {}, f"of/{job}", id=job), "jobs"))
        killed[-1].__enter__()
    api.phases = {f"mysql-cdc-{job}-driver": phase for job, phase in phases.items() if phase}
    api.now = "2026-11-23T10:00:00Z"
    with kubernetes_secret.mounted_secret(SPEC, "jobs"):
        assert set(api.secrets) == {TAG, "mysql-cdc-b", "mysql-cdc-d"}, "one may be mounted yet, one is young"
    assert set(api.secrets) == {"mysql-cdc-b", "mysql-cdc-d"}
    refused, api.phases = api.answer, {}

    def forbidden(method: str, target: str, body: dict[str, Any]) -> tuple[int, Any]:
        return (403, {"reason": "Forbidden"}) if "/pods/" in target else refused(method, target, body)

    api.answer = forbidden  # type: ignore[method-assign]
    api.secrets["mysql-cdc-b"]["metadata"]["labels"] = dict.fromkeys(["mysql-cdc-owner"], "of-nobody")
    with caplog.at_level("WARNING"), kubernetes_secret.mounted_secret(SPEC, "jobs"):
        assert "could not be deleted in namespace jobs" in caplog.text, "who may not look at pods can work all the same"


def test_the_secret_goes_as_soon_as_the_driver_s_pod_runs(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a task that is killed without a chance to tidy up leaves it only while its driver starts."""
    monkeypatch.setattr(kubernetes_secret, "POLL_S", 0.01)
    hook = hook_for(tmp_path, monkeypatch, "k8s://https://one:443", namespace="jobs")
    looked = f"GET /api/v1/namespaces/jobs/pods/{POD}"
    with deliver_spec(SPEC, hook.driver_target) as given:
        hook.use_delivery(given)
        driver = hook.cluster_driver(JOB)
        with kubernetes_secret.deleted_once_mounted(driver):
            for phase in ("", "Pending"):
                api.phases, looks = {POD: phase}, api.asked.count(looked)
                wait_until(lambda n=looks: api.asked.count(looked) > n + 1 or not api.secrets, 30, "nobody looks")
                assert set(api.secrets) == {TAG}
            api.phases = {POD: "Running"}
            wait_until(lambda: not api.secrets, 30, "the Secret stays")
        looks = api.asked.count(looked)
        api.refuse = 403
        with kubernetes_secret.deleted_once_mounted(driver):
            wait_until(lambda: api.asked.count(looked) == looks + 1, 30, "nobody looks")
        assert api.asked.count(looked) == looks + 1, "who may not look does not go on asking"


def test_what_kubernetes_refuses_is_named_without_the_secret(api: Api) -> None:
    api.refuse = 403
    with (
        pytest.raises(ConfigError, match="create, delete and list of secrets") as caught,
        kubernetes_secret.mounted_secret(SPEC, "jobs"),
    ):
        raise AssertionError
    assert "M4rked" not in str(caught.value)
    api.refuse = 503
    with pytest.raises(StateError) as unreachable, kubernetes_secret.mounted_secret(SPEC, "jobs"):
        raise AssertionError
    assert unreachable.value.can_retry and "M4rked" not in str(unreachable.value)


def test_an_end_while_spark_submit_is_being_started_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = FakeSubmit(tmp_path / "spark")
    submit.set(body="import time; time.sleep(600)")
    env = driver_env({"PATH": os.environ["PATH"], "SPARK_HOME": str(submit.folder)})
    hook = CdcSparkSubmitHook(master="local[1]", driver_env=env, application_args=["x"])
    started: list[subprocess.Popen[Any]] = []
    popen = subprocess.Popen

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        started.append(popen(*args, **kwargs))
        hook.on_kill()  # a signal's handler runs before the new process is known to the hook
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(Exception, match="Cannot execute"):
        hook.submit("app.py")
    assert started[0].poll() is not None
    with pytest.raises(Exception, match="killed before its job was submitted"):
        hook.submit("app.py")
    assert len(started) == 1
