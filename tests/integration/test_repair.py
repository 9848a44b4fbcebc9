"""Repair on real servers: damage of each kind is repaired exactly, while the source and the stream go on."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kit.records import compacted, payload
from kit.repairs import LOGGED, REPAIR, UNLOGGED, damage_orders, fill, repair_records, repairs, verdict
from kit.sql import execute, rows
from kit.tiers import many
from pipelinelib.pipeline import Pipeline
from pipelinelib.submit import submit

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.errors import RepairLimitError, RunInProgressError
from airflow_provider_mysql_cdc.cdc.job import owner_wait, run_lock
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.verify.repair import repair_window
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind, RepairMode, VerifyRequest

PROPERTIES = {
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "snapshot.chunk.rows": "10",
    "topic.creation.default.partitions": "3",
    "snapshot.lock.timeout.ms": "60000",
}
MISSING, DIFFERING, GHOST = DifferenceKind.MISSING, DifferenceKind.DIFFERING, DifferenceKind.GHOST


def same(pipeline: Pipeline, root: Any, db: str) -> None:
    """Fail unless the topic of orders, compacted, is the table."""
    told = compacted(pipeline.records("orders"))
    names = sorted((row["id"], row["name"]) for row in told.values())
    assert names == sorted(rows(root, f"SELECT id, name FROM `{db}`.orders"))


def test_differences_are_repaired_and_verify_clean(pipeline: Pipeline, root: Any, database: str) -> None:
    """Behind a dry run, and behind a repair of more rows than are allowed, which write nothing."""
    fill(root, database)
    pipeline.snapshot()
    damage_orders(root, database)
    dry = verdict(pipeline.verify(VerifyRequest(repair=RepairMode.DRY_RUN)), "orders")
    assert dry.findings == {MISSING: 2, DIFFERING: 2, GHOST: 2} and dry.repaired == {}
    assert any(
        "2 missing, 2 ghost, 2 differing" in line and "nothing is written (dry run)" in line for line in pipeline.lines
    )
    (said,) = dry.unknown
    assert said == "a repair would write 2 missing, 2 ghost, 2 differing (dry run)"
    pipeline.properties["repair.max.rows"] = "5"
    with pytest.raises(RepairLimitError, match=r"6 rows differ.*none was written.*repair\.max\.rows=6"):
        pipeline.verify(REPAIR)
    assert repair_records(pipeline, "orders") == [] and repairs(pipeline) == []
    pipeline.properties["repair.max.rows"] = "6"
    result = pipeline.verify(REPAIR)
    orders = verdict(result, "orders")
    assert orders.findings == orders.repaired == {MISSING: 2, DIFFERING: 2, GHOST: 2}, pipeline.lines
    assert verdict(result, "log").verdict == "equal" and verdict(result, "log").repaired == {}
    written = repair_records(pipeline, "orders")
    assert sorted((op or "", key["id"]) for op, key, _ in written) == [
        ("", 3), ("", 4), ("d", 3), ("d", 4), ("r", 10), ("r", 11), ("r", 100), ("r", 101),
    ]  # fmt: skip
    assert {row["name"] for op, _, row in written if op == "r"} == {"unlogged", "Zoë", None}
    (record,) = repairs(pipeline)
    assert (record.run, record.table, record.owner) == (result.run, f"{database}.orders", pipeline.owner)
    assert record.repaired == orders.repaired
    again = pipeline.verify(REPAIR)
    assert again.equal and not any(v.repaired for v in again.tables)
    assert len(repair_records(pipeline, "orders")) == 8 and len(repairs(pipeline)) == 1
    same(pipeline, root, database)


def test_rows_without_a_key_are_repaired_by_number(pipeline: Pipeline, root: Any, database: str) -> None:
    fill(root, database)
    pipeline.snapshot()
    execute(
        root,
        UNLOGGED,
        f"INSERT INTO `{database}`.log VALUES ('b', 2), ('b', 2), (NULL, 9)",
        f"DELETE FROM `{database}`.log WHERE line = 'a'",
        LOGGED,
    )
    result = pipeline.verify(REPAIR)
    assert verdict(result, "log").repaired == {MISSING: 3, GHOST: 2}, pipeline.lines
    written = [(op, row["line"], row["n"]) for op, _, row in repair_records(pipeline, "log")]
    assert sorted(written, key=str) == [("d", "a", 1), ("d", "a", 1), ("r", "b", 2), ("r", "b", 2), ("r", None, 9)]
    assert pipeline.verify().equal


@pytest.mark.exhaustive
def test_hands_in_the_topic_are_repaired(pipeline: Pipeline, root: Any, database: str) -> None:
    fill(root, database)
    pipeline.snapshot()
    topic = pipeline.table_topic("orders")
    records = {json.loads(r.key)["id"]: r for r in pipeline.read(topic)}
    stale = json.loads(records[1].value)
    stale["after"]["name"] = "stale"
    ghost = json.loads(records[2].value)
    ghost["after"]["id"] = 999
    gone = json.loads(records[5].value) | {"op": "d", "before": json.loads(records[5].value)["after"], "after": None}
    producer = Producer({"bootstrap.servers": pipeline.properties["kafka.bootstrap.servers"]})
    producer.produce(topic, key=records[1].key, value=json.dumps(stale).encode(), partition=records[1].partition)
    producer.produce(topic, key=b'{"id":999}', value=json.dumps(ghost).encode(), partition=2)
    producer.produce(topic, key=records[5].key, value=json.dumps(gone).encode(), partition=records[5].partition)
    assert producer.flush(10) == 0
    result = pipeline.verify(REPAIR)
    assert verdict(result, "orders").repaired == {DIFFERING: 1, GHOST: 1, MISSING: 1}, pipeline.lines
    assert [r.partition for r in pipeline.records("orders") if r.key == b'{"id":999}'] == [2, 2, 2]
    assert pipeline.verify().equal
    same(pipeline, root, database)


def test_changes_and_runs_beside_the_repair_are_not_overtaken(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows change behind the comparison, where another run drains, and again behind the view of the repair."""
    fill(root, database)
    pipeline.snapshot()
    damage_orders(root, database)
    real_repair, real_point = repair_window.run_repair, faults.fault_point

    def other_run_first(*arguments: Any) -> Any:
        # One suspect of each kind has an event now: its row is written again as the view shows it.
        execute(
            root,
            f"INSERT INTO `{database}`.orders VALUES (3, 'again', 0, NULL)",
            f"UPDATE `{database}`.orders SET name = 'mended' WHERE id IN (10, 100)",
            f"INSERT INTO `{database}`.orders VALUES (500, 'new', 0, NULL)",
        )
        beside = replace(pipeline, owner="other/run/task/-1")
        assert beside.drain() is not None, pipeline.lines
        return real_repair(*arguments)

    def change_behind_the_view(name: str, writer: int | None = None) -> None:
        if name == "incremental.stretch_read":
            execute(
                root,
                f"INSERT INTO `{database}`.orders VALUES (4, 'later', 0, NULL)",
                f"UPDATE `{database}`.orders SET name = 'later' WHERE id = 11",
                f"DELETE FROM `{database}`.orders WHERE id = 101",
            )
        real_point(name, writer)

    monkeypatch.setattr(repair_window, "run_repair", other_run_first)
    monkeypatch.setattr(faults, "fault_point", change_behind_the_view)
    result = pipeline.verify(REPAIR)
    monkeypatch.undo()
    assert verdict(result, "orders").repaired == {MISSING: 2, DIFFERING: 2, GHOST: 2}, pipeline.lines
    assert sorted((op or "", key["id"]) for op, key, _ in repair_records(pipeline, "orders")) == [
        ("", 4), ("d", 4), ("r", 3), ("r", 10), ("r", 11), ("r", 100), ("r", 101),
    ]  # fmt: skip
    pipeline.drain()
    told: dict[int, list[str | None]] = {}
    for record in pipeline.records("orders"):
        value = payload(record.value)
        told.setdefault(payload(record.key)["id"], []).append(None if value is None else value["op"])
    assert (told[4], told[11], told[101]) == (["r", "d", None, "c"], ["r", "r", "u"], ["r", "d", None])
    assert (told[3], told[10], told[100]) == (["r", "c", "r"], ["r", "u", "r"], ["u", "r"])
    assert pipeline.verify().equal
    same(pipeline, root, database)


# test_settled_keys.py repairs what has schemas, and Avro, on each landing.
@pytest.mark.exhaustive(but="ticdc")
@pytest.mark.parametrize("name", many(["ticdc", "old", "typed"], ["avro", "ticdc", "old", "schemas", "typed"]))
def test_every_format_is_repaired(
    stack: Any, pipeline: Pipeline, root: Any, database: str, registry: Any, name: str
) -> None:
    url = {"key.converter.schema.registry.url": registry, "value.converter.schema.registry.url": registry}
    converter = "io.confluent.connect.avro.AvroConverter"
    pipeline.properties |= {
        "avro": {"key.converter": converter, "value.converter": converter, **url},
        "ticdc": {"value.format": "ticdc-avro", "schema-registry": registry, "enable-tidb-extension": "true"},
        "old": {"event.contract": "1.9"},
        "schemas": {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"},
        "typed": {
            "decimal.handling.mode": "string",
            "time.precision.mode": "connect",
            "binary.handling.mode": "hex",
            "column.mask.hash.SHA-256.with.salt.s": ".*orders[.]name",
            "message.key.columns": f"{database}.orders:at",
            "tombstones.on.delete": "false",
        },
    }[name]
    fill(root, database)
    if name == "ticdc":
        execute(root, f"DROP TABLE `{database}`.log")
    pipeline.snapshot()
    damage_orders(root, database)
    result = pipeline.verify(REPAIR)
    assert verdict(result, "orders").repaired == {MISSING: 2, DIFFERING: 2, GHOST: 2}, (result, pipeline.lines)
    repaired = [r for r in pipeline.records("orders") if "cdc-repair" in dict(r.headers)]
    # Each ghost of typed has the record key of a row that is right, which is written behind its delete.
    assert len(repaired) == (6 if name == "ticdc" else 8)
    again = pipeline.verify()
    assert again.equal, again


@pytest.mark.exhaustive
@pytest.mark.spark
def test_a_repair_on_spark_writes_the_same(pipeline: Pipeline, root: Any, database: str, tmp_path: Path) -> None:
    fill(root, database)
    pipeline.snapshot()
    damage_orders(root, database)
    spec = pipeline.verify_spec(REPAIR)
    process = submit(spec, tmp_path)
    assert process.returncode == 0, process.stdout + process.stderr
    result = pipeline.verify_result(spec.run)
    assert verdict(result, "orders").repaired == {MISSING: 2, DIFFERING: 2, GHOST: 2}
    pipeline.properties["repair.max.rows"] = "1"
    damage_orders_again = f"UPDATE `{database}`.orders SET name = 'again' WHERE id IN (1, 2)"
    execute(root, UNLOGGED, damage_orders_again, LOGGED)
    process = submit(pipeline.verify_spec(REPAIR), tmp_path)
    assert process.returncode != 0 and "RepairLimitError" in process.stdout + process.stderr
    assert len(repair_records(pipeline, "orders")) == 8


def test_behind_a_gap_a_snapshot_and_a_repair_make_topics_equal_again(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    fill(root, database)
    pipeline.snapshot()
    execute(
        root,
        f"UPDATE `{database}`.orders SET name = 'in the gap' WHERE id < 3",
        f"DELETE FROM `{database}`.orders WHERE id IN (5, 6)",
    )
    reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to="current")
    assert pipeline.snapshot(again=True).complete
    while pipeline.drain() is not None:
        pass
    result = pipeline.verify(VerifyRequest(tables=(f"{database}.orders",), repair=RepairMode.YES))
    orders = verdict(result, "orders")
    assert orders.findings == orders.repaired == {GHOST: 2}, pipeline.lines
    same(pipeline, root, database)
    assert verdict(pipeline.verify(), "orders").verdict == "equal"


KEYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "dates": ("k DATE", ("'0000-00-00'", "'0071-05-05'", "'2001-01-01'", "'2024-02-29'")),
    "floats": ("k FLOAT", ("0.1", "0.2", "16777216", "-1e-30")),
    "texts": ("k VARCHAR(20) COLLATE utf8mb4_general_ci", ("'a'", "'b '", "'É?'", "'ß'")),
    "long_texts": ("k VARCHAR(2000) CHARACTER SET latin1", tuple(f"REPEAT('{c}', 2000)" for c in "abcd")),
    "times": ("k TIME(6), n INT", ("'-00:00:00.1', 1", "'00:00:00', 1", "'00:00:00', 2", "'12:00:00.000001', 3")),
    "bits": ("k BIT(9), n ENUM('x','','y')", ("1, 1", "256, 1", "256, 3", "257, 2")),
    "sets": ("k SET('a','b'), n BINARY(3)", ("'a', x'780000'", "'a,b', x'000000'", "'', 'xyz'", "'b', 'xyz'")),
}


def test_rows_are_found_by_keys_of_every_kind(pipeline: Pipeline, root: Any, database: str) -> None:
    lax = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"
    execute(root, lax)
    for name, (columns, values) in KEYS.items():
        key = "k, n" if ", n " in columns else "k"
        last = values[-1]
        execute(
            root,
            f"CREATE TABLE `{database}`.{name} ({columns}, v INT, PRIMARY KEY ({key}))",
            *(f"INSERT INTO `{database}`.{name} VALUES ({value}, 1)" for value in values if value != last),
        )
    pipeline.snapshot()
    for name, (columns, values) in KEYS.items():
        pairs = [value.split(", ") for value in values] if ", n " in columns else [[value] for value in values]
        where = [" AND ".join(f"{n} = {v}" for n, v in zip("kn", pair, strict=False)) for pair in pairs]
        if name == "floats":
            where = [f"ABS(k - {value}) < ABS({value}) / 1000" for value in values]
        execute(
            root,
            lax,
            UNLOGGED,
            f"DELETE FROM `{database}`.{name} WHERE {where[0]}",
            f"UPDATE `{database}`.{name} SET v = 2 WHERE {where[1]}",
            f"INSERT INTO `{database}`.{name} VALUES ({values[-1]}, 3)",
            LOGGED,
        )
    result = pipeline.verify(REPAIR)
    for name in KEYS:
        found = verdict(result, name)
        assert found.findings == found.repaired == {MISSING: 1, DIFFERING: 1, GHOST: 1}, (found, pipeline.lines)
    again = pipeline.verify(VerifyRequest(history=True))
    assert again.verdict == "equal", again


@pytest.mark.exhaustive
def test_a_repair_waits_for_another_run_and_gives_way_to_a_later_try(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(root, database)
    pipeline.snapshot()
    damage_orders(root, database)
    settings, prefix = pipeline.cfg.connection_settings(), pipeline.cfg.topic_prefix
    real_repair, real_wait, waits = repair_window.run_repair, owner_wait.wait_as_owner, list[int | None]()

    def beside_another_run(*arguments: Any) -> Any:
        with ExitStack() as other_run:
            other_run.enter_context(run_lock.hold_run_lock(settings, prefix, "other/run/task/-1"))

            def wait(*given: Any) -> None:
                waits.append(len(waits))
                threading.Timer(3.0, other_run.close).start()
                real_wait(*given)

            monkeypatch.setattr(owner_wait, "wait_as_owner", wait)
            return real_repair(*arguments)

    monkeypatch.setattr(repair_window, "run_repair", beside_another_run)
    result = pipeline.verify(REPAIR)
    assert verdict(result, "orders").repaired == {MISSING: 2, DIFFERING: 2, GHOST: 2}
    assert len(waits) == 1 and any("a repair waits for another run" in line for line in pipeline.lines)
    with run_lock.hold_run_lock(settings, prefix, pipeline.owner):
        started = time.monotonic()
        with pytest.raises(RunInProgressError, match="another driver of this run"):
            real_wait(settings, prefix, pipeline.owner, 60.0)
        assert time.monotonic() - started < 30
    waiting = ThreadPoolExecutor(1).submit(real_wait, settings, prefix, pipeline.owner, 3.0)
    time.sleep(1)
    with run_lock.hold_run_lock(settings, prefix, pipeline.owner), pytest.raises(RunInProgressError):
        waiting.result()
