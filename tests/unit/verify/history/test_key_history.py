from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.verify.history.key_history import HistoryRules, check_history, read_step, step_bytes
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import EventRecord, ValueForm
from airflow_provider_mysql_cdc.cdc.verify.read.source_place import source_order
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind as Kind

pytestmark = pytest.mark.quick

A, B, NEW, WIDER = {"v": 1}, {"v": 2}, {"v": 3}, {"v": 1, "w": None}
Event = tuple[str, dict[str, Any] | None, dict[str, Any] | None, int]


def found(*events: Event, tombstones: bool = True, complete: bool = True, ids: bool = False) -> list[tuple[Kind, int]]:
    """Return what is wrong with events (op, before, after, position), by the offset at which it shows."""
    steps = []
    for offset, (op, before, after, pos) in enumerate(events):
        source = {"file": "binlog.000007", "pos": pos, "row": 0} if pos else {}
        record = EventRecord(op, {"id": 1}, before, after, source)
        headers = [("cdc-id", b"%d" % pos)] if ids else []
        order = source_order(source)
        steps.append(read_step(0, offset, order, step_bytes(record, order, headers)))
    wrong = check_history(list(reversed(steps)), HistoryRules(tombstones, complete))
    return [(kind, step.offset) for kind, step in wrong]


def steps_of(*events: tuple[Any, Any, Any]) -> list[tuple[Kind, int]]:
    """Return what is wrong with updates from one row to another, given both and the forms of their values."""
    steps = []
    for offset, (before, after, forms) in enumerate(events):
        record = EventRecord("u", {"id": 1}, before, after, {}, forms)
        text = step_bytes(record, 0, (), lambda name, value: value == "?")
        steps.append(read_step(0, offset, 0, text))
    return [(kind, step.offset) for kind, step in check_history(steps, HistoryRules(True, True))]


def test_values_in_other_forms_are_no_gap() -> None:
    millis, micros = {"v": ValueForm("int64", "millis")}, {"v": ValueForm("int64", "micros")}
    assert steps_of((None, {"v": 1}, millis), ({"v": 1000}, {"v": 2000}, micros)) == []
    assert steps_of((None, {"v": 1}, millis), ({"v": 1000}, {"v": 2000}, millis)) == [(Kind.GAP, 1)]


def test_values_that_an_image_leaves_out_are_no_gap() -> None:
    assert steps_of((None, {"v": 1}, None), ({"v": "?"}, {"v": 2}, None)) == []
    assert steps_of((None, {"v": "?"}, None), ({"v": 1}, {"v": 2}, None)) == []
    assert steps_of((None, {"v": "?", "w": 1}, None), ({"v": 1, "w": "?"}, {"v": 2, "w": 1}, None)) == []
    assert steps_of((None, {"v": 1}, None), ({"v": 3}, {"v": 2}, None)) == [(Kind.GAP, 1)]


CREATE: Event = ("c", None, A, 10)
UPDATE: Event = ("u", A, B, 20)
DELETE: Event = ("d", B, None, 30)
TOMBSTONE: Event = ("", None, None, 0)
READ: Event = ("r", None, B, 5)


@for_each(
    "events",
    [
        [CREATE, UPDATE, DELETE, TOMBSTONE],
        [READ, ("u", B, A, 20)],
        [CREATE, READ, ("u", B, NEW, 40)],
        [CREATE, ("u", WIDER, {"v": 2, "w": 3}, 20)],  # a column was added
        [CREATE, ("u", A, B, 5), ("u", B, A, 6)],  # another server
        [("u", A, B, 7), ("u", B, A, 7), ("u", A, B, 7)],  # one compressed transaction
        [CREATE, ("c", None, NEW, 50)],  # the table was truncated
        [CREATE, ("u", None, B, 20)],  # no row image
    ],
)
@for_each("ids", [False, True])
def test_what_may_happen_is_not_reported(events: list[Event], ids: bool) -> None:
    assert found(*events, ids=ids) == []


@for_each(
    ("events", "wrong"),
    [
        ([CREATE, UPDATE, UPDATE], [(Kind.DUPLICATE, 2)]),
        ([CREATE, CREATE, UPDATE], [(Kind.DUPLICATE, 1)]),
        ([CREATE, UPDATE, DELETE, TOMBSTONE, DELETE, TOMBSTONE], [(Kind.DUPLICATE, 4)]),
        ([UPDATE, CREATE], [(Kind.REORDERED, 1)]),
        ([CREATE, ("u", B, NEW, 30), UPDATE], [(Kind.GAP, 1), (Kind.REORDERED, 2)]),
        ([CREATE, ("u", B, NEW, 30)], [(Kind.GAP, 1)]),
        ([CREATE, DELETE, TOMBSTONE], [(Kind.GAP, 1)]),
        ([CREATE, UPDATE, DELETE], [(Kind.NO_TOMBSTONE, 2)]),
        ([CREATE, UPDATE, DELETE, ("c", None, A, 40)], [(Kind.NO_TOMBSTONE, 2)]),
    ],
)
def test_events_that_do_not_continue_each_other_are_reported(
    events: list[Event], wrong: list[tuple[Kind, int]]
) -> None:
    assert found(*events) == wrong


def test_rules_of_the_topic_are_kept() -> None:
    assert found(CREATE, UPDATE, DELETE, tombstones=False) == []
    assert found(CREATE, ("u", B, NEW, 30), complete=False) == []
    assert found(CREATE, UPDATE, UPDATE, complete=False) == [(Kind.DUPLICATE, 2)]
