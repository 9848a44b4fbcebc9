"""Transactions whose events are not those that the transaction topic counts are reported; what is whole is not."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, DeletedRecords
from kit.avro_rig import avro
from kit.repairs import fill, verdict
from kit.sql import execute
from kit.topic_damage import TopicDamage
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind as Kind
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import RepairMode, VerifyRequest

PROPERTIES = {
    "topic.creation.default.partitions": "3",
    "snapshot.lock.timeout.ms": "240000",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "provide.transaction.metadata": "true",
}
HISTORY = VerifyRequest(history=True)
FORMATS: dict[str, dict[str, str]] = {
    "json": {},
    "json with schemas": {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"},
    "avro": {},
}


def change(root: Any, db: str) -> None:
    """Write three transactions, one of them of both tables."""
    execute(
        root,
        "BEGIN",
        f"UPDATE `{db}`.orders SET name = 'changed' WHERE id < 3",
        f"INSERT INTO `{db}`.log VALUES ('x', 7)",
        f"UPDATE `{db}`.orders SET id = 100 WHERE id = 8",
        "COMMIT",
        f"DELETE FROM `{db}`.orders WHERE id = 7",
        f"UPDATE `{db}`.log SET n = 9 WHERE line = 'a'",
    )


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.exhaustive(but="avro")
@pytest.mark.days("even")
def test_torn_transactions_are_reported_and_their_rows_repaired(
    pipeline: Pipeline, root: Any, database: str, registry: str, name: str
) -> None:
    pipeline.properties |= FORMATS[name] | (avro(registry) if name == "avro" else {})
    fill(root, database)
    pipeline.snapshot()
    change(root, database)
    whole = pipeline.verify(HISTORY)
    assert whole.verdict == "equal" and not any(v.unknown for v in whole.tables), whole
    damage = TopicDamage(pipeline, "orders", registry if name == "avro" else None)
    # An event of a transaction that the transaction topic does not know, and one that END does not count.
    for id_, transaction in ((1, {"id": "made:1", "total_order": 1, "data_collection_order": 1}), (2, None)):
        last = damage.last(id_)

        def edit(event: dict[str, Any], block: Any = transaction) -> None:
            event["op"], event["before"] = "u", event["after"]
            event["after"] = {**event["after"], "name": "torn"}
            event["transaction"] = block or {**event["transaction"], "data_collection_order": 77}

        damage.produce((last.key, damage.edited(last, edit), last.partition))
    # A transaction of which one event is missing.
    topic = f"{pipeline.cfg.topic_prefix}.transaction"
    boundaries = TopicDamage(pipeline, "orders", damage.registry)
    *_, begin, end = pipeline.read(topic)

    def forge(payload: dict[str, Any]) -> None:
        payload["id"] = "made:2"
        if payload["status"] == "END":
            payload["event_count"] = 1
            payload["data_collections"] = [{"data_collection": f"{database}.orders", "event_count": 1}]

    producer = Producer({"bootstrap.servers": pipeline.properties["kafka.bootstrap.servers"]})
    for record in (begin, end):
        producer.produce(topic, key=record.key, value=boundaries.edited(record, forge), partition=0)
    assert producer.flush(10) == 0
    result = pipeline.verify(HISTORY)
    orders = verdict(result, "orders")
    assert orders.findings == {Kind.TORN_TRANSACTION: 3, Kind.DIFFERING: 2}, orders
    assert verdict(result, "log").verdict == "equal"
    shown = {e.key["transaction"]: e.record for e in orders.examples if e.finding is Kind.TORN_TRANSACTION}
    assert "without END" in shown["made:1"] and shown["made:2"] == "0 of the 1 events that END counts"
    repaired = verdict(pipeline.verify(VerifyRequest(history=True, repair=RepairMode.YES)), "orders")
    assert repaired.repaired == {Kind.DIFFERING: 2}, pipeline.lines
    after = verdict(pipeline.verify(HISTORY), "orders")
    assert after.equal and after.findings == {Kind.TORN_TRANSACTION: 3}


def test_what_retention_has_deleted_is_not_judged(pipeline: Pipeline, root: Any, database: str) -> None:
    fill(root, database)
    pipeline.snapshot()
    change(root, database)
    pipeline.drain()
    topic = pipeline.table_topic("orders")
    admin = AdminClient({"bootstrap.servers": pipeline.properties["kafka.bootstrap.servers"]})
    last = {p: max(r.offset for r in pipeline.read(topic) if r.partition == p) for p in range(3)}
    for future in admin.delete_records([TopicPartition(topic, p, offset) for p, offset in last.items()]).values():
        assert isinstance(future.result(), DeletedRecords)
    orders = verdict(pipeline.verify(HISTORY), "orders")
    assert Kind.TORN_TRANSACTION not in orders.findings
    assert any("transactions are older than the first records" in said for said in orders.unknown), orders.unknown


def test_a_compacted_topic_is_not_judged(pipeline: Pipeline, root: Any, database: str) -> None:
    pipeline.properties |= {"topic.creation.default.cleanup.policy": "compact", "tombstones.on.delete": "false"}
    fill(root, database)
    execute(root, f"DROP TABLE `{database}`.log", f"CREATE TABLE `{database}`.log (line CHAR(9), n INT PRIMARY KEY)")
    pipeline.snapshot()
    change(root, database)
    result = pipeline.verify(HISTORY)
    assert result.verdict == "equal"
    assert all(any("whether transactions are whole is not known" in u for u in v.unknown) for v in result.tables)


def test_without_metadata_or_history_nothing_is_said(pipeline: Pipeline, root: Any, database: str) -> None:
    fill(root, database)
    pipeline.snapshot()
    change(root, database)
    assert not any(v.unknown for v in pipeline.verify().tables)
    part = pipeline.verify(VerifyRequest(history=True, sample_percent=50.0))
    assert part.verdict == "equal" and all("not all keys were compared" in v.unknown[0] for v in part.tables)
