"""Where a drain writer stands inside a transaction, and what an earlier attempt committed of it.

ROLLBACK in the binlog behind rows is named, and never taken for a COMMIT.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from kit.cases import for_each
from kit.drain_rig import Rig

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.position import LocalGtids
from airflow_provider_mysql_cdc.cdc.drain.writer_position import WriterPosition, row_event_size
from airflow_provider_mysql_cdc.cdc.errors import ServerChangedError, UnsupportedEventError
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition

# B begins a transaction, D is the structure of a CREATE TABLE ... SELECT, R a row event, E the end.
STEPS = "BDRRREBRREBEBDRE"
SOURCE = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
GTID = f"{SOURCE}:8"
BEFORE = BinlogOffset("b.000001", 100, None, "s")


def walk(resume: ResumePosition | None) -> list[tuple[ResumePosition, bool, bool]]:
    """Return the place behind each step, whether the step was committed before, and whether more was."""
    at, out = WriterPosition(BinlogOffset("b.000001", 4), resume=resume), []
    for i, step in enumerate(STEPS):
        done = False
        if step == "R":
            at.add_rows(1)
            done = at.rows_committed()
        elif step == "E":
            done = at.transaction_committed()
            at.end("b.000001", 100 + i)
        else:
            at.add_statement()
            done = at.statement_committed()
        again = at.rows_committed(), at.statement_committed(), at.is_before_resume(), at.reached()
        assert again == (at.rows_committed(), at.statement_committed(), at.is_before_resume(), at.reached())
        out.append((at.reached(), done, at.is_before_resume()))
    return out


@for_each("crash", range(len(STEPS)))
def test_resumed_transactions_skip_what_was_committed_and_nothing_else(crash: int) -> None:
    reached = walk(None)[crash][0]
    again = walk(ResumePosition.from_json(reached.to_json()))
    assert [done for _, done, _ in again] == [i <= crash for i in range(len(STEPS))]
    assert [behind for _, _, behind in again] == [i < crash for i in range(len(STEPS))]


def test_each_transaction_is_counted_from_its_begin() -> None:
    counted = [(reached.events, reached.statements) for reached, _, _ in walk(None)]
    inside = [STEPS[STEPS.rfind("E", 0, i + 1) + 1 : i + 1] for i in range(len(STEPS))]
    assert counted == [(passed.count("R"), len(passed) - passed.count("R")) for passed in inside]


def _row_event(size: int, *, inner: bool = False) -> Event:
    """Return a row event; one of a compressed transaction has the positions of the outer one."""
    return Event(30, 0, 1, 0, "b.000001", 100, 999 if inner else 100 + size + 23, b"x" * 5, 0, size, inner)


def _resumed(resume: ResumePosition, gtid: str = GTID) -> WriterPosition:
    position = WriterPosition(resume.offset, resume)
    position.begin("b.000001", 1, gtid, 0)
    return position


@pytest.mark.parametrize("inner", [False, True])
def test_committed_row_events_are_known_again_by_their_bytes(inner: bool) -> None:
    resume = ResumePosition(BEFORE, 2, 1, GTID, 300)
    same = _resumed(resume)
    for size in (100, 200, 50):
        same.add_rows(row_event_size(_row_event(size, inner=inner)))
    assert same.reached().row_bytes == 350 and same.reached().gtid == GTID
    for sizes, gtid in (((100, 201), GTID), ((100, 200), GTID[:-1] + "9")):
        other = _resumed(resume, gtid)
        other.add_rows(row_event_size(_row_event(sizes[0], inner=inner)))
        with pytest.raises(ServerChangedError, match="other row events on this server"):
            other.add_rows(row_event_size(_row_event(sizes[1], inner=inner)))


def test_a_transaction_that_ends_before_the_committed_row_events_is_refused() -> None:
    other = _resumed(ResumePosition(BEFORE, 2, 1, GTID, 300))
    other.add_rows(300)
    with pytest.raises(ServerChangedError, match="it has 1 row events, and 2 are committed"):
        other.move_to("b.000001", 900)
    first = WriterPosition(BEFORE, resume=ResumePosition(replace(BEFORE, pos=900), 2, 1, GTID, 300))
    first.move_to("b.000001", 900)
    assert first.row_bytes == 0 and first.is_before_resume()


def test_a_marker_of_an_older_version_is_continued_on_its_server() -> None:
    position = _resumed(ResumePosition(BEFORE, 1, 1))
    position.add_rows(77)
    assert position.rows_committed()


def test_the_last_transaction_is_the_one_before_the_boundary() -> None:
    start = replace(BEFORE, last_commit=f"{GTID}@5")
    position = WriterPosition(start)
    assert position.reached().offset.last_commit == f"{GTID}@5", "nothing was read yet"
    position.begin("b.000001", 1, f"{GTID}0", 7)
    assert position.reached().offset.last_commit == f"{GTID}@5", "it has not ended"
    position.end("b.000001", 200)
    reached = position.reached()
    assert reached.offset.last_commit == f"{GTID}0@7"
    assert ResumePosition.from_json(reached.to_json()).offset.last_commit == f"{GTID}0@7"
    position.begin("b.000001", 1, f"{GTID}1", 9)
    assert position.reached().offset.last_commit == f"{GTID}0@7"


def test_a_place_has_no_last_transaction_of_another() -> None:
    offset = replace(BEFORE, last_commit=f"{GTID}@5")
    assert offset.with_position("b.000001", 101).last_commit is None and offset == BEFORE


def test_empty_transactions_are_remembered() -> None:
    """Those of BEGIN and COMMIT only; the newest, if there are many."""
    start = replace(BEFORE, read_empty=f"{SOURCE}:5")
    position = WriterPosition(start)
    for number, statements, events in ((6, 2, 0), (8, 3, 0), (10, 2, 1), (12, 2, 0)):
        position.begin("b.000001", 1, f"{SOURCE}:{number}", 0)
        for _ in range(statements - 1):
            position.add_statement()
        for _ in range(events):
            position.add_rows(1)
        position.end_statement()
        position.end("b.000001", 100 * number)
    read = position.reached()
    assert read.offset.read_empty == f"{SOURCE}:5-6:12"
    assert WriterPosition(BEFORE).reached().offset.read_empty is None
    for number in range(100, 700, 2):
        position.begin("b.000001", 1, f"{SOURCE}:{number}", 0)
        position.begin_statement(5)
        position.end_statement()
    kept = GtidSet.parse(position.reached().offset.read_empty)
    assert kept.contains(f"{SOURCE}:698") and not kept.contains(f"{SOURCE}:5") and len(str(kept)) < 1000


def test_lent_gtids_are_remembered() -> None:
    """The server that is read, or one that it replicates from, has executed something under another one's GTID."""
    own, upstream, group = (f"{letter * 8}-0000-0000-0000-000000000001" for letter in "acd")
    position = WriterPosition(BEFORE)
    position.connect(LocalGtids(7, own, frozenset({group}), {8: upstream}))
    for server_id, number, uuid, is_lent in (
        (7, 1, SOURCE, True),
        (7, 2, own, False),
        (7, 3, group, False),
        (7, 4, own, False),
        (7, 5, SOURCE, True),
        (8, 6, upstream, False),
        (8, 7, SOURCE, True),
        (8, 8, SOURCE, False),  # from now on it has this uuid
        (9, 9, "eeeeeeee-0000-0000-0000-000000000001", False),
        (9, 10, SOURCE, True),
        (9, 11, group, False),
    ):
        position.begin("b.000001", server_id, f"{uuid}:{number}", 0)
        assert position.is_lent is is_lent, number
        position.end("b.000001", position.pos + 100)
    position.begin("b.000001", 7, None, 0)
    position.end("b.000001", position.pos + 100)
    for number, is_text, events in ((20, True, 0), (21, True, 1), (22, False, 0)):
        position.begin("b.000001", 7, f"{own}:{number}", 0)
        position.note_text(is_text=is_text)
        for _ in range(events):
            position.add_rows(1)
        position.end("b.000001", position.pos + 100)
    read = position.reached().offset
    assert (read.read_empty, read.read_as_text) == (f"{SOURCE}:1:5:7:10", f"{own}:20")
    assert WriterPosition(BinlogOffset.from_json(read.to_json())).reached().offset.read_as_text == f"{own}:20"
    unknown = WriterPosition(BEFORE)
    unknown.connect(LocalGtids())
    unknown.begin("b.000001", 0, f"{SOURCE}:1", 0)
    assert not unknown.is_lent


def statement(sql: str, pos: int) -> Event:
    body = struct.pack("<IIBHH", 11, 0, 2, 0, 0) + b"db\0" + sql.encode()
    return Event(c.QUERY_EVENT, 0, 1, 0, "b.000001", pos, pos + 50, body, 0, len(body), False)


@for_each("sql", ["ROLLBACK", "rollback ;", "ROLLBACK TO `s`", "ROLLBACK TO SAVEPOINT s"])
def test_rows_before_it_end_the_batch(monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    rig = Rig(monkeypatch)

    def events(_: Any) -> Iterator[Any]:
        yield statement("BEGIN", 4)
        rig.sink.produce("p.d.t", b"k", b"v", 0)
        rig.writer.position.add_rows(1)
        yield statement(sql, 500)

    with pytest.raises(UnsupportedEventError, match=r"rolled back in the binlog") as caught:
        rig.run(events)
    assert "b.000001:500" in caught.value.where and not caught.value.can_retry
    assert rig.markers() == []


@for_each("sql", ["ROLLBACK", "ROLLBACK TO `s`", "SAVEPOINT `s`", "COMMIT"])
def test_without_rows_it_is_nothing(monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    rig = Rig(monkeypatch)
    rig.run(lambda _: iter([statement("BEGIN", 4), statement(sql, 500)]))
    assert rig.markers()[-1]["offset"]["pos"] == 9999
