"""Histories of records that say the row after a change, and the time of its transaction."""

from __future__ import annotations

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.verify.history.key_history import HistoryRules, KeyStep, read_step, step_bytes
from airflow_provider_mysql_cdc.cdc.verify.history.row_history import check_row_history
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import EventRecord
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind as Kind

pytestmark = pytest.mark.quick

RULES = HistoryRules(tombstones=False, complete=True, rows_only=True, whole_rows=True)
PARTS = HistoryRules(tombstones=False, complete=True, rows_only=True)
SPREAD = HistoryRules(tombstones=False, complete=True, rows_only=True, whole_rows=True, together=False)


def steps(*told: tuple[str, int, int], partition: int = 0) -> list[KeyStep]:
    """Return the steps of operations, times and rows."""
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
    assert [kind for kind, _ in check_row_history(steps(*told), rules)] == found


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
    named = [step._replace(identity=name) for step, name in zip(steps(*told), names, strict=True)]
    assert [kind for kind, _ in check_row_history(named, RULES)] == found


def test_a_time_that_changes_of_one_row_share_names_none_of_them() -> None:
    record = EventRecord("u", {"id": 1}, None, {"id": 1}, {"_tidb_op": "u", "_tidb_commit_ts": 5})
    assert read_step(0, 0, 5, step_bytes(record, 5, ())).identity == 0
    assert read_step(0, 0, 5, step_bytes(record, 5, [("cdc-id", b"a:1/0/0/0")])).identity != 0


def test_records_of_several_partitions_are_not_compared() -> None:
    both = [*steps(("u", 9, 1), ("d", 0, 0)), *steps(("u", 5, 1), ("u", 6, 2), partition=1)]
    assert list(check_row_history(both, RULES)) == []
