"""A pair of MySQL 8.0.15 whose primary is killed, there and back, with statements between offset and promotion."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit.failover_rig import assert_exact, committed, follow, insert
from kit.private_mysql import Pool
from kit.replication import Pair, lent_pair
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline
from test_ticdc_timestamps import FLAT, TABLE, bulk, changed, require_timestamps

JSON = {
    "cdc.id.header": "true",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
}


@pytest.fixture(scope="module")
def old_pair(pool: Pool) -> Iterator[Pair]:
    with lent_pair(pool, "8.0.15") as made:
        yield made


def kill_primary(pair: Pair) -> None:
    """Kill the primary once its replica has everything, promote that one, and let the other follow it."""
    pair.catch_up()
    own_id = str(rows(pair.primary.root, "SELECT @@server_id")[0][0])
    old, new = pair.primary, pair.replica
    old.crash()
    new.promote()
    old.restart(server_id=own_id)
    old.follow(new)
    pair.primary, pair.replica = new, old


@pytest.mark.exhaustive
def test_the_primary_is_killed_there_and_back_with_statements_between(
    old_pair: Pair, properties: dict[str, str], registry: str, database: str
) -> None:
    """Both in JSON and in TiCDC's protocol, whose timestamps are those of the first commit on either server."""
    pair = old_pair.begin(f"CREATE DATABASE `{database}` CHARACTER SET utf8mb4", TABLE.format(database))
    source = pair.primary.server.properties()
    json_stream = Pipeline(properties | source | JSON)
    ticdc = {"topic.prefix": properties["topic.prefix"] + "_ticdc", "schema-registry": registry}
    streams = json_stream, Pipeline(properties | source | FLAT | ticdc)
    for pipeline in streams:
        pipeline.snapshot()
    insert(pair.primary.root, database, 1, 2)
    for pipeline in streams:
        pipeline.drain()
    for number in (1, 2):
        first = 1000 * number
        execute(
            pair.primary.root,
            bulk(database, first),
            f"ALTER TABLE `{database}`.t ADD COLUMN before_{number} INT DEFAULT {number}",
            changed(database, first),
        )
        kill_primary(pair)
        execute(
            pair.primary.root,
            f"ALTER TABLE `{database}`.t ADD COLUMN behind_{number} INT DEFAULT {number}",
            changed(database, first),
        )
        insert(pair.primary.root, database, first + 900)
        for pipeline in streams:
            follow(pipeline, pair)
            pipeline.drain()
            assert committed(pipeline).server_uuid == pair.primary.uuid
            assert sum("goes on at server" in line for line in pipeline.lines) == number
    assert_exact(json_stream, pair.primary.root, database)
    assert len(require_timestamps(streams[1], registry, database)) == 2 + 2 * 4
