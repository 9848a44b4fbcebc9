"""Secrets among Spark's settings: they reach Spark, and stand neither among arguments nor in what Airflow keeps."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow_home import run_dag
from fakes import FakeSubmit, connections, install

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.hooks.spark_python import driver_env
from airflow_provider_mysql_cdc.hooks.spark_settings import holds_secret
from airflow_provider_mysql_cdc.hooks.spark_submit import CdcSparkSubmitHook
from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator

HIDDEN, KEY = "M4rked-authentication", "M4rked-access"
CONF = {"spark.authenticate.secret": HIDDEN, "spark.hadoop.fs.s3a.access.key": KEY, "spark.ui.enabled": "false"}
SAYS = """
from pyspark import SparkContext
conf = SparkContext().getConf()
shown = [conf.get("spark.mine", ""), conf.get("spark.my.token", "").encode().hex()]
print("SETTINGS", *shown, flush=True)
"""
ODD = "a=b:c #d\\e ü\n\t!"


@pytest.fixture
def submit(tmp_path: Path) -> FakeSubmit:
    return FakeSubmit(tmp_path / "spark")


def hook_for(submit: FakeSubmit, **arguments: Any) -> CdcSparkSubmitHook:
    env = driver_env({"PATH": os.environ["PATH"], "SPARK_HOME": str(submit.folder)})
    return CdcSparkSubmitHook(**{"master": "local[1]", "driver_env": env, **arguments})


def test_settings_with_secrets_stand_in_a_file_without_a_name(
    submit: FakeSubmit, capfd: pytest.CaptureFixture[str]
) -> None:
    hook_for(submit, conf=CONF).submit("app.py")
    record = submit.record
    assert record is not None
    assert "M4rked" not in json.dumps(record["argv"]) + "".join(capfd.readouterr())
    assert "spark.ui.enabled=false" in record["argv"] and "--load-spark-defaults" in record["argv"]
    assert record["settings"].split() == [
        f"spark.authenticate.secret={HIDDEN}",
        f"spark.hadoop.fs.s3a.access.key={KEY}",
    ]


def test_nothing_is_written_into_the_file_once_it_is_closed(submit: FakeSubmit, tmp_path: Path) -> None:
    hook = hook_for(submit, conf=CONF)
    with hook.spark_submit_context() as given:
        (fd,) = given["pass_fds"]
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    try:
        assert other == fd, "the number is free again"
        hook._build_spark_submit_command("app.py")
        assert os.fstat(other).st_size == 0
    finally:
        os.close(other)


def test_a_properties_file_of_the_task_s_own_stays_in_force(submit: FakeSubmit, tmp_path: Path) -> None:
    mine = tmp_path / "mine.conf"
    mine.write_text("spark.mine here")
    hook_for(submit, conf=CONF, properties_file=str(mine)).submit("app.py")
    record = submit.record
    assert record is not None
    assert record["settings"].splitlines()[:2] == ["spark.mine here", f"spark.authenticate.secret={HIDDEN}"]
    assert "--load-spark-defaults" not in record["argv"] and str(mine) not in record["argv"]
    with pytest.raises(ConfigError, match="properties file cannot be read"):
        hook_for(submit, conf=CONF, properties_file=str(tmp_path / "gone")).submit("app.py")


def test_without_a_secret_nothing_changes(submit: FakeSubmit) -> None:
    hook_for(submit, conf={"spark.ui.enabled": "false"}).submit("app.py")
    assert submit.record is not None
    assert "--properties-file" not in submit.record["argv"]


def test_what_spark_hides_is_a_secret_and_the_name_of_one_is_none() -> None:
    hidden = ("spark.ssl.keyPassword", "spark.kubernetes.driverEnv.AWS_SECRET_ACCESS_KEY", "spark.yarn.x.accesskey")
    named = ("spark.kubernetes.driver.secrets.mysql-cdc-1", "spark.kubernetes.executor.secretKeyRef.X", "spark.ui.port")
    assert [holds_secret(name) for name in (*hidden, *named)] == [True] * 3 + [False] * 3


@pytest.mark.usefixtures("metadata_db")
@pytest.mark.parametrize("deferred", [False, True])
def test_airflow_keeps_none_of_them_given_as_text_either(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str], deferred: bool
) -> None:
    """Airflow masks members by their names, of which "access.key" is none, and nothing of a text."""
    from airflow.models.renderedtifields import RenderedTaskInstanceFields
    from airflow.utils.session import create_session

    connections(monkeypatch, kafka_conn_id="kafka_cdc")
    submit, _ = install(monkeypatch, tmp_path)
    monkeypatch.setattr(
        "airflow_provider_mysql_cdc.operators.detached_driver._is_driver_running", lambda cfg, owner: False
    )
    with DAG(f"secret_settings_{deferred}", schedule=None) as dag:
        env = {"MY_TOKEN": "M4rked-token"}
        MySqlCdcDrainOperator(
            task_id="drain", conf=json.dumps(CONF), env_vars=json.dumps(env), deferrable=deferred, executor=None
        )
    assert run_dag(dag).state == "success"
    assert submit.record["env"]["MY_TOKEN"] == env["MY_TOKEN"]
    assert f"spark.authenticate.secret={HIDDEN}" in submit.record["settings"]
    with create_session() as session:
        rows = session.query(RenderedTaskInstanceFields).filter_by(dag_id=dag.dag_id)
        stored = json.dumps([row.rendered_fields for row in rows])
    assert "spark.authenticate.secret" in stored
    assert "M4rked" not in stored + "".join(capfd.readouterr()) + json.dumps(submit.record["argv"])


@pytest.mark.spark
@pytest.mark.days("odd")
def test_spark_itself_reads_them_together_with_the_cluster_s_own_defaults(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    app = tmp_path / "says.py"
    app.write_text(SAYS)
    (tmp_path / "spark-defaults.conf").write_text("spark.mine of-the-cluster\n")
    env = driver_env(os.environ, {"SPARK_CONF_DIR": str(tmp_path), "PYSPARK_PYTHON": sys.executable})
    conf = {"spark.my.token": ODD, "spark.ui.enabled": "false"}
    CdcSparkSubmitHook(master="local[1]", driver_env=env, conf=conf).submit(str(app))
    assert f"SETTINGS of-the-cluster {ODD.encode().hex()}" in "".join(capfd.readouterr())
