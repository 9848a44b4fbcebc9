"""Whole connector configurations, as they are written for Debezium: which are accepted, and what is said of the others.

From the tutorial and the pages of Debezium 3.6 on the connector, topic routing, record state extraction, the outbox
router, topic creation, Avro, signals and notifications; of Confluent Cloud's settings; with the defaults written out;
and four of connectors in production: unwrap and a route, the outbox with Avro, many settings of tables and topics, a
script and a converter in Java.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.property_sources import connection_source, environment_source, load_config
from airflow_provider_mysql_cdc.cdc.errors import ConfigError

FOLDER = Path(__file__).parent / "connect_json"
ACCEPTED = [
    "avro_confluent",
    "confluent_cloud",
    "defaults_spelled_out",
    "errors",
    "heartbeat",
    "ops",
    "outbox",
    "outbox_avro",
    "predicates",
    "reroute",
    "signals",
    "topic_creation",
    "topic_creation_default",
    "tutorial",
    "unwrap",
    "unwrap_route",
]
APICURIO = ("url", "auto-register", "find-latest")
REFUSED = {
    "avro_apicurio": [
        *(f"{part}.converter" for part in ("key", "value")),
        *(f"{part}.converter.apicurio.registry.{name}" for part in ("key", "value") for name in APICURIO),
    ],
    "jmx": ["notification.enabled.channels", "signal.enabled.channels"],
}


def document(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return read


def test_every_configuration_is_in_one_of_the_lists() -> None:
    assert sorted([*ACCEPTED, *REFUSED, "converters_filter"]) == sorted(path.stem for path in FOLDER.glob("*.json"))


@for_each("name", ACCEPTED)
def test_an_accepted_configuration_is_accepted_in_each_place(name: str) -> None:
    configs = [
        ConnectorConfig.from_connect_json(document(name)),
        load_config([connection_source("c", {}, document(name))]),
        load_config([environment_source({"MYSQL_CDC_PROPERTIES": json.dumps(document(name))})]),
    ]
    for cfg in configs:
        assert (cfg.topic_prefix, cfg[F.NAME], cfg.server_id(0)) == ("dbserver1", "inventory-connector", 184054)
        assert cfg.properties() == configs[0].properties()


@pytest.mark.req("FAULT-02")
@for_each("name", REFUSED)
def test_one_error_lists_everything_that_is_not_supported(name: str) -> None:
    problems = {p.name: p for p in ConnectorConfig.check(document(name)["config"])}
    assert sorted(problems) == sorted(REFUSED[name])
    with pytest.raises(ConfigError) as caught:
        ConnectorConfig.from_connect_json(document(name))
    for problem in problems.values():
        assert problem.name in caught.value.message() and problem.what in caught.value.message() and problem.fix
    # What is left after all of it is removed is accepted: no second round.
    left = {k: v for k, v in document(name)["config"].items() if k not in problems}
    assert ConnectorConfig.check(left) == []


def test_with_what_the_error_says_a_script_and_a_converter_in_java_are_replaced() -> None:
    given = document("converters_filter")["config"]
    fixes = {p.name: p.fix for p in ConnectorConfig.check(given)}
    assert fixes.keys() == {"myconv.type", "transforms.filter.type", "transforms.ts.format"}
    assert "write it in Python" in fixes["myconv.type"] and "skipped.operations" in fixes["transforms.filter.type"]
    assert "remove filter from transforms and all transforms.filter.*" in fixes["transforms.filter.type"]
    mended = given | {"converters": "bool", "transforms": "ts,route", "transforms.ts.format": "yyyy-MM-dd"}
    left = {k: v for k, v in mended.items() if not k.startswith(("myconv.", "transforms.filter."))}
    assert ConnectorConfig.check(left) == []


@for_each(
    ("name", "value", "note"),
    [
        ("event.converting.failure.handling.mode", "warn", "never replaced by null"),
        ("signal.file", "file-signals.txt", "no effect"),
        ("custom.sanitize.pattern", ".*secret$", "no effect"),
        ("errors.retry.delay.initial.ms", "300", "retries are Airflow's"),
        ("openlineage.integration.config.file.path", "./openlineage.yml", "no effect"),
    ],
)
def test_a_default_of_debezium_that_is_written_out_is_noted(name: str, value: str, note: str) -> None:
    cfg = ConnectorConfig.from_properties({**document("tutorial")["config"], name: value})
    assert any(line.startswith(name) and note in line for line in cfg.notes), cfg.notes


def test_values_that_ask_for_something_else_are_refused_and_empty_ones_are_not() -> None:
    for name, value in (
        ("event.converting.failure.handling.mode", "skip"),
        ("openlineage.integration.enabled", "true"),
        ("internal.snapshot.scan.all.columns.force", "true"),
        ("signal.enabled.channels", "file"),
    ):
        assert [p.name for p in ConnectorConfig.check({**document("tutorial")["config"], name: value})] == [name]
    for name in ("snapshot.mode.custom.name", "topic.heartbeat.name", "topic.regex"):
        assert ConnectorConfig.check({**document("tutorial")["config"], name: ""}) == []
