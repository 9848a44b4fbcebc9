"""The DAGs in dags/, run from their trigger form to the job spec."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow_home import run_dag
from fakes import FakePipeline, FakeSubmit, connections, install

pytestmark = pytest.mark.usefixtures("metadata_db")
DAGS = Path(__file__).resolve().parents[2] / "dags"


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[FakeSubmit, FakePipeline]:
    connections(monkeypatch, kafka_conn_id="kafka_cdc")
    return install(monkeypatch, tmp_path)


def load(name: str) -> DAG:
    """Import a DAG file and return its DAG."""
    (dag,) = (value for value in runpy.run_path(str(DAGS / f"{name}.py")).values() if isinstance(value, DAG))
    return dag


def test_the_drain_dag_runs_with_an_untouched_form(fakes: Any) -> None:
    submit, _ = fakes
    assert run_dag(load("mysql_cdc_drain")).state == "success"
    spec = submit.record["spec"]
    assert spec["run_for_s"] == 0
    assert "drain.writers" not in spec["properties"]
    assert "table.include.list" not in spec["properties"]
    assert spec["properties"]["kafka.bootstrap.servers"] == "kafka.example:9092"


def test_the_form_of_the_drain_reaches_the_job(fakes: Any) -> None:
    submit, _ = fakes
    form = {"run_for_minutes": 1.5, "writers": 3, "properties": {"decimal.handling.mode": "string"}}
    assert run_dag(load("mysql_cdc_drain"), form).state == "success"
    spec = submit.record["spec"]
    assert 80 < spec["run_for_s"] <= 90
    assert spec["properties"]["drain.writers"] == "3"
    assert spec["properties"]["decimal.handling.mode"] == "string"


def test_the_variable_gives_properties_and_the_form_wins(fakes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    submit, _ = fakes
    stored = {"decimal.handling.mode": "double", "time.precision.mode": "connect"}
    monkeypatch.setenv("AIRFLOW_VAR_MYSQL_CDC_PROPERTIES", json.dumps(stored))
    form = {"properties": {"decimal.handling.mode": "string"}}
    assert run_dag(load("mysql_cdc_drain"), form).state == "success"
    given = submit.record["spec"]["properties"]
    assert (given["decimal.handling.mode"], given["time.precision.mode"]) == ("string", "connect")


def test_the_table_list_of_the_form_keeps_its_regular_expressions(fakes: Any) -> None:
    submit, pipeline = fakes
    form = {"tables": [r"shop\.orders_\d{4}", "shop.o'neil & <co>"], "again": True}
    assert run_dag(load("mysql_cdc_snapshot"), form).state == "success"
    assert submit.record["spec"]["properties"]["table.include.list"] == r"shop\.orders_\d{4},shop.o'neil & <co>"
    assert pipeline.again is True


def test_the_pipeline_goes_on_to_the_drain_when_no_snapshot_is_needed(
    fakes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, pipeline = fakes
    monkeypatch.setattr(FakePipeline, "prepare_snapshot", lambda *args, **more: None)
    assert run_dag(load("mysql_cdc_pipeline"), {"tables": ["shop.orders"]}).state == "success"
    assert [name for name, _ in pipeline.calls] == ["drain", "settle"]
    assert submit.record["spec"]["properties"]["table.include.list"] == "shop.orders"


def test_the_form_refuses_a_wrong_value(fakes: Any) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises((ParamValidationError, ValueError)):
        run_dag(load("mysql_cdc_drain"), {"writers": 0})


@pytest.mark.parametrize(("value", "schedule"), [("@hourly", "0 * * * *"), ("none", None)])
def test_the_schedule_is_an_option(monkeypatch: pytest.MonkeyPatch, value: str, schedule: str | None) -> None:
    monkeypatch.setenv("AIRFLOW__MYSQL_CDC__DRAIN_SCHEDULE", value)
    assert getattr(load("mysql_cdc_drain").timetable, "expression", None) == schedule
