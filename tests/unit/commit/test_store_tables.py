"""The tables of the SQL offset store have a version: those of another one are left alone."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import sqlalchemy as sa
from kit.store_contract import END, plan

from airflow_provider_mysql_cdc.cdc.commit import sql_store
from airflow_provider_mysql_cdc.cdc.commit.offset_store import PastOffset, StoredState
from airflow_provider_mysql_cdc.cdc.commit.sql_store import SqlOffsetStore
from airflow_provider_mysql_cdc.cdc.errors import StoredVersionError
from airflow_provider_mysql_cdc.cdc.model.stored_record import STORED_VERSION
from airflow_provider_mysql_cdc.cdc.operate.lag import record_idle


@pytest.fixture
def engine(tmp_path: Path) -> sa.Engine:
    return sa.create_engine(f"sqlite:///{tmp_path}/offsets.db")


def version(engine: sa.Engine) -> list[tuple[str, int]]:
    with engine.begin() as conn:
        return [(name, number) for name, number in conn.execute(sa.text("SELECT * FROM mysql_cdc_store_version"))]


def test_new_tables_carry_the_version(engine: sa.Engine) -> None:
    SqlOffsetStore(engine, "p").load()
    assert version(engine) == [("mysql_cdc_offsets", STORED_VERSION)]


@pytest.mark.parametrize("found", [STORED_VERSION + 1, 0, None])
@pytest.mark.parametrize("call", ["load", "save"])
def test_tables_of_another_version_are_neither_read_nor_written(
    engine: sa.Engine, call: str, found: int | None
) -> None:
    before = SqlOffsetStore(engine, "p").save(StoredState().with_plan(plan()), None)
    with engine.begin() as conn:
        conn.execute(sql_store.versions.delete())
        if found is not None:
            conn.execute(sql_store.versions.insert().values(name="mysql_cdc_offsets", version=found))
    store = SqlOffsetStore(engine, "p")
    with pytest.raises(StoredVersionError, match="another version") as caught:
        store.load() if call == "load" else store.save(before.commit(END, 1), before)
    assert not caught.value.can_retry and "mysql_cdc_store_version" in caught.value.where
    with engine.begin() as conn:
        assert conn.execute(sa.select(sql_store._offsets.c.revision)).scalars().all() == [1]


def test_tables_without_their_version_are_refused(engine: sa.Engine) -> None:
    SqlOffsetStore(engine, "p").load()
    sql_store.versions.drop(engine)
    with pytest.raises(StoredVersionError, match="it has no version"):
        SqlOffsetStore(engine, "p").load()
    assert not sa.inspect(engine).has_table("mysql_cdc_store_version"), "nothing is created beside them"


def test_tables_whose_creation_was_interrupted_are_completed(engine: sa.Engine) -> None:
    sql_store.create_tables(engine, (sql_store.versions,))
    assert SqlOffsetStore(engine, "p").load() is None and version(engine) == [("mysql_cdc_offsets", STORED_VERSION)]
    sql_store._history.drop(engine)
    assert SqlOffsetStore(engine, "p").history() == []


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
    assert (errors, version(engine)) == ([], [("mysql_cdc_offsets", STORED_VERSION)])


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
    sql_store.require_tables(engine)
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
