"""Whether a position is still of the binlog that the server has, on a server that a test makes up."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from kit.cases import for_each
from kit.memory_job import config
from kit.store_contract import END, START

from airflow_provider_mysql_cdc.cdc.binlog import file_fingerprint as origin
from airflow_provider_mysql_cdc.cdc.binlog import position, stream
from airflow_provider_mysql_cdc.cdc.binlog.position import BinlogEnd
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import VIEW_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.drain import batch_planner as batch
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, PreparedXa
from airflow_provider_mysql_cdc.cdc.snapshot import snapshot_checks as one_binlog

CFG = config()
READ = BinlogOffset("binlog.000010", 157, "", START.server_uuid, "100.aa.bb")
SETTINGS: Any = None


def purged(*_: Any) -> BinlogOffset:
    raise BinlogPurgedError("gone", where="here", why="it was reset")


@pytest.fixture(autouse=True)
def stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that says where its binlog ends."""
    monkeypatch.setattr(batch, "binlog_status", lambda _: [])
    monkeypatch.setattr(batch, "stated_end", lambda *_: BinlogEnd(READ, ""))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what a server that has the position says; a test changes it."""
    says: dict[str, Any] = {"origin": READ.origin, "executed": 1, "size": 9000, "slept": []}

    def fetch_all(conn: Any, sql: str, given: Any = ()) -> list[tuple[Any, ...]]:
        if "SLEEP" in sql:
            says["slept"].append(given)
        return [("ON", says["executed"]) if "SUBSET" in sql else (1,)]

    monkeypatch.setattr(position, "require_same_server", lambda *_: None)
    monkeypatch.setattr(position, "binary_logs", lambda _: [(READ.file, says["size"])])
    for module in (position, origin):
        monkeypatch.setattr(module, "fetch_all", fetch_all)
    monkeypatch.setattr(origin, "read_fingerprint", lambda *_: says["origin"])
    return says


def test_a_position_of_the_same_file_is_there(server: dict[str, Any]) -> None:
    server["origin"] = "100.aa.bb"
    assert position.check_available(None, SETTINGS, READ) == READ
    without = BinlogOffset(READ.file, READ.pos, "", READ.server_uuid)
    assert position.check_available(None, SETTINGS, without) == READ, "an older version stored no fingerprint"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"origin": "100.aa.cc"}, "another one of the same name"),
        ({"origin": "200.aa.bb"}, "another one of the same name"),
        ({"size": 156}, "no longer holds"),
    ],
    ids=["reset and loaded again", "reset", "shorter"],
)
def test_a_position_of_another_file_of_that_name_is_refused(
    server: dict[str, Any], change: dict[str, Any], why: str
) -> None:
    server |= change
    with pytest.raises(BinlogPurgedError, match=why):
        position.check_available(None, SETTINGS, READ)


@pytest.mark.req("FAULT-04")
@pytest.mark.parametrize("files", [[("binlog.000011", 9000)], [("binlog.000009", 9000)], []])
def test_a_position_in_a_file_that_the_server_no_longer_has_is_refused(
    server: dict[str, Any], monkeypatch: pytest.MonkeyPatch, files: list[tuple[str, int]]
) -> None:
    monkeypatch.setattr(position, "binary_logs", lambda _: files)
    with pytest.raises(BinlogPurgedError, match="no longer holds the start position") as caught:
        position.check_available(None, SETTINGS, READ)
    assert READ.file in caught.value.where and "new snapshot" in caught.value.remedy and not caught.value.can_retry


def test_a_position_after_transactions_that_the_server_never_executed_is_refused(server: dict[str, Any]) -> None:
    assert position.check_available(None, SETTINGS, END) is not None
    server["executed"] = 0
    with pytest.raises(BinlogPurgedError):
        position.check_available(None, SETTINGS, END)


@pytest.mark.parametrize("mark", ["100.aa", "100.aa.bb"])
def test_a_file_is_a_second_old_before_its_mark_counts(server: dict[str, Any], mark: str) -> None:
    """Without a transaction, and on MySQL 5.7, nothing else than the second tells its successor from it."""
    server["origin"] = mark
    assert origin.with_fingerprint(None, SETTINGS, READ.with_position(READ.file, 4)).origin == mark
    assert server["slept"] == [(100,)]


@pytest.mark.req("FAULT-11")
@for_each(
    ("end", "origin_", "compares"),
    [
        (BinlogOffset(READ.file, 900, None, READ.server_uuid), "100.aa.bb", False),
        (BinlogOffset("binlog.000011", 900, None, READ.server_uuid), "100.aa.bb", True),
        (BinlogOffset(READ.file, 900, None, "another"), "100.aa.bb", True),
        (BinlogOffset(READ.file, 900, None, READ.server_uuid), "100.aa", True),
        (BinlogOffset(READ.file, 900, None, READ.server_uuid), None, True),
    ],
    ids=["the start's file", "another file", "another server", "no transaction in it", "an older version's"],
)
def test_a_file_that_was_just_compared_is_compared_again_unless_the_end_is_in_it(
    monkeypatch: pytest.MonkeyPatch, end: BinlogOffset, origin_: str | None, compares: bool
) -> None:
    """An end in another file would get that file's mark, and nothing would tell later that a reset lies between."""
    monkeypatch.setattr(batch, "choose_end", lambda *_: end)
    monkeypatch.setattr(batch, "check_available", purged)
    monkeypatch.setattr(batch, "topic_partitions", lambda *_: {})
    start = replace(READ, origin=origin_)
    with pytest.raises(BinlogPurgedError) if compares else nullcontext():
        made = batch.plan_drain(CFG, None, start, 2, "someone", {}, start_checked=True)
        assert made is not None and (made.start, made.end.origin) == (start, READ.origin)
    with pytest.raises(BinlogPurgedError):
        batch.plan_drain(CFG, None, start, 2, "someone", {})


def test_a_stream_begins_in_the_file_that_its_start_was_read_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(position, "require_same_file", purged)
    monkeypatch.setattr(stream, "connect", lambda *_, **__: pytest.fail("another file of that name is read"))
    with pytest.raises(BinlogPurgedError, match="gone"):
        stream.open_stream(SETTINGS, READ, server_id=1)


def test_a_plans_end_has_the_mark_of_its_file_and_the_plan_hands_on_what_is_undecided(
    server: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "choose_end", lambda *_: BinlogOffset("binlog.000010", 900, None, READ.server_uuid))
    monkeypatch.setattr(batch, "topic_partitions", lambda *_: {})
    undecided = (PreparedXa("X'01',X'',1", READ.file, 4, 99),)
    made = batch.plan_drain(CFG, None, READ, 2, "someone", {}, undecided)
    assert made is not None and (made.start, made.end.origin) == (READ, READ.origin)
    assert made.prepared == undecided, "the rows of these stand before the batch"


@pytest.mark.parametrize(
    ("end", "origin_", "stamps"),
    [("binlog.000010", "100.aa.bb", 0), ("binlog.000010", "100.aa", 1), ("binlog.000011", "100.aa.bb", 1)],
    ids=["the start's file", "no transaction in it", "another file"],
)
def test_a_plans_end_takes_the_mark_of_its_start_where_it_is_of_the_same_file(
    server: dict[str, Any], monkeypatch: pytest.MonkeyPatch, end: str, origin_: str, stamps: int
) -> None:
    """The mark is read behind the end: a reset between the two makes another file, which the start is not of."""
    steps: list[str] = []

    def stamp(conn: Any, settings: Any, offset: BinlogOffset) -> BinlogOffset:
        steps.append("stamp")
        return replace(offset, origin="stamped")

    def choose_end(*_: Any) -> BinlogOffset:
        return BinlogOffset(end, 900, None, READ.server_uuid)

    def state_end(*_: Any) -> BinlogEnd:
        steps.append("end")
        return BinlogEnd(choose_end(), "")

    def check(conn: Any, settings: Any, offset: BinlogOffset) -> BinlogOffset:
        steps.append("start")
        return replace(offset, origin=origin_)

    for name, made in (("with_fingerprint", stamp), ("choose_end", choose_end), ("stated_end", state_end)):
        monkeypatch.setattr(batch, name, made)
    monkeypatch.setattr(batch, "check_available", check)
    monkeypatch.setattr(batch, "topic_partitions", lambda *_: {})
    drain = batch.plan_drain(CFG, None, READ, 2, "someone", {})
    round_ = batch.plan_window_batch(CFG, None, (READ, None), 2, "someone", {}, (), 1)
    assert steps == ["end", "start", *["stamp"] * stamps] * 2
    assert drain is not None and drain.end.origin == round_.end.origin == ("stamped" if stamps else "100.aa.bb")


@for_each(
    ("start", "end", "same"),
    [
        ({}, {}, True),
        ({"gtids": None}, {}, True),
        ({}, {"pos": 158}, False),
        ({}, {"pos": 156}, False),
        ({}, {"file": "binlog.000011"}, False),
        ({}, {"gtids": "00000000-0000-0000-0000-000000000001:1"}, False),
    ],
)
def test_nothing_is_new_where_the_binlog_ends_at_the_offset_of_the_same_server(
    monkeypatch: pytest.MonkeyPatch, start: dict[str, Any], end: dict[str, Any], same: bool
) -> None:
    """Whatever else there is, a reset as well, is looked at in full."""
    found = replace(READ, origin=None, **end)
    row = {"File": found.file, "Position": str(found.pos), "Executed_Gtid_Set": found.gtids or ""}
    monkeypatch.setattr(batch, "binlog_status", lambda _: [row])
    monkeypatch.setattr(batch, "stated_end", lambda _, rows: BinlogEnd(found, "") if rows == [row] else None)
    assert batch.new_end(None, replace(READ, **start)) == (None if same else BinlogEnd(found, ""))


def test_an_end_that_was_just_read_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    later = replace(READ, pos=900, origin=None)
    monkeypatch.setattr(batch, "current_offset", lambda _: pytest.fail("it is asked for again"))
    assert batch.choose_end(None, READ, 0, later) is later


def test_the_binlog_of_an_interrupted_snapshots_view_is_still_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream begins at the position of its view."""
    done = {"offset": END.to_json(), "rows": 1, "left_out": 0, "ts_ms": 7, "list": "x", "order": 0}
    chunk = {"epoch": 1, "chunk": {}, **done}
    ledger = LedgerState(chunks={"d.t/0": chunk}, other_records={VIEW_KEY: {"epoch": 1, "offset": READ.to_json()}})
    seen: list[BinlogOffset] = []
    monkeypatch.setattr(one_binlog, "check_available", lambda conn, settings, offset: seen.append(offset))
    one_binlog.require_view_binlog(CFG, None, ledger, 1)
    one_binlog.require_view_binlog(CFG, None, ledger, 2)
    one_binlog.require_view_binlog(CFG, None, LedgerState(), 1)
    assert seen == [READ]
    monkeypatch.setattr(one_binlog, "check_available", purged)
    with pytest.raises(BinlogPurgedError, match="snapshot 1 cannot be finished: gone") as caught:
        one_binlog.require_view_binlog(CFG, None, ledger, 1)
    assert "mysql_cdc_reset_offset" in caught.value.remedy


def test_a_window_under_the_read_lock_ends_where_the_lock_was_taken(
    server: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transactions behind it are in no view of the window; the drain reads them in the next batch."""
    grown = READ.with_position(READ.file, 9_000)
    monkeypatch.setattr(batch, "stated_end", lambda *_: BinlogEnd(grown, ""))
    monkeypatch.setattr(batch, "topic_partitions", lambda *_: {})
    locked = READ.with_position(READ.file, 900)
    made = batch.plan_window_batch(CFG, None, (READ, locked), 2, "someone", {}, (), 1)
    assert (made.start, made.end.pos) == (READ, 900)
    nothing_new = batch.plan_window_batch(CFG, None, (READ, READ), 2, "someone", {}, (), 1)
    assert nothing_new.start == nothing_new.end == READ
