"""Which pipelines a stored DAG works for; the forms are those that Airflow 3.3.2 stores."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_mysql_cdc.plugins.pipelines import PipelineTask, group_tasks, pipeline_tasks

pytestmark = pytest.mark.quick

PARAM = "airflow.sdk.definitions.param.Param"


def stored(task: dict[str, Any], params: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a DAG of one task as Airflow stores it."""
    listed = [[name, {"__class": PARAM, **param}] for name, param in (params or {}).items()]
    return {"dag": {"params": listed, "tasks": [{"__var": {"task_id": "t", **task}, "__type": "operator"}]}}


def only(task: dict[str, Any], params: dict[str, Any] | None = None) -> PipelineTask:
    (found,) = pipeline_tasks("d", stored(task, params))
    return found


def test_a_dag_of_others_has_no_pipeline() -> None:
    assert pipeline_tasks("d", stored({"task_type": "BashOperator"})) == ()
    assert pipeline_tasks("d", {}) == ()


def test_the_arguments_of_a_drain_describe_its_pipeline() -> None:
    task = {
        "task_type": "MySqlCdcDrainOperator",
        "mysql_cdc_conn_id": "mysql_shop",
        "kafka_conn_id": "kafka_shop",
        "properties": [{"topic.prefix": "shop", "a": "{{ ds }}"}, "{{ params.properties | tojson }}", '{"b": "1"}'],
        "inlets": [{"__var": {"name": "mysql_cdc_offsets_shop"}, "__type": "asset"}],
    }
    found = only(task, {"writers": {"default": None}})
    assert (found.conn_id, found.kind, found.kafka_conn_id) == ("mysql_shop", "drain", "kafka_shop")
    assert found.properties == {"topic.prefix": "shop", "b": "1"}, "what only a run knows is left out"
    assert (found.offset_asset, found.form) == ("mysql_cdc_offsets_shop", ("writers",))
    assert not found.chosen_by_run and not found.variables


def test_mapped_tasks_have_their_arguments_elsewhere_and_are_a_backfill() -> None:
    task = {
        "task_type": "MySqlCdcIncrementalSnapshotOperator",
        "_is_mapped": True,
        "partial_kwargs": {
            "mysql_cdc_conn_id": "mysql_shop",
            "properties": [{"__var": {"topic.prefix": "shop"}, "__type": "dict"}],
        },
    }
    found = only(task)
    assert (found.conn_id, found.kind, found.properties) == ("mysql_shop", "backfill", {"topic.prefix": "shop"})


@pytest.mark.parametrize("conn_ids", [["mysql_eu", "mysql_us"], '["mysql_eu", "mysql_us"]'])
def test_each_stream_of_a_fleet_is_a_pipeline_of_its_own(conn_ids: Any) -> None:
    task = {"task_id": "drain", "task_type": "MySqlCdcFleetDrainOperator", "mysql_cdc_conn_ids": conn_ids}
    found = pipeline_tasks("fleet", stored(task))
    assert [(task.conn_id, task.kind, task.chosen_by_run) for task in found] == [
        ("mysql_eu", "drain", False),
        ("mysql_us", "drain", False),
    ]
    task["mysql_cdc_conn_ids"] = "{{ ti.xcom_pull('shards') }}"
    assert pipeline_tasks("fleet", stored(task)) == (), "known only when it runs"


def test_a_stream_of_a_fleet_has_its_own_asset_and_properties_beside_those_of_the_fleet() -> None:
    own = {"properties": {"table.include.list": "shop.orders", "b": "own"}, "offset_asset": "offsets_eu"}
    task = {
        "task_type": "MySqlCdcFleetDrainOperator",
        "mysql_cdc_conn_ids": ["mysql_eu", "mysql_us"],
        "properties": {"a": "1", "b": "all"},
        "inlets": [{"__var": {"name": "offsets"}, "__type": "asset"}],
        "stream_arguments": {"__var": {"mysql_eu": {"__var": own, "__type": "dict"}}, "__type": "dict"},
    }
    eu, us = pipeline_tasks("fleet", stored(task))
    assert (eu.offset_asset, us.offset_asset) == ("offsets_eu", "offsets")
    assert eu.properties == {"a": "1", "b": "own", "table.include.list": "shop.orders"}
    assert us.properties == {"a": "1", "b": "all"}


def test_a_form_offers_its_default_or_all_that_it_allows() -> None:
    task = {
        "task_type": "MySqlCdcDrainOperator",
        "mysql_cdc_conn_id": "{{ params.mysql_cdc_conn_id }}",
        "kafka_conn_id": "{{ params.kafka_conn_id or '' }}",
        "properties": ["{{ var.json.get('mysql_cdc_properties', {}) | tojson }}"],
    }
    form = {"mysql_cdc_conn_id": {"default": "a"}, "kafka_conn_id": {"default": None}}
    found = only(task, form)
    assert (found.conn_id, found.kafka_conn_id, found.chosen_by_run, found.variables) == ("a", "", True, True)
    schema = {"__var": {"enum": ["a", "b"]}, "__type": "dict"}
    form["mysql_cdc_conn_id"] = {"default": "a", "schema": schema}
    assert [t.conn_id for t in pipeline_tasks("d", stored(task, form))] == ["a", "b"]
    assert pipeline_tasks("d", stored({**task, "mysql_cdc_conn_id": "{{ ti.xcom_pull('x') }}"}, form)) == ()


def test_the_drain_describes_a_pipeline_before_a_dag_whose_form_chooses_it() -> None:
    tasks = [
        PipelineTask("c", "z_verify", "v", "verify"),
        PipelineTask("c", "a_drain", "d", "drain", chosen_by_run=True),
        PipelineTask("c", "b_drain", "d", "drain"),
        PipelineTask("other", "c_drain", "d", "drain"),
    ]
    pipelines = group_tasks(tasks)
    assert list(pipelines) == ["c", "other"]
    assert pipelines["c"].main_task.dag_id == "b_drain"
    assert pipelines["c"].dag_ids == ("a_drain", "b_drain", "z_verify")
