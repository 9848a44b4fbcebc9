"""The DAGs of a fleet: one drain for all streams, and what each stream has of its own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow_home import run_dag
from fakes import FakeSubmit, connections, install

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.fleet.fleet_spec import fleet_streams
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.dag_factory import cdc_fleet, cdc_pipeline, pipelines_from_file
from airflow_provider_mysql_cdc.dag_factory.fleet import FLEET_KINDS
from airflow_provider_mysql_cdc.plugins.pipelines import DagCatalog, group_tasks

pytestmark = pytest.mark.usefixtures("metadata_db")

STREAMS: dict[str, Any] = {"north": "mysql_north", "south": {"mysql_cdc_conn_id": "mysql_south", "tables": ["b.t"]}}


@pytest.fixture
def submit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSubmit:
    connections(monkeypatch)
    conn = json.loads(os.environ["AIRFLOW_CONN_MYSQL_CDC_DEFAULT"])
    for name in STREAMS:
        conn["extra"]["topic.prefix"] = name
        monkeypatch.setenv(f"AIRFLOW_CONN_MYSQL_{name.upper()}", json.dumps(conn))
    return install(monkeypatch, tmp_path)[0]


def fleet(streams: Any = None, name: str = "shards", **more: Any) -> dict[str, DAG]:
    return cdc_fleet(name, streams or STREAMS, **{"kafka_conn_id": "kafka_cdc"} | more)


def test_one_dag_drains_all_and_each_stream_keeps_its_other_dags() -> None:
    made = fleet(schedule="* * * * *", tags="bank")
    assert set(made) == {"shards_drain", *(f"{name}_{kind}" for name in STREAMS for kind in FLEET_KINDS)}
    assert [name for name, dag in made.items() if dag.schedule is not None] == ["shards_drain"]
    drain = made["shards_drain"].get_task("drain")
    assert drain.mysql_cdc_conn_ids == ["mysql_north", "mysql_south"]
    assert made["north_verify"].tags == {"mysql", "cdc", "kafka", "north", "shards", "bank"}
    assert "`south`: connection `mysql_south`" in (made["shards_drain"].doc_md or "")
    assert list(made["shards_drain"].params) == ["writers"]


def test_a_pipeline_that_becomes_a_stream_of_a_fleet_keeps_its_offset_and_its_events() -> None:
    made, alone = fleet(), cdc_pipeline("south", mysql_cdc_conn_id="mysql_south", tables=["b.t"])
    drain, own = made["shards_drain"].get_task("drain"), alone["south_drain"].get_task("drain")
    assert set(own.inlets) <= set(drain.inlets) and set(own.outlets) <= set(drain.outlets)
    for kind in FLEET_KINDS:
        for task in made[f"south_{kind}"].tasks:
            other = alone[f"south_{kind}"].get_task(task.task_id)
            assert (task.inlets, task.outlets) == (other.inlets, other.outlets)


def test_the_job_of_the_fleet_has_what_each_stream_has(submit: FakeSubmit) -> None:
    streams = {
        "north": {"mysql_cdc_conn_id": "mysql_north", "properties": {"decimal.handling.mode": "string"}},
        "south": STREAMS["south"],
    }
    made = fleet(
        streams,
        properties={"decimal.handling.mode": "double", "time.precision.mode": "connect"},
        fleet_arguments={"master": "local[16]"},
    )
    assert run_dag(made["shards_drain"], {"writers": 3}).state == "success"
    record = submit.record
    assert record is not None
    north, south = (spec.properties for spec in fleet_streams(JobSpec.from_json(record["spec"])))
    assert (north["decimal.handling.mode"], south["decimal.handling.mode"]) == ("string", "double")
    assert south["table.include.list"] == "b.t" and "table.include.list" not in north
    assert {p["time.precision.mode"] for p in (north, south)} == {"connect"}
    assert {p["drain.writers"] for p in (north, south)} == {"3"}
    assert "local[16]" in record["argv"]


def test_the_page_shows_the_drain_of_the_fleet_for_each_of_its_streams() -> None:
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.utils.session import create_session

    DagBundlesManager().sync_bundles_to_db()
    bag = DagBag(dag_folder=os.devnull)
    for dag in fleet(name="paged", properties={"time.precision.mode": "connect"}).values():
        bag.bag_dag(dag)
    sync_bag_to_db(bag, "dags-folder", None)
    with create_session() as session:
        found = group_tasks(DagCatalog().tasks(session, set(bag.dags)))
    assert {name: pipeline.main_task.dag_id for name, pipeline in found.items()} == dict.fromkeys(
        ("mysql_north", "mysql_south"), "paged_drain"
    )
    south = found["mysql_south"].main_task
    assert south.offset_asset == "mysql_cdc_offsets_south" and set(found["mysql_south"].dag_ids) == {
        "paged_drain",
        *(f"south_{kind}" for kind in FLEET_KINDS),
    }
    assert south.properties == {"table.include.list": "b.t", "time.precision.mode": "connect"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"streams": []}, "not a mapping"),
        ({"streams": {"north": 3}}, "streams.north"),
        ({"streams": {"north": {"tables": ["a.b"]}}}, "mysql_cdc_conn_id is not a text"),
        ({"streams": {"north": {"mysql_cdc_conn_id": "a", "schedule": "@daily"}}}, "has no 'schedule'"),
        ({"streams": {"north": {"mysql_cdc_conn_id": "a", "propertis": {}}}}, "did you mean properties?"),
        ({"streams": {"a": "mysql_north", "b": "mysql_north"}}, "have the same connection"),
        ({"streams": {"north": "a"}, "dags": ["drain"]}, "dags has no 'drain'"),
        ({"streams": {"north": {"mysql_cdc_conn_id": "a", "dags": ["drain"]}}}, "dags has no 'drain'"),
        ({"streams": {"north": "a"}, "dag_arguments": {"schedule": None}}, "dag_arguments: schedule"),
    ],
)
def test_what_is_wrong_with_a_fleet_is_named(arguments: dict[str, Any], said: str) -> None:
    streams = arguments.pop("streams")
    with pytest.raises(ConfigError) as caught:
        cdc_fleet("shards", streams, **arguments)
    assert said in caught.value.message() and "fleet shards" in caught.value.where


def test_a_file_has_fleets_beside_pipelines(tmp_path: Path) -> None:
    file = tmp_path / "pipelines.yaml"
    file.write_text(
        "defaults: {kafka_conn_id: kafka_cdc, run_for: 60, dags: [snapshot, drain], tables: [shop.orders],\n"
        "           properties: {decimal.handling.mode: string}}\n"
        "pipelines:\n"
        "  bank: {mysql_cdc_conn_id: mysql_bank}\n"
        "fleets:\n"
        "  shards:\n"
        '    schedule: "* * * * *"\n'
        "    fleet_arguments: {master: 'local[16]'}\n"
        "    properties: {time.precision.mode: connect}\n"
        "    streams:\n"
        "      north: mysql_north\n"
        "      south: {mysql_cdc_conn_id: mysql_south, tables: [shop.items]}\n"
    )
    made = pipelines_from_file(file)
    assert set(made) == {"bank_snapshot", "bank_drain", "north_snapshot", "south_snapshot", "shards_drain"}
    drain = made["shards_drain"].get_task("drain")
    shared = {"decimal.handling.mode": "string", "time.precision.mode": "connect"}
    assert {conn_id: own["properties"] for conn_id, own in drain.stream_arguments.items()} == {
        "mysql_north": {**shared, "table.include.list": "shop.orders"},
        "mysql_south": {**shared, "table.include.list": "shop.items"},
    }
    file.write_text("fleets:\n  shards:\n    streams:\n      north: {mysql_cdc_conn_id: a, tabels: [x.y]}\n")
    with pytest.raises(ConfigError) as caught:
        pipelines_from_file(file)
    assert str(file) in caught.value.where and "did you mean tables?" in caught.value.what
    file.write_text("pipelines:\n  north: {mysql_cdc_conn_id: a}\nfleets:\n  shards:\n    streams: {north: a}\n")
    with pytest.raises(ConfigError, match="two pipelines have a DAG of the same id"):
        pipelines_from_file(file)


def test_the_examples_of_the_page_about_fleets_work(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "fleets.md").read_text()
    code = [block.split("```")[0] for block in page.split("```python\n")[1:]]
    found: dict[str, Any] = {}
    for block in code:
        exec(block.replace("cdc_fleet(\n", "made = cdc_fleet(\n"), found)
    file = tmp_path / "pipelines.yaml"
    file.write_text(page.split("```yaml\n")[1].split("```")[0])
    assert len(code) == 2 and set(found["made"]) == set(pipelines_from_file(file)) > {"shards_drain", "north_snapshot"}
