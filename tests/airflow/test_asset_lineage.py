"""What Airflow shows as dependencies: each DAG of a stream with the assets of its own stream."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, AssetAlias
from airflow_home import run_dag
from fakes import FakeOutcome, FakePipeline, FakeSubmit, connections, install

from airflow_provider_mysql_cdc.cdc.commit.run_tally import RunTally
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.dag_factory import cdc_pipeline
from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator
from airflow_provider_mysql_cdc.operators.reset import MySqlCdcResetOffsetOperator

pytestmark = pytest.mark.usefixtures("metadata_db")
HOSTS = {"north": "north.example", "south": "south.example"}


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[FakeSubmit, FakePipeline]:
    connections(monkeypatch, kafka_conn_id="kafka_cdc")
    for name, host in HOSTS.items():
        extra = {"topic.prefix": name, "kafka_conn_id": "kafka_cdc"}
        conn = {"conn_type": "mysql_cdc", "host": host, "login": "cdc", "password": "pa55", "extra": extra}
        monkeypatch.setenv(f"AIRFLOW_CONN_MYSQL_{name.upper()}", json.dumps(conn))
    return install(monkeypatch, tmp_path)


def shown_assets(dags: dict[str, DAG]) -> dict[str, set[str]]:
    """Return the assets that Airflow's graph of dependencies connects with each DAG, by the DAG's id."""
    from airflow.api_fastapi.core_api.services.ui.dependencies import get_scheduling_dependencies
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db

    bag = DagBag(dag_folder=os.devnull)
    for dag in dags.values():
        bag.bag_dag(dag)
    sync_bag_to_db(bag, "dags-folder", None)
    graph = get_scheduling_dependencies(set(dags))
    labels = {node["id"]: node["label"] for node in graph["nodes"]}
    reached = defaultdict(set)
    for edge in graph["edges"]:
        reached[edge["source_id"]].add(edge["target_id"])
        reached[edge["target_id"]].add(edge["source_id"])
    shown = {}
    for dag_id in dags:
        near = reached[f"dag:{dag_id}"]
        behind_aliases = set().union(*(reached[node] for node in near if node.startswith("asset-alias:")))
        shown[dag_id] = {labels[node] for node in near | behind_aliases if node.startswith("asset:")}
    return shown


def test_each_dag_of_a_stream_is_shown_with_the_assets_of_its_stream_alone(fakes: Any) -> None:
    _, pipeline = fakes
    made = {name: cdc_pipeline(name, mysql_cdc_conn_id=f"mysql_{name}") for name in HOSTS}
    for name in HOSTS:
        tally = RunTally("run", 1, 1, BinlogOffset("b.000001", 4), {f"{name}.db.t": 1}, {f"db.{name}": 1})
        pipeline.outcome = FakeOutcome(tally=tally, counts=dict(tally.counts))
        assert run_dag(made[name][f"{name}_drain"]).state == "success"
    shown = shown_assets(made["north"] | made["south"])
    for name, host in HOSTS.items():
        pipeline_uri = f"mysql-cdc://{host}:3306/{name}"
        written = {pipeline_uri, f"{pipeline_uri}/db.{name}", f"mysql_cdc_offsets_{name}"}
        # Sending a signal writes nothing; the drain that carries it out does.
        of_dags = dict.fromkeys(made[name], written) | {f"{name}_send_signal": set()}
        assert {dag_id: shown[dag_id] for dag_id in made[name]} == of_dags


def test_an_alias_can_be_given_and_is_known_when_airflow_parses_a_mapped_task() -> None:
    with DAG("aliases", schedule=None, default_args={"asset_alias": "of_all"}):
        named = MySqlCdcDrainOperator(task_id="named", asset_alias=AssetAlias("mine"))
        default = MySqlCdcDrainOperator(task_id="default")
        mapped = MySqlCdcDrainOperator.partial(task_id="mapped").expand(mysql_cdc_conn_id=["a", "b"])
        reset = MySqlCdcResetOffsetOperator.partial(task_id="reset", offset="stored", confirm="x", asset_alias="own")
        resets = reset.expand(mysql_cdc_conn_id=["a"])
    assert (named.outlets, default.outlets) == ([AssetAlias("mine")], [AssetAlias("of_all")])
    assert (mapped.outlets, resets.outlets) == ([AssetAlias("of_all")], [AssetAlias("own")])
    with DAG("alias_of_a_task", schedule=None), pytest.raises(TypeError, match="asset_alias is a"):
        MySqlCdcDrainOperator(task_id="drain", asset_alias=named.output)
