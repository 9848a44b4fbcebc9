"""Where a drain writer stands inside a transaction, and what an earlier attempt committed of it."""

from __future__ import annotations

import pytest

from airflow_provider_mysql_cdc.cdc.drain.writer_position import WriterPosition
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition

# B begins a transaction, D is the structure of a CREATE TABLE ... SELECT, R a row event, E the end.
STEPS = "BDRRREBRREBEBDRE"


def walk(resume: ResumePosition | None) -> list[tuple[ResumePosition, bool, bool]]:
    """Return the place behind each step, whether the step was committed before, and whether more was."""
    at, out = WriterPosition(BinlogOffset("b.000001", 4), resume=resume), []
    for i, step in enumerate(STEPS):
        done = False
        if step == "R":
            at.events += 1
            done = at.rows_committed()
        elif step == "E":
            done = at.transaction_committed()
            at.move_to("b.000001", 100 + i)
        else:
            at.statements += 1
            done = at.statement_committed()
        out.append((at.reached(None), done, at.is_before_resume()))
    return out


@pytest.mark.parametrize("crash", range(len(STEPS)))
def test_resumed_transactions_skip_what_was_committed_and_nothing_else(crash: int) -> None:
    reached = walk(None)[crash][0]
    again = walk(ResumePosition.from_json(reached.to_json()))
    assert [done for _, done, _ in again] == [i <= crash for i in range(len(STEPS))]
    assert [behind for _, _, behind in again] == [i < crash for i in range(len(STEPS))]


def test_a_marker_without_statements_after_rows_is_after_begin_and_create() -> None:
    old = {"file": "b.000001", "pos": 4, "gtids": None, "server_uuid": None, "event": 2, "row": 0}
    assert [done for _, done, _ in walk(ResumePosition.from_json(old))][:6] == [True, True, True, True, False, False]
    second = old | {"pos": 105, "event": 1}
    assert [done for _, done, _ in walk(ResumePosition.from_json(second))] == [i < 8 for i in range(len(STEPS))]
