"""The primary is killed while the stream drains it, and prepared XA transactions are decided on another server."""

from __future__ import annotations

import contextlib
import threading

import pytest
from kit.failover_rig import assert_exact, follow, insert
from kit.records import payload
from kit.replication import Pair
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import CdcError

FLAT = {
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "drain.writers": "2",
    "drain.small.batch.bytes": "0",
    "commit.bytes": "20000",
    "topic.creation.default.partitions": "4",
    "connect.max.attempts": "2",
}
ROUNDS = 3


@pytest.fixture
def pipeline(servers: Pair, properties: dict[str, str], database: str) -> Pipeline:
    """Return a stream of a primary with a replica."""
    servers.begin(
        f"CREATE DATABASE `{database}` CHARACTER SET utf8mb4",
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v VARCHAR(200))",
    )
    made = Pipeline(properties | servers.primary.server.properties() | FLAT)
    made.snapshot()
    return made


@pytest.mark.exhaustive
def test_the_primary_is_killed_three_times_while_it_is_drained(
    pipeline: Pipeline, servers: Pair, database: str
) -> None:
    pair = servers
    for round_ in range(ROUNDS):
        first = 10_000 * (round_ + 1)
        for n in range(30):
            values = ",".join(f"({first + 100 * n + i}, '{'x' * 150}')" for i in range(40))
            execute(
                pair.primary.root,
                f"INSERT INTO `{database}`.t (id, v) VALUES {values}",
                f"UPDATE `{database}`.t SET v = 'changed {round_}' WHERE id % 7 = {n % 7}",
                f"DELETE FROM `{database}`.t WHERE id = {first + 100 * n}",
            )
        pair.catch_up()

        def drain() -> None:
            with contextlib.suppress(CdcError):
                pipeline.drain()

        draining = threading.Thread(target=drain)
        draining.start()
        draining.join(0.4 * round_)
        old, new = pair.primary, pair.replica
        server_id = str(11 if old.server.folder.name.endswith("0") else 12)
        old.crash()
        draining.join(120)
        assert not draining.is_alive()
        new.promote()
        pair.primary, pair.replica = new, old
        insert(new.root, database, first + 9000)
        follow(pipeline, pair)
        pipeline.drain()
        old.restart(server_id=server_id)
        old.follow(new)
    pipeline.drain()
    assert_exact(pipeline, pair.primary.root, database)
    assert pipeline.verify().equal


def test_an_xa_transaction_that_was_prepared_on_the_former_server_comes_with_its_commit(
    pipeline: Pipeline, servers: Pair, database: str
) -> None:
    pair = servers
    with pair.primary.server.connect() as session:
        execute(
            session,
            f"USE `{database}`",
            "XA START 'kept'",
            "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
            "XA END 'kept'",
            "XA PREPARE 'kept'",
        )
    insert(pair.primary.root, database, 5)
    pipeline.drain()
    pair.switch()
    execute(pair.primary.root, "XA COMMIT 'kept'")
    insert(pair.primary.root, database, 6)
    follow(pipeline, pair)
    pipeline.drain()
    assert sorted(payload(r.value)["after"]["id"] for r in pipeline.records("t")) == [1, 2, 5, 6]
    assert any("searching the binlog" in line for line in pipeline.lines)
