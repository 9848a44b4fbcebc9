"""How long writers are held by each snapshot.locking.mode, as a writer sees it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest
from kit.records import compacted, duplicates, payload
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.errors import SourcePrivilegeError
from airflow_provider_mysql_cdc.cdc.snapshot import consistent_view as view
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_driver import run_snapshot

LOCK_WAIT_TIMEOUT = 1205
GLOBAL_LOCK_HELD = 1223
NO_GLOBAL_LOCK = "SELECT, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT, LOCK TABLES"
PROPERTIES = {
    "cdc.id.header": "true",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "snapshot.chunk.rows": "10",
}


@pytest.fixture
def account(root: Any, unique: str) -> Iterator[dict[str, str]]:
    """Return the properties of an account that may lock tables only."""
    execute(root, f"CREATE USER '{unique}'@'%' IDENTIFIED BY 'pass-{unique}'")
    execute(root, f"GRANT {NO_GLOBAL_LOCK} ON *.* TO '{unique}'@'%'")
    yield {"database.user": unique, "database.password": f"pass-{unique}"}
    execute(root, f"DROP USER '{unique}'@'%'")


def session(root: Any) -> Any:
    """Return another session, which waits a second for locks."""
    conn = pymysql.connect(host=root.host, port=root.port, user="root", password="", autocommit=True, ssl_disabled=True)
    execute(conn, "SET SESSION lock_wait_timeout = 1")
    return conn


def can(root: Any, statement: str) -> Callable[[], bool]:
    """Return a function that says whether another session can run a statement within a second."""

    def run() -> bool:
        with session(root) as conn:
            try:
                execute(conn, statement)
            except pymysql.MySQLError as error:
                assert error.args[0] in (LOCK_WAIT_TIMEOUT, GLOBAL_LOCK_HELD), error
                return False
        return True

    return run


@pytest.mark.exhaustive(but="minimal")
@pytest.mark.req("SNAP-14", "SNAP-31", "SNAP-33", "SNAP-34")
@pytest.mark.parametrize(
    ("mode", "opening", "reading"),
    [("minimal", False, True), ("extended", False, False), ("none", True, True)],
)
def test_who_may_write_while_the_view_opens_and_while_rows_are_read(
    pipeline: Pipeline,
    root: Any,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    opening: bool,
    reading: bool,
) -> None:
    pipeline.properties["snapshot.locking.mode"] = mode
    execute(
        root,
        f"CREATE TABLE `{database}`.t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)",
        f"INSERT INTO `{database}`.t (v) VALUES {','.join(['(1)'] * 50)}",
    )
    can_write, seen = can(root, f"INSERT INTO `{database}`.t (v) VALUES (0)"), dict[str, bool]()

    def look(moment: str) -> None:
        if moment not in seen:
            seen[moment] = can_write()

    plain_offset, plain_point = view.current_offset, faults.fault_point

    def current_offset(conn: Any) -> Any:
        look("opening")  # every task has opened its view, the lock, if there is one, still stands
        return plain_offset(conn)

    def fault_point(name: str, writer: int | None = None) -> None:
        look(name)
        plain_point(name, writer)

    monkeypatch.setattr(view, "current_offset", current_offset)
    monkeypatch.setattr(faults, "fault_point", fault_point)
    assert pipeline.snapshot().complete
    assert {name: seen[name] for name in ("opening", "snapshot.chunk_read", "snapshot.after_chunk")} == {
        "opening": opening,
        "snapshot.chunk_read": reading,
        "snapshot.after_chunk": reading,
    }
    assert can_write(), "the lock outlived the snapshot"
    line = next(line for line in pipeline.lines if line.startswith("consistent view"))
    held = re.search(r"lock=(\w+), held (?:([\d.]+) ms|until the last row is read)", line)
    assert held is not None, line
    # The refused writer waited for a second under the lock.
    measured = held[2] and float(held[2])
    assert held[1] == ("none" if mode == "none" else "global")
    assert measured is None if mode == "extended" else (measured == 0 if opening else measured >= 900), line
    pipeline.drain()
    records = pipeline.records("t")
    assert duplicates(records) == []
    assert sorted(row["id"] for row in compacted(records).values()) == [
        r[0] for r in rows(root, f"SELECT id FROM `{database}`.t ORDER BY id")
    ]


@pytest.mark.req("SNAP-17", "SNAP-22", "SNAP-25", "SNAP-27", "SNAP-29", "SNAP-55")
@pytest.mark.parametrize("lock", ["global", "tables"])
def test_the_steps_of_a_snapshot_around_its_rows(
    pipeline: Pipeline, root: Any, database: str, account: dict[str, str], monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    """What is not captured is not waited for; the views' transactions end with the rows; the offset is theirs."""
    pipeline.properties["table.include.list"] = f"{database}.t"
    pipeline.properties["schema.history.internal.store.only.captured.tables.ddl"] = "true"
    if lock == "tables":
        pipeline.properties |= account
    execute(
        root,
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, flag BOOLEAN NOT NULL)",
        f"CREATE TABLE `{database}`.other (id INT PRIMARY KEY)",
        f"INSERT INTO `{database}`.t VALUES (1, TRUE), (2, FALSE)",
        f"INSERT INTO `{database}`.other VALUES (1)",
    )
    can_alter, seen = can(root, f"ALTER TABLE `{database}`.t COMMENT 'seen'"), dict[str, bool]()
    plain_point = faults.fault_point

    def fault_point(name: str, writer: int | None = None) -> None:
        if name in ("snapshot.after_chunk", "snapshot.before_books"):
            seen[name] = can_alter()
        plain_point(name, writer)

    monkeypatch.setattr(faults, "fault_point", fault_point)
    statement = rows(root, f"SHOW CREATE TABLE `{database}`.t")[0][1]
    with session(root) as elsewhere:
        if lock == "tables":  # a global lock would wait for it
            execute(elsewhere, f"LOCK TABLES `{database}`.other WRITE")
        job = pipeline.prepare("snapshot")
        execute(root, f"INSERT INTO `{database}`.t VALUES (3, TRUE)")
        run_snapshot(job.spec, ThreadRunner(2), pipeline.log)
    assert pipeline.settle().complete
    # ALTER TABLE waits for a transaction that has read the table.
    assert seen == {"snapshot.after_chunk": False, "snapshot.before_books": True}
    line = next(line for line in pipeline.lines if line.startswith("consistent view"))
    stored = pipeline.store.load()
    assert f"lock={lock}," in line and stored is not None and stored.pending is None
    assert line.startswith(f"consistent view at {stored.committed}, ") and stored.committed != job.plan.end
    assert pipeline.snapshot_is_refused(), "a snapshot that is done would be taken again"

    changes = [payload(r.value) for r in pipeline.read(pipeline.properties["topic.prefix"])]
    ddl = [c["ddl"] for c in changes if c["databaseName"] == database]
    assert f"DROP TABLE IF EXISTS `{database}`.`t`" in ddl and ddl[-1] == statement and "tinyint(1)" in statement
    assert not any("other" in text for text in ddl) and pipeline.table_topic("other") not in pipeline.topics()
    (change,) = changes[-1]["tableChanges"]
    flag = change["table"]["columns"][1]
    assert (flag["name"], flag["typeName"], flag["length"]) == ("flag", "TINYINT", 1)
    read = [payload(r.value)["after"] for r in pipeline.records("t")]
    assert read == [{"id": 1, "flag": 1}, {"id": 2, "flag": 0}, {"id": 3, "flag": 1}]


def test_a_mode_without_table_locks_stops_where_the_global_lock_is_refused(
    pipeline: Pipeline, root: Any, database: str, account: dict[str, str], unique: str
) -> None:
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)")
    pipeline.properties |= account | {"snapshot.locking.mode": "minimal_percona_no_table_locks"}
    with pytest.raises(SourcePrivilegeError, match="RELOAD"):
        pipeline.snapshot()
    execute(root, f"GRANT RELOAD ON *.* TO '{unique}'@'%'")
    job = pipeline.prepare("snapshot")
    execute(root, f"REVOKE RELOAD ON *.* FROM '{unique}'@'%'")
    with pytest.raises(SourcePrivilegeError, match="may not take the global read lock") as caught:
        run_snapshot(job.spec, ThreadRunner(2), pipeline.log)
    assert "minimal_percona_no_table_locks" in caught.value.where and pipeline.records("t") == []
