"""Links beside a task, and the names of mapped tasks: what Airflow stores of them, and what the REST API returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow_home import run_dag
from fakes import FakeOutcome

from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError, SourceConnectionError
from airflow_provider_mysql_cdc.hooks.submission import DriverOutput, SparkApplication
from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator
from airflow_provider_mysql_cdc.operators.extra_links import RUNBOOK_URL, TaskLinks
from airflow_provider_mysql_cdc.operators.reset import MySqlCdcResetOffsetOperator
from airflow_provider_mysql_cdc.operators.signal import MySqlCdcSignalOperator
from airflow_provider_mysql_cdc.plugins.page_urls import pipeline_url
from airflow_provider_mysql_cdc.sensors.binlog import MySqlBinlogSensor

pytestmark = pytest.mark.usefixtures("metadata_db")
APPLICATION = 'print("[mysql-cdc] Spark application local-17, page http://10.0.0.9:4040", flush=True)'
PIPELINE = "/mysql-cdc/#/pipelines/mysql_cdc_default"
ROOT = Path(__file__).resolve().parents[2]


def links_of(dag: DAG, state: str = "success") -> dict[str, str]:
    """Run a DAG of one task; return its links by name, as the server reads them, without buttons that are not there."""
    from airflow.serialization.serialized_objects import DagSerialization

    run = run_dag(dag)
    assert run.state == state
    (ti,) = run.get_task_instances()
    task = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag)).get_task(ti.task_id)
    found = {name: task.get_extra_links(ti, name) for name in task.extra_links}
    return {name: url for name, url in found.items() if url}


def drain(dag_id: str, **arguments: Any) -> DAG:
    with DAG(dag_id, schedule=None) as dag:
        MySqlCdcDrainOperator(task_id="drain", retries=0, **arguments)
    return dag


def test_a_task_leads_to_its_pipeline_its_driver_and_its_topic(fakes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    submit, pipeline = fakes
    submit.set(body=APPLICATION)
    pipeline.outcome = FakeOutcome(counts={"shop.db.items": 3, "shop.db.a/b": 42})
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/af/")
    monkeypatch.setenv("AIRFLOW__MYSQL_CDC__KAFKA_UI_URL", "https://kafka.example/{topic_prefix}/topics/{topic}")
    assert links_of(drain("links_of_a_drain")) == {
        "Pipeline": f"https://airflow.example/af{PIPELINE}",
        "Spark UI": "http://10.0.0.9:4040",
        "Topic": "https://kafka.example/shop/topics/shop.db.a%2Fb",
    }
    monkeypatch.setenv("AIRFLOW__MYSQL_CDC__SPARK_UI_URL", "https://spark.example/history/{application_id}")
    monkeypatch.delenv("AIRFLOW__MYSQL_CDC__KAFKA_UI_URL")
    found = links_of(drain("links_of_a_configured_drain"))
    assert found["Spark UI"] == "https://spark.example/history/local-17" and "Topic" not in found


@pytest.mark.parametrize("runs", [False, True])
def test_a_failed_task_leads_to_its_error_in_the_runbook(fakes: Any, runs: bool) -> None:
    """Whether the task has found the error, or its job has."""
    _, pipeline = fakes
    error = BinlogPurgedError("the binlog no longer holds the start position")
    pipeline.error, pipeline.outcome = (None if runs else error), FakeOutcome(complete=False, error=error)
    address, _, anchor = links_of(drain(f"links_of_an_error_{runs}"), "failed")["Runbook"].partition("#")
    assert (address, anchor) == (RUNBOOK_URL, "binlogpurgederror")
    assert f'<a id="{anchor}"></a>' in (ROOT / "docs" / "runbook.md").read_text()


def test_all_operators_and_sensors_lead_to_the_pipeline_and_the_runbook(
    fakes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _pipeline = fakes
    monkeypatch.setenv("AIRFLOW__MYSQL_CDC__RUNBOOK_URL", "https://wiki.example/cdc")
    wrong = {"properties": {"no.such.property": "1"}}
    for number, (kind, arguments) in enumerate(
        [
            (MySqlCdcResetOffsetOperator, {"offset": "stored", "confirm": "shop"}),
            (MySqlCdcSignalOperator, {"signal_type": "log"}),
            (MySqlBinlogSensor, {}),
        ]
    ):
        with DAG(f"links_of_all_{number}", schedule=None) as dag:
            kind(task_id="t", retries=0, **arguments, **wrong)
        found = links_of(dag, "failed")
        assert found["Pipeline"].endswith(PIPELINE) and found["Runbook"] == "https://wiki.example/cdc#configerror"


def test_what_yarn_and_kubernetes_say_of_an_application_is_understood() -> None:
    """Lines of spark-submit 4.3 in deploy mode cluster."""
    told: list[SparkApplication] = []
    output = DriverOutput(on_application=told.append)
    yarn = [
        "26/11/27 INFO YarnClientImpl: Submitted application application_1764_0001",
        "\t tracking URL: http://rm:8088/proxy/application_1764_0001/",
        "26/11/27 INFO Client: Application report for application_1764_0001 (state: RUNNING)",
    ]
    assert list(output.other_lines(yarn)) == yarn
    page = "http://rm:8088/proxy/application_1764_0001/"
    assert told == [SparkApplication("application_1764_0001"), SparkApplication("application_1764_0001", page)]
    kubernetes = DriverOutput()
    list(kubernetes.other_lines(["\t labels: spark-app-selector -> spark-0af3, spark-role -> driver"]))
    assert kubernetes.application == SparkApplication("spark-0af3")
    harmful = DriverOutput()
    list(harmful.other_lines(["[mysql-cdc] Spark application a, page javascript://%0aalert(1)"]))
    assert harmful.application == SparkApplication("a")


def test_no_task_fails_for_a_link_that_airflow_does_not_take() -> None:
    class Ti:
        def xcom_push(self, key: str, value: Any) -> None:
            raise SourceConnectionError("the API server does not answer")

    links = TaskLinks(Ti())
    links.show_pipeline("a/b")
    assert next(iter(links.urls.values())).endswith(pipeline_url("a/b"))


def names_of(dag: DAG) -> set[Any]:
    return {ti.rendered_map_index for ti in run_dag(dag).get_task_instances()}


def test_mapped_tasks_are_named_after_their_connections(fakes: Any) -> None:
    with DAG("named_tasks", schedule=None) as dag:
        MySqlCdcDrainOperator.partial(task_id="drain").expand(mysql_cdc_conn_id=["mysql_cdc_default"])
    assert names_of(dag) == {"0 mysql_cdc_default"}
    for number, (more, name) in enumerate([({}, "0"), ({"map_index_template": "{{ task.writers }}"}, "2")]):
        with DAG(f"otherwise_named_tasks_{number}", schedule=None) as dag:
            MySqlCdcDrainOperator.partial(task_id="drain", mysql_cdc_conn_id="mysql_cdc_default", **more).expand(
                writers=[2]
            )
        assert names_of(dag) == {name}
