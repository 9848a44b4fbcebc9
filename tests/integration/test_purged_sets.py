"""GTID sets on servers that have executed transactions which are in no binlog file: dumps, clones, own gtid_purged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from kit.failover_rig import carry_out, committed, insert, refused
from kit.private_mysql import PrivateServer, reset_binlog
from kit.records import payload
from kit.replication import Pair
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError, CdcError, ConfigError
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset

FLAT = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
DUMPED = "aaaaaaaa-0000-0000-0000-000000000001:1-50:70-80"
"""What mysqldump sets on the server that it is loaded into: with a gap, and in no file."""


@pytest.fixture
def source(pool: Any) -> Iterator[tuple[PrivateServer, Any]]:
    with pool.lent() as server, server.connect() as conn:
        yield server, conn


def executed(conn: Any) -> str:
    return str(rows(conn, "SELECT REPLACE(@@GLOBAL.gtid_executed, '\n', '')")[0][0])


def reset(pipeline: Pipeline, to: str) -> BinlogOffset:
    return reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to=to)


def ids(pipeline: Pipeline) -> list[int]:
    return [payload(r.value)["after"]["id"] for r in pipeline.records("t")]


def advised(error: CdcError) -> list[str]:
    """Return the offsets that an error advises."""
    return [offset.rstrip(",;") for offset in re.findall(r"offset=(\S+)", error.remedy)]


def test_a_set_is_a_position_where_transactions_are_in_no_file(
    source: tuple[PrivateServer, Any], properties: dict[str, str], database: str
) -> None:
    server, conn = source
    reset_binlog(conn)
    execute(
        conn,
        f"SET GLOBAL gtid_purged = '{DUMPED}'",
        f"CREATE DATABASE `{database}`",
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v VARCHAR(20))",
    )
    pipeline = Pipeline(properties | server.properties() | FLAT)
    pipeline.snapshot()
    insert(conn, database, 1)
    first, place = executed(conn), ":".join(map(str, rows(conn, "SHOW BINARY LOG STATUS")[0][:2]))
    execute(conn, "FLUSH BINARY LOGS")
    insert(conn, database, 2)
    second = executed(conn)
    insert(conn, database, 3)
    pipeline.drain()
    assert ids(pipeline) == [1, 2, 3]
    assert reset(pipeline, first).gtids == first
    pipeline.drain()
    assert ids(pipeline) == [1, 2, 3, 2, 3]
    assert reset(pipeline, place).gtids == first, "a set by which other servers find the place"

    lacking = GtidSet.parse(second).subtract(GtidSet.parse(DUMPED))
    with pytest.raises(BinlogPurgedError, match="no longer holds") as purged:
        reset(pipeline, str(lacking))
    assert DUMPED in purged.value.why
    assert reset(pipeline, advised(purged.value)[0]).gtids == second
    pipeline.drain()
    assert ids(pipeline)[5:] == [3]

    gap = GtidSet.parse(executed(conn)).subtract(GtidSet.parse(second).subtract(GtidSet.parse(first)))
    with pytest.raises(ConfigError, match="has a gap") as refusal:
        reset(pipeline, str(gap))
    without, everything = advised(refusal.value)
    reset(pipeline, everything)
    pipeline.drain()
    assert ids(pipeline)[6:] == [2, 3]
    assert reset(pipeline, without).gtids == executed(conn)
    insert(conn, database, 4)
    pipeline.drain()
    assert ids(pipeline)[8:] == [4]


def test_a_server_that_lacks_transactions_and_has_some_in_no_file_is_taken_as_the_refusal_advises(
    servers: Pair, properties: dict[str, str], database: str
) -> None:
    pair = servers.begin(
        f"CREATE DATABASE `{database}`",
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v VARCHAR(20))",
        f"INSERT INTO `{database}`.t VALUES (1, 'a')",
    )
    pipeline = Pipeline(properties | pair.primary.server.properties() | FLAT)
    pipeline.snapshot()
    pair.replica.detach()
    insert(pair.primary.root, database, 2)
    pipeline.drain()
    pair.replica.promote()
    execute(pair.replica.root, f"SET GLOBAL gtid_purged = '+{DUMPED}'")
    insert(pair.replica.root, database, 3)
    pipeline.properties.update(pair.replica.server.properties())
    error = refused(pipeline)
    assert "gtid_executed lacks" in error.why and DUMPED in error.why
    carry_out(error, pipeline)
    insert(pair.replica.root, database, 4)
    pipeline.drain()
    assert committed(pipeline).server_uuid == pair.replica.uuid and pipeline.verify().equal
