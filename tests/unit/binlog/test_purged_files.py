"""Offsets whose binlog file was purged: whether transactions went with it, judged without a server."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.binlog_bytes import Dump, stream_of
from kit.cases import for_each
from kit.store_contract import START, plan

from airflow_provider_mysql_cdc.cdc.binlog import position, purged_files, stream
from airflow_provider_mysql_cdc.cdc.binlog.purged_files import PurgeLoss, ServerGtids, ServerState, purge_loss
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError, StateError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset

A, B = "aaaaaaaa-0000-0000-0000-000000000001", "bbbbbbbb-0000-0000-0000-000000000002"
STORED = BinlogOffset("binlog.000010", 900, f"{A}:1-7:tag:1-2,{B}:5", START.server_uuid, "100.aa.bb/100-2")
ALL_OF_IT = f"{B}:5,\n{A}:1-7:tag:1-2"
SETTINGS: Any = None


@for_each(
    ("first_file", "mode", "purged", "good"),
    [
        ("binlog.000011", "ON", ALL_OF_IT, True),
        ("binlog.1000000", "ON", ALL_OF_IT, True),
        ("binlog.000011", "ON", f"{B}:5,{A}:1-8:tag:1-2", False),
        ("binlog.000011", "ON", f"{B}:5,{A}:1-7:tag:1-3", False),
        ("binlog.000011", "ON", f"{B}:5,{A}:1-7:other:1:tag:1-2", False),
        ("binlog.000011", "ON", f"{B}:5-6,{A}:1-7:tag:1-2", False),
        ("binlog.000011", "ON", f"{B}:5,{A}:1-7", False),
        ("binlog.000011", "ON", "", False),
        ("binlog.000011", "ON_PERMISSIVE", ALL_OF_IT, False),
        ("binlog.000011", "OFF", "", False),
        ("binlog.000010", "ON", ALL_OF_IT, False),
        ("binlog.000003", "ON", ALL_OF_IT, False),
    ],
    ids=[
        "nothing after it", "more digits", "one transaction more", "one tagged transaction more", "another tag",
        "one of another server more", "another history", "reset", "some without GTID", "no GTIDs", "the file is there",
        "reset, and not as far again",
    ],
)  # fmt: skip
def test_nothing_is_lost_only_if_exactly_the_transactions_of_the_offset_were_purged(
    first_file: str, mode: str, purged: str, good: bool
) -> None:
    loss = purge_loss(STORED, first_file, ServerGtids(mode, purged, ServerState(100, 2)))
    assert loss is (PurgeLoss.NONE if good else PurgeLoss.POSSIBLE)


@pytest.mark.parametrize("gtids", [None, ""])
def test_without_gtids_nothing_tells(gtids: str | None) -> None:
    offset = STORED.with_position(STORED.file, 900, gtids)
    assert purge_loss(offset, "binlog.000011", ServerGtids("ON", "", ServerState(100, 2))) is PurgeLoss.POSSIBLE


@for_each(
    ("state", "origin"),
    [
        (
            ServerState(103, 2),
            "110.aa.bb/100-2",
        ),  # started since, after the file was begun by a clock that was set back
        (ServerState(101, 2), "100.aa.bb/101-2"),  # the mode may have been another one in the files that were purged
        (ServerState(100, 3), "100.aa.bb/100-2"),  # other transactions may have come under the same GTIDs
        (ServerState(90, 0), "100.aa.bb/100-0"),  # started since, with a clock that was set back
        (ServerState(100, 12), "100.aa.bb/100-2"),
        (ServerState(100, 2), "100.aa.bb"),
        (ServerState(100, 2), None),
        (None, "100.aa.bb/100-2"),
    ],
)
def test_equal_sets_prove_nothing_where_the_server_may_have_another_history(
    state: ServerState | None, origin: str | None
) -> None:
    offset = replace(STORED, origin=origin)
    assert purge_loss(offset, "binlog.000011", ServerGtids("ON", ALL_OF_IT, state)) is PurgeLoss.UNPROVEN
    others = ServerGtids("ON", f"{B}:5,{A}:1-8:tag:1-2", state)
    assert purge_loss(offset, "binlog.000011", others) is PurgeLoss.POSSIBLE


def test_two_readings_of_one_start_may_differ_by_seconds() -> None:
    for since in (98, 99, 100):
        gtids = ServerGtids("ON", ALL_OF_IT, ServerState(since, 2))
        assert purge_loss(STORED, "binlog.000011", gtids) is PurgeLoss.NONE, since
    planned = plan(start=STORED)
    assert planned.same_work(replace(planned, start=replace(STORED, origin="100.aa.bb/99-3")))
    assert planned.same_work(replace(planned, start=replace(STORED, origin="100.aa")))
    for other in (replace(STORED, origin="100.aa.cc/100-2"), replace(STORED, pos=901), replace(STORED, gtids=None)):
        assert not planned.same_work(replace(planned, start=other)), other


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what a server says that has purged everything up to the stored offset; a test changes it."""
    files = [("binlog.000012", 157), ("binlog.000013", 500)]
    says: dict[str, Any] = {"purged": ALL_OF_IT, "state": ServerState(100, 2), "files": files}

    class Connection:
        def __enter__(self) -> Connection:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    def gone(*_: Any) -> BinlogOffset:
        raise BinlogPurgedError("no such file", where="here", why="it is gone")

    monkeypatch.setattr(position, "require_same_server", lambda *_: None)
    monkeypatch.setattr(position, "_require_executed_gtids", lambda *_: None)
    monkeypatch.setattr(position, "binary_logs", lambda _: says["files"])
    monkeypatch.setattr(position, "require_same_file", gone)
    monkeypatch.setattr(position, "connect", lambda _: Connection())
    monkeypatch.setattr(ServerGtids, "read", lambda _: ServerGtids("ON", says["purged"], says["state"]))
    return says


@pytest.mark.req("FAULT-04")
def test_an_offset_whose_file_alone_was_purged_is_available_as_it_is(server: dict[str, Any]) -> None:
    assert position.check_available(None, SETTINGS, STORED) == STORED
    server["purged"] = f"{B}:5,{A}:1-8:tag:1-2"
    with pytest.raises(BinlogPurgedError, match="no longer holds the start position"):
        position.check_available(None, SETTINGS, STORED)
    server |= {"purged": ALL_OF_IT, "state": ServerState(101, 0)}
    with pytest.raises(BinlogPurgedError, match="purged may have had no GTID") as caught:
        position.check_available(None, SETTINGS, STORED)
    assert f"offset={STORED.gtids}, then mysql_cdc_drain, then mysql_cdc_verify" in caught.value.remedy


def test_a_dump_begins_in_the_first_file_that_is_left(server: dict[str, Any]) -> None:
    assert position.readable_start(SETTINGS, STORED) == BinlogOffset(
        "binlog.000012", 4, STORED.gtids, STORED.server_uuid
    )
    server["purged"] = f"{B}:5,{A}:1-8:tag:1-2"
    with pytest.raises(BinlogPurgedError, match="no such file"):
        position.readable_start(SETTINGS, STORED)
    server |= {"purged": ALL_OF_IT, "state": None}
    with pytest.raises(BinlogPurgedError, match="no such file"):
        position.readable_start(SETTINGS, STORED)


def test_a_position_without_gtids_needs_its_file(server: dict[str, Any]) -> None:
    """That of a prepared XA transaction, whose rows must be read from there, and that which a person gives."""
    with pytest.raises(BinlogPurgedError, match="no such file"):
        position.readable_start(SETTINGS, STORED.with_position(STORED.file, 4, None))
    with pytest.raises(BinlogPurgedError, match="no longer holds"):
        position.check_available(None, SETTINGS, STORED.with_position(STORED.file, 4, None))


def test_a_stream_asks_for_the_first_file_and_ends_at_once_where_the_batch_ended_before_it(
    server: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[BinlogOffset] = []
    monkeypatch.setattr(stream, "connect", lambda *_, **__: None)
    limits: list[float] = []

    def start_dump(_: Any, start: BinlogOffset, *, silence_timeout_s: float, **__: Any) -> None:
        asked.append(start)
        limits.append(silence_timeout_s)

    monkeypatch.setattr(stream, "start_dump", start_dump)
    settings: Any = SimpleNamespace(address=lambda: "here", client_name="p", silence_timeout_s=7.0)
    opened = stream.open_stream(settings, STORED, server_id=0)
    assert limits == [7.0], "a half-open connection would be left after another time than the one that is set"
    assert [(start.file, start.pos) for start in asked] == [("binlog.000012", 4)]
    assert list(opened.events(STORED)) == []
    assert list(opened.events(BinlogOffset("binlog.000011", 157))) == []
    with pytest.raises(StateError, match="before its start"):
        list(opened.events(BinlogOffset("binlog.000010", 899)))


def test_events_of_the_first_file_follow() -> None:
    dump = Dump("binlog.000012").begin().transaction()
    with stream_of(dump.data, BinlogOffset("binlog.000012", 4)) as opened:
        opened._after = STORED
        assert len(list(opened.events(dump.offset()))) == len(dump.events)


def test_an_offset_is_compared_with_the_first_file_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purged_files, "purge_loss", lambda offset, first, gtids: first)
    monkeypatch.setattr(ServerGtids, "read", lambda conn: None)
    assert purged_files.loss_behind(None, START, [("b.5", 1), ("b.6", 1)]) == "b.5"  # type: ignore[comparison-overlap]
