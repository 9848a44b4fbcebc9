"""The exact command, files and environment with which a job is submitted to YARN and Kubernetes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster_apis import Api
from fakes import FakeSubmit
from test_application_end import JOB, SPEC, api

from airflow_provider_mysql_cdc.cdc.model.job_names import KEY_VARIABLE
from airflow_provider_mysql_cdc.hooks.spark_python import driver_env
from airflow_provider_mysql_cdc.hooks.spark_submit import CdcSparkSubmitHook
from airflow_provider_mysql_cdc.hooks.spec_delivery import TOKEN_FILE_VARIABLE, deliver_spec

__all__ = ["api"]

APPLICATION = "local:///opt/jobs/drain_binlog.py"


@contextmanager
def submitted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, host: str, mode: str, **arguments: Any
) -> Iterator[tuple[list[str], dict[str, str], CdcSparkSubmitHook]]:
    """Yield command and environment of a submission, while its files are there."""
    submit = FakeSubmit(folder / "spark")
    extra = {"deploy-mode": mode, "namespace": "jobs"}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CDC", json.dumps({"conn_type": "spark", "host": host, "extra": extra}))
    env = driver_env({"PATH": os.environ["PATH"], "SPARK_HOME": str(submit.folder), "AIRFLOW_CONN_X": "secret"})
    conf = {"spark.pyspark.python": "./environment/bin/python"}
    hook = CdcSparkSubmitHook(conn_id="spark_cdc", driver_env=env, conf=conf, name="cdc", **arguments)
    with deliver_spec(SPEC, hook.driver_target) as given:
        hook.use_delivery(given)
        yield hook._build_spark_submit_command(APPLICATION), {**hook._driver_env, **given.env}, hook


def settings(command: list[str]) -> dict[str, str]:
    """Return the configuration of a command."""
    pairs = [command[i + 1] for i, word in enumerate(command) if word == "--conf"]
    return dict(pair.split("=", 1) for pair in pairs)


def without_conf(command: list[str]) -> list[str]:
    """Return a command without its configuration."""
    marks = {i for i, word in enumerate(command) if word == "--conf"}
    return [word for i, word in enumerate(command) if i not in marks and i - 1 not in marks]


def own(conf: dict[str, str]) -> dict[str, str]:
    """Return what a submission adds to the defaults of all jobs and to the settings of Python."""
    return {n: v for n, v in conf.items() if n.startswith(("spark.yarn.", "spark.kubernetes."))}


def nothing_secret(command: list[str], env: dict[str, str]) -> None:
    """Check that neither command nor environment tells a secret."""
    assert "M4rked" not in " ".join((*command, *env, *env.values()))
    assert "secret" not in env.values() and not [name for name in env if name.startswith("AIRFLOW")]


def test_yarn_in_cluster_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with submitted(tmp_path, monkeypatch, "yarn", "cluster", files="/etc/hosts", archives="/e.tar.gz#environment") as (
        command,
        env,
        hook,
    ):
        shipped = hook._delivery.files[0]
        assert without_conf(command) == [
            *("spark-submit", "--master", "yarn", "--files", f"/etc/hosts,{shipped}"),
            *("--archives", "/e.tar.gz#environment", "--name", "cdc", "--deploy-mode", "cluster"),
            *(APPLICATION, "job-spec.json"),
        ]
        assert own(settings(command)).get("spark.yarn.tags") == f"mysql-cdc-{JOB}"
        assert env[TOKEN_FILE_VARIABLE] == f"/proc/self/fd/{hook._delivery.fds[0]}" and KEY_VARIABLE not in env
        assert "M4rked" not in Path(shipped).read_text()
        nothing_secret(command, env)


def test_kubernetes_in_cluster_mode(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with submitted(tmp_path, monkeypatch, "k8s://https://one:443", "cluster") as (command, env, _):
        assert without_conf(command) == [
            *("spark-submit", "--master", "k8s://https://one:443", "--name", "cdc", "--deploy-mode", "cluster"),
            *(APPLICATION, "/etc/mysql-cdc/job-spec.json"),
        ]
        assert own(settings(command)) == {
            "spark.kubernetes.namespace": "jobs",
            "spark.kubernetes.driver.pod.name": f"mysql-cdc-{JOB}-driver",
            f"spark.kubernetes.driver.secrets.mysql-cdc-{JOB}": "/etc/mysql-cdc",
        }
        assert list(api.secrets) == [f"mysql-cdc-{JOB}"]
        assert KEY_VARIABLE not in env and TOKEN_FILE_VARIABLE not in env
        nothing_secret(command, env)
    assert api.secrets == {}


@pytest.mark.parametrize("host", ["yarn", "k8s://https://one:443", "spark://one:7077"])
def test_client_mode_is_the_same_on_every_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    with submitted(tmp_path, monkeypatch, host, "client") as (command, env, hook):
        path = hook._delivery.argument
        assert without_conf(command) == [
            *("spark-submit", "--master", host, "--name", "cdc", "--deploy-mode", "client", APPLICATION, path)
        ]
        assert "M4rked" not in Path(path).read_text() and len(env[KEY_VARIABLE]) == 44
        nothing_secret(command, env)
