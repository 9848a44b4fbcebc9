"""Two shards whose tables share a topic, drained together: every row arrives once, and counts are kept by stream."""

from __future__ import annotations

import json
from typing import Any

from kit.sql import execute
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc.fleet.fleet_driver import run_fleet
from airflow_provider_mysql_cdc.cdc.fleet.fleet_spec import fleet_job
from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import prepare_drain
from airflow_provider_mysql_cdc.spark.errors import named_job_error

SHARDS = ("eu", "us")


def shard(properties: dict[str, str], unique: str, name: str) -> Pipeline:
    """Return the stream of a shard, whose tables go to the topic of all shards with the shard in their keys."""
    return Pipeline(
        properties
        | {
            "topic.prefix": f"{unique}_{name}",
            "database.include.list": f"{unique}_{name}",
            "snapshot.mode": "never",
            "value.converter.schemas.enable": "false",
            "key.converter.schemas.enable": "false",
            "transforms": "route",
            "transforms.route.type": "io.debezium.transforms.ByLogicalTableRouter",
            "transforms.route.topic.regex": rf"{unique}_(\w+)[.]\w+[.](.*)",
            "transforms.route.topic.replacement": f"{unique}.$2",
            "transforms.route.key.field.name": "shard",
            "transforms.route.key.field.regex": rf"{unique}_(\w+)[.]\w+[.](.*)",
            "transforms.route.key.field.replacement": "$1",
        }
    )


def test_shards_that_share_a_topic_are_drained_together(properties: dict[str, str], root: Any, unique: str) -> None:
    shards = {name: shard(properties, unique, name) for name in SHARDS}
    try:
        for count, name in enumerate(SHARDS, 1):
            values = ",".join(f"({row})" for row in range(10 * count))
            execute(
                root,
                f"CREATE DATABASE {unique}_{name}",
                f"CREATE TABLE {unique}_{name}.orders (id INT PRIMARY KEY)",
                f"INSERT INTO {unique}_{name}.orders VALUES {values}",
            )
        counts = []
        for _ in range(2):
            jobs = [prepare_drain(p.cfg, p.store, p.owner, p.log) for p in shards.values()]
            assert run_fleet(
                fleet_job([job.spec for job in jobs if job is not None]), ThreadRunner(), print, named_job_error
            ) == len(SHARDS)
            counts.append({name: p.settle().counts.get(f"{unique}.orders") for name, p in shards.items()})
            for name in SHARDS:
                execute(root, f"DELETE FROM {unique}_{name}.orders WHERE id < 3")
        assert counts[0] == {"eu": 10, "us": 20}
        records = shards["eu"].read(f"{unique}.orders")
        seen = sorted((key["shard"], key["id"]) for key in (json.loads(r.key) for r in records if r.value))
        inserts = [(name, row) for count, name in enumerate(SHARDS, 1) for row in range(10 * count)]
        assert seen == sorted([*inserts, *((name, row) for name in SHARDS for row in range(3))])
    finally:
        for name in SHARDS:
            execute(root, f"DROP DATABASE IF EXISTS {unique}_{name}")
