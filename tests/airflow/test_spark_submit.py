"""The submit hook: environment, application and the end of a driver."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException
from fakes import FakeSubmit, connections

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.hooks import kill_application, spark_submit
from airflow_provider_mysql_cdc.hooks.spark_python import driver_env
from airflow_provider_mysql_cdc.hooks.spark_submit import CdcSparkSubmitHook, application_path
from airflow_provider_mysql_cdc.hooks.spec_delivery import remove_abandoned_folders

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def submit(tmp_path: Path) -> FakeSubmit:
    return FakeSubmit(tmp_path / "spark")


def hook_for(submit: FakeSubmit, **arguments: Any) -> CdcSparkSubmitHook:
    env = driver_env({"PATH": os.environ["PATH"], "SPARK_HOME": str(submit.folder)})
    return CdcSparkSubmitHook(**{"master": "local[1]", "driver_env": env, **arguments})


def test_only_what_a_driver_needs_is_inherited() -> None:
    env = driver_env(
        {
            "HOME": "/home/x",
            "PATH": "/bin",
            "JAVA_HOME": "/java",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "secret",
            "AIRFLOW_CONN_MYSQL": "secret",
            "MYSQL_CDC_MYSQL_ROOT_PASSWORD": "secret",
            "MYSQL_CDC_FAULT": "secret",
        }
    )
    assert "secret" not in env.values()
    assert (env["HOME"], env["JAVA_HOME"]) == ("/home/x", "/java")


def test_what_reaches_a_cluster_and_its_storage_is_inherited() -> None:
    names = (
        "KUBECONFIG",
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
        "KUBERNETES_SERVICE_HOST",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
    )
    names += (
        "GOOGLE_APPLICATION_CREDENTIALS",
        "AZURE_CLIENT_ID",
        "https_proxy",
        "NO_PROXY",
        "HADOOP_CONF_DIR",
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    )
    assert driver_env(dict.fromkeys(names, "x")).items() >= dict.fromkeys(names, "x").items()


def test_a_fault_reaches_the_driver_only_when_it_is_asked_for() -> None:
    assert driver_env({}, {"MYSQL_CDC_FAULT": "{}"})["MYSQL_CDC_FAULT"] == "{}"


def test_a_local_driver_finds_spark_this_interpreter_and_this_package(submit: FakeSubmit) -> None:
    env = driver_env({"PATH": "/bin", "PYTHONPATH": "/mine"})
    assert Path(env["SPARK_HOME"], "bin", "spark-submit").exists()
    assert env["PATH"].split(os.pathsep) == [f"{env['SPARK_HOME']}/bin", str(Path(sys.executable).parent), "/bin"]
    env = hook_for(submit, driver_env=env)._driver_env
    assert env["PYSPARK_PYTHON"] == env["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert env["PYTHONPATH"].split(os.pathsep) == [str(ROOT), "/mine"]


def test_an_installation_s_own_spark_and_explicit_variables_win() -> None:
    env = driver_env({"PATH": "/bin", "SPARK_HOME": "/opt/spark"}, {"PYSPARK_PYTHON": "/opt/python"})
    assert (env["SPARK_HOME"], env["PYSPARK_PYTHON"]) == ("/opt/spark", "/opt/python")


def test_the_applications_are_found() -> None:
    for name in ("drain_binlog.py", "snapshot_tables.py"):
        assert Path(application_path(name)).is_file()


def test_the_folder_of_the_applications_can_be_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AIRFLOW__MYSQL_CDC__SPARK_JOBS_FOLDER", str(tmp_path))
    with pytest.raises(ConfigError, match="spark_jobs_folder"):
        application_path("drain_binlog.py")
    (tmp_path / "drain_binlog.py").touch()
    assert application_path("drain_binlog.py") == str(tmp_path / "drain_binlog.py")
    monkeypatch.setenv("AIRFLOW__MYSQL_CDC__SPARK_JOBS_FOLDER", "local:///opt/jobs/")
    assert application_path("drain_binlog.py") == "local:///opt/jobs/drain_binlog.py"


@pytest.mark.parametrize(
    ("connection", "master"),
    [
        ('{"conn_type": "spark", "host": "local[2]"}', "local[2]"),
        ("spark://local%5B2%5D?deploy-mode=client", "local[2]"),
        ('{"conn_type": "spark", "host": "spark://one", "port": 7077}', "spark://one:7077"),
        ('{"conn_type": "spark", "host": "yarn"}', "yarn"),
    ],
)
def test_masters_that_are_meant(monkeypatch: pytest.MonkeyPatch, connection: str, master: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CDC", connection)
    hook = CdcSparkSubmitHook(conn_id="spark_cdc", driver_env={})
    assert hook._connection["master"] == master
    assert hook.deploy_mode == "client"


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        ({"spark-binary": "/opt/spark/bin/spark-submit"}, "spark-binary"),
        ({"spark-home": "/opt/spark"}, "spark-home"),
        ({"rest-port": "many"}, "many"),
        ({"deploy-mode": "clustr"}, "'clustr' is not one of client, cluster"),
        ({"keytab": "a"}, "keytab"),
        ("deploy-mode=cluster", "not a JSON object"),
    ],
)
def test_a_connection_whose_settings_cannot_be_used_is_named_and_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, extra: Any, why: str
) -> None:
    """The Spark provider raises ValueError for some, and passes over others without a word."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CDC", json.dumps({"conn_type": "spark", "host": "yarn", "extra": extra}))
    with pytest.raises(ConfigError, match="spark_cdc") as told:
        CdcSparkSubmitHook(conn_id="spark_cdc", driver_env={})
    assert why in str(told.value) and not told.value.can_retry


@pytest.mark.parametrize("outlives", [False, True])
def test_a_connection_s_keytab_is_a_file_for_this_account_as_long_as_its_driver_lives(
    submit: FakeSubmit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outlives: bool
) -> None:
    """The Spark provider leaves it in /tmp, where everybody may read it."""
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    extra = {"keytab": base64.b64encode(b"k3ytab").decode(), "principal": "cdc@EXAMPLE"}
    connection = {"conn_type": "spark", "host": "spark://one:7077", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CDC", json.dumps(connection))
    hook = hook_for(submit, master=None, conn_id="spark_cdc")
    assert hook.driver_target.own_login and list(own.iterdir()) == []
    with hook.spark_submit_context(outlives=outlives) as given:
        command = hook._build_spark_submit_command("app.py")
        keytab = Path(command[command.index("--keytab") + 1])
        assert keytab.read_bytes() == b"k3ytab" and keytab.is_relative_to(own)
        assert (stat.S_IMODE(keytab.stat().st_mode), stat.S_IMODE(keytab.parent.stat().st_mode)) == (0o600, 0o700)
        driver = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, **given
        )
    remove_abandoned_folders()
    assert keytab.exists() is outlives, "a driver that goes on may log in anew"
    driver.communicate()
    remove_abandoned_folders()
    assert list(own.iterdir()) == []


def test_a_local_driver_listens_only_on_loopback(submit: FakeSubmit, tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text("{}")
    hook_for(submit, application_args=[str(spec)]).submit("app.py")
    assert submit.record is not None
    assert submit.record["env"]["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_missing_java_is_named(submit: FakeSubmit) -> None:
    hook = hook_for(submit)
    hook._driver_env["JAVA_HOME"] = "/nowhere"
    with pytest.raises(ConfigError, match="Java was not found"):
        hook.submit("app.py")


def test_missing_spark_is_named(submit: FakeSubmit, tmp_path: Path) -> None:
    hook = hook_for(submit, driver_env={"PATH": str(tmp_path)})
    with pytest.raises(ConfigError, match="spark-submit was not found"):
        hook.submit("app.py")


def test_a_driver_that_standalone_cannot_run_is_refused_before_anything_is_planned() -> None:
    with pytest.raises(ConfigError, match="deploy mode client"):
        CdcSparkSubmitHook(master="spark://one:7077", deploy_mode="cluster", driver_env={})


def test_kubernetes_without_its_provider_is_one_line_that_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_submit, "_KUBERNETES", "airflow.providers.no_such.kubernetes")
    with pytest.raises(ConfigError, match="install apache-airflow-providers-cncf-kubernetes"):
        CdcSparkSubmitHook(master="k8s://https://one:443", driver_env={})


@pytest.mark.parametrize("arguments", [{"yarn_track_via_rm_api": True}, {"track_driver_via_k8s_api": True}])
def test_tracking_that_does_not_fit_the_master_is_refused_before_anything_is_planned(
    submit: FakeSubmit, arguments: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match="cannot be tracked with these arguments"):
        hook_for(submit, **arguments).check_programs()


def test_on_kill_ends_the_driver_with_its_children_soon(submit: FakeSubmit, tmp_path: Path) -> None:
    started, spec = tmp_path / "child.pid", tmp_path / "spec.json"
    spec.write_text("{}")
    body = (
        "import signal, subprocess, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(started)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    submit.set(body=body)
    hook = hook_for(submit, application_args=[str(spec)])
    ended: list[BaseException] = []

    def run() -> None:
        try:
            hook.submit("app.py")
        except AirflowException as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(lambda: started.exists() and bool(started.read_text()))
    hook.on_kill()
    thread.join(120)
    assert ended
    assert kill_application.KILL_GRACE_S < 5, "Airflow gives on_kill five seconds"
    wait_for(lambda: not alive(int(started.read_text())))


def test_killing_the_operator_before_spark_was_started_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator

    connections(monkeypatch)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    operator = MySqlCdcDrainOperator(task_id="drain")
    assert operator._hook is None
    operator.on_kill()
    assert operator._hook is None or operator._hook._submit_sp is None


def alive(pid: int) -> bool:
    """Say whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition: Any) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
