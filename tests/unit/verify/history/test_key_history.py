"""The events of a key one after the other, also where they say the row after a change alone."""

from __future__ import annotations

from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.verify.history.key_history import (
    HistoryRules,
    KeyStep,
    check_history,
    read_step,
    step_bytes,
)
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import EventRecord, ValueForm, source_order
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


RULES = HistoryRules(tombstones=False, complete=True, rows_only=True, whole_rows=True)
PARTS = HistoryRules(tombstones=False, complete=True, rows_only=True)
SPREAD = HistoryRules(tombstones=False, complete=True, rows_only=True, whole_rows=True, together=False)


def rows_and_times(*told: tuple[str, int, int], partition: int = 0) -> list[KeyStep]:
    """Return the rows_and_times of operations, times and rows."""
    return [
        KeyStep(partition, offset, order, op, 0, 0, 0, after, 1) for offset, (op, order, after) in enumerate(told, 1)
    ]


@for_each(
    ("told", "rules", "found"),
    [
        ([("c", 5, 1), ("u", 6, 2), ("d", 0, 0), ("c", 8, 1)], RULES, []),
        ([("u", 5, 1), ("u", 5, 2), ("u", 5, 1), ("d", 0, 0), ("c", 5, 1)], RULES, []),
        ([("u", 5, 1), ("u", 5, 1)], RULES, [Kind.DUPLICATE]),
        ([("u", 5, 1), ("u", 5, 1)], PARTS, []),
        ([("c", 5, 1), ("c", 5, 1)], RULES, []),
        ([("u", 5, 1), ("u", 6, 2), ("u", 5, 1)], PARTS, [Kind.DUPLICATE]),
        ([("u", 5, 1), ("u", 4, 3)], PARTS, [Kind.REORDERED]),
        ([("u", 5, 1), ("d", 0, 0), ("c", 4, 3)], PARTS, [Kind.REORDERED]),
        ([("d", 0, 0), ("d", 0, 0)], RULES, [Kind.DUPLICATE]),
        ([("d", 0, 0), ("d", 0, 0)], SPREAD, []),
        ([("c", 5, 1), ("d", 0, 0), ("u", 6, 2)], RULES, [Kind.GAP]),
        ([("c", 5, 1), ("d", 0, 0), ("u", 6, 2)], SPREAD, []),
        ([("u", 0, 1), ("u", 0, 1), ("d", 0, 0), ("u", 0, 2)], RULES, []),
    ],
)
def test_what_rows_and_times_show(told: list[tuple[str, int, int]], rules: HistoryRules, found: list[Kind]) -> None:
    assert [kind for kind, _ in check_history(rows_and_times(*told), rules)] == found


@for_each(
    ("told", "names", "found"),
    [
        ([("c", 5, 1), ("c", 5, 1)], (1, 2), []),
        ([("c", 5, 1), ("c", 5, 1)], (1, 1), [Kind.DUPLICATE]),
        ([("c", 5, 1), ("c", 5, 1), ("c", 5, 1)], (1, 2, 1), [Kind.DUPLICATE]),
        ([("c", 5, 1), ("u", 5, 2), ("c", 5, 1)], (1, 2, 1), [Kind.DUPLICATE]),
        ([("u", 5, 1), ("u", 5, 2), ("u", 5, 1)], (1, 2, 3), []),
        ([("c", 5, 1), ("u", 5, 2), ("c", 5, 2), ("u", 5, 2)], (1, 2, 3, 2), [Kind.DUPLICATE]),
        # Another binlog begins anew with the same names.
        ([("c", 5, 1), ("c", 8, 1)], (1, 1), []),
    ],
)
def test_a_name_tells_an_event_that_came_twice_from_a_snapshot_of_its_row(
    told: list[tuple[str, int, int]], names: tuple[int, ...], found: list[Kind]
) -> None:
    named = [step._replace(identity=name) for step, name in zip(rows_and_times(*told), names, strict=True)]
    assert [kind for kind, _ in check_history(named, RULES)] == found


def test_a_time_that_changes_of_one_row_share_names_none_of_them() -> None:
    record = EventRecord("u", {"id": 1}, None, {"id": 1}, {"_tidb_op": "u", "_tidb_commit_ts": 5})
    assert read_step(0, 0, 5, step_bytes(record, 5, ())).identity == 0
    assert read_step(0, 0, 5, step_bytes(record, 5, [("cdc-id", b"a:1/0/0/0")])).identity != 0


def test_records_of_several_partitions_are_not_compared() -> None:
    both = [*rows_and_times(("u", 9, 1), ("d", 0, 0)), *rows_and_times(("u", 5, 1), ("u", 6, 2), partition=1)]
    assert list(check_history(both, RULES)) == []
