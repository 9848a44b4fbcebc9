"""Ad-hoc snapshots on servers without GTIDs and of old versions, and when another server answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.incremental_rig import FLAT, Writer, ask_for, books, check_exact, reads
from kit.private_mysql import Pool, PrivateServer, reset_binlog
from kit.records import compacted
from kit.sql import execute, rows
from kit.table_rig import filled
from kit.tiers import many
from kit.window_rig import SIGNALS, Places
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError, CdcError, ServerChangedError, SourceConnectionError
from airflow_provider_mysql_cdc.cdc.incremental import window_task as round_task
from airflow_provider_mysql_cdc.cdc.snapshot import snapshot_task

GTIDS_OFF = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}


@pytest.fixture(scope="module", params=many(["9.7 without GTIDs"], ["9.7 without GTIDs", "8.0.15"]))
def server(request: pytest.FixtureRequest, pool: Pool) -> Iterator[PrivateServer]:
    version, _, plain = str(request.param).partition(" ")
    with pool.lent(version, **(GTIDS_OFF if plain else {})) as made:
        yield made


@pytest.fixture
def source(server: PrivateServer) -> Iterator[Any]:
    with server.connect() as conn:
        yield conn


@pytest.fixture
def pipeline(properties: dict[str, str], server: PrivateServer, source: Any, database: str) -> Pipeline:
    """Return a stream of two tables with a signal table, behind its first snapshot."""
    execute(source, f"CREATE DATABASE `{database}` CHARACTER SET utf8mb4", SIGNALS.format(database),
            *filled(database, "a", "b", count=100))  # fmt: skip
    user = server.properties()["database.user"]
    execute(source, f"GRANT INSERT, DELETE ON `{database}`.signals TO {user}")
    given = {
        "table.include.list": f"{database}.a,{database}.b",
        "signal.data.collection": f"{database}.signals",
    }
    made = Pipeline(properties | server.properties() | FLAT | given)
    made.snapshot()
    return made


def states(pipeline: Pipeline) -> set[str]:
    return {scan.state for scan in books(pipeline).scans.values()}


@pytest.mark.exhaustive
@pytest.mark.parametrize("strategy", ["insert_insert", "insert_delete"])
@pytest.mark.req("INC-02", "INC-20")
def test_watermarks_of_a_signal_table_need_no_gtids(
    pipeline: Pipeline, server: PrivateServer, source: Any, database: str, strategy: str
) -> None:
    pipeline.properties["incremental.snapshot.watermarking.strategy"] = strategy
    where = {"mysql_host": "127.0.0.1", "mysql_port": server.port, "root_user": "root", "root_password": ""}
    writer = Writer(SimpleNamespace(**where), database, ["a", "b"], 120, seed=7)
    asked = json.dumps({"data-collections": [f"{database}.[ab]"]})
    writer.start()
    try:
        for n in range(2):
            with source.cursor() as cursor:
                cursor.execute(
                    f"INSERT INTO `{database}`.signals VALUES (%s, 'execute-snapshot', %s)", (f"s{n}", asked)
                )
            pipeline.drain()
    finally:
        writer.stop()
    pipeline.drain()
    assert states(pipeline) == {"done"} and len(books(pipeline).scans) == 4 and writer.changes > 50
    for table in ("a", "b"):
        check_exact(pipeline, source, table)


def test_without_gtids_and_signal_table_no_snapshot_is_promised(pipeline: Pipeline, source: Any) -> None:
    """Asked for while there was a signal table; then it is taken out of the configuration."""
    if rows(source, "SELECT @@GLOBAL.gtid_mode") != [("OFF",)]:
        execute(source, *(f"SET GLOBAL gtid_mode = {mode}" for mode in ("ON_PERMISSIVE", "OFF_PERMISSIVE")))
    ask_for(pipeline, ["a"])
    del pipeline.properties["signal.data.collection"]
    execute(source, f"UPDATE `{pipeline.properties['database.include.list']}`.a SET v = 1")
    pipeline.drain()
    assert states(pipeline) == {"waiting"} and reads(pipeline, "a") == {}
    assert any("gtid_mode" in line for line in pipeline.lines)


def half_read(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    places = Places(monkeypatch)
    pipeline.slots = 1
    ask_for(pipeline, ["a"])
    places.die("incremental.after_commit", nth=3)
    with pytest.raises((faults.FaultRaised, CdcError)):
        pipeline.drain()
    assert not places.left


@pytest.mark.req("FAULT-11")
def test_a_binlog_that_was_reset_between_two_windows(
    pipeline: Pipeline, source: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    half_read(pipeline, monkeypatch)
    reset_binlog(source)
    # The same GTIDs and positions come again, and more.
    for n in range(400):
        execute(source, f"UPDATE `{database}`.a SET v = {n} WHERE id = {n % 100}")
    read = len(pipeline.records("a"))
    with pytest.raises(BinlogPurgedError):
        pipeline.drain()
    assert len(pipeline.records("a")) == read
    pipeline.snapshot(again=True)
    execute(source, f"UPDATE `{database}`.a SET v = v + 1 WHERE id < 20", f"DELETE FROM `{database}`.a WHERE id = 7")
    pipeline.drain()
    assert states(pipeline) == {"done"}
    found = {row["id"]: row["v"] for row in compacted(pipeline.records("a")).values()}
    assert found == dict(rows(source, f"SELECT id, v FROM `{database}`.a"))


def settings_of(pipeline: Pipeline, stack: Any) -> Any:
    """Return how to reach the stack's server, which is another one than the source."""
    return Pipeline(
        pipeline.properties
        | {
            "database.hostname": stack.mysql_host,
            "database.port": str(stack.mysql_port),
            "database.user": stack.root_user,
            "database.password": stack.root_password,
            "database.ssl.mode": "disabled",
        }
    ).cfg.connection_settings()


@pytest.mark.req("INC-20", "FAULT-11")
def test_a_view_on_another_server_is_refused(
    pipeline: Pipeline, root: Any, source: Any, database: str, stack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One address leads to several servers, or moves to another in the middle: a replica that lags behind."""
    execute(root, *filled(database, "a", "b", count=100))
    execute(source, f"UPDATE `{database}`.a SET v = 5")
    lagging = settings_of(pipeline, stack)
    ask_for(pipeline, ["a"])
    with monkeypatch.context() as patch:
        patch.setattr(round_task, "connect", lambda settings: connect(lagging))
        with pytest.raises(SourceConnectionError, match="another MySQL server"):
            pipeline.drain()
    assert reads(pipeline, "a") == {}
    pipeline.drain()
    assert states(pipeline) == {"done"}
    check_exact(pipeline, source, "a")


@pytest.mark.req("FAULT-11")
@pytest.mark.exhaustive
def test_a_first_snapshots_view_on_another_server_is_refused(
    pipeline: Pipeline, root: Any, database: str, stack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(root, *filled(database, "a", "b", count=100))
    other = settings_of(pipeline, stack)
    fresh = Pipeline(pipeline.properties | {"topic.prefix": f"{pipeline.properties['topic.prefix']}_n"}, slots=1)
    monkeypatch.setattr(
        snapshot_task, "connect", lambda settings: connect(replace(other, server_uuid=settings.server_uuid))
    )
    with pytest.raises(ServerChangedError, match="than the one that is read"):
        fresh.snapshot()
    assert fresh.table_topic("a") not in fresh.topics() or fresh.records("a") == []
