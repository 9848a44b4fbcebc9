"""Records that were committed and are gone from a topic are told by the counts of the ledger; nothing else is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.repairs import fill, verdict
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.faults import FaultRaised
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter
from airflow_provider_mysql_cdc.cdc.verify.history.batch_counts import read_kept_batches
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind as Kind
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import RepairMode, VerifyRequest

PROPERTIES = {
    "topic.creation.default.partitions": "3",
    "snapshot.lock.timeout.ms": "240000",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
}
HISTORY = VerifyRequest(history=True)


def change(root: Any, db: str, number: int) -> None:
    execute(
        root,
        f"UPDATE `{db}`.orders SET name = 'first {number}' WHERE id IN (6, 9)",
        f"UPDATE `{db}`.orders SET name = 'second {number}' WHERE id IN (6, 9)",
        f"UPDATE `{db}`.orders SET id = {100 + number} WHERE id = {10 + number}",
        f"DELETE FROM `{db}`.orders WHERE id = {20 + number}",
        f"INSERT INTO `{db}`.log VALUES ('x', {number})",
        f"DELETE FROM `{db}`.log WHERE line = 'x'",
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("more", [{}, {"tombstones.on.delete": "false"}, {"skipped.operations": "none"}])
def test_no_record_is_told_as_lost_that_is_there(
    pipeline: Pipeline, root: Any, database: str, more: dict[str, str]
) -> None:
    pipeline.properties |= more
    fill(root, database)
    pipeline.snapshot()
    for number in range(3):
        change(root, database, number)
        if number == 1 and "skipped.operations" in more:
            execute(root, f"CREATE TABLE `{database}`.gone (id INT PRIMARY KEY)")
            execute(root, f"INSERT INTO `{database}`.gone VALUES (1)", f"TRUNCATE `{database}`.gone")
        pipeline.drain()
    result = pipeline.verify(HISTORY)
    assert not any(v.findings for v in result.tables), result
    batches = read_kept_batches(pipeline.cfg)
    counted = sum(batch.counts.get(pipeline.table_topic("orders"), 0) for batch in batches)
    changes = [r for r in pipeline.records("orders") if r.value is None or b'"op":"r"' not in r.value]
    assert len(batches) >= 3 and counted == len(changes)


def test_a_record_that_the_brokers_have_lost_is_told(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(root, database)
    pipeline.snapshot()
    change(root, database, 0)
    produce, lost = TransactionalWriter.produce, list[Any]()

    def lose(self: Any, topic: str, key: Any, *rest: Any, **more: Any) -> None:
        if key == b'{"id":6}' and not lost:
            lost.append(key)
            return
        produce(self, topic, key, *rest, **more)

    monkeypatch.setattr(TransactionalWriter, "produce", lose)
    pipeline.drain()
    monkeypatch.undo()
    assert lost
    change(root, database, 1)
    orders = verdict(pipeline.verify(HISTORY), "orders")
    assert orders.findings == {Kind.GAP: 1, Kind.LOST_RECORD: 1}, orders
    (shown,) = [example.record for example in orders.examples if example.finding is Kind.LOST_RECORD]
    assert shown.startswith(f"{pipeline.table_topic('orders')}: 8 of 9 records of batch ")
    repaired = verdict(pipeline.verify(VerifyRequest(history=True, repair=RepairMode.YES)), "orders")
    assert repaired.repaired == {Kind.GAP: 1} and repaired.lasting == 1
    assert verdict(pipeline.verify(HISTORY), "orders").findings == {Kind.LOST_RECORD: 1}


@pytest.mark.exhaustive
def test_events_with_places_of_their_own_are_not_taken_for_lost(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """XA transactions come at their commit, and all events of a compressed transaction have one place."""
    orders = f"`{database}`.orders"
    fill(root, database)
    execute(root, "XA START 'x0'", f"UPDATE {orders} SET name = 'x0'", "XA END 'x0'", "XA PREPARE 'x0'")
    pipeline.snapshot()
    execute(root, "XA COMMIT 'x0'", f"UPDATE {orders} SET name = 'later'")
    # The writer that takes its place knows what the first one has searched for.
    pipeline.properties["commit.bytes"] = "1024"
    fault = {"point": "writer.after_commit", "nth": 2, "fired": str(tmp_path / "fired")}
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.faults._passed", {})
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    with pytest.raises(FaultRaised):
        pipeline.drain()
    monkeypatch.delenv("MYSQL_CDC_FAULT")
    pipeline.drain()
    assert any("searching the binlog" in line for line in pipeline.lines) and (tmp_path / "fired").exists()
    execute(
        root,
        "SET SESSION binlog_transaction_compression = ON",
        f"UPDATE {orders} SET name = 'packed'",
        f"DELETE FROM {orders} WHERE id > 25",
        "SET SESSION binlog_transaction_compression = OFF",
    )
    pipeline.drain()
    execute(
        root,
        "XA START 'x1'",
        f"UPDATE {orders} SET name = 'xa' WHERE id < 5",
        "XA END 'x1'",
        "XA PREPARE 'x1'",
    )
    pipeline.drain()
    execute(root, "XA COMMIT 'x1'", f"UPDATE {orders} SET name = 'later' WHERE id = 1")
    pipeline.drain()
    execute(
        root, "XA START 'x2'", f"UPDATE {orders} SET name = 'xb' WHERE id < 5", "XA END 'x2'", "XA PREPARE 'x2'",
        "XA COMMIT 'x2'", f"ALTER TABLE {orders} ADD COLUMN more INT", f"UPDATE {orders} SET more = 1",
        "FLUSH BINARY LOGS", f"UPDATE {orders} SET more = 2", f"RENAME TABLE {orders} TO `{database}`.renamed",
        f"UPDATE `{database}`.renamed SET more = 3", f"RENAME TABLE `{database}`.renamed TO {orders}",
    )  # fmt: skip
    pipeline.drain()
    result = pipeline.verify(HISTORY)
    found = verdict(result, "orders")
    assert Kind.LOST_RECORD not in found.findings, found
    # Not those in which an XA transaction was prepared, or decided.
    counts = [batch.counts.get(pipeline.table_topic("orders"), 0) for batch in read_kept_batches(pipeline.cfg)]
    assert len(counts) >= 2 and 38 in counts, "30 updates, and 4 deletes with their tombstones"
