"""Damage that a repair mends, and what it has written."""

from __future__ import annotations

from typing import Any

from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.verify.repair.repair_task import RepairRecord, read_repairs
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import (
    RepairMode,
    TableVerdict,
    VerifyRequest,
    VerifyResult,
)
from kit.records import payload
from kit.sql import execute

REPAIR = VerifyRequest(repair=RepairMode.YES)
UNLOGGED = "SET sql_log_bin = 0"
LOGGED = "SET sql_log_bin = 1"


def fill(root: Any, db: str) -> None:
    """Create a table with a key, and one without."""
    execute(
        root,
        f"CREATE TABLE `{db}`.orders (id INT PRIMARY KEY, name VARCHAR(30), price DECIMAL(10,2), at DATETIME(3))",
        f"INSERT INTO `{db}`.orders VALUES "
        + ",".join(f"({i}, 'n{i}', {i}.5, '2020-01-01 00:00:0{i % 10}.123')" for i in range(30)),
        f"CREATE TABLE `{db}`.log (line VARCHAR(20), n INT)",
        f"INSERT INTO `{db}`.log VALUES ('a', 1), ('a', 1), ('b', 2), (NULL, 3)",
    )


def damage(root: Any, db: str) -> None:
    """Change rows of both tables without events: of the one without a key one ghost and two missing rows."""
    damage_orders(root, db)
    execute(
        root,
        UNLOGGED,
        f"INSERT INTO `{db}`.log VALUES ('b', 2), (NULL, 9)",
        f"DELETE FROM `{db}`.log WHERE line = 'a' LIMIT 1",
        LOGGED,
    )


def damage_orders(root: Any, db: str) -> None:
    """Change rows of the table with a key without events: two ghosts, two missing rows, two that differ."""
    execute(
        root,
        UNLOGGED,
        f"DELETE FROM `{db}`.orders WHERE id IN (3, 4)",
        f"INSERT INTO `{db}`.orders VALUES (100, 'Zoë', 1, '2024-02-29 12:34:56.789'), (101, NULL, NULL, NULL)",
        f"UPDATE `{db}`.orders SET name = 'unlogged' WHERE id IN (10, 11)",
        LOGGED,
    )


def verdict(result: VerifyResult, table: str) -> TableVerdict:
    """Return the verdict about a table."""
    (found,) = [v for v in result.tables if v.table.endswith("." + table)]
    return found


def repairs(pipeline: Pipeline) -> list[RepairRecord]:
    """Return the ledger's records of repairs."""
    with kafka_clients.ledger(pipeline.cfg) as ledger:
        state = ledger.read()
    assert state is not None
    return read_repairs(state)


def repair_records(pipeline: Pipeline, table: str) -> list[Any]:
    """Return op, key and the row of records with the header of a repair."""
    found = []
    for record in pipeline.records(table):
        if "cdc-repair" in dict(record.headers):
            value = payload(record.value)
            row = None if value is None else value["after"] or value["before"]
            found.append((None if value is None else value["op"], payload(record.key), row))
    return found
