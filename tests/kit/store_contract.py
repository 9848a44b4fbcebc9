"""What every offset store must keep; each implementation's tests subclass this with a factory of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore, StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.errors import OffsetConflictError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.operate.lag import LagPointStore

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
START = BinlogOffset("binlog.000009", 4, f"{UUID}:1-7", UUID)
END = BinlogOffset("binlog.000010", 157, f"{UUID}:1-70", UUID)


def plan(epoch: int = 1, start: BinlogOffset = START, end: BinlogOffset = END, **more: Any) -> BatchPlan:
    """Return a small plan."""
    more.setdefault("owner", "dag/run/task/-1")
    return BatchPlan(epoch, "drain", start, end, more.pop("writers", 2), **more)


class StoreContract:
    """Tests shared by all stores; ``make_store(prefix)`` gives handles on one and the same storage."""

    @pytest.fixture
    def make_store(self) -> Callable[[str], OffsetStore]:
        raise NotImplementedError

    def test_nothing_is_stored_at_first(self, make_store: Callable[[str], OffsetStore]) -> None:
        assert make_store("p").load() is None

    def test_what_is_saved_is_loaded_again_by_another_handle(self, make_store: Callable[[str], OffsetStore]) -> None:
        full = StoredState().with_plan(plan(partitions={"p.d.t": 3}, assignment={"p.d.t": (0, 1, 0)}), "ledger-id")
        full = full.commit(END, 1_700_000_000_000, {"epoch": 1, "status": "done", "offset": END.to_json()})
        full = full.with_plan(plan(2, END, END.with_position("binlog.000011", 4)))
        stored = make_store("p").save(full, None)
        again = make_store("p").load()
        assert again == stored
        assert again is not None and again.revision == 1
        assert again.pending == full.pending and again.committed == END and again.history == full.history
        assert again.snapshot == full.snapshot and again.ledger_id == "ledger-id"

    def test_each_save_raises_the_revision(self, make_store: Callable[[str], OffsetStore]) -> None:
        store = make_store("p")
        first = store.save(StoredState(), None)
        second = store.save(first.with_plan(plan()), first)
        assert (first.revision, second.revision) == (1, 2)
        assert second.epoch == 1

    def test_a_state_that_was_never_saved_counts_as_nothing(self, make_store: Callable[[str], OffsetStore]) -> None:
        assert make_store("p").save(StoredState().with_plan(plan()), StoredState()).revision == 1

    def test_a_save_from_an_older_state_is_refused_and_changes_nothing(
        self, make_store: Callable[[str], OffsetStore]
    ) -> None:
        mine, other = make_store("p"), make_store("p")
        seen = mine.save(StoredState(), None)
        theirs = other.save(seen.with_plan(plan(owner="other")), seen)
        with pytest.raises(OffsetConflictError) as caught:
            mine.save(seen.with_plan(plan(owner="mine")), seen)
        assert caught.value.can_retry
        assert mine.load() == theirs

    def test_a_first_save_is_refused_when_something_is_stored(self, make_store: Callable[[str], OffsetStore]) -> None:
        first = make_store("p").save(StoredState().with_plan(plan(owner="first")), None)
        with pytest.raises(OffsetConflictError):
            make_store("p").save(StoredState().with_plan(plan(owner="second")), None)
        assert make_store("p").load() == first

    def test_a_save_is_refused_when_what_was_expected_is_gone(self, make_store: Callable[[str], OffsetStore]) -> None:
        seen = StoredState(epoch=3, revision=7)
        with pytest.raises(OffsetConflictError):
            make_store("p").save(seen, seen)
        assert make_store("p").load() is None

    def test_prefixes_do_not_touch_each_other(self, make_store: Callable[[str], OffsetStore]) -> None:
        names = ["shop", "Shop", "shop.eu", "sho_", "shöp"]
        for number, name in enumerate(names, 1):
            make_store(name).save(StoredState(epoch=number), None)
        assert [make_store(name).load().epoch for name in names] == [1, 2, 3, 4, 5]  # type: ignore[union-attr]

    def test_a_state_that_was_created_again_is_not_taken_for_the_one_before_it(
        self, make_store: Callable[[str], OffsetStore]
    ) -> None:
        lost = make_store("other").save(StoredState().with_plan(plan()), None)
        anew = make_store("p").save(StoredState().with_plan(plan()), None)
        assert (lost.revision, lost.epoch) == (anew.revision, anew.epoch)
        with pytest.raises(OffsetConflictError):
            make_store("p").save(lost.commit(END, 1), lost)
        assert make_store("p").load() == anew


class LagPointContract(StoreContract):
    """What stores must keep that also have the points of a stream's lag."""

    def test_points_of_the_lag_are_kept_beside_the_state(self, make_store: Callable[[str], OffsetStore]) -> None:
        store = make_store("p")
        state = store.save(StoredState(), None)
        assert isinstance(store, LagPointStore) and store.load_points() == []
        for points in ([{"at_ms": 1, "until_ms": 0}], [{"at_ms": 1, "until_ms": 0}, {"at_ms": 2, "until_ms": 1}]):
            store.save_points(points)
            again, other = make_store("p"), make_store("q")
            assert isinstance(again, LagPointStore) and again.load_points() == points
            assert isinstance(other, LagPointStore) and other.load_points() == []
        assert store.load() == state
