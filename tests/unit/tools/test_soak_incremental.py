"""Incremental snapshots of the soak: each is accepted, and a row that no window has read is reported."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from kit.cases import case
from soaklib.binlog_facts import GtidSet
from soaklib.incremental_requests import IncrementalRequests, ReadAgainCheck
from topiclib.checks import TableCheck
from topiclib.events import Event, Layout, position_of

SOURCE = "a1730108-e599-11f1-8bb7-02fc00000001"
BEFORE = GtidSet.parse(f"{SOURCE}:1-20")
ACCEPTED = "[mysql-cdc] signal s-1: incremental snapshot of 2 table(s)\n"


def requests(*outputs: str) -> IncrementalRequests:
    made = IncrementalRequests()
    made.sent["s-1"] = ("d.a", "d.b"), BEFORE
    for output in outputs:
        assert made.note(output) == []
    return made


def test_each_request_is_accepted() -> None:
    assert requests("").differences() == ["incremental snapshot s-1 was not accepted"]
    assert requests(ACCEPTED).differences() == []


def event(identity: str, key: int, op: str = "c") -> Any:
    after = None if op == "d" else (key,)
    data = identity.encode()
    return Event("", 0, op, (key,), None, after, data, position_of(data), None)


def row_differences(*events: Event, late: Sequence[str] = ()) -> list[str]:
    check = ReadAgainCheck({"a": BEFORE}, late)
    table = SimpleNamespace(present_keys=lambda: {e.key for e in events if e.op != "d"})
    for each in events:
        check.note("a", each)
    assert check.differences("b", table) == []  # type: ignore[arg-type]
    return check.differences("a", table)  # type: ignore[arg-type]


def test_a_row_is_read_again_or_changed_later() -> None:
    for identity, late, fine in [
        ("incremental/5/1/t/{}", (), True),
        (f"{SOURCE}:21/1/0/0", (), True),
        (f"{SOURCE}:20/1/0/0", (f"{SOURCE}:20",), True),
        (f"{SOURCE}:20/1/0/0", (), False),
        ("snapshot/t/{}", (), False),
    ]:
        with case(identity, late, fine):
            assert row_differences(event("incremental/5/1/t/x", 1), event(identity, 2), late=late) == (
                [] if fine else ["a: 1 rows were not read by the incremental snapshot: (2,)"]
            )


def test_a_deleted_row_is_not_read() -> None:
    before = [event(f"{SOURCE}:9/1/0/0", 2), event(f"{SOURCE}:10/1/0/0", 2, "d")]
    layout = Layout("a", ("id",), ("id",), (None,))
    again, check = ReadAgainCheck({"a": BEFORE}, ()), TableCheck(layout).feed(before)
    assert check.present_keys() == set() and again.differences("a", check) == []
