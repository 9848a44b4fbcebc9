"""Notifications: Debezium's form, with and without schema, in the topic and in the log."""

from __future__ import annotations

import json
import logging

import pytest

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.formats import record_topics
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.java import hash_map_order
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.signals import notification_record as notify
from airflow_provider_mysql_cdc.cdc.signals.notification_record import (
    NotificationType,
    list_in_progress,
    notification_record,
    refusal_record,
    table_list,
)
from airflow_provider_mysql_cdc.cdc.signals.signal import Signal

SINK = {"notification.enabled.channels": "sink", "notification.sink.topic.name": "notices"}
TABLES = {
    "data_collections": "d.a,d.b",
    "current_collection_in_progress": "d.a",
    "maximum_key": "100",
    "last_processed_key": "50",
}


def config(**given: str) -> ConnectorConfig:
    base = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}
    return ConnectorConfig.from_properties(base | {name.replace("__", "."): text for name, text in given.items()})


def progress(cfg: ConnectorConfig) -> SideRecord | None:
    return notification_record(cfg, notify.INCREMENTAL, NotificationType.IN_PROGRESS, "ad-hoc-1", TABLES, 1695817046353)


def test_a_notification_without_schema_is_debeziums() -> None:
    cfg = config(**SINK, key__converter__schemas__enable="false", value__converter__schemas__enable="false")
    # Members of additional_data stand in the order of Java's HashMap, tried with Java 17 and 25.
    assert progress(cfg) == (
        "notices",
        b'{"id":"ad-hoc-1"}',
        b'{"id":"ad-hoc-1","type":"IN_PROGRESS","aggregate_type":"Incremental Snapshot","additional_data":'
        b'{"current_collection_in_progress":"d.a","connector_name":"p","maximum_key":"100",'
        b'"data_collections":"d.a,d.b","last_processed_key":"50"},"timestamp":1695817046353}',
        None,
    )


def test_a_notification_with_schema_has_debeziums_schemas() -> None:
    found = progress(config(**SINK))
    assert found is not None and found[1] is not None and found[2] is not None
    assert found[1] == (
        b'{"schema":{"type":"struct","fields":[{"type":"string","optional":false,"field":"id"}],"optional":false,'
        b'"name":"io.debezium.connector.common.NotificationKey","version":1},"payload":{"id":"ad-hoc-1"}}'
    )
    assert found[2].startswith(
        b'{"schema":{"type":"struct","fields":[{"type":"string","optional":false,"field":"id"},'
        b'{"type":"string","optional":false,"field":"type"},{"type":"string","optional":false,"field":"aggregate_type"},'
        b'{"type":"map","keys":{"type":"string","optional":false},"values":{"type":"string","optional":false},'
        b'"optional":true,"field":"additional_data"},{"type":"int64","optional":false,"field":"timestamp"}],'
        b'"optional":false,"name":"io.debezium.connector.common.Notification","version":1},"payload":{"id":"ad-hoc-1",'
    )
    assert json.loads(found[2])["payload"]["additional_data"] == {**TABLES, "connector_name": "p"}
    keyed = progress(config(**SINK, value__converter__schemas__enable="false"))
    assert keyed is not None and keyed[1] == found[1] and json.loads(keyed[2] or b"")["id"] == "ad-hoc-1"


def test_members_stand_in_the_order_of_javas_map() -> None:
    """Orders printed by Java 17 and 25."""
    assert hash_map_order([], ["connector_name"]) == ["connector_name"]
    assert hash_map_order(["reason"], ["connector_name"]) == ["connector_name", "reason"]
    assert hash_map_order(["scanned_collection", "status"], ["connector_name"]) == [
        "connector_name", "scanned_collection", "status",
    ]  # fmt: skip
    four = ["data_collections", "scanned_collection", "total_rows_scanned", "status"]
    assert hash_map_order(four, ["connector_name"]) == [
        "scanned_collection", "connector_name", "total_rows_scanned", "data_collections", "status",
    ]  # fmt: skip


def test_nothing_is_written_unless_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert progress(config()) is None
    assert progress(config(notification__sink__topic__name="notices")) is None
    assert caplog.messages == []
    assert progress(config(notification__enabled__channels="log")) is None
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(
        "[Notification Service]  {id='ad-hoc-1', aggregateType='Incremental Snapshot', type='IN_PROGRESS', "
    )


def test_both_channels_and_the_transforms_are_served(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    routed = {
        "transforms": "r",
        "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.r.regex": "not(.*)",
        "transforms.r.replacement": "moved-$1",
    }
    found = progress(config(**SINK | {"notification.enabled.channels": "sink,log"}, **routed))
    assert found is not None and found[0] == "moved-ices"
    assert len(caplog.messages) == 1


def test_the_topic_is_made_and_no_table_may_have_it() -> None:
    cfg = config(**SINK)
    assert "notices" in record_topics.reserved_topics(cfg)
    job = JobLedger.__new__(JobLedger)
    job._cfg = cfg
    assert job.required_topics(SchemaState())["notices"].partitions == 1
    assert "notices" not in record_topics.reserved_topics(config(notification__sink__topic__name="notices"))


def test_the_list_of_very_many_tables_does_not_make_a_record_too_large() -> None:
    found = notification_record(
        config(**SINK), notify.INCREMENTAL, NotificationType.STARTED, "i", {"data_collections": "d.table," * 200_000}, 1
    )
    assert found is not None and len(found[2] or b"") < 100_000


@pytest.mark.parametrize(
    "type_, aggregate", [("execute-snapshot", "Incremental Snapshot"), ("stop-snapshot", "Incremental Snapshot"),
                         ("log", "Signal"), ("nonsense", "Signal")],
)  # fmt: skip
def test_a_refused_signal_is_reported_in_the_log_and_as_a_notification(
    type_: str, aggregate: str, caplog: pytest.LogCaptureFixture
) -> None:
    signal = Signal("ad-hoc-1", type_, "{", "kafka")
    assert refusal_record(config(), signal, "its data is not JSON", 5) is None
    assert caplog.messages == [f"signal ad-hoc-1 ({type_}, channel kafka) is refused: its data is not JSON"]
    found = refusal_record(config(**SINK), signal, "its data is not JSON", 5)
    assert found is not None
    payload = json.loads(found[2] or b"")["payload"]
    assert (payload["type"], payload["aggregate_type"], payload["id"]) == ("ABORTED", aggregate, "ad-hoc-1")
    assert payload["additional_data"] == {"connector_name": "p", "reason": "its data is not JSON"}


def test_tables_in_progress_are_listed_in_debeziums_order() -> None:
    """Of a hash set, as Debezium 3.6.1 wrote them; those of a table that was read are in order of their names."""
    tables = [TableId("nt", name) for name in ("a", "b", "emp", "nk")] + [TableId("peer_end", "done")]
    assert list_in_progress(tables) == "nt.nk,nt.b,nt.a,nt.emp,peer_end.done"
    assert table_list(tables) == "nt.a,nt.b,nt.emp,nt.nk,peer_end.done"
