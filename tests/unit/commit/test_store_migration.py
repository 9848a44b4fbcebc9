"""The tables of the SQL offset store have a version: older ones are migrated, newer ones are left alone."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import sqlalchemy as sa
from kit.store_contract import END, plan

from airflow_provider_mysql_cdc.cdc.commit import sql_schema
from airflow_provider_mysql_cdc.cdc.commit.offset_store import PastOffset, StoredState
from airflow_provider_mysql_cdc.cdc.commit.sql_store import SqlOffsetStore
from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.operate.lag_history import record_idle


@pytest.fixture
def engine(tmp_path: Path) -> sa.Engine:
    return sa.create_engine(f"sqlite:///{tmp_path}/offsets.db")


def version(engine: sa.Engine) -> list[tuple[str, int]]:
    with engine.begin() as conn:
        return [(name, number) for name, number in conn.execute(sa.text("SELECT * FROM mysql_cdc_store_version"))]


def columns(engine: sa.Engine) -> set[str]:
    return {column["name"] for column in sa.inspect(engine).get_columns(sql_schema.OFFSETS_TABLE)}


def add_note(engine: sa.Engine) -> None:
    if "note" not in columns(engine):
        with engine.begin() as conn:
            conn.execute(sa.text("ALTER TABLE mysql_cdc_offsets ADD COLUMN note VARCHAR(10)"))


@pytest.fixture
def next_version(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make this package the next version of itself, whose table has one column more; return its migrations so far."""
    ran: list[int] = []

    def migrate(engine: sa.Engine) -> None:
        ran.append(2)
        add_note(engine)

    monkeypatch.setattr(sql_schema, "VERSION", 2)
    monkeypatch.setattr(sql_schema, "MIGRATIONS", {2: migrate})
    return ran


def test_new_tables_carry_the_version(engine: sa.Engine) -> None:
    SqlOffsetStore(engine, "p").load()
    assert version(engine) == [("mysql_cdc_offsets", 1)]


def test_tables_from_before_versions_keep_what_they_hold(engine: sa.Engine) -> None:
    first = SqlOffsetStore(engine, "p").save(StoredState().with_plan(plan()), None)
    sql_schema.versions.drop(engine)
    assert SqlOffsetStore(engine, "p").load() == first
    assert version(engine) == [("mysql_cdc_offsets", 1)]


@pytest.mark.parametrize("versioned", [True, False], ids=["version 1", "before versions"])
def test_older_tables_are_migrated_once_and_keep_what_they_hold(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, versioned: bool, next_version: list[int]
) -> None:
    with monkeypatch.context() as before:
        before.setattr(sql_schema, "VERSION", 1)
        stored = SqlOffsetStore(engine, "p").save(StoredState().with_plan(plan()), None)
    if not versioned:
        sql_schema.versions.drop(engine)
    assert SqlOffsetStore(engine, "p").load() == stored
    assert SqlOffsetStore(engine, "p").load() == stored
    assert (next_version, version(engine), "note" in columns(engine)) == ([2], [("mysql_cdc_offsets", 2)], True)


def test_new_tables_of_a_later_version_need_no_migration(engine: sa.Engine, next_version: list[int]) -> None:
    SqlOffsetStore(engine, "p").load()
    assert (next_version, version(engine)) == ([], [("mysql_cdc_offsets", 2)])


def test_a_migration_that_broke_off_is_done_again(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    SqlOffsetStore(engine, "p").load()

    def breaks(engine: sa.Engine) -> None:
        add_note(engine)
        raise sa.exc.OperationalError("ALTER", {}, Exception("the server went away"))

    monkeypatch.setattr(sql_schema, "VERSION", 2)
    monkeypatch.setattr(sql_schema, "MIGRATIONS", {2: breaks})
    with pytest.raises(StateError, match="went away") as caught:
        SqlOffsetStore(engine, "p").load()
    assert caught.value.can_retry and version(engine) == [("mysql_cdc_offsets", 1)]
    monkeypatch.setattr(sql_schema, "MIGRATIONS", {2: add_note})
    SqlOffsetStore(engine, "p").load()
    assert version(engine) == [("mysql_cdc_offsets", 2)]


@pytest.mark.parametrize("call", ["load", "save"])
def test_newer_tables_are_neither_read_nor_written(engine: sa.Engine, call: str) -> None:
    before = SqlOffsetStore(engine, "p").save(StoredState().with_plan(plan()), None)
    with engine.begin() as conn:
        conn.execute(sql_schema.versions.update().values(version=2))
    store = SqlOffsetStore(engine, "p")
    with pytest.raises(StateError, match="newer version") as caught:
        store.load() if call == "load" else store.save(before.commit(END, 1), before)
    assert not caught.value.can_retry
    with engine.begin() as conn:
        assert conn.execute(sa.select(sql_schema.offsets.c.revision)).scalars().all() == [1]


def test_several_begin_at_once(engine: sa.Engine) -> None:
    barrier, errors = threading.Barrier(6), []

    def run() -> None:
        barrier.wait()
        try:
            SqlOffsetStore(engine, "p").load()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (errors, version(engine)) == ([], [("mysql_cdc_offsets", 1)])


def test_another_store_s_history_comes_in_once_in_its_place_and_is_trimmed(engine: sa.Engine) -> None:
    store = SqlOffsetStore(engine, "p", keep=4)
    state = store.save(StoredState(epoch=6).with_plan(plan(7)), None)
    store.save(state.commit(END, 7), state)
    older = [PastOffset(epoch, END.with_position("binlog.000009", epoch), epoch) for epoch in range(1, 7)]
    assert store.remember(older) == 6
    assert [past.epoch for past in store.history()] == [7, 6, 5, 4]
    assert store.remember(older[3:]) == 0
    assert [past.epoch for past in SqlOffsetStore(engine, "other").history()] == []


def test_an_account_that_may_not_create_the_table_of_points_keeps_its_offset(engine: sa.Engine) -> None:
    sql_schema.create_or_migrate(engine)
    lines: list[str] = []

    def refuse(conn: sa.Connection, cursor: object, statement: str, *more: object) -> None:
        if statement.lstrip().startswith("CREATE"):
            raise sa.exc.OperationalError(statement, None, Exception("CREATE command denied to user"))

    sa.event.listen(engine, "before_cursor_execute", refuse)
    store = SqlOffsetStore(engine, "shop")
    assert store.load() is None and store.load_points() == []
    stored = store.save(StoredState(pending=plan(1, END, END)), None)
    record_idle(store, lines.append)
    assert store.load() == stored
    assert len(lines) == 1 and "CREATE command denied" in lines[0]
    sa.event.remove(engine, "before_cursor_execute", refuse)
    record_idle(store, lines.append)
    assert len(store.load_points()) == 1 and len(lines) == 1
