"""The SQLAlchemy offset store on a real MySQL."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from kit.store_contract import END, LagPointContract, plan

from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore, StoredState
from airflow_provider_mysql_cdc.cdc.commit.sql_store import SqlOffsetStore
from airflow_provider_mysql_cdc.cdc.errors import OffsetConflictError, StateError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def url(stack: Any, database: str) -> str:
    login = sa.URL.create(
        "mysql+pymysql", stack.root_user, stack.root_password, stack.mysql_host, stack.mysql_port, database
    )
    return login.render_as_string(hide_password=False)


@pytest.fixture
def engine(url: str) -> Iterator[sa.Engine]:
    made = sa.create_engine(url)
    yield made
    made.dispose()


class TestSqlStoreOnMySql(LagPointContract):
    @pytest.fixture
    def make_store(self, engine: sa.Engine) -> Callable[[str], OffsetStore]:
        return lambda prefix: SqlOffsetStore(engine, prefix)


def test_history_is_kept_and_trimmed(engine: sa.Engine) -> None:
    store, state = SqlOffsetStore(engine, "p", keep=3), StoredState()
    for epoch in range(1, 6):
        state = store.save(state.with_plan(plan(epoch)), state)
        state = store.save(state.commit(END.with_position("binlog.000010", 1000 + epoch), epoch), state)
    assert [(row.epoch, row.offset.pos) for row in store.history()] == [(5, 1005), (4, 1004), (3, 1003)]


@pytest.mark.parametrize("first", [True, False], ids=["first save", "later save"])
def test_of_eight_threads_that_save_at_once_exactly_one_wins(engine: sa.Engine, first: bool) -> None:
    seen = None if first else SqlOffsetStore(engine, "p").save(StoredState(), None)
    barrier, wins, losses = threading.Barrier(8), [], []

    def run(owner: str) -> None:
        store = SqlOffsetStore(engine, "p")
        state = (seen or StoredState()).with_plan(plan(owner=owner))
        barrier.wait()
        try:
            wins.append(store.save(state, seen))
        except OffsetConflictError as error:
            losses.append(error)

    threads = [threading.Thread(target=run, args=(str(n),)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(wins), len(losses)) == (1, 7)
    assert SqlOffsetStore(engine, "p").load() == wins[0]


RACER = """
import sys
import sqlalchemy as sa
from airflow_provider_mysql_cdc.cdc.errors import OffsetConflictError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.sql_store import SqlOffsetStore
from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
here = BinlogOffset("binlog.000001", 4)
store = SqlOffsetStore(sa.create_engine(sys.argv[1]), "p")
print("ready", flush=True)
sys.stdin.readline()
try:
    store.save(StoredState().with_plan(BatchPlan(1, "drain", here, here, 1, owner=sys.argv[2])), None)
    print("won", flush=True)
except OffsetConflictError:
    print("refused", flush=True)
"""


def test_of_two_processes_that_also_create_the_tables_exactly_one_wins(url: str, engine: sa.Engine) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, url, owner],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for owner in "ab"
    ]
    for racer in racers:
        assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    told = [racer.communicate(timeout=60)[0].strip() for racer in racers]
    assert sorted(told) == ["refused", "won"]
    state = SqlOffsetStore(engine, "p").load()
    assert state is not None and state.pending is not None
    assert state.pending.owner == "ab"[told.index("won")]


def test_a_database_that_refuses_is_named_without_the_password(stack: Any) -> None:
    url = sa.URL.create("mysql+pymysql", "nobody", "hunter2", stack.mysql_host, stack.mysql_port, "mysql")
    with pytest.raises(StateError) as caught:
        SqlOffsetStore(sa.create_engine(url), "p").load()
    assert "nobody" in caught.value.why and "hunter2" not in str(caught.value)
