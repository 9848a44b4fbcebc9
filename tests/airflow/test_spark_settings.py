"""Which Python and which settings a Spark job is submitted with, on each kind of master."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.environment.packed import MANIFEST
from airflow_provider_mysql_cdc.hooks import spark_python
from airflow_provider_mysql_cdc.hooks.spark_python import DRIVER_PYTHON, EXECUTOR_PYTHON, choose_python, driver_env
from airflow_provider_mysql_cdc.hooks.spark_settings import JAVA_OPTIONS, cluster_defaults, with_defaults
from airflow_provider_mysql_cdc.hooks.spark_submit import CdcSparkSubmitHook

STANDALONE, YARN = "spark://one:7077", "yarn"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive that begins as packed environments do."""
    path = tmp_path / "env.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        head = tarfile.TarInfo(MANIFEST)
        head.size = 2
        tar.addfile(head, io.BytesIO(b"{}"))
    return path


def settled(monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any] | None = None, **more: Any) -> CdcSparkSubmitHook:
    connection = {"conn_type": "spark", "host": STANDALONE, "extra": extra or {}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CDC", json.dumps(connection))
    return CdcSparkSubmitHook(**{"conn_id": "spark_cdc", "driver_env": {"SPARK_HOME": "/opt/spark"}, **more})


@pytest.mark.parametrize("master", [STANDALONE, YARN, "k8s://https://one:443"])
def test_the_worker_s_interpreter_is_the_client_driver_s_and_never_the_executors(master: str) -> None:
    made = choose_python(master, "client", env={"PYTHONPATH": "/airflow"}, conf={})
    assert made.conf == {DRIVER_PYTHON: sys.executable}
    assert "PYSPARK_PYTHON" not in made.env
    assert "/airflow" not in made.env.get("PYTHONPATH", ""), "YARN puts it into the containers, before all others"


def test_a_driver_in_cluster_mode_runs_in_the_executors_python() -> None:
    assert choose_python(YARN, "cluster", env={}, conf={}).conf == {}
    made = choose_python(YARN, "cluster", env={}, conf={EXECUTOR_PYTHON: "./env/bin/python"})
    assert made.conf == {EXECUTOR_PYTHON: "./env/bin/python"}
    assert not {n for n in made.env if n.startswith("PY")}


def test_the_executors_python_does_not_become_the_client_driver_s() -> None:
    """Spark lets spark.pyspark.python run the driver too, which has no ./environment (tried with 4.3)."""
    made = choose_python(STANDALONE, "client", env={}, conf={EXECUTOR_PYTHON: "./environment/bin/python"})
    assert made.conf == {EXECUTOR_PYTHON: "./environment/bin/python", DRIVER_PYTHON: sys.executable}
    named = choose_python(STANDALONE, "client", env={"PYSPARK_DRIVER_PYTHON": "/x", "PYSPARK_PYTHON": "/y"}, conf={})
    assert named.conf == {EXECUTOR_PYTHON: "/y", DRIVER_PYTHON: "/x"}
    assert "PYTHONPATH" not in named.env, "another interpreter has packages of its own"


def test_a_pythonpath_that_is_asked_for_is_kept() -> None:
    made = choose_python(YARN, "cluster", env={"PYTHONPATH": "/mine"}, conf={}, requested_env={"PYTHONPATH": "/mine"})
    assert made.env["PYTHONPATH"] == "/mine"


def test_a_packed_environment_among_the_archives_is_the_executors_python(archive: Path, tmp_path: Path) -> None:
    other = tmp_path / "certificates.tar.gz"
    with tarfile.open(other, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("ca.pem"))
    named = f"{other}#certificates,file://{archive}#here"
    assert (
        choose_python(STANDALONE, "client", env={}, conf={}, archives=named).conf[EXECUTOR_PYTHON]
        == "./here/bin/python"
    )
    assert (
        EXECUTOR_PYTHON
        not in choose_python(STANDALONE, "client", env={}, conf={}, archives=f"{other}#certificates").conf
    )
    assert EXECUTOR_PYTHON not in choose_python(STANDALONE, "client", env={}, conf={}, archives=str(archive)).conf
    named = choose_python(
        STANDALONE, "client", env={}, conf={EXECUTOR_PYTHON: "/named"}, archives=f"{archive}#here"
    ).conf
    assert named[EXECUTOR_PYTHON] == "/named"


def test_the_connection_s_settings_are_under_the_job_s(monkeypatch: pytest.MonkeyPatch, archive: Path) -> None:
    extra = {"conf": {"spark.a": "connection", "spark.b": True}, "archives": f"{archive}#environment"}
    hook = settled(monkeypatch, extra, conf={"spark.a": "job"})
    assert (hook._conf["spark.a"], hook._conf["spark.b"]) == ("job", "true")
    assert hook._conf[EXECUTOR_PYTHON] == "./environment/bin/python"
    command = hook._build_spark_submit_command("app.py")
    assert command[command.index("--archives") + 1] == f"{archive}#environment"
    assert f"{DRIVER_PYTHON}={sys.executable}" in command
    with pytest.raises(ConfigError, match="not a JSON object"):
        settled(monkeypatch, {"conf": "spark.a=1"})


def test_the_cluster_s_java_options_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    defaults = tmp_path / "conf" / "spark-defaults.conf"
    defaults.write_text(f"# of the cluster\n{JAVA_OPTIONS}   -Dhttp.proxyHost=proxy -Xss4m\nspark.x=1\n")
    env = {"SPARK_HOME": str(tmp_path)}
    hook = settled(monkeypatch, driver_env=env)
    assert hook._conf[JAVA_OPTIONS].split() == [
        *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:MaxNewSize=32m", "-Dhttp.proxyHost=proxy", "-Xss4m")
    ]
    assert "spark.x" not in hook._conf, "spark-submit reads it by itself"
    defaults.write_text(f"{JAVA_OPTIONS}=-XX:+UseG1GC\n{DRIVER_PYTHON} /opt/python\n")
    hook = settled(monkeypatch, driver_env=env)
    assert hook._conf[JAVA_OPTIONS] == "-XX:TieredStopAtLevel=1 -XX:MaxNewSize=32m -XX:+UseG1GC", (
        "a JVM takes one collector only"
    )
    assert hook._conf[DRIVER_PYTHON] == "/opt/python"
    named = settled(monkeypatch, {"conf": {JAVA_OPTIONS: "-Dmine"}}, driver_env=env)
    assert named._conf[JAVA_OPTIONS] == "-Dmine"


@pytest.mark.parametrize("place", ["spark.driver.defaultJavaOptions", "SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS"])
def test_a_collector_that_the_cluster_has_chosen_elsewhere_stays_the_only_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    """A JVM with two collectors does not start: "Multiple garbage collectors selected"."""
    env = {"SPARK_HOME": str(tmp_path)}
    if place.startswith("spark."):
        (tmp_path / "conf").mkdir()
        (tmp_path / "conf" / "spark-defaults.conf").write_text(
            f"{place}  -XX:+UseG1GC -XX:OnOutOfMemoryError='kill -9 %p'\n"
        )
    else:
        env[place] = "-XX:+UseG1GC"
    assert settled(monkeypatch, driver_env=env)._conf[JAVA_OPTIONS] == "-XX:TieredStopAtLevel=1 -XX:MaxNewSize=32m"
    asked = settled(monkeypatch, {"conf": {"spark.driver.defaultJavaOptions": "-XX:+UseZGC"}}, driver_env={})
    assert asked._conf[JAVA_OPTIONS] == "-XX:TieredStopAtLevel=1 -XX:MaxNewSize=32m"


@pytest.mark.parametrize("size", ["-XX:MaxNewSize=512m", "-XX:NewSize=64m", "-Xmn64m", "-XX:NewRatio=1"])
@pytest.mark.parametrize("place", ["spark.driver.defaultJavaOptions", "SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS"])
def test_room_for_new_objects_that_is_given_elsewhere_is_not_limited(
    monkeypatch: pytest.MonkeyPatch, place: str, size: str
) -> None:
    """Both places are read before the command line, which wins: 512 MB there were 32 (JDK 17, -XX:+PrintFlagsFinal)."""
    given = {"conf": {place: size}} if place.startswith("spark.") else None
    hook = settled(monkeypatch, given, driver_env={} if given else {place: size})
    assert hook._conf[JAVA_OPTIONS] == "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def test_a_spark_that_is_only_on_the_path_has_its_defaults_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for folder in ("bin", "jars", "conf"):
        (tmp_path / "spark" / folder).mkdir(parents=True)
    submit = tmp_path / "spark" / "bin" / "spark-submit"
    submit.write_text("#!/bin/sh\n")
    submit.chmod(0o755)
    (tmp_path / "spark" / "conf" / "spark-defaults.conf").write_text(f"{JAVA_OPTIONS} -Dhttp.proxyHost=proxy\n")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "spark-submit").symlink_to(submit)
    monkeypatch.setattr(spark_python, "_pyspark_folder", lambda: None)
    env = driver_env({"PATH": f"{tmp_path / 'linked'}:/usr/bin"})
    assert env["SPARK_HOME"] == str(tmp_path / "spark")
    assert "-Dhttp.proxyHost=proxy" in settled(monkeypatch, driver_env=env)._conf[JAVA_OPTIONS]
    assert "SPARK_HOME" not in driver_env({"PATH": "/nonexistent"})


def test_the_cluster_s_interpreter_does_not_run_local_jobs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As settings both win over PYSPARK_PYTHON (org.apache.spark.deploy.PythonRunner)."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(
        f"{EXECUTOR_PYTHON} /cluster/python\n{DRIVER_PYTHON} /edge/python\n"
    )
    env = {"SPARK_HOME": str(tmp_path)}
    local = settled(monkeypatch, master="local[2]", driver_env=env)._conf
    assert (local[EXECUTOR_PYTHON], local[DRIVER_PYTHON]) == (sys.executable, sys.executable)
    mine = settled(
        monkeypatch, master="local[2]", driver_env=env, conf={EXECUTOR_PYTHON: "/mine", DRIVER_PYTHON: "/mine"}
    )._conf
    assert (mine[EXECUTOR_PYTHON], mine[DRIVER_PYTHON]) == ("/mine", "/mine")
    there = settled(monkeypatch, driver_env=env)._conf
    assert (there[EXECUTOR_PYTHON], there[DRIVER_PYTHON]) == ("/cluster/python", "/edge/python")


def test_more_drivers_than_spark_has_ports_for_start_on_one_worker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = "spark.port.maxRetries"
    env = {"SPARK_HOME": str(tmp_path)}
    assert int(settled(monkeypatch, driver_env=env)._conf[name]) >= 100
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(f"{name} 3\n")
    assert settled(monkeypatch, driver_env=env)._conf[name] == "3", "a firewall may let only these pass"


def test_lines_of_the_cluster_s_defaults_that_go_on_are_read_whole(tmp_path: Path) -> None:
    text = f"# a comment does not go on \\\n{JAVA_OPTIONS} -Da=b \\\n    -XX:+UseG1GC\nspark.x=1 \\"
    (tmp_path / "spark-defaults.conf").write_text(text)
    assert cluster_defaults({"SPARK_CONF_DIR": str(tmp_path)}) == {JAVA_OPTIONS: "-Da=b -XX:+UseG1GC", "spark.x": "1"}


def test_a_cluster_that_speculates_is_no_hindrance(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A second copy of a writer fences the first; whoever asks for that by name is told so by the driver."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.speculation true\n")
    env = {"SPARK_HOME": str(tmp_path)}
    assert settled(monkeypatch, driver_env=env)._conf["spark.speculation"] == "false"
    named = settled(monkeypatch, {"conf": {"spark.speculation": True}}, driver_env=env)
    assert named._conf["spark.speculation"] == "true"


def test_a_properties_file_stands_for_the_cluster_s_defaults(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.a 1\n")
    assert cluster_defaults({"SPARK_CONF_DIR": str(tmp_path)}) == {"spark.a": "1"}
    mine = tmp_path / "mine.conf"
    mine.write_text("! note\nspark.b : two words \n\n")
    assert cluster_defaults({"SPARK_CONF_DIR": str(tmp_path)}, str(mine)) == {"spark.b": "two words"}
    assert cluster_defaults({"SPARK_HOME": str(tmp_path)}) == {}
    assert with_defaults({"spark.a": "ours"}, cluster={"spark.a": "theirs"}, requested={}) == {"spark.a": "ours"}
