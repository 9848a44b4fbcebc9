"""A stream goes on from a connector's offset at a server that was promoted since: the GTID set says where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from kit.private_mysql import Pool
from kit.records import payload
from kit.replication import Pair, lent_pair
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.debezium.connect_offsets import DebeziumOffset
from airflow_provider_mysql_cdc.cdc.debezium.import_connector import ConnectorState, plan_takeover, take_over
from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec, ensure_topics

FLAT = {
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "snapshot.mode": "no_data",
    "include.schema.changes": "false",
}


@pytest.fixture
def pair(pool: Pool) -> Iterator[Pair]:
    with lent_pair(pool) as lent:
        yield lent


@pytest.mark.exhaustive
@pytest.mark.req("FAULT-01", "FAULT-07")
def test_at_a_promoted_server_what_a_stopped_connector_has_not_written_is_written_once(
    pair: Pair, properties: dict[str, str], database: str
) -> None:
    root = pair.begin(f"CREATE DATABASE `{database}`", f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)").primary.root
    connector = Pipeline(properties | pair.primary.server.properties() | FLAT)
    connector.snapshot()
    execute(root, f"INSERT INTO `{database}`.t VALUES (1), (2)", f"UPDATE `{database}`.t SET id = 3 WHERE id = 2")
    file, pos, *_, gtids = rows(root, "SHOW BINARY LOG STATUS")[0]
    execute(root, f"INSERT INTO `{database}`.t VALUES (4), (5)")
    connector.drain()
    written = connector.records("t")
    pair.switch()
    execute(pair.primary.root, f"INSERT INTO `{database}`.t VALUES (6)")

    def topic_with(prefix: str, count: int) -> Pipeline:
        """Return a stream at the promoted server, in whose topic a connector has written some of the records."""
        stream = Pipeline(properties | pair.primary.server.properties() | FLAT | {"topic.prefix": prefix})
        topic = f"{prefix}.{database}.t"
        ensure_topics(make_admin(stream.cfg.kafka_settings()), {topic: TopicSpec(1, 1)})
        producer = Producer({"bootstrap.servers": properties["kafka.bootstrap.servers"]})
        for record in written[:count]:
            producer.produce(topic, record.value, record.key, 0)
        assert producer.flush(30) == 0
        return stream

    def go_on(stream: Pipeline, offset: DebeziumOffset) -> list[Any]:
        state = ConnectorState(offset)
        take_over(stream.cfg, stream.store, stream.owner, stream.log, lambda cfg: plan_takeover(cfg, state, stream.log))
        stream.drain()
        return [
            value and (value["op"], (value["after"] or value["before"])["id"])
            for value in map(lambda record: payload(record.value), stream.records("t"))
        ]

    offset = DebeziumOffset(file, pos, gtids.replace("\n", ""))
    before = [("c", 1), ("c", 2), ("d", 2), None, ("c", 3)]
    assert go_on(topic_with(f"{database}.stopped", 5), offset) == [*before, ("c", 4), ("c", 5), ("c", 6)]
    killed = topic_with(f"{database}.killed", 6)
    with pytest.raises(StateError, match=r"does not have a change that the connector has written.*start the connector"):
        go_on(killed, offset)
    assert killed.store.load() is None
