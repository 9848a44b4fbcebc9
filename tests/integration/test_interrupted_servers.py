"""Interrupted snapshots on servers of their own: without GTIDs, without a lock, and after a reset of the binlog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.incremental_rig import unfinished_request
from kit.private_mysql import Pool, PrivateServer
from kit.records import compacted, payload
from kit.sql import execute, rows
from kit.table_rig import FLAT, changes, filled, interrupt
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset


@pytest.fixture(scope="module")
def server(pool: Pool) -> Iterator[PrivateServer]:
    with pool.lent(gtid_mode="OFF", enforce_gtid_consistency="OFF") as made:
        yield made


@pytest.fixture
def source(server: PrivateServer, database: str) -> Iterator[Any]:
    with server.connect() as conn:
        execute(conn, f"CREATE DATABASE `{database}`", f"USE `{database}`", *filled(database, "aa", "bb"))
        yield conn
        execute(conn, f"DROP DATABASE `{database}`")


@pytest.fixture
def pipeline(properties: dict[str, str], server: PrivateServer) -> Pipeline:
    return Pipeline(properties | server.properties() | FLAT)


def require_equal(pipeline: Pipeline, source: Any, *tables: str) -> None:
    for table in tables:
        found = {v["id"]: v["v"] for v in compacted(pipeline.records(table)).values()}
        assert found == dict(rows(source, f"SELECT id, v FROM {table}")), table


@pytest.mark.req("SNAP-14")
def test_without_gtids_and_signal_table_the_lock_gives_the_watermark(
    pipeline: Pipeline, source: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    interrupt(pipeline, monkeypatch, tmp_path / "fired")
    execute(source, *changes("aa"), *changes("bb"))
    assert pipeline.snapshot().complete
    assert unfinished_request(pipeline.cfg) is None, pipeline.lines
    execute(source, *changes("aa"), *changes("bb"))
    pipeline.drain()
    require_equal(pipeline, source, "aa", "bb")
    ops = [payload(r.value)["op"] for r in pipeline.records("bb") if r.value]
    assert "u" in ops[: ops.index("r")], "the stream began at the first view, before bb was read"


def test_without_any_watermark_the_snapshot_begins_again(
    pipeline: Pipeline, source: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipeline.properties["snapshot.locking.mode"] = "none"
    interrupt(pipeline, monkeypatch, tmp_path / "fired")
    execute(source, *changes("aa"), *changes("bb"))
    assert pipeline.snapshot().complete
    assert any("begins again: snapshot.locking.mode=none" in line for line in pipeline.lines), pipeline.lines
    pipeline.drain()
    assert {payload(r.value)["op"] for r in pipeline.records("bb") if r.value} == {"r"}
    require_equal(pipeline, source, "bb")


def test_a_snapshot_is_not_finished_from_another_binlog(
    pipeline: Pipeline, source: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    interrupt(pipeline, monkeypatch, tmp_path / "fired")
    execute(source, "RESET BINARY LOGS AND GTIDS", "UPDATE bb SET v = 1")
    in_force = kafka_clients.ledger(pipeline.cfg).peek().plan_in_force().attempt
    with pytest.raises(BinlogPurgedError, match="cannot be finished"):
        pipeline.snapshot()
    attempt = kafka_clients.ledger(pipeline.cfg).peek().plan_in_force().attempt
    assert attempt == in_force, "the attempt at work elsewhere was fenced"
    reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to="current")
    assert pipeline.snapshot(again=True).complete
    require_equal(pipeline, source, "aa", "bb")
