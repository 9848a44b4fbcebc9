"""Whose a record is, as far as its form tells."""

from __future__ import annotations

import json
import re
from typing import Any

from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.model.records import describe_record, history_prefix

DEBEZIUM_HISTORY: dict[str, Any] = {
    "source": {"server": "shop"},
    "position": {"ts_sec": 1, "file": "binlog.000003", "pos": 157, "snapshot": True},
    "ts_ms": 1,
    "databaseName": "inventory",
    "ddl": "CREATE TABLE t (id INT)",
    "tableChanges": [],
}
OWN_HISTORY = {**DEBEZIUM_HISTORY, "epoch": 1, "context": {}}
EVENT = {"before": None, "after": {"id": 1}, "source": {"name": "shop", "connector": "mysql"}, "op": "c"}


@for_each(
    ("key", "value", "text"),
    [
        (None, DEBEZIUM_HISTORY, "Debezium's schema history of the connector with topic.prefix=shop"),
        (None, OWN_HISTORY, "the schema history of topic.prefix=shop"),
        ({"id": 1}, EVENT, r"a change event of topic.prefix=shop \(connector mysql\)"),
        ({"payload": {}}, {"schema": {}, "payload": EVENT}, "a change event of topic.prefix=shop"),
        (None, {"source": {"name": "s", "connector": "mysql"}, "ddl": "x"}, "a schema change event of topic.prefix=s"),
        (["shop-connector", {"server": "shop"}], {"pos": 4}, "an offset of Kafka Connect's connector shop-connector"),
        ("connector-shop", {"properties": {}}, "Kafka Connect's configuration of connector shop"),
        ("status-task-shop-0", {"state": "RUNNING"}, "Kafka Connect's status of task shop-0"),
        (None, {"a": "secret", "b": 2}, r"an unknown program \(a JSON object with a, b\)"),
        (None, [1], r"an unknown program \(JSON\)"),
        (None, b"\0\0\0\1\2rest", r"the format of a schema registry \(schema id 258\)"),
        (None, b"plain text", r"an unknown program \(10 bytes, not JSON\)"),
        ("k", None, "an unknown program, without a value"),
    ],
)
def test_a_record_is_named_by_its_form(key: Any, value: Any, text: str) -> None:
    key_bytes = key.encode() if isinstance(key, str) else json.dumps(key).encode() if key else None
    value_bytes = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    described = describe_record(key_bytes, value_bytes)
    assert re.search(text, described), described
    assert "secret" not in described


def test_only_this_package_writes_an_epoch_into_a_history() -> None:
    assert history_prefix(OWN_HISTORY) == "shop"
    assert history_prefix(DEBEZIUM_HISTORY) is None
    assert history_prefix({"epoch": 1}) is None
