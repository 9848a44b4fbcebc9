"""The DAGs of a pipeline: what Airflow finds, what their operators get, and what a run may choose."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow_home import run_dag
from fakes import FakeOutcome, FakePipeline, FakeStream, FakeSubmit, connections, install

from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError, LedgerMissingError, StateError
from airflow_provider_mysql_cdc.dag_factory import cdc_pipeline, pipelines_from_file
from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator

pytestmark = pytest.mark.usefixtures("metadata_db")

ROOT = Path(__file__).resolve().parents[2]
KINDS = {"snapshot", "drain", "adhoc_snapshot", "backfill", "verify", "send_signal", "reset_offset"}


def pipeline(**more: Any) -> dict[str, DAG]:
    """Return the DAGs of a pipeline whose connections are those of ``fakes``."""
    return cdc_pipeline("shop", **{"mysql_cdc_conn_id": "mysql_cdc_default", "kafka_conn_id": "kafka_cdc"} | more)


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[FakeSubmit, FakePipeline]:
    connections(monkeypatch)
    return install(monkeypatch, tmp_path)


def processed(folder: Path) -> Any:
    """Read a folder as Airflow's DAG processor does."""
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(dag_folder=str(folder))


def test_a_pipeline_takes_over_from_a_connector_only_if_it_says_so() -> None:
    [dag] = pipeline(dags=["import_debezium"], offset_conn_id="offsets").values()
    task: Any = dag.get_task("import")
    assert (dag.dag_id, task.mysql_cdc_conn_id, task.offset_conn_id) == (
        "shop_import_debezium",
        "mysql_cdc_default",
        "offsets",
    )
    assert dag.params["dry_run"] is True and "mysql_cdc_conn_id" not in dag.params


def test_airflow_finds_the_dags_of_a_call_at_the_top_level_of_a_dag_file(tmp_path: Path) -> None:
    file = tmp_path / "streams.py"
    file.write_text(
        "from airflow_provider_mysql_cdc.dag_factory import cdc_pipeline\n"
        "for shop in ('north', 'south'):\n"
        "    cdc_pipeline(shop, mysql_cdc_conn_id=f'mysql_{shop}', schedule='*/5 * * * *', tables=['shop.orders'])\n"
    )
    found = processed(tmp_path)
    assert found.import_errors == {}
    assert set(found.dags) == {f"{shop}_{kind}" for shop in ("north", "south") for kind in KINDS}
    assert {dag.fileloc for dag in found.dags.values()} == {str(file)}
    scheduled = {name for name, dag in found.dags.items() if getattr(dag.timetable, "expression", None)}
    assert scheduled == {"north_drain", "south_drain"}
    assert {dag.max_active_runs for dag in found.dags.values()} == {1}
    north = found.dags["north_drain"].get_task("drain")
    assert [asset.name for asset in north.inlets] == ["mysql_cdc_offsets_north"]


def test_the_operators_get_what_the_call_says_and_no_variable_of_other_dags(
    fakes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, _ = fakes
    monkeypatch.setenv("AIRFLOW_VAR_MYSQL_CDC_PROPERTIES", json.dumps({"time.precision.mode": "connect"}))
    made = pipeline(
        tables=["shop.orders", r"shop\.x_\d{2}"],
        properties={"decimal.handling.mode": "double"},
        run_for=timedelta(minutes=1),
        writers=3,
        operator_arguments={"conf": {"spark.app.colour": "green"}},
    )
    assert run_dag(made["shop_drain"]).state == "success"
    spec = submit.record["spec"]
    assert spec["properties"]["table.include.list"] == r"shop.orders,shop\.x_\d{2}"
    assert spec["properties"]["decimal.handling.mode"] == "double"
    assert spec["properties"]["drain.writers"] == "3"
    assert "time.precision.mode" not in spec["properties"]
    assert 50 < spec["run_for_s"] <= 60
    assert "spark.app.colour=green" in " ".join(submit.record["argv"]) + submit.record.get("settings", "")


def test_a_run_chooses_what_it_does_but_no_connection(fakes: Any) -> None:
    submit, _ = fakes
    made = pipeline(properties={"decimal.handling.mode": "double"})
    assert run_dag(made["shop_drain"], {"properties": {"decimal.handling.mode": "string"}}).state == "success"
    assert submit.record["spec"]["properties"]["decimal.handling.mode"] == "string"
    for dag in made.values():
        assert not [name for name in dag.params if name.endswith("conn_id")]
    submit.set()
    fresh = pipeline()
    assert run_dag(fresh["shop_snapshot"], {"mysql_cdc_conn_id": "other"}).state == "failed"


def test_a_property_of_the_dag_file_may_be_one_that_no_run_may_set(fakes: Any) -> None:
    submit, _ = fakes
    address = {"kafka.bootstrap.servers": "other.example:9092"}
    assert run_dag(pipeline(kafka_conn_id=None, properties=address)["shop_drain"]).state == "success"
    assert submit.record["spec"]["properties"]["kafka.bootstrap.servers"] == "other.example:9092"
    assert run_dag(pipeline()["shop_drain"], {"properties": address}).state == "failed"


def test_scheduled_backfills_read_what_the_call_says(fakes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = FakeStream(monkeypatch, drains=1)
    fakes[1].settled = stream.drain
    monkeypatch.setenv("AIRFLOW_VAR_MYSQL_CDC_BACKFILL", json.dumps({"tables": ["shop.other"]}))
    settings = {"tables": ["shop.orders"], "column": "at", "time_zone": "Europe/Berlin", "schedule": "@daily"}
    dag = pipeline(backfill=settings)["shop_backfill"]
    assert run_dag(dag, logical_date=datetime(2026, 11, 3, tzinfo=UTC)).state == "success"
    (signal,) = stream.sent
    data = json.loads(signal.data)
    assert data["data-collections"] == ["shop.orders"]
    assert data["additional-conditions"][0]["filter"] == (
        "`at` >= '2026-11-02 01:00:00.000000' AND `at` < '2026-11-03 01:00:00.000000'"
    )


def test_pages_name_the_dags_of_their_own_stream() -> None:
    made = pipeline(schedule="@hourly")
    assert "`shop_drain` continues from there" in (made["shop_snapshot"].doc_md or "")
    assert "--dag-id shop_backfill" in (made["shop_backfill"].doc_md or "")
    for dag in made.values():
        assert dag.doc_md is not None
        assert "mysql_cdc_drain" not in dag.doc_md
        assert "{" not in re.sub(r'{"(?:tables|schedule)"', "", dag.doc_md)


def test_arguments_of_the_dags_and_of_all_tasks_reach_them() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    made = pipeline(
        dags=["drain", "reset_offset"],
        default_args={"retries": 7, "pool": "cdc"},
        dag_arguments={"start_date": start, "owner_links": {}},
        tags=["bank"],
        replica_conn_id="replica",
    )
    assert list(made) == ["shop_drain", "shop_reset_offset"]
    drain, reset = made["shop_drain"].get_task("drain"), made["shop_reset_offset"].get_task("reset")
    assert (drain.retries, drain.pool, reset.retries) == (7, "cdc", 0)
    assert made["shop_drain"].tags == {"mysql", "cdc", "kafka", "shop", "bank"}
    single = cdc_pipeline("shop", mysql_cdc_conn_id="mysql_shop", tags="bank", dags=["drain"])
    assert single["shop_drain"].tags == made["shop_drain"].tags
    (long,) = cdc_pipeline("x" * 200, mysql_cdc_conn_id="mysql_shop", dags=["drain"]).values()
    assert long.dag_id == f"{'x' * 200}_drain" and "x" * 100 in long.tags
    assert drain.pre_execute is not None
    assert made["shop_drain"].start_date == start
    assert pipeline(replica_conn_id="replica")["shop_verify"].get_task("verify").replica_conn_id == "replica"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"dags": ["drian"]}, ["dags has no 'drian' (did you mean drain?)", "pipeline shop: dags"]),
        ({"backfill": {"colum": "x"}}, ["did you mean column?", "pipeline shop: backfill"]),
        (
            {"dag_arguments": dict.fromkeys(("schedule", "max_active_runs", "catchup", "params", "dag_id"), 1)},
            ["dag_arguments: catchup, dag_id, max_active_runs, params, schedule"],
        ),
        ({"tables": ["a.b"], "properties": {"table.include.list": "a.c"}}, ["named twice", "table.include.list"]),
        ({"tables": [1]}, ["tables", "pipeline shop"]),
        ({"run_for": -1}, ["-1 is not a duration"]),
    ],
    ids=str,
)
def test_a_wrong_argument_is_named(arguments: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        pipeline(**arguments)
    for text in said:
        assert text in caught.value.message()


FILE = """
defaults:
  spark_conn_id: spark_big
  properties: {decimal.handling.mode: double, tombstones.on.delete: false}
pipelines:
  north:
    mysql_cdc_conn_id: mysql_north
    schedule: "*/5 * * * *"
    tables: [shop.orders]
    properties: {decimal.handling.mode: string}
  south:
    mysql_cdc_conn_id: mysql_south
    spark_conn_id: spark_small
    dags: [drain]
"""


def test_a_file_holds_pipelines_and_what_they_share(tmp_path: Path) -> None:
    file = tmp_path / "pipelines.yaml"
    file.write_text(FILE)
    made = pipelines_from_file(file)
    assert set(made) == {f"north_{kind}" for kind in KINDS} | {"south_drain"}
    north: Any = made["north_drain"].get_task("drain")
    south: Any = made["south_drain"].get_task("drain")
    assert (north.spark_conn_id, south.spark_conn_id) == ("spark_big", "spark_small")
    assert (north.mysql_cdc_conn_id, south.mysql_cdc_conn_id) == ("mysql_north", "mysql_south")
    assert north.properties[0] == {
        "decimal.handling.mode": "string",
        "tombstones.on.delete": False,
        "table.include.list": "shop.orders",
    }
    assert south.properties[0] == {"decimal.handling.mode": "double", "tombstones.on.delete": False}


ONE = "{mysql_cdc_conn_id: m, dags: [snapshot, adhoc_snapshot]}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pipelines: {north: {mysql_cdc_conn_id: m, schedul: x}}", ["pipelines.north", "did you mean schedule?"]),
        ("pipelines: {north: {schedule: x}}", ["pipelines.north", "names no MySQL CDC connection"]),
        ("pipelines: {north: [x]}", ["pipelines.north", "it is a list"]),
        ("pipelines: {north: {mysql_cdc_conn_id: m, properties: x}}", ["pipelines.north.properties", "it is a str"]),
        ("pipelines: {north: {mysql_cdc_conn_id: m, tables: {a: b}}}", ["pipeline north: tables"]),
        ("pipelines: {north: {mysql_cdc_conn_id: m, dags: [x]}}", ["pipeline north: dags"]),
        ("pipelines: {'no rth': {mysql_cdc_conn_id: m}}", ["pipelines.no rth"]),
        (f"pipelines: {{a: {ONE}, a: {ONE}}}", ["'a' is there twice", "line 1"]),
        (f"pipelines: {{1: {ONE}, '1': {ONE}}}", ["'1' is there twice"]),
        (f"pipelines: {{a: {ONE}, a_adhoc: {ONE}}}", ["pipelines.a_adhoc: a_adhoc_snapshot", "the same id"]),
        (f"pipelines: {{on: {ONE}}}", ["pipelines.True", "YAML reads it as a bool", "quotes"]),
        (f"pipelines: {{'': {ONE}}}", ["pipeline : name", "it is ''"]),
        (f"pipelines: {{{'x' * 251}: {{mysql_cdc_conn_id: m}}}}", ["pipelines.xxx", "less than 250 characters"]),
        ("pipelines: {a: {mysql_cdc_conn_id: 3}}", ["pipeline a: mysql_cdc_conn_id", "it is 3"]),
        ("pipeline: {}", ["did you mean pipelines?"]),
        ("pipelines: {", ["cannot be read"]),
    ],
)
def test_a_wrong_file_is_one_import_error_that_names_file_and_place(tmp_path: Path, text: str, said: list[str]) -> None:
    (tmp_path / "pipelines.yaml").write_text(text)
    (tmp_path / "streams.py").write_text(
        "from pathlib import Path\n"
        "from airflow_provider_mysql_cdc.dag_factory import pipelines_from_file\n"
        "pipelines_from_file(Path(__file__).with_name('pipelines.yaml'))\n"
    )
    (error,) = processed(tmp_path).import_errors.values()
    for part in [str(tmp_path / "pipelines.yaml"), *said]:
        assert part in error


def test_anchors_of_a_file_may_be_merged_and_overridden(tmp_path: Path) -> None:
    file = tmp_path / "pipelines.yaml"
    merged = "{<<: &base {mysql_cdc_conn_id: m, dags: [drain]}, dags: [verify]}"
    text = f"pipelines:\n  a: &a {merged}\n  b: {{<<: *a, dags: [snapshot]}}\n  c: *base\n"
    file.write_text(text)
    assert set(pipelines_from_file(file)) == {"a_verify", "b_snapshot", "c_drain"}


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        pipelines_from_file(tmp_path / "none.yaml")


COST = """
import sys
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, CronDataIntervalTimetable, Param, Variable, task
from airflow_provider_mysql_cdc.operators.dag_params import DEFAULT_ARGS
calls = 0
def count(frame, event, arg):
    global calls
    calls += event == "call"
def counted(make):
    global calls
    make(0)
    calls = 0
    sys.setprofile(count)
    for number in range(1, 11):
        make(number)
    sys.setprofile(None)
    return calls
from airflow_provider_mysql_cdc.dag_factory import cdc_pipeline
def ours(number):
    return cdc_pipeline(f"shop{number}", mysql_cdc_conn_id="m", schedule="*/5 * * * *", tables=["a.b"])
made = ours(-1)
modules = set(sys.modules)
def theirs(number):
    for dag_id, dag in made.items():
        schedule = "*/5 * * * *" if dag_id.endswith("drain") else None
        with DAG(f"{dag_id}{number}", schedule=schedule, params=dict(dag.params.items()), default_args=DEFAULT_ARGS):
            SparkSubmitOperator(task_id="job", application="/job.py", conn_id="spark")
ten, spark = counted(ours), counted(theirs)
print(ten, spark, len(set(sys.modules) - modules))
"""


@pytest.mark.days("even")
def test_ten_pipelines_cost_little_more_than_as_many_dags_of_the_spark_operator(tmp_path: Path) -> None:
    """Counted in calls of Python functions, because a time would depend on the machine."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    env |= {"AIRFLOW_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", COST], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    ten, spark, modules = map(int, done.stdout.split()[-3:])
    assert ten < 1.5 * spark
    assert modules == 0  # further pipelines import nothing


def failed_with(dag: DAG, caught: list[Any]) -> str:
    """Run a DAG whose task fails, and return what its callbacks get as remedy."""
    (task,) = dag.tasks
    task.retries = 0
    task.on_failure_callback = [lambda context: caught.append(context["exception"])]
    assert run_dag(dag).state == "failed"
    return str(caught[-1].error.next_step())


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (LedgerMissingError("the ledger is gone"), "run shop_reset_offset with stored"),
        (StateError("x", remedy="run mysql_cdc_verify, then mysql_cdc_adhoc_snapshot"), "shop_verify, then shop_adhoc"),
        (StateError("x", remedy="read the Variable mysql_cdc_backfill"), "the Variable mysql_cdc_backfill"),
    ],
)
def test_errors_name_the_dags_of_their_pipeline(fakes: Any, error: CdcError, text: str) -> None:
    _, pipeline_ = fakes
    pipeline_.error = error
    caught: list[Any] = []
    told = failed_with(pipeline()["shop_drain"], caught)
    assert text in told and "example_dags" not in told
    assert "mysql_cdc_reset_offset" not in told
    assert type(caught[-1].error) is type(error)
    pipeline_.error = None
    pipeline_.outcome = FakeOutcome(complete=False, error=error)
    assert text in failed_with(pipeline()["shop_drain"], caught), "of a driver"


def test_errors_of_other_dags_name_those_of_the_package(fakes: Any) -> None:
    fakes[1].error = LedgerMissingError("the ledger is gone")
    with DAG("nightly_drain", schedule=None, tags={"mysql"}) as dag:
        MySqlCdcDrainOperator(task_id="drain", kafka_conn_id="kafka_cdc")
    assert "run mysql_cdc_reset_offset with stored" in failed_with(dag, [])


def test_the_form_of_the_snapshot_names_the_pipeline_s_own_dag() -> None:
    made = pipeline()["shop_snapshot"]
    assert "use shop_adhoc_snapshot" in str(made.params.get_param("again").description)
