"""The DAGs of the package, run from their trigger form to the job spec."""

from __future__ import annotations

import json
import os
import runpy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow_home import run_dag
from fakes import FakePipeline, FakeStream, connections

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.operators.dag_forms import backfill_arguments, interval_condition

pytestmark = pytest.mark.usefixtures("metadata_db")
DAGS = Path(__file__).resolve().parents[2] / "airflow_provider_mysql_cdc" / "example_dags"


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
    form = {"tables": [r"shop\.orders_\d{4}", "shop.o'neil & <co>"]}
    assert run_dag(load("mysql_cdc_snapshot"), form).state == "success"
    assert submit.record["spec"]["properties"]["table.include.list"] == r"shop\.orders_\d{4},shop.o'neil & <co>"
    assert pipeline.again is False


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


@pytest.fixture
def stream(fakes: Any, monkeypatch: pytest.MonkeyPatch) -> FakeStream:
    """Stand in for the ledger; each drain reads all that is asked for."""
    found = FakeStream(monkeypatch, drains=1)
    fakes[1].settled = found.drain
    return found


def test_a_snapshot_again_of_a_running_stream_drains_with_the_lists_of_the_stream(
    fakes: Any, stream: FakeStream
) -> None:
    submit, pipeline = fakes
    form = {"tables": [r"shop\.orders"], "again": True}
    assert run_dag(load("mysql_cdc_snapshot"), form).state == "success"
    assert stream.chosen == r"shop\.orders"
    assert "table.include.list" not in submit.record["spec"]["properties"]
    (signal,) = stream.sent
    assert json.loads(signal.data) == {"type": "blocking", "data-collections": ["shop.orders"]}
    assert [name for name, _ in pipeline.calls] == ["drain", "settle"]


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("mysql_cdc_adhoc_snapshot", {"tables": ["shop.orders"], "conditon": "id < 9"}),
        ("mysql_cdc_backfill", {"table": ["shop.orders"]}),
        ("mysql_cdc_reset_offset", {"ofset": "current"}),
    ],
)
def test_a_field_that_the_form_does_not_have_ends_the_task_before_anything_starts(
    fakes: Any, stream: FakeStream, name: str, form: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    """Airflow takes it and nobody would read it: a misspelt condition would read the whole table."""
    submit, pipeline = fakes
    assert run_dag(load(name), form, logical_date=datetime(2026, 11, 9, tzinfo=UTC)).state == "failed"
    assert (stream.sent, pipeline.calls, submit.record) == ([], [], None)
    log = "".join(capfd.readouterr())
    guess = {"conditon": "condition", "table": "tables", "ofset": "offset"}
    (wrong,) = guess.keys() & form.keys()
    assert f"form does not have. A retry will not help.\nWhere: {wrong} (did you mean {guess[wrong]}?)\n" in log


@pytest.mark.req("INC-04", "EX-12")
def test_the_form_of_an_adhoc_snapshot_reaches_the_signal_and_the_job(
    fakes: Any, stream: FakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, _ = fakes
    channels = {"signal.enabled.channels": "kafka", "signal.trusted.channels": "kafka"}
    connections(monkeypatch, kafka_conn_id="kafka_cdc", **channels)
    form = {
        "tables": ["shop.orders", "shop.o'neil"],
        "condition": "name <> '{{ 1 }}' AND `a b` > 3",
        "kind": "blocking",
        "channel": "kafka",
        "surrogate_key": "code",
        "chunk_size": 512,
    }
    assert run_dag(load("mysql_cdc_adhoc_snapshot"), form).state == "success"
    (signal,) = stream.sent
    data = json.loads(signal.data)
    assert (signal.channel, data["type"], data["surrogate-key"]) == ("kafka", "blocking", "code")
    assert data["data-collections"] == form["tables"]
    assert [c["filter"] for c in data["additional-conditions"]] == [form["condition"]] * 2
    assert submit.record["spec"]["properties"]["incremental.snapshot.chunk.size"] == "512"


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"tables": []},
        {"tables": [""]},
        {"tables": ["a.b"], "kind": "both"},
        {"tables": ["a.b"], "channel": "jmx"},
        {"tables": ["a.b"], "chunk_size": 0},
        {"tables": ["a.b"], "timeout_minutes": 0},
    ],
    ids=str,
)
def test_the_form_of_an_adhoc_snapshot_refuses_wrong_values(stream: FakeStream, form: dict[str, Any]) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises((ParamValidationError, ValueError)):
        run_dag(load("mysql_cdc_adhoc_snapshot"), form)
    assert stream.sent == []


@pytest.mark.parametrize("form", [{"tables": ["shop.(orders"]}, {"tables": ["a.b"], "channel": "source"}], ids=str)
def test_what_no_form_can_check_ends_the_task_before_anything_starts(
    fakes: Any, stream: FakeStream, form: dict[str, Any]
) -> None:
    submit, pipeline = fakes
    dag = load("mysql_cdc_adhoc_snapshot")
    assert run_dag(dag, form).state == "failed"
    assert (stream.sent, pipeline.calls, submit.record) == ([], [], None)


DAY = datetime(2026, 11, 3, tzinfo=UTC)
CONF = {"tables": ["shop.orders", "shop.customers"], "column": "changed `at`"}


def test_a_backfill_reads_each_table_s_rows_of_the_data_interval(fakes: Any, stream: FakeStream) -> None:
    run = run_dag(load("mysql_cdc_backfill"), CONF, logical_date=DAY)
    assert run.state == "success"
    # Airflow runs mapped tasks in any order.
    asked = sorted(json.loads(signal.data)["data-collections"] for signal in stream.sent)
    assert asked == sorted([table] for table in CONF["tables"])
    assert len({signal.id for signal in stream.sent}) == 2
    for signal in stream.sent:
        (condition,) = json.loads(signal.data)["additional-conditions"]
        assert condition["filter"] == (
            "`changed ``at``` >= '2026-11-02 00:00:00.000000' AND `changed ``at``` < '2026-11-03 00:00:00.000000'"
        )


def test_a_scheduled_backfill_reads_what_the_variable_says_and_nothing_without_it(
    fakes: Any, stream: FakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, _ = fakes
    assert run_dag(load("mysql_cdc_backfill"), logical_date=DAY).state == "success"
    assert (stream.sent, submit.record) == ([], None)
    stored = {"tables": ["shop.orders"], "column": "at", "time_zone": "Europe/Berlin"}
    monkeypatch.setenv("AIRFLOW_VAR_MYSQL_CDC_BACKFILL", json.dumps(stored))
    assert run_dag(load("mysql_cdc_backfill"), logical_date=DAY).state == "success"
    (signal,) = stream.sent
    (condition,) = json.loads(signal.data)["additional-conditions"]
    assert condition["filter"] == "`at` >= '2026-11-02 01:00:00.000000' AND `at` < '2026-11-03 01:00:00.000000'"


def test_airflow_takes_a_backfill_of_it_with_tables_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``airflow backfill create`` and the UI's button call: one run for each interval, never two at a time."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.models.backfill import ReprocessBehavior, _create_backfill
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session

    DagBundlesManager().sync_bundles_to_db()
    bag = DagBag(dag_folder=os.devnull)
    dag = load("mysql_cdc_backfill")
    bag.bag_dag(dag)
    sync_bag_to_db(bag, "dags-folder", None)
    asked = {
        "dag_id": "mysql_cdc_backfill",
        "from_date": datetime(2026, 10, 1, tzinfo=UTC),
        "to_date": datetime(2026, 10, 3, tzinfo=UTC),
        "max_active_runs": 1,
        "reverse": False,
        "triggering_user_name": "somebody",
        "reprocess_behavior": ReprocessBehavior.NONE,
    }
    with pytest.raises(Exception, match="Invalid input for param tables"):
        _create_backfill(**asked, dag_run_conf={"tables": [""]})
    made = _create_backfill(**asked, dag_run_conf=CONF)
    with create_session() as session:
        runs = session.query(DagRun).filter_by(backfill_id=made.id).order_by(DagRun.data_interval_start).all()
        assert [run.data_interval_start.day for run in runs] == [1, 2, 3]
        assert [run.data_interval_end.day for run in runs] == [2, 3, 4]
        assert [run.conf for run in runs] == [CONF] * 3
    assert dag.get_task("snapshot").partial_kwargs["max_active_tis_per_dag"] == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"column": "x" * 65}, "MySQL allows no such column name"),
        ({"column": " "}, "MySQL allows no such column name"),
        ({"time_zone": "Mars/Olympus"}, "unknown time zone"),
        ({"time_zone": "/etc/passwd"}, "unknown time zone"),
        ({"interval": (None, None)}, "the run has no data interval"),
    ],
)
def test_a_backfill_that_cannot_be_asked_for_is_refused_by_name(change: dict[str, Any], why: str) -> None:
    given: dict[str, Any] = {"column": "at", "interval": (DAY, DAY), "time_zone": "UTC"} | change
    with pytest.raises(ConfigError, match=why):
        interval_condition(**given)


def test_the_form_of_a_backfill_wins_over_the_variable() -> None:
    stored = {"tables": ["a.b"], "column": "x"}
    (one,) = backfill_arguments({"tables": ["c.d", "c.d"], "column": None}, stored, (DAY, DAY))
    assert one["tables"] == "c.d"
    assert one["condition"].startswith("`x` >= ")
