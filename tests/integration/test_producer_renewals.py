"""A writer that meets very many tables replaces its Kafka client on the way: each row comes once all the same."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from kit.records import duplicates
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit import ledger_cache as ledger_values
from airflow_provider_mysql_cdc.cdc.drain import batch_run as one_batch
from airflow_provider_mysql_cdc.cdc.drain import batch_writers, writer_context
from airflow_provider_mysql_cdc.cdc.drain import committer as client_turn
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.sink import clients as pace
from airflow_provider_mysql_cdc.cdc.sink import producer_client

TABLES = 12


@pytest.fixture
def pipeline(properties: dict[str, str], root: Any, database: str, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    monkeypatch.setattr(client_turn, "RENEWAL_TABLES", 3)
    made = Pipeline(properties | {"cdc.id.header": "true"}, slots=1)
    execute(root, f"CREATE TABLE `{database}`.first (id INT PRIMARY KEY)")
    made.snapshot()
    for n in range(TABLES):
        execute(root, f"CREATE TABLE `{database}`.t{n} (id INT PRIMARY KEY)")
        # The clock and the number of tables are looked at once in 64 events.
        for row in range(20):
            execute(root, f"INSERT INTO `{database}`.t{n} VALUES ({row})")
    return made


def require_each_once(pipeline: Pipeline) -> None:
    for n in range(TABLES):
        records = pipeline.records(f"t{n}")
        assert len(records) == 20
        assert duplicates(records) == []


def test_each_row_comes_once_with_every_client(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[int] = []
    join, read_on, again = one_batch.join_plan, ledger_values._with_newer, list[bool]()

    def counted(book: Any, plan: Any, sink: Any, index: int) -> Any:
        joined.append(index)
        again.clear()
        found = join(book, plan, sink, index)
        # Only the first reads the whole ledger, and it reads on from what it has peeked at.
        assert again == [True] * (1 if len(joined) == 1 else 2)
        return found

    def told(kept: Any, last: Any, read: Any) -> Any:
        found = read_on(kept, last, read)
        again.append(found is not None)
        return found

    for module in (writer_context, one_batch):
        monkeypatch.setattr(module, "join_plan", counted)
    monkeypatch.setattr(ledger_values, "_with_newer", told)
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    assert len(joined) >= 4
    assert sum(n for topic, n in outcome.counts.items() if ".t" in topic) == 20 * TABLES
    require_each_once(pipeline)


@pytest.fixture
def lingers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how long the clients wait that are made for writer 0."""
    found: list[int] = []
    make = producer_client.make_producer

    def noted(settings: Any, *more: Any) -> Any:
        if settings["transactional.id"].endswith(".0"):
            found.append(settings["linger.ms"])
        return make(settings, *more)

    monkeypatch.setattr(producer_client, "make_producer", noted)
    return found


def test_each_row_comes_once_where_the_client_waits_longer_on_the_way(
    properties: dict[str, str], root: Any, database: str, monkeypatch: pytest.MonkeyPatch, lingers: list[int]
) -> None:
    """All records go to one partition, as the first transaction tells; the schema history beside it does not count."""
    monkeypatch.setattr(pace, "_SIGNIFICANT_BYTES", 2000)
    made = Pipeline(properties | {"cdc.id.header": "true", "commit.bytes": "4000", "drain.writers": "1"}, slots=1)
    execute(root, f"CREATE TABLE `{database}`.t0 (id INT PRIMARY KEY)")
    made.snapshot()
    for row in range(300):
        execute(root, f"INSERT INTO `{database}`.t0 VALUES ({row})")
    lingers.clear()
    outcome = made.drain()
    assert outcome is not None and outcome.complete
    records = made.records("t0")
    assert len(records) == 300 and duplicates(records) == []
    assert (
        lingers[-2:] == [pace.SHARED_LINGER_MS, pace.SINGLE_PARTITION_LINGER_MS]
        and lingers.count(pace.SINGLE_PARTITION_LINGER_MS) == 1
    )


@pytest.mark.parametrize(
    ("partitions", "linger"), [("1", pace.SINGLE_PARTITION_LINGER_MS), ("3", pace.SHARED_LINGER_MS)]
)
@pytest.mark.exhaustive(but="3-10")
def test_a_snapshots_client_waits_long_where_chunks_go_to_one_partition(
    properties: dict[str, str], root: Any, database: str, lingers: list[int], partitions: str, linger: int
) -> None:
    made = Pipeline(properties | {"topic.creation.default.partitions": partitions}, slots=1)
    execute(root, f"CREATE TABLE `{database}`.t0 (id INT PRIMARY KEY)")
    execute(root, f"INSERT INTO `{database}`.t0 VALUES (1), (2), (3)")
    made.snapshot()
    assert len(made.records("t0")) == 3
    assert lingers[-1] == linger


def test_a_second_copy_of_a_writer_that_has_committed_is_not_repeated(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark takes an executor for lost and starts its task again; the first copy lives, and replaces its client."""
    joins: list[int] = []
    join, write, write_next = one_batch.join_plan, one_batch.write_batch, one_batch.write_next_batch
    given: list[Any] = []

    def both(writer: Any, plan: Any, inputs: Any) -> Any:
        given[:] = [writer.cfg, writer.index, writer.channel, plan, inputs]
        return write_next(writer, plan, inputs)

    def second_copy_first(book: Any, plan: Any, sink: Any, index: int) -> Any:
        joins.append(index)
        if len(joins) == 2:
            monkeypatch.setattr(client_turn, "RENEWAL_TABLES", 1000)
            cfg, _, channel, planned, inputs = given
            with contextlib.closing(kafka_clients.record_writer(cfg, index)) as other:
                write(cfg, index, other, channel, planned, inputs)
        return join(book, plan, sink, index)

    monkeypatch.setattr(batch_writers, "write_next_batch", both)
    for module in (writer_context, one_batch):
        monkeypatch.setattr(module, "join_plan", second_copy_first)
    with pytest.raises(CdcError, match="another copy of this writer"):
        pipeline.drain()
    for module in (writer_context, one_batch):
        monkeypatch.setattr(module, "join_plan", join)
    pipeline.settle()
    require_each_once(pipeline)
    if (outcome := pipeline.drain()) is not None:
        assert outcome.complete
    require_each_once(pipeline)
