"""A server with lower_case_table_names=1: names of tables and databases are stored in its own lower case."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kit.private_mysql import Pool, PrivateServer
from kit.records import payload
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline


@pytest.fixture(scope="module")
def server(pool: Pool) -> Iterator[PrivateServer]:
    with pool.lent(lower_case_table_names="1") as made:
        yield made


@pytest.fixture
def lower(server: PrivateServer) -> Iterator[Any]:
    """Return a root connection to that server."""
    with server.connect() as conn:
        yield conn


@pytest.mark.req("SCH-01")
def test_statements_in_capitals_change_the_table(
    properties: dict[str, str], server: PrivateServer, lower: Any, database: str
) -> None:
    db, capitals = f"{database}_σσ", f"{database}_ΣΣ".upper()
    execute(lower, f"CREATE DATABASE `{capitals}`", f"USE `{db}`")
    execute(
        lower,
        "CREATE TABLE ΠΕΛΑΤΗΣ (id INT PRIMARY KEY, debit INT, credit INT)",
        "CREATE TABLE İX (id INT PRIMARY KEY)",
        "INSERT INTO ΠΕΛΑΤΗΣ VALUES (1, 1, 2)",
    )
    flat = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
    names = {"database.include.list": db, "table.include.list": ".*"}
    pipeline = Pipeline(properties | server.properties() | flat | names)
    assert pipeline.snapshot().complete
    execute(
        lower,
        "ALTER TABLE ΠΕΛΑΤΗΣ RENAME COLUMN debit TO credit, RENAME COLUMN credit TO debit",
        f"ALTER TABLE `{capitals}`.İx ADD v INT",
        "INSERT INTO ΠΕΛΑΤΗΣ (id, debit, credit) VALUES (2, 111, 222)",
        "INSERT INTO ix VALUES (1, 5)",
    )
    assert [name for (name,) in rows(lower, "SHOW TABLES")] == ["ix", "πελατησ"]
    assert pipeline.drain() is not None
    topics = sorted(t for t in pipeline.topics() if t.startswith(f"{pipeline.properties['topic.prefix']}.{database}"))
    last = [payload(pipeline.read(topic)[-1].value)["after"] for topic in topics]
    assert sorted(last, key=len) == [{"id": 1, "v": 5}, {"id": 2, "debit": 111, "credit": 222}]
