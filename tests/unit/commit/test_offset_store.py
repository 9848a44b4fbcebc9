"""Offset stores without a server: the in-memory twin and SQLAlchemy on SQLite."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from kit.store_contract import END, START, LagPointContract, StoreContract, plan
from pipelinelib.stand_ins import MemoryOffsetStore

from airflow_provider_mysql_cdc.cdc.commit.offset_store import HISTORY_ROWS, OffsetStore, StoredState
from airflow_provider_mysql_cdc.cdc.commit.sql_store import SqlOffsetStore, require_tables
from airflow_provider_mysql_cdc.cdc.errors import OffsetConflictError, StateError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, moves_back, same_position


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def make_store(self) -> Callable[[str], OffsetStore]:
        stores: dict[str, MemoryOffsetStore] = {}
        return lambda prefix: stores.setdefault(prefix, MemoryOffsetStore())


@pytest.fixture
def engine(tmp_path: Path) -> sa.Engine:
    return sa.create_engine(f"sqlite:///{tmp_path}/offsets.db")


class TestSqlStore(LagPointContract):
    @pytest.fixture
    def make_store(self, engine: sa.Engine) -> Callable[[str], OffsetStore]:
        return lambda prefix: SqlOffsetStore(engine, prefix)


def test_history_keeps_the_last_offsets_newest_first(engine: sa.Engine) -> None:
    store, state = SqlOffsetStore(engine, "p", keep=5), None
    other = SqlOffsetStore(engine, "q", keep=5)
    other.save(StoredState().with_plan(plan()).commit(END, 1), None)
    current = StoredState()
    for epoch in range(1, 9):
        current = current.with_plan(plan(epoch))
        state = store.save(current, state)
        current = state.commit(END.with_position("binlog.000010", 1000 + epoch), 10_000 + epoch)
        state = store.save(current, state)
        current = state
    rows = store.history()
    assert [(row.epoch, row.offset.pos, row.at_ms) for row in rows] == [
        (e, 1000 + e, 10_000 + e) for e in range(8, 3, -1)
    ]
    assert [row.epoch for row in store.history(2)] == [8, 7]
    assert len(other.history()) == 1


def test_a_save_that_does_not_move_the_offset_adds_no_history(engine: sa.Engine) -> None:
    store = SqlOffsetStore(engine, "p")
    state = store.save(StoredState().with_plan(plan()).commit(END, 1), None)
    store.save(state.with_plan(plan(2)), state)
    assert len(store.history()) == 1


@pytest.mark.parametrize("round_", range(5))
def test_of_two_threads_that_save_at_once_exactly_one_wins(engine: sa.Engine, round_: int) -> None:
    seen = SqlOffsetStore(engine, "p").save(StoredState(), None) if round_ % 2 else None
    barrier, wins, losses = threading.Barrier(2), [], []

    def run(owner: str) -> None:
        store = SqlOffsetStore(engine, "p")
        state = (seen or StoredState()).with_plan(plan(owner=owner))
        barrier.wait()
        try:
            wins.append(store.save(state, seen))
        except OffsetConflictError as error:
            losses.append(error)

    threads = [threading.Thread(target=run, args=(owner,)) for owner in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(wins), len(losses)) == (1, 1)
    assert SqlOffsetStore(engine, "p").load() == wins[0]


def test_tables_may_be_created_by_several_at_once(engine: sa.Engine) -> None:
    barrier, errors = threading.Barrier(4), []

    def run() -> None:
        barrier.wait()
        try:
            require_tables(engine)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    tables = {"mysql_cdc_offsets", "mysql_cdc_offset_history", "mysql_cdc_store_version"}
    assert set(sa.inspect(engine).get_table_names()) == tables


def test_a_database_that_does_not_answer_is_named_and_shows_no_secret(tmp_path: Path) -> None:
    broken = sa.create_engine(f"sqlite:///{tmp_path}/missing/offsets.db")
    with pytest.raises(StateError) as caught:
        SqlOffsetStore(broken, "p").save(StoredState().with_plan(plan(owner="tell-tale")), None)
    assert caught.value.can_retry
    assert "unable to open database file" in caught.value.why
    assert "tell-tale" not in str(caught.value)


def test_a_damaged_row_is_named(engine: sa.Engine) -> None:
    store = SqlOffsetStore(engine, "p")
    store.save(StoredState(), None)
    with engine.begin() as conn:
        conn.execute(sa.text("UPDATE mysql_cdc_offsets SET state = '{oops'"))
    with pytest.raises(StateError, match="damaged"):
        store.load()


@pytest.mark.parametrize("damage", [{"epoch": None}, {"committed": "binlog.000001:4"}, {"pending": {"epoch": 1}}])
def test_a_damaged_value_is_named(damage: dict[str, object]) -> None:
    data = StoredState().to_json() | damage
    with pytest.raises(StateError, match="damaged"):
        StoredState.from_json(data)


def test_the_stored_form_is_plain_json() -> None:
    state = StoredState().with_plan(plan(assignment={"t": (0, 1)})).commit(END, 5)
    assert json.loads(json.dumps(state.to_json(), allow_nan=False)) == state.to_json()
    assert StoredState.from_json(state.to_json()) == state


def test_a_new_plan_takes_the_next_epoch_and_only_when_none_is_pending() -> None:
    pending = StoredState().with_plan(plan(1))
    with pytest.raises(StateError):
        pending.with_plan(plan(2))
    with pytest.raises(StateError):
        pending.commit(END, 0).with_plan(plan(3))
    assert pending.commit(END, 0).with_plan(plan(2)).epoch == 2


def test_another_run_may_take_a_pending_plan_over_but_not_change_its_work() -> None:
    pending = StoredState().with_plan(plan(1, owner="a"))
    taken = pending.with_plan(plan(1, owner="b"))
    assert taken.pending is not None and taken.pending.owner == "b"
    with pytest.raises(StateError):
        pending.with_plan(plan(1, end=END.with_position("binlog.000099", 4)))


def test_a_commit_never_moves_the_offset_back() -> None:
    state = StoredState().with_plan(plan()).commit(END, 0).with_plan(plan(2))
    with pytest.raises(StateError, match="must not move back"):
        state.commit(START, 1)
    assert state.commit(START, 1, may_move_back=True).committed == START


def test_history_inside_the_value_is_bounded() -> None:
    state = StoredState()
    for epoch in range(1, HISTORY_ROWS + 10):
        state = state.with_plan(plan(epoch)).commit(END.with_position("binlog.000010", 1000 + epoch), epoch)
    assert [past.epoch for past in state.history] == list(range(10, HISTORY_ROWS + 10))


def test_offsets_are_compared_by_number_and_only_on_one_server() -> None:
    late, early = BinlogOffset("b.1000000", 4), BinlogOffset("b.999999", 9)
    assert moves_back(late, early) and not moves_back(early, late) and not moves_back(None, early)
    a = BinlogOffset("b.000009", 4, "u:1-5", "server-a")
    assert not moves_back(a, BinlogOffset("b.000001", 4, None, "server-b"))
    assert same_position(a, BinlogOffset("b.000001", 4, "u:1-5", "server-b"))
    assert not same_position(a, BinlogOffset("b.000009", 4, "u:1-6", "server-b"))
    assert same_position(None, None) and not same_position(a, None)
