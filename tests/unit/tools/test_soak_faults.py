"""The soak counts a fault only when it knows that it fired, and names in its verdict what never did."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from soaklib.cli import Soak
from soaklib.ddl import DDL


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


def test_the_verdict_names_incremental_snapshots_that_no_job_accepted() -> None:
    there = world()
    there.fired["incremental snapshot"] = 1
    assert "incremental snapshot accepted" in Soak(there, 1.0, ("incremental snapshot",), "").summary()[-1]
    there.fired["incremental snapshot accepted"] = 1
    assert "incremental snapshot accepted" not in Soak(there, 1.0, ("incremental snapshot",), "").summary()[-1]
