"""After the offset was moved by hand the structures are those of the new place, or the move is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kit.private_mysql import Pool, PrivateServer
from kit.records import payload
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline
from pipelinelib.topics import delete_topics

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset

FLAT = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
RESET = "RESET BINARY LOGS AND GTIDS"


@pytest.fixture
def pipeline(properties: dict[str, str], root: Any, database: str) -> Pipeline:
    made = Pipeline(properties | FLAT)
    assert rows(root, "SELECT @@GLOBAL.binlog_row_metadata")[0][0] == "MINIMAL"
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, a INT, b INT)")
    made.snapshot()
    return made


def swap(conn: Any, db: str) -> None:
    """Swap two names: without names in the binlog nothing but the history tells which column is which."""
    execute(conn, f"ALTER TABLE `{db}`.t RENAME COLUMN a TO b, RENAME COLUMN b TO a")


def insert(conn: Any, db: str, *ids: int) -> None:
    execute(conn, *(f"INSERT INTO `{db}`.t (id, a, b) VALUES ({i}, {i * 10}, {i * 100})" for i in ids))


def reset(pipeline: Pipeline, to: str) -> BinlogOffset:
    return reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to=to)


def right(*ids: int) -> list[dict[str, int]]:
    return [{"id": i, "a": i * 10, "b": i * 100} for i in ids]


def afters(pipeline: Pipeline) -> list[dict[str, int]]:
    return [payload(r.value)["after"] for r in pipeline.records("t")]


def place(conn: Any) -> str:
    file, pos = rows(conn, "SHOW BINARY LOG STATUS")[0][:2]
    return f"{file}:{pos}"


def test_current_after_swapped_names(pipeline: Pipeline, root: Any, database: str) -> None:
    swap(root, database)
    reset(pipeline, "current")
    insert(root, database, 1)
    pipeline.drain()
    swap(root, database)
    insert(root, database, 2)
    pipeline.drain()
    insert(root, database, 3)
    pipeline.drain()
    assert afters(pipeline) == right(1, 2, 3)


def test_a_later_position_after_swapped_names(pipeline: Pipeline, root: Any, database: str) -> None:
    swap(root, database)
    later = place(root)
    insert(root, database, 1)
    reset(pipeline, later)
    pipeline.drain()
    assert afters(pipeline) == right(1)


def test_a_later_place_before_another_change_is_refused(pipeline: Pipeline, root: Any, database: str) -> None:
    swap(root, database)
    later = place(root)
    insert(root, database, 1)
    swap(root, database)
    before = pipeline.store.load()
    with pytest.raises(SchemaError, match="RENAME COLUMN") as caught:
        reset(pipeline, later)
    assert "current" in caught.value.remedy and not caught.value.can_retry
    assert pipeline.store.load() == before
    insert(root, database, 2)
    pipeline.drain()
    assert afters(pipeline) == right(1, 2)


def test_an_earlier_place_that_the_history_covers(pipeline: Pipeline, root: Any, database: str) -> None:
    insert(root, database, 1)
    early = place(root)
    insert(root, database, 2)
    swap(root, database)
    insert(root, database, 3)
    pipeline.drain()
    reset(pipeline, early)
    pipeline.drain()
    insert(root, database, 4)
    pipeline.drain()
    assert afters(pipeline) == right(1, 2, 3, 2, 3, 4)


def test_back_over_what_was_skipped(pipeline: Pipeline, root: Any, database: str) -> None:
    """The history says nothing about the statements between: they are found in the binlog, and the move is refused."""
    pipeline.drain()
    insert(root, database, 1)
    skipped = place(root)
    reset(pipeline, "current")
    insert(root, database, 2)
    reset(pipeline, skipped)
    pipeline.drain()
    assert afters(pipeline) == right(2)
    before_swap = place(root)
    swap(root, database)
    after_swap = place(root)
    insert(root, database, 3)
    reset(pipeline, "current")
    with pytest.raises(SchemaError, match="RENAME COLUMN"):
        reset(pipeline, before_swap)
    reset(pipeline, after_swap)
    pipeline.drain()
    assert afters(pipeline) == right(2, 3)


@pytest.mark.exhaustive
def test_a_place_before_the_history_begins(pipeline: Pipeline, root: Any, database: str) -> None:
    before = place(root)
    insert(root, database, 1)
    pipeline.drain()
    pipeline.snapshot(again=True)
    reset(pipeline, before)
    pipeline.drain()
    assert afters(pipeline)[-1:] == right(1)
    with pytest.raises(SchemaError, match="CREATE TABLE"):
        reset(pipeline, "earliest")


def test_truncate_changes_no_structure(pipeline: Pipeline, root: Any, database: str) -> None:
    reset(pipeline, "current")
    later = place(root)
    execute(root, f"TRUNCATE TABLE `{database}`.t")
    insert(root, database, 1)
    reset(pipeline, "current")
    reset(pipeline, later)
    pipeline.drain()
    assert afters(pipeline) == right(1)


def test_current_repairs_a_lost_history(pipeline: Pipeline, root: Any, database: str) -> None:
    delete_topics(pipeline.cfg.kafka_settings(), pipeline.cfg.history_topic)
    swap(root, database)
    with pytest.raises(SchemaError):
        pipeline.drain()
    reset(pipeline, "current")
    insert(root, database, 1)
    pipeline.drain()
    assert afters(pipeline) == right(1)


def test_a_death_between_structures_and_plan_changes_nothing(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream goes on before the place that was to be reached, with the structures of where it is."""
    insert(root, database, 1)
    swap(root, database)
    insert(root, database, 2)

    def die(*_: Any, **__: Any) -> None:
        raise faults.FaultRaised("died")

    with monkeypatch.context() as patch:
        patch.setattr("airflow_provider_mysql_cdc.cdc.operate.reset_offset.reset_plan", die)
        with pytest.raises(faults.FaultRaised):
            reset(pipeline, "current")
    insert(root, database, 3)
    pipeline.drain()
    swap(root, database)
    insert(root, database, 4)
    pipeline.drain()
    insert(root, database, 5)
    pipeline.drain()
    assert afters(pipeline) == right(1, 2, 3, 4, 5)


@pytest.fixture(scope="module")
def server(pool: Pool) -> Iterator[PrivateServer]:
    with pool.lent() as made:
        yield made


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", ["snapshot", "reset"])
def test_the_same_statement_at_the_same_place_of_another_binlog_counts(
    way: str, properties: dict[str, str], server: PrivateServer, database: str
) -> None:
    pipeline = Pipeline(properties | server.properties() | FLAT)
    with server.connect() as conn:
        seen = []
        for first in (1, 10):
            execute(conn, "SET sql_log_bin = 0", f"DROP DATABASE IF EXISTS `{database}`", "SET sql_log_bin = 1", RESET)
            execute(
                conn,
                f"CREATE DATABASE `{database}` CHARACTER SET utf8mb4",
                f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, a INT, b INT)",
            )
            if first == 1 or way == "snapshot":
                pipeline.snapshot(again=first > 1)
            else:
                reset(pipeline, "current")
            seen.append(place(conn))
            swap(conn, database)
            for i in range(first, first + 3):
                insert(conn, database, i)
                pipeline.drain()
    assert seen[0] == seen[1]
    assert afters(pipeline) == right(1, 2, 3, 10, 11, 12)
