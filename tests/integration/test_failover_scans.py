"""Scans that began on one server are read on another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit import incremental_rig, table_rig
from kit.failover_rig import follow
from kit.incremental_rig import ask_for, books, unfinished_request
from kit.records import compacted
from kit.replication import Pair
from kit.sql import execute, rows
from kit.table_rig import changes, filled, interrupt
from kit.tcp_proxy import TcpProxy
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.errors import ServerChangedError
from airflow_provider_mysql_cdc.cdc.faults import FaultRaised


@pytest.fixture
def pair(servers: Pair, database: str) -> Pair:
    """Return a primary with two filled tables, and its replica."""
    return servers.begin(
        f"CREATE DATABASE `{database}` CHARACTER SET utf8mb4",
        *filled(database, "aa", "bb", count=50),
    )


def require_equal(pipeline: Pipeline, pair: Pair, database: str, *tables: str) -> None:
    for table in tables:
        have = {r["id"]: r["v"] for r in compacted(pipeline.records(table)).values() if r is not None and "id" in r}
        assert have == dict(rows(pair.primary.root, f"SELECT id, v FROM `{database}`.{table}")), table


@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.exhaustive(but="True")
def test_a_snapshot_that_was_interrupted_is_finished_on_another_server(
    pair: Pair,
    properties: dict[str, str],
    database: str,
    renamed: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    pipeline = Pipeline(properties | pair.primary.server.properties() | table_rig.FLAT)
    interrupt(pipeline, monkeypatch, tmp_path / "fired")
    execute(pair.primary.root, f"USE `{database}`", *changes("aa"), *changes("bb"))
    pair.switch()
    execute(pair.primary.root, f"USE `{database}`", *changes("aa"), *changes("bb"))
    if renamed:
        execute(pair.primary.root, "RENAME TABLE bb TO cc", *changes("cc"))
    follow(pipeline, pair)
    for _ in range(5):
        assert pipeline.snapshot().complete
        if unfinished_request(pipeline.cfg) is None:
            break
    assert unfinished_request(pipeline.cfg) is None, pipeline.lines
    execute(pair.primary.root, *changes("aa"))
    pipeline.drain()
    require_equal(pipeline, pair, database, "aa", "cc" if renamed else "bb")
    assert any("goes on at server" in line for line in pipeline.lines)


def test_an_ad_hoc_snapshot_that_is_half_read_begins_again_on_another_server(
    pair: Pair, properties: dict[str, str], database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipeline = Pipeline(
        properties | pair.primary.server.properties() | incremental_rig.FLAT | {"read.only": "true"}, slots=2
    )
    pipeline.snapshot()
    ask_for(pipeline, ["aa"])
    fault = {"point": "incremental.before_commit", "nth": 2, "fired": str(tmp_path / "fired")}
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.faults._passed", {})
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    with pytest.raises(FaultRaised):
        pipeline.drain()
    monkeypatch.delenv("MYSQL_CDC_FAULT")
    assert (tmp_path / "fired").exists() and books(pipeline).active_scans
    execute(pair.primary.root, f"USE `{database}`", *changes("aa"))
    pair.switch()
    execute(pair.primary.root, f"USE `{database}`", *changes("aa"))
    follow(pipeline, pair)
    for _ in range(5):
        pipeline.drain()
        if not books(pipeline).active_scans:
            break
    assert not books(pipeline).active_scans, pipeline.lines
    require_equal(pipeline, pair, database, "aa")
    assert any("begins again: the stream goes on at another server" in line for line in pipeline.lines), pipeline.lines


def test_a_failover_between_the_tables_and_the_view_of_a_snapshot_is_one_to_retry(
    pair: Pair, properties: dict[str, str], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables were read on one server, the view would be opened on the other; the retry reads all there."""
    proxy = TcpProxy("127.0.0.1", pair.primary.server.port)
    mysql = {"database.hostname": "127.0.0.1", "database.port": str(proxy.port)}
    pipeline = Pipeline(properties | pair.primary.server.properties() | mysql | table_rig.FLAT)
    passed: list[str] = []
    reach = faults.fault_point

    def fail_over(point: str, index: int | None = None) -> None:
        reach(point, index)
        if point == "plan.after_store" and point not in passed:
            passed.append(point)
            execute(pair.primary.root, f"USE `{database}`", *changes("aa"))
            pair.switch()
            execute(pair.primary.root, f"USE `{database}`", *changes("bb"))
            proxy.lead_new_to("127.0.0.1", pair.primary.server.port)

    monkeypatch.setattr(faults, "fault_point", fail_over)
    try:
        with pytest.raises(ServerChangedError, match="than the one that is read") as caught:
            pipeline.snapshot()
        assert passed and caught.value.can_retry
        assert pipeline.snapshot().complete
        execute(pair.primary.root, f"USE `{database}`", *changes("aa"))
        pipeline.drain()
        require_equal(pipeline, pair, database, "aa", "bb")
    finally:
        proxy.close()
