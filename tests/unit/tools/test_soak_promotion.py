"""Promotions of the soak: how many, at which moments, and the order of transactions that two servers have logged."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

from kit.cases import case
from soaklib.binlog_facts import GtidSet
from soaklib.cli import Soak
from soaklib.promotion_faults import PROMOTIONS
from topiclib.checks import TableCheck
from topiclib.events import Event, Layout, position_of
from topiclib.row_check import RowCheck

ONE, TWO = "a1730108-e599-11f1-8bb7-02fc00000001", "b1730108-e599-11f1-8bb7-02fc00000001"
KEYED = Layout("t", ("id", "ver"), ("id",), (None, None))
RANKS = {f"{ONE}:1": 0, f"{ONE}:2": 1, f"{TWO}:1": 2, f"{ONE}:3": 3}


def test_a_set_contains_the_numbers_of_its_ranges() -> None:
    executed = GtidSet.parse(f"{ONE}:1-5:8, {TWO}:3-4")
    assert [n for n in range(10) if (ONE, n) in executed] == [1, 2, 3, 4, 5, 8]
    assert [n for n in range(10) if (TWO, n) in executed] == [3, 4]
    assert ("another", 1) not in executed and ("another", 1) not in GtidSet.parse("")


def event(transaction: str, op: str, before: Any, after: Any, file: tuple[int, int] | None) -> Event:
    identity = f"{transaction}/1/0/0".encode()
    key = ((before or after)[0],)
    return Event("0/1", 0, op, key, before, after, identity, position_of(identity), file)


def stream(*transactions: str, files: tuple[int, ...] = (9, 9, 2, 9)) -> list[Event]:
    """Return changes of one row; the second server has fewer binlog files than the first one."""
    rows: list[Any] = [None, *((1, n) for n in range(len(transactions)))]
    return [
        event(name, "u" if rows[n] else "c", rows[n], rows[n + 1], (files[n], 100 * n))
        for n, name in enumerate(transactions)
    ]


def test_the_order_of_two_servers_transactions_is_that_of_the_binlog_with_both() -> None:
    right = stream(f"{ONE}:1", f"{ONE}:2", f"{TWO}:1", f"{ONE}:3")
    wrong = stream(f"{ONE}:1", f"{ONE}:2", f"{ONE}:3", f"{TWO}:1")
    assert TableCheck(KEYED, ranks=RANKS).feed(right).finish([(1, 3)]).ok
    assert "order" in TableCheck(KEYED, ranks=RANKS).feed(wrong).finish([(1, 3)]).problems
    assert "order" in TableCheck(KEYED).feed(right).finish([(1, 3)]).problems, "files of one server only rise"


def test_a_truncate_of_the_other_server_has_its_place_among_all() -> None:
    for truncated, rows in [((TWO, 1), [(1, 3)]), ((ONE, 2), [(1, 3)])]:
        with case(truncated, rows):
            again = [event(f"{ONE}:1", "c", None, (1, 0), (9, 1)), event(f"{ONE}:3", "c", None, (1, 3), (9, 2))]
            assert RowCheck(KEYED, ranks=RANKS, truncations=[truncated]).feed(again).finish(rows).ok
            assert "gap" in RowCheck(KEYED, ranks=RANKS).feed(again).finish(rows).problems
            before = RowCheck(KEYED, ranks={**RANKS, f"{TWO}:1": 9}, truncations=[(TWO, 1)]).feed(again[:1])
            assert before.finish([]).ok, "nothing is left of rows before a truncate that is the last transaction"


def world(**more: Any) -> Any:
    said: list[str] = []
    counts = {name: Counter[str]() for name in ("fired", "tried", "transactions")}
    return SimpleNamespace(
        seed=1, kind="drain", rng=random.Random(3), said=said, say=said.append, problems=[], **counts, **more
    )


def test_promotions_that_are_missing_at_the_end_are_named() -> None:
    there = world()
    there.fired[next(iter(PROMOTIONS))] = 3
    assert Soak(there, 1.0, ("kill Kafka",), "", promotions=5).missing_kinds()[-1] == "2 promotions"
    assert "promotions" not in Soak(there, 1.0, ("kill Kafka",), "", promotions=3).missing_kinds()[-1]
