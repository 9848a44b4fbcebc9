"""What a run brings may not choose where a job runs, which code it loads and who gets its secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, Param, task
from airflow_home import run_dag

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.operators.arguments import AUTHOR_SPARK_ARGUMENTS
from airflow_provider_mysql_cdc.operators.common import task_config
from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator
from airflow_provider_mysql_cdc.operators.reset import MySqlCdcResetOffsetOperator
from airflow_provider_mysql_cdc.operators.snapshot import MySqlCdcSnapshotOperator

pytestmark = pytest.mark.usefixtures("metadata_db")
REFUSED = "the run sets arguments of the operator that a run may not set"
FORM = {"p": Param("local[3]", type=["string", "object", "array", "null"])}
TEXT = "{{ params.p }}"


@task
def from_form(params: dict[str, Any] | None = None) -> Any:
    """Return what the form holds."""
    return (params or {})["p"]


@task
def several(params: dict[str, Any] | None = None) -> list[Any]:
    """Return arguments of mapped tasks."""
    value = (params or {})["p"]
    return value if isinstance(value, list) else [value]


def drain(**arguments: Any) -> Any:
    return MySqlCdcDrainOperator(task_id="drain", **arguments)


TEMPLATES: dict[str, Any] = {
    **dict.fromkeys(("master", "deploy_mode", "application", "py_files", "jars", "packages", "exclude_packages"), TEXT),
    **dict.fromkeys(("driver_class_path", "proxy_user", "properties_file", "yarn_queue", "keytab", "principal"), TEXT),
    "files": "{{ run_id }}",
    "conf": {"spark.master": TEXT},
    "env_vars": '{"PYTHONSTARTUP": "{{ dag_run.conf.p }}"}',
    "post_submit_commands": ["echo", TEXT],
}


def test_every_templated_argument_but_sizes_is_the_author_s() -> None:
    context = {"params": {"p": "elsewhere"}, "run_id": "r", "dag_run": {"conf": {"p": "x"}}}
    for kind in (MySqlCdcDrainOperator, MySqlCdcSnapshotOperator):
        for name, text in TEMPLATES.items():
            with DAG("one_argument", schedule=None, params=FORM) as dag:
                operator = kind(task_id="job", driver_memory=TEXT, **{name: text})
            operator.render_template_fields({**context, "dag": dag})
            assert operator.arguments_from_run == {name}
            with pytest.raises(ConfigError, match=REFUSED) as caught:
                task_config(operator, {})
            assert caught.value.where == name


WAYS = {
    "conf": lambda: drain(conf="{{ params.p | tojson }}"),
    "master": lambda: drain(master=from_form()),
    "spark_binary": lambda: MySqlCdcDrainOperator.partial(task_id="drain").expand(spark_binary=several()),
    "jars": lambda: MySqlCdcDrainOperator.partial(task_id="drain").expand(jars=several()),
}


@pytest.mark.parametrize("name", WAYS)
def test_a_run_chooses_neither_place_nor_code(fakes: Any, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    submit, pipeline = fakes
    with DAG(f"arguments_{name}", schedule=None, params=FORM) as dag:
        WAYS[name]()
    assert run_dag(dag, {"p": {"spark.master": "x"} if name == "conf" else "elsewhere"}).state == "failed"
    assert (submit.record, pipeline.calls) == (None, [])
    log = "".join(capfd.readouterr())
    assert REFUSED in log
    assert f"Where: {name}\n" in log
    assert "run_arguments=[...]" in log


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("run_properties", ["topic.prefix"]),
        ("run_arguments", ["master"]),
        ("archives", "/tmp/x.tar.gz"),
        ("repositories", "http://elsewhere"),
    ],
)
def test_a_list_of_arguments_from_another_task_is_the_run_s(
    fakes: Any, name: str, value: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """Arguments that are no templates as well; among them those that would open others."""
    submit, _ = fakes
    with DAG(f"listed_{name}", schedule=None, params=FORM) as dag:
        MySqlCdcDrainOperator.partial(task_id="drain").expand_kwargs(several())
    assert run_dag(dag, {"p": [{name: value, "driver_memory": "2g"}]}).state == "failed"
    assert submit.record is None
    log = "".join(capfd.readouterr())
    assert REFUSED in log
    assert f"Where: {name}\n" in log


def test_no_run_opens_properties_of_an_operator_without_spark(fakes: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with DAG("opened_by_the_run", schedule=None, params=FORM) as dag:
        MySqlCdcResetOffsetOperator.partial(task_id="reset", offset="current", confirm="shop").expand_kwargs(several())
    form = {"run_properties": ["topic.prefix"], "properties": {"topic.prefix": "elsewhere"}}
    assert run_dag(dag, {"p": [form]}).state == "failed"
    assert "Where: run_properties\n" in "".join(capfd.readouterr())


def test_the_author_opens_single_arguments(fakes: Any, capfd: pytest.CaptureFixture[str]) -> None:
    submit, _ = fakes
    with DAG("opened", schedule=None, params=FORM) as dag:
        drain(master=TEXT, run_arguments=["master"])
    assert run_dag(dag, {"p": "local[7]"}).state == "success"
    argv = submit.record["argv"]
    assert argv[argv.index("--master") + 1] == "local[7]"
    with DAG("opened_another", schedule=None, params=FORM) as dag:
        drain(master=TEXT, jars=TEXT, run_arguments=["master"])
    assert run_dag(dag, {"p": "local[7]"}).state == "failed"
    assert "Where: jars\n" in "".join(capfd.readouterr())


@pytest.mark.parametrize("name", ["mastr", "driver_memory", "run_properties", "conn_id"])
def test_a_name_that_opens_nothing_is_refused_when_the_dag_is_parsed(name: str) -> None:
    with pytest.raises(TypeError, match=f"run_arguments names {name}; it opens application, "):
        drain(run_arguments=[name])


def test_the_author_s_own_texts_and_sizes_from_the_run_are_accepted(
    fakes: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    submit, _ = fakes
    application = tmp_path / "own.py"
    application.write_text("")
    monkeypatch.setenv("AIRFLOW_VAR_MASTER_OF_THE_AUTHOR", "local[5]")
    with DAG("own_arguments", schedule=None, params=FORM) as dag:
        drain(
            master="{{ var.value.master_of_the_author }}",
            application=application,
            conf={"spark.executor.cores": 3},
            name=TEXT,
            driver_memory=TEXT,
            jars="{{ params.p if false else '' }}",
        )
    assert run_dag(dag, {"p": "2g"}).state == "success"
    argv = submit.record["argv"]
    assert argv[argv.index("--master") + 1] == "local[5]"
    assert argv[argv.index("--driver-memory") + 1] == argv[argv.index("--name") + 1] == "2g"
    assert argv[-2] == str(application)


def test_an_argument_that_a_later_spark_provider_adds_is_the_author_s() -> None:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    templated = {name.lstrip("_") for name in SparkSubmitOperator.template_fields}
    assert templated - AUTHOR_SPARK_ARGUMENTS == {"name", "application_args"}
