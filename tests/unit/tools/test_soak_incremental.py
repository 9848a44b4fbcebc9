"""Incremental snapshots of the soak: each is accepted, and a row that no window has read is reported."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from soaklib.gtids import GtidSet
from soaklib.incremental_requests import IncrementalRequests, ReadAgainCheck
from topiclib.checks import TableCheck
from topiclib.events import Event, Layout, position_of

SOURCE = "a1730108-e599-11f1-8bb7-02fc00000001"
BEFORE = GtidSet.parse(f"{SOURCE}:1-20")
EARLIER = GtidSet.parse(f"{SOURCE}:1-7")
ACCEPTED = "[mysql-cdc] signal s-1: incremental snapshot of 2 table(s)\n"


def ended(table: str, status: str = "SUCCEEDED") -> str:
    line = f"[mysql-cdc] snapshot s-1: scanned_collection=d.{table}, total_rows_scanned=3, status={status}"
    return line + ("\n" if status == "SUCCEEDED" else ", reason=it was dropped\n")


def requests(*outputs: str) -> IncrementalRequests:
    made = IncrementalRequests()
    made.sent["s-1"] = ("d.a", "d.b"), BEFORE
    for output in outputs:
        assert made.note(output) == []
    return made


def test_each_request_is_accepted() -> None:
    assert requests("").differences() == ["incremental snapshot s-1 was not accepted"]
    assert requests(ACCEPTED).differences() == []


def test_a_refused_signal_is_shown() -> None:
    line = "signal s-2 (execute-snapshot, channel source) is refused: INSERT denied"
    assert requests(ACCEPTED).note(f"[mysql-cdc] {line}\n") == [line]


def test_tables_are_read_from_the_first_request_on_but_for_those_that_are_stopped_or_given_up() -> None:
    made = requests(ACCEPTED, ended("a") + ended("b", "SKIPPED"))
    assert made.read_after() == {"a": BEFORE}
    assert requests(ACCEPTED).read_after() == {"a": BEFORE, "b": BEFORE}
    assert requests("").read_after() == {}
    made.sent["s-0"] = ("d.a",), EARLIER
    made.accepted.add("s-0")
    assert made.read_after() == {"a": EARLIER}
    made.stop(["d.a"])
    assert made.read_after() == {}


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


@pytest.mark.parametrize(
    ("identity", "late", "fine"),
    [
        ("incremental/5/1/t/{}", (), True),
        (f"{SOURCE}:21/1/0/0", (), True),
        (f"{SOURCE}:20/1/0/0", (f"{SOURCE}:20",), True),
        (f"{SOURCE}:20/1/0/0", (), False),
        ("snapshot/t/{}", (), False),
    ],
    ids=["read", "changed later", "committed later", "changed before", "initial snapshot"],
)
def test_a_row_is_read_again_or_changed_later(identity: str, late: Sequence[str], fine: bool) -> None:
    assert row_differences(event("incremental/5/1/t/x", 1), event(identity, 2), late=late) == (
        [] if fine else ["a: 1 rows were not read by the incremental snapshot: (2,)"]
    )


def test_a_deleted_row_is_not_read() -> None:
    before = [event(f"{SOURCE}:9/1/0/0", 2), event(f"{SOURCE}:10/1/0/0", 2, "d")]
    layout = Layout("a", ("id",), ("id",), (None,))
    again, check = ReadAgainCheck({"a": BEFORE}, ()), TableCheck(layout).feed(before)
    assert check.present_keys() == set() and again.differences("a", check) == []
