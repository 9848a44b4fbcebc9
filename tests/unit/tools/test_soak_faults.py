"""The soak counts a fault only when it knows that it fired, and names in its verdict what never did."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from soaklib import faults, spark_faults, steps
from soaklib.cli import Soak
from soaklib.ddl import DDL
from soaklib.xa_fault import commit_first


def world(**more: Any) -> Any:
    attempts = SimpleNamespace(made=[], logs=Path("attempts"))
    empty = {name: Counter[str]() for name in ("fired", "tried", "transactions")}
    return SimpleNamespace(
        seed=1,
        stream=1,
        folder=Path("."),
        attempts=attempts,
        epochs=set(),
        rng=random.Random(1),
        kind="drain",
        format="json",
        **empty,
        **more,
    )


class Attempt(SimpleNamespace):
    """An attempt that has ended without passing its fault point."""

    fired, alive, flag = False, False, Path("/nowhere/flag")


def report(fired: dict[str, int], **more: int) -> list[str]:
    there = world()
    there.fired.update(fired)
    there.tried.update({"kill Kafka": 2, "kill mysqld": 3})
    there.transactions.update(more)
    return Soak(there, 1.0, ("kill Kafka", "kill mysqld"), "scripts/soak").summary()


def test_the_verdict_names_kinds_that_never_fired() -> None:
    lines = report({"kill Kafka": 1})
    assert {"  kill Kafka: 1 of 2", "  kill mysqld: 0 of 3"} <= set(lines)
    silent = [f"ddl: {kind}" for kind in DDL]
    assert lines[-1] == f"never fired: kill mysqld, {', '.join(silent)}, load: xa committed, load: xa rolled back"


def test_the_verdict_says_when_every_kind_fired() -> None:
    fired = {"kill Kafka": 1, "kill mysqld": 3} | {f"ddl: {kind}": 1 for kind in DDL}
    assert report(fired, **{"xa committed": 1, "xa rolled back": 1})[-1] == "every one of 2 kinds fired"


def test_an_attempt_that_ends_before_its_fault_is_followed_by_others_and_then_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[Any] = []
    there = world(start=lambda **more: begun.append(more) or Attempt(), run=lambda attempt, excused: {})
    for module in (steps, spark_faults):
        monkeypatch.setattr(module, "fill_batch", lambda _: None)
    assert not steps.kill_unfinished(there)
    assert len(begun) == 5 and all(b["fault"]["point"] in steps.UNFINISHED_POINTS["drain"] for b in begun)
    assert not spark_faults.kill_executor_jvm(there)
    assert [b["spark"] for b in begun[5:]] == ["cluster"] * 3


@pytest.mark.parametrize(
    ("first", "fired"), [("XA COMMIT X'61',X'',1", True), ("BEGIN", False), (None, False)], ids=["xa", "other", "none"]
)
def test_xa_commit_counts_only_as_the_first_transaction_of_the_new_file(first: str | None, fired: bool) -> None:
    class Cursor:
        def __enter__(self) -> Cursor:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def execute(self, sql: str) -> None:
            pass

        def fetchone(self) -> tuple[str]:
            return ("binlog.000007",)

        def fetchall(self) -> list[tuple[Any, ...]]:
            events = [("binlog.000007", 4, "Format_desc", 1, 127, ""), ("binlog.000007", 127, "Gtid", 1, 200, "")]
            return events + ([("binlog.000007", 200, "Query", 1, 300, first)] if first else [])

    assert commit_first(SimpleNamespace(cursor=Cursor), "a") is fired


class Begun(SimpleNamespace):
    """An attempt that was killed behind a commit, or one that came upon the next batch."""

    fired, epoch, result = True, 7, {"other": 8}

    def wait(self, seconds: float) -> bool:
        return True


def test_a_setting_that_decides_changes_only_inside_a_batch_of_which_a_part_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[Any] = []
    there = world(
        start=lambda **more: begun.append(more) or Begun(),
        run=lambda attempt, excused: {},
        properties={"tombstones.on.delete": "true"},
        database="soak_1",
    )
    monkeypatch.setattr(steps, "fill_batch", lambda _: None)
    assert not faults.change_pinned_setting(there), "the batch was over each time: the next one may have other settings"
    assert begun[0]["fault"]["point"] == "writer.after_commit" and begun[1] == {"only": 7}
    assert len(begun) == 8 and there.properties == {"tombstones.on.delete": "true"}
    assert not there.fired


def test_the_verdict_names_incremental_snapshots_that_no_job_accepted() -> None:
    there = world()
    there.fired["incremental snapshot"] = 1
    assert "incremental snapshot accepted" in Soak(there, 1.0, ("incremental snapshot",), "").summary()[-1]
    there.fired["incremental snapshot accepted"] = 1
    assert "incremental snapshot accepted" not in Soak(there, 1.0, ("incremental snapshot",), "").summary()[-1]
