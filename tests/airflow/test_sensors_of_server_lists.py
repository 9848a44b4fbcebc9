"""Sensor, trigger and hook with two servers in ``database.hostname``, of which the first one is stale."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import Asset
from kit.replication import Pair
from kit.sql import execute
from pipelinelib.stand_ins import MemoryOffsetStore
from real_servers import define_connections

from airflow_provider_mysql_cdc.cdc.binlog.connect import answering_server, connect
from airflow_provider_mysql_cdc.cdc.binlog.position import current_offset
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import PastOffset, StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.operate import source_server
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
from airflow_provider_mysql_cdc.sensors.binlog import MySqlBinlogSensor

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("metadata_db")]


@pytest.fixture
def stream(
    servers: Pair, properties: dict[str, str], database: str, stack: Any, monkeypatch: pytest.MonkeyPatch
) -> StoredState:
    """Return the state of a stream that has drained the second server of the connection; the first one lacks a row."""
    pair = servers.begin(f"CREATE DATABASE `{database}`", f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)")
    execute(pair.replica.root, "STOP REPLICA")
    execute(pair.primary.root, f"INSERT INTO `{database}`.t VALUES (1)")
    stale, drained = pair.replica.server.properties(), pair.primary.server.properties()
    servers_of_both = stale | {"database.hostname": f"127.0.0.1,127.0.0.1:{drained['database.port']}"}
    define_connections(monkeypatch, properties | servers_of_both, stack)
    cfg = MySqlCdcHook().get_config().at_server("127.0.0.1", int(drained["database.port"]))
    with connect(cfg.connection_settings()) as conn:
        offset = current_offset(conn)
    return StoredState(epoch=1, committed=offset, history=(PastOffset(1, offset, 0),), revision=1)


def test_sensor_and_trigger_ask_the_server_that_the_stream_was_read_from(
    stream: StoredState, servers: Pair, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryOffsetStore()
    store.save(stream, None)
    monkeypatch.setattr(MySqlCdcHook, "get_offset_store", lambda *_, **__: store)
    sensor = MySqlBinlogSensor(task_id="wait", offset_asset=Asset("of_lists"), offset_conn_id="any")
    cfg = MySqlCdcHook().get_config()
    seen = sensor.check(cfg, {})
    assert not seen.is_done
    arguments = {"mysql_cdc_conn_id": "mysql_cdc_default", "kafka_conn_id": None, "properties": {}}
    trigger = sensor.trigger({**arguments, "poll_interval": 0.05})
    assert trigger.evaluate(trigger.read(cfg)) is None
    assert trigger.poll_scope() == (servers.primary.uuid,)
    execute(servers.primary.root, f"INSERT INTO `{database}`.t VALUES (2)")
    event = trigger.evaluate(trigger.read(cfg))
    assert event is not None and event["behind"]["transactions"] == 1 and event["behind"]["bytes"] > 0
    seen = sensor.check(cfg, {})
    assert seen.is_done and seen.xcom_value["transactions"] == 1


def test_a_connection_of_the_hook_leads_to_the_server_of_the_ledger(
    stream: StoredState, servers: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stream.committed is not None
    plan = BatchPlan(1, "drain", stream.committed, stream.committed, 1, "dag/run/task/-1", 0, 1)
    ledger = type("Ledger", (), {"peek": lambda self: LedgerState(plan)})()
    monkeypatch.setattr(source_server.kafka_clients, "ledger", lambda cfg: ledger)
    with MySqlCdcHook().get_conn() as conn:
        assert answering_server(conn) == servers.primary.uuid
