"""A repair settles the past of a key: what is reported of any kind is repaired, and verifies clean with its history."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql
import pytest
from kit.avro_rig import avro
from kit.repairs import fill, verdict
from kit.sql import execute, rows
from kit.topic_damage import TopicDamage, damage_every_kind
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.verify.verify_request import RepairMode, VerifyRequest
from airflow_provider_mysql_cdc.cdc.verify.verify_result import DifferenceKind as Kind

HISTORY = VerifyRequest(history=True)
REPAIR = VerifyRequest(history=True, repair=RepairMode.YES)
EVERY_KIND = {
    Kind.MISSING: 1, Kind.GHOST: 1, Kind.DIFFERING: 1, Kind.UNREADABLE: 3, Kind.WRONG_PARTITION: 1, Kind.DUPLICATE: 1,
    Kind.REORDERED: 1, Kind.GAP: 1, Kind.NO_TOMBSTONE: 1,
}  # fmt: skip
PROPERTIES = {
    "topic.creation.default.partitions": "3",
    "snapshot.lock.timeout.ms": "240000",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
}
FORMATS: dict[str, dict[str, str]] = {
    "json": {},
    "json with ids": {"cdc.id.header": "true"},
    "json with schemas": {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"},
    "json 1.9": {"event.contract": "1.9"},
    "avro": {},
}


@contextmanager
def writer(stack: Any, database: str) -> Iterator[None]:
    """Change rows 20 to 29 all the time."""
    conn = pymysql.connect(
        host=stack.mysql_host, port=stack.mysql_port, user=stack.root_user, password=stack.root_password,
        autocommit=True, ssl_disabled=True,
    )  # fmt: skip
    ended = threading.Event()

    def write() -> None:
        for number in itertools.count():
            if ended.wait(0.01):
                return
            execute(
                conn,
                f"UPDATE `{database}`.orders SET name = 'w{number}' WHERE id = {20 + number % 10}",
                f"INSERT INTO `{database}`.orders VALUES ({1000 + number}, 'new', 1, NULL)",
                f"DELETE FROM `{database}`.orders WHERE id = {1000 + number - 5}",
            )

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(60)
        conn.close()


@pytest.mark.parametrize("name", FORMATS)
def test_every_kind_of_damage_is_repaired_exactly_while_rows_change(
    stack: Any, pipeline: Pipeline, root: Any, database: str, registry: str, name: str
) -> None:
    pipeline.properties |= FORMATS[name] | (avro(registry) if name == "avro" else {})
    fill(root, database)
    pipeline.snapshot()
    execute(
        root,
        f"UPDATE `{database}`.orders SET name = 'u' WHERE id IN (1, 2)",
        f"DELETE FROM `{database}`.orders WHERE id = 4",
    )
    pipeline.drain()
    damage = TopicDamage(pipeline, "orders", registry if name == "avro" else None)
    damage_every_kind(damage)
    ghost = damage.last(3)

    def rename(row: dict[str, Any]) -> None:
        row["id"] = 999

    def become_ghost(event: dict[str, Any]) -> None:
        event["op"], event["before"] = "c", None
        rename(event["after"])

    damage.produce((damage.edited(ghost, rename, key=True), damage.edited(ghost, become_ghost), 2))
    with writer(stack, database):
        found = verdict(pipeline.verify(HISTORY), "orders")
        assert found.findings == EVERY_KIND, found
        assert {tuple(e.key.values()) for e in found.examples} == {
            (8,), (999,), (9,), (6,), (7,), (5,), (1,), (2,), (3,), (4,), (),
        }, found.examples  # fmt: skip
        dry = verdict(pipeline.verify(VerifyRequest(history=True, repair=RepairMode.DRY_RUN)), "orders")
        assert dry.findings == EVERY_KIND and not repair_records_of(pipeline)
        (said,) = dry.unknown
        assert all(f"{n} {kind}" in said for kind, n in EVERY_KIND.items()), said
        result = verdict(pipeline.verify(REPAIR), "orders")
        assert result.findings == result.repaired == EVERY_KIND, (result, pipeline.lines)
        assert pipeline.verify(HISTORY).clean
    final = pipeline.verify(HISTORY)
    assert final.clean, final
    told = damage.compacted_rows(("id", "name"))
    assert told == sorted(rows(root, f"SELECT id, name FROM `{database}`.orders"), key=repr)


def repair_records_of(pipeline: Pipeline) -> list[Any]:
    return [record for record in pipeline.records("orders") if "cdc-repair" in dict(record.headers)]
