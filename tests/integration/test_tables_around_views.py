"""Tables that are created, dropped, renamed, swapped and truncated around a snapshot's views, on real servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.records import compacted, duplicates, payload
from kit.sql import execute, rows
from kit.table_rig import changes, check_chain, filled, interrupt
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.snapshot import snapshot_driver

GRANTS = "SELECT, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT, LOCK TABLES"
PROPERTIES = {
    "cdc.id.header": "true",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "snapshot.chunk.rows": "10",
}


@pytest.fixture
def account(root: Any, unique: str) -> Iterator[dict[str, str]]:
    """Return the properties of an account without RELOAD, which locks table by table."""
    execute(root, f"CREATE USER '{unique}'@'%' IDENTIFIED BY 'pass-{unique}'", f"GRANT {GRANTS} ON *.* TO '{unique}'")
    yield {"database.user": unique, "database.password": f"pass-{unique}"}
    execute(root, f"DROP USER '{unique}'@'%'")


# -- between the list of tables and the view ---------------------------------------------------------------------------

AFTER_LIST = {
    "created": ["CREATE TABLE late (id INT PRIMARY KEY, v INT)", "INSERT INTO late VALUES (1, 1), (2, 2)"],
    "selected": ["CREATE TABLE late AS SELECT id, v FROM aa", "ALTER TABLE late ADD PRIMARY KEY (id)"],
    "renamed in": ["RENAME TABLE outside TO late"],
    "altered in": ["ALTER TABLE outside RENAME TO late, ADD COLUMN x INT"],
    "dropped": ["DROP TABLE bb"],
    "dropped and created": ["DROP TABLE bb", "CREATE TABLE bb (v INT, id INT PRIMARY KEY)", "INSERT INTO bb SET id=3"],
    "altered": ["ALTER TABLE bb ADD COLUMN w INT NOT NULL DEFAULT 7", "UPDATE bb SET v = 5 WHERE id < 9"],
    "renamed": ["RENAME TABLE bb TO late"],
    "renamed out": ["RENAME TABLE bb TO outside_too"],
    "swapped": ["RENAME TABLE aa TO outside_too, bb TO aa, outside_too TO bb", "UPDATE aa SET v = 4 WHERE id = 4"],
    "truncated": ["TRUNCATE TABLE bb", "INSERT INTO bb VALUES (77, 7)"],
}
BEFORE_VIEW = ("created", "selected", "renamed in", "altered in")


def do_once(monkeypatch: pytest.MonkeyPatch, when: str, action: Callable[[], None], times: int = 1) -> list[int]:
    """Run an action after the list of tables is read, or when everything but the view is ready; count its runs."""
    done: list[int] = []

    def act() -> None:
        if len(done) < times:
            done.append(1)
            action()

    guard, point = snapshot_driver.lock_metadata, faults.fault_point

    def guarded(*args: Any) -> Any:
        if when == "after the list":
            act()
        return guard(*args)

    def passed(name: str, *args: Any) -> None:
        if when == "before the view" and name == "plan.after_store":
            act()
        point(name, *args)

    monkeypatch.setattr(snapshot_driver, "lock_metadata", guarded)
    monkeypatch.setattr(faults, "fault_point", passed)
    return done


CASES = [
    *(("after the list", what, "global") for what in AFTER_LIST),
    *(("before the view", what, "global") for what in BEFORE_VIEW),
    *(("before the view", "created", lock) for lock in ("tables", "none")),
]


@pytest.mark.req("SNAP-09", "SNAP-14")
@pytest.mark.parametrize(("when", "what", "lock"), CASES)
@pytest.mark.exhaustive(but="list-(dropped and|swapped)-|view-selected")
def test_tables_that_change_before_the_view_stands_lose_nothing(
    when: str,
    what: str,
    lock: str,
    pipeline: Pipeline,
    root: Any,
    database: str,
    account: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline.properties["table.exclude.list"] = rf"{database}\.outside.*"
    if lock == "tables":
        pipeline.properties |= account
    if lock == "none":
        pipeline.properties["snapshot.locking.mode"] = "none"
    execute(root, f"USE `{database}`", *filled(database, "aa", "outside"), *filled(database, "bb", value=1))
    done = do_once(monkeypatch, when, lambda: execute(root, *AFTER_LIST[what]))
    assert pipeline.snapshot().complete and done
    captured = [t for (t,) in rows(root, f"SHOW TABLES FROM `{database}`") if not t.startswith("outside")]
    execute(root, *(f"UPDATE {t} SET v = COALESCE(v, 0) + 10 WHERE id < 20" for t in captured))
    assert pipeline.drain() is not None
    for table in captured:
        check_chain(pipeline, root, database, table)
    ddl = [payload(r.value)["ddl"] for r in pipeline.read(pipeline.properties["topic.prefix"])]
    for table in captured:
        assert sum(f"CREATE TABLE `{table}`" in d for d in ddl) == 1, ddl


def test_tables_that_never_keep_still_are_a_named_error_that_a_retry_can_mend(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(root, f"USE `{database}`", *filled(database, "aa"))
    number = iter(range(100))
    done = do_once(
        monkeypatch,
        "before the view",
        lambda: execute(root, *filled(database, f"late{next(number)}")),
        times=snapshot_driver.MAX_ATTEMPTS,
    )
    with pytest.raises(StateError, match="no consistent view could be opened") as caught:
        pipeline.snapshot()
    assert caught.value.can_retry and "late" in caught.value.where and len(done) == snapshot_driver.MAX_ATTEMPTS
    assert pipeline.records("aa") == []
    assert pipeline.snapshot().complete
    assert len(pipeline.records("late4")) == 30


def test_short_lived_tables_of_others_do_not_hold_a_snapshot_up(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A captured table that is gone again before the view stands, and any that is not captured."""
    pipeline.properties["table.exclude.list"] = rf"{database}\.outside.*"
    execute(root, f"USE `{database}`", *filled(database, "aa"))
    do_once(
        monkeypatch,
        "before the view",
        lambda: execute(root, *filled(database, "brief", "outside"), "DROP TABLE brief"),
    )
    assert pipeline.snapshot().complete
    assert not any("all are read again" in line for line in pipeline.lines)
    execute(root, "UPDATE aa SET v = 1")
    pipeline.drain()
    check_chain(pipeline, root, database, "aa")


# -- while it is interrupted -----------------------------------------------------------------------------------------


COPY = ["CREATE TABLE _aa_new (id INT PRIMARY KEY, v INT)", "INSERT INTO _aa_new SELECT * FROM aa"]


def test_an_online_schema_change_that_drops_the_old_table_loses_nothing(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The rows of the new table are in no event of the topic: it was filled under a name that is not captured."""
    pipeline.properties["table.exclude.list"] = rf"{database}\._.*"
    execute(root, f"USE `{database}`", *filled(database, "aa", count=50))
    interrupt(pipeline, monkeypatch, tmp_path / "fired")
    execute(root, *changes("aa"), *COPY, "RENAME TABLE aa TO _aa_old, _aa_new TO aa", "DROP TABLE _aa_old")
    execute(root, *changes("aa"))
    assert pipeline.snapshot().complete
    execute(root, *changes("aa"))
    pipeline.drain()
    check_chain(pipeline, root, database, "aa")


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.exhaustive(but="True")
def test_an_online_schema_change_between_captured_names_leaves_the_topic_whole(
    dropped: bool, pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    execute(root, f"USE `{database}`", *filled(database, "aa", count=50))
    interrupt(pipeline, monkeypatch, tmp_path / "fired")
    execute(root, *changes("aa"), *COPY, "RENAME TABLE aa TO _aa_old, _aa_new TO aa")
    execute(root, "DROP TABLE _aa_old" if dropped else "UPDATE _aa_old SET v = 99", *changes("aa"))
    assert pipeline.snapshot().complete
    execute(root, *changes("aa"))
    pipeline.drain()
    check_chain(pipeline, root, database, "aa")
    if not dropped:
        found = {v["id"]: v["v"] for v in compacted(pipeline.records("_aa_old")).values()}
        assert found == dict(rows(root, "SELECT id, v FROM _aa_old"))


@pytest.mark.parametrize("what", ["truncated", "dropped and created"])
@pytest.mark.exhaustive(but="recreated|dropped")
def test_the_truncate_event_of_a_table_between_two_views_is_in_order(
    what: str, pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A consumer that clears its table at the truncate event ends with the rows that came afterwards."""
    pipeline.properties["skipped.operations"] = "none"
    execute(root, f"USE `{database}`", *filled(database, "aa", count=50))
    interrupt(pipeline, monkeypatch, tmp_path / "fired")
    empty = ["TRUNCATE TABLE aa"] if what == "truncated" else ["DROP TABLE aa", *filled(database, "aa", count=2)]
    execute(
        root, *changes("aa"), *empty, "REPLACE INTO aa VALUES (5, 5), (45, 45), (46, 46)", "DELETE FROM aa WHERE id = 5"
    )
    assert pipeline.snapshot().complete
    execute(root, "UPDATE aa SET v = 7 WHERE id = 46")
    pipeline.drain()
    state: dict[int, int] = {}
    for record in pipeline.records("aa"):
        value = payload(record.value)
        if value is None:
            continue
        if value["op"] == "t":
            state.clear()
        elif value["after"] is None:
            state.pop(value["before"]["id"], None)
        else:
            state[value["after"]["id"]] = value["after"]["v"]
    expected = dict(rows(root, "SELECT id, v FROM aa"))
    assert (state if what == "truncated" else {k: v for k, v in state.items() if k in expected}) == expected
    assert duplicates([r for r in pipeline.records("aa") if r.key]) == []
