"""Where a batch may end when a schema is refused: never before something that is committed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.cases import for_each
from kit.memory_job import config
from kit.store_contract import END, START, plan

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import Marker
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain import batch_writers
from airflow_provider_mysql_cdc.cdc.drain.batch_run import StartedBatch
from airflow_provider_mysql_cdc.cdc.drain.batch_writers import RefusedSchemas, can_end_at, shorten_batch
from airflow_provider_mysql_cdc.cdc.drain.drain_operations import RefusedSchema
from airflow_provider_mysql_cdc.cdc.errors import IncompatibleSchemaError, SourceConnectionError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition

pytestmark = pytest.mark.quick

LOW, HIGH = (START.with_position(START.file, START.pos + n) for n in (100, 200))


def marker(writer: int, at: BinlogOffset, events: int = 0, statements: int = 0, epoch: int = 1) -> Marker:
    return Marker(epoch, writer, START, END, ResumePosition(at, events, statements))


@for_each(
    ("markers", "possible"),
    [
        ([], True),
        ([marker(0, START), marker(1, LOW)], True),
        ([marker(0, LOW, 2, 1)], True),
        ([marker(0, HIGH)], True),
        ([marker(0, HIGH, 1, 1)], False),
        ([marker(0, HIGH, 0, 2)], False),
        ([marker(0, LOW), marker(1, END)], False),
        ([marker(1, END, epoch=0)], True),
    ],
)
def test_a_batch_ends_at_a_boundary_after_which_nothing_is_committed(markers: list[Marker], possible: bool) -> None:
    ledger = LedgerState(plan=plan(), markers={m.writer: m for m in markers})
    assert can_end_at(ledger, plan(), HIGH) is possible


@pytest.mark.parametrize("last", [LOW, END])
def test_markers_are_final_before_they_are_compared(monkeypatch: pytest.MonkeyPatch, last: BinlogOffset) -> None:
    """A writer of the failed stage may commit until a new attempt is in force."""
    calls: list[str] = []
    markers: dict[int, Marker] = {}

    def begin(made: Any) -> LedgerState:
        calls.append("begin")
        markers[0] = marker(0, last)
        return LedgerState(plan=replace(made, attempt="new"), markers=markers)

    monkeypatch.setattr(batch_writers, "with_end", lambda cfg, conn, made, end: replace(made, end=end))
    job: Any = SimpleNamespace(
        begin=begin,
        read=lambda **_: LedgerState(plan=plan(), markers=markers),
        replace_plan=lambda made: calls.append(f"{made.attempt} ends at {made.end}"),
    )
    batch = StartedBatch(plan(), LedgerState(plan=plan()), SchemaState())
    found, shortened = shorten_batch(config(), None, job, batch, HIGH)
    assert (found.plan.attempt, found.ledger.plan) == ("new", found.plan)
    if last == LOW:
        assert (shortened, found.plan.end, calls) == (True, HIGH, ["begin", f"new ends at {HIGH}"])
    else:
        assert (shortened, found.plan.end, calls) == (False, END, ["begin"])


def test_the_first_refusal_counts_and_an_error_of_another_kind_is_none() -> None:
    refusals, error = RefusedSchemas(), IncompatibleSchemaError("no", where="table b.t", why="b is new")
    for refusal in (RefusedSchema(HIGH, error), RefusedSchema(LOW, error)):
        refusals.add(0, RefusedSchema.from_json(refusal.to_json()))
    first = refusals.first(error)
    assert first is not None and first.before == LOW and first.error.to_json() == error.to_json()
    assert refusals.first(SourceConnectionError("gone")) is None
    assert RefusedSchemas().first(error) is None
