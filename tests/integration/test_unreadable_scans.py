"""Tables that the windows which finish an interrupted snapshot cannot read: the snapshot waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.incremental_rig import ask_for, books, unfinished_request
from kit.records import payload
from kit.sql import execute, rows
from kit.table_rig import FLAT, filled, interrupt
from kit.window_rig import Places
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import ConfigError, StateError
from airflow_provider_mysql_cdc.cdc.faults import FaultRaised
from airflow_provider_mysql_cdc.cdc.incremental import drain_job, watermarks
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import SnapshotStatus, snapshot_status
from airflow_provider_mysql_cdc.cdc.operate.interrupted_snapshot import finish_interrupted
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.operate.send_signal import peek_ledger, require_readable

PROPERTIES = FLAT
SLOTS = 2
GRANTS = "RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT, LOCK TABLES"


@pytest.fixture
def account(root: Any, unique: str, database: str) -> Iterator[dict[str, str]]:
    execute(root, f"USE `{database}`", *filled(database, "aa", "zz", count=50))
    execute(root, f"CREATE USER '{unique}'@'%' IDENTIFIED BY 'pass-{unique}'", f"GRANT {GRANTS} ON *.* TO '{unique}'")
    for table in ("aa", "zz"):
        execute(root, f"GRANT SELECT ON `{database}`.{table} TO '{unique}'")
    yield {"database.user": unique, "database.password": f"pass-{unique}"}
    execute(root, f"DROP USER '{unique}'@'%'")


def status(pipeline: Pipeline) -> SnapshotStatus:
    return snapshot_status(peek_ledger(pipeline.cfg), "snapshot-1")


def keys(pipeline: Pipeline, table: str) -> list[Any]:
    return sorted(payload(r.value)["after"]["id"] for r in pipeline.records(table) if r.value)


@pytest.mark.exhaustive
@pytest.mark.req("SNAP-14")
@pytest.mark.parametrize(
    ("columns", "why"), [("", "SELECT command denied"), ("id, v", "SHOW command denied")], ids=["rows", "structure"]
)
def test_a_table_that_may_not_be_read_any_more_is_waited_for(
    pipeline: Pipeline,
    account: dict[str, str],
    root: Any,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    columns: str,
    why: str,
) -> None:
    """SHOW CREATE TABLE needs a privilege of the table, where SELECT is satisfied with those of its columns."""
    pipeline.properties |= account
    interrupt(pipeline, monkeypatch, tmp_path / "fired")
    execute(root, f"REVOKE SELECT ON `{database}`.zz FROM '{account['database.user']}'")
    if columns:
        execute(root, f"GRANT SELECT ({columns}) ON `{database}`.zz TO '{account['database.user']}'")
    for _ in range(2):
        assert pipeline.snapshot().complete
        assert unfinished_request(pipeline.cfg) == "snapshot-1", "another try finds it"
        with pytest.raises(StateError, match="cannot be read") as caught:
            require_readable(status(pipeline), "snapshot-1")
        assert f"{database}.zz" in caught.value.where and why in caught.value.why
    assert len(pipeline.records("aa")) == 50
    execute(root, f"UPDATE `{database}`.aa SET v = 7 WHERE id = 7")
    windows, run_window = list[int](), drain_job.WindowDriver.run
    monkeypatch.setattr(drain_job.WindowDriver, "run", lambda *a: (windows.append(1), run_window(*a))[1])
    for count in (1, 2):
        pipeline.drain()
        assert len(windows) == count, "one window of a drain looks at it"
    assert len(pipeline.records("aa")) == 51, "the stream goes on"
    execute(root, f"GRANT SELECT ON `{database}`.zz TO '{account['database.user']}'")
    assert pipeline.snapshot().complete
    assert unfinished_request(pipeline.cfg) is None and status(pipeline).state == "done"
    assert keys(pipeline, "zz") == [i for (i,) in rows(root, f"SELECT id FROM `{database}`.zz ORDER BY id")]


@pytest.mark.req("SNAP-14")
def test_a_last_key_without_a_written_form_does_not_keep_rows_back(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    execute(
        root,
        f"USE `{database}`",
        *filled(database, "aa", count=50),
        "CREATE TABLE zz (id VARCHAR(20) CHARACTER SET gbk PRIMARY KEY, v INT)",
        "INSERT INTO zz VALUES " + ",".join(f"('k{i:03}', {i})" for i in range(50)),
        "INSERT INTO zz VALUES (x'FEFE', 99)",
    )
    interrupt(pipeline, monkeypatch, tmp_path / "fired")
    assert pipeline.snapshot().complete
    assert status(pipeline).state == "done"
    assert len(pipeline.records("zz")) == 51


@pytest.mark.req("SNAP-14")
@pytest.mark.parametrize("to", ["current", "view"])
@pytest.mark.exhaustive(but="view")
def test_a_table_is_followed_through_a_rename_after_the_stream_was_moved(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, to: str
) -> None:
    execute(root, f"USE `{database}`", *filled(database, "aa", "bb", count=50))
    interrupt(pipeline, monkeypatch, tmp_path / "fired")
    assert finish_interrupted(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log) == "snapshot-1"
    file, position, *_ = rows(root, "SHOW BINARY LOG STATUS")[0]
    execute(root, "UPDATE bb SET v = 1 WHERE id = 1")
    target = "current" if to == "current" else f"{file}:{position}"
    reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to=target)
    execute(root, "RENAME TABLE bb TO cc", "UPDATE cc SET v = 2 WHERE id = 2")
    while unfinished_request(pipeline.cfg):
        assert pipeline.snapshot().complete
    last = {payload(r.key)["id"]: payload(r.value)["after"]["v"] for r in pipeline.records("cc")}
    assert last == dict(rows(root, "SELECT id, v FROM cc"))


@pytest.mark.req("SNAP-14", "SETUP-02")
def test_a_table_that_was_dropped_is_not_locked(
    pipeline: Pipeline,
    account: dict[str, str],
    root: Any,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """An account without RELOAD locks the tables of a window; one without a key needs the lock."""
    user = account["database.user"]
    execute(root, f"REVOKE RELOAD ON *.* FROM '{user}'", f"GRANT SELECT, LOCK TABLES ON `{database}`.* TO '{user}'")
    execute(root, f"CREATE TABLE `{database}`.w (v INT)", f"INSERT INTO `{database}`.w VALUES (1), (1), (2)")
    pipeline.properties |= account
    interrupt(pipeline, monkeypatch, tmp_path / "fired")
    execute(root, f"RENAME TABLE `{database}`.zz TO `{database}`.yy")
    for _ in range(3):
        if unfinished_request(pipeline.cfg) or pipeline.store.load().committed is None:  # type: ignore[union-attr]
            assert pipeline.snapshot().complete
    assert unfinished_request(pipeline.cfg) is None, pipeline.lines
    assert [len(pipeline.records(table)) for table in ("aa", "w", "yy")] == [50, 3, 50]


@pytest.mark.req("SNAP-14")
def test_without_a_watermark_the_reason_is_named(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    execute(root, f"USE `{database}`", *filled(database, "aa", "zz", count=50))
    interrupt(pipeline, monkeypatch, tmp_path / "fired")
    with monkeypatch.context() as patch:
        patch.setattr(watermarks, "gtids_on", lambda conn: False)
        assert finish_interrupted(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log) == "snapshot-1"
        pipeline.properties["snapshot.locking.mode"] = "none"
        assert pipeline.snapshot().complete
        with pytest.raises(StateError, match="cannot be read") as caught:
            require_readable(status(pipeline), "snapshot-1")
        assert "gtid_mode is not ON" in caught.value.why and caught.value.can_retry
    assert pipeline.snapshot().complete and status(pipeline).state == "done"


@pytest.mark.req("SNAP-14")
def test_a_table_that_a_batch_did_not_capture_is_not_read_on(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The driver of the batch dies before it does anything else, and the list is set back."""
    execute(root, f"USE `{database}`", *filled(database, "aa", count=60))
    pipeline.properties |= {"incremental.snapshot.chunk.size": "1"}
    pipeline.slots = 1
    assert pipeline.snapshot().complete
    ask_for(pipeline, ["aa"])
    places = Places(monkeypatch)
    places.die("incremental.after_commit", 2)
    with pytest.raises(FaultRaised):
        pipeline.drain()
    execute(root, "UPDATE aa SET v = 9 WHERE id < 10", "DELETE FROM aa WHERE id = 12")
    pipeline.properties["table.exclude.list"] = f"{database}.aa"
    places.die("driver.before_outcome")
    with pytest.raises(FaultRaised):
        pipeline.drain()
    del pipeline.properties["table.exclude.list"]
    pipeline.drain()
    assert [scan.state for scan in books(pipeline).scans.values()] == ["aborted"]
    assert any("ends before the table was read" in line for line in pipeline.lines)


@pytest.mark.req("SNAP-14")
def test_a_mode_without_drains_cannot_finish_a_snapshot(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    execute(root, f"USE `{database}`", *filled(database, "aa", "bb", count=50))
    interrupt(pipeline, monkeypatch, tmp_path / "fired")
    assert finish_interrupted(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log) == "snapshot-1"
    pipeline.properties["snapshot.mode"] = "initial_only"
    with pytest.raises(ConfigError, match="without a stream") as caught:
        pipeline.snapshot()
    assert "snapshot.mode" in caught.value.where and not caught.value.can_retry
