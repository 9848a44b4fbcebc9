"""Which servers of a list show that another one was left behind."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.binlog.binlog_coverage import ReplicaChannel
from airflow_provider_mysql_cdc.cdc.errors import (
    ServerChangedError,
    SourceAuthError,
    SourceConnectionError,
    SourceError,
)
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.operate import source_server

pytestmark = pytest.mark.quick
A = "aaaaaaaa-0000-0000-0000-000000000001"
UUIDS = {name: A.replace("a", name) for name in "abc"}
AHEAD = f"{UUIDS['c']}:1"


@for_each(
    ("sources", "executed_later", "result"),
    [
        ({"b": "a", "c": "b"}, False, "WARNING"),  # a replica of a replica, with a transaction of its own
        ({"c": "b", "b": "a"}, True, ""),  # it has executed what the one that is read is about to
        ({"b": "c", "c": ""}, False, "left behind"),
        ({"b": "", "c": "b"}, False, "left behind"),  # the replicas of one that was promoted
        ({"b": "a", "c": ""}, True, ""),
    ],
)
def test_a_server_further_down_the_chain_does_not_stop_the_stream(
    monkeypatch: pytest.MonkeyPatch, sources: Mapping[str, str], executed_later: bool, result: str
) -> None:
    waited: list[str] = []

    def fetch(conn: str, sql: str, args: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        if "WAIT_FOR" in sql:
            waited.append(args[0])
        if "GTID_SUBTRACT" not in sql:
            return [(UUIDS[conn], "ON", AHEAD if conn == "c" else "", 0)]
        return [("" if executed_later and waited else str(GtidSet.parse(args[0])),)]

    def channels(conn: str) -> list[ReplicaChannel]:
        source = sources.get(conn)
        return [ReplicaChannel("", source, True, source_uuid=UUIDS[source])] if source else []

    monkeypatch.setattr(source_server, "connect", lambda settings: contextlib.nullcontext(settings.host))
    monkeypatch.setattr(source_server, "fetch_all", fetch)
    monkeypatch.setattr(source_server, "replica_channels", channels)
    monkeypatch.setattr(source_server, "_group", lambda conn: frozenset())
    lines: list[str] = []
    others = [ConnectionSettings(name) for name in sources]
    with pytest.raises(ServerChangedError, match=result) if "left" in result else contextlib.nullcontext():
        source_server.require_not_left_behind(ConnectionSettings("a"), others, lambda uuid: True, lines.append)
        assert [line.partition(":")[0] for line in lines] == ([result] if result else [])


@for_each(
    ("retrieved", "gtids", "warned"),
    [("", "ON", True), (AHEAD, "ON", False), ("", "OFF", False)],
)
def test_a_server_that_replicates_from_one_outside_of_the_list_may_never_get_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, retrieved: str, gtids: str, warned: bool
) -> None:
    def fetch(conn: str, sql: str, args: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        if "GTID_SUBTRACT" not in sql:
            return [(UUIDS[conn], gtids, AHEAD if conn == "b" else "", 0)]
        return [(str(GtidSet.parse(args[0])),)]

    channel = ReplicaChannel("", "x:3306", True, source_uuid="x", retrieved=retrieved)
    monkeypatch.setattr(source_server, "connect", lambda settings: contextlib.nullcontext(settings.host))
    monkeypatch.setattr(source_server, "fetch_all", fetch)
    monkeypatch.setattr(source_server, "replica_channels", lambda conn: [channel] if conn == "a" else [])
    monkeypatch.setattr(source_server, "_group", lambda conn: frozenset())
    lines: list[str] = []
    source_server.require_not_left_behind(
        ConnectionSettings("a"), [ConnectionSettings("b")], lambda uuid: True, lines.append
    )
    assert len(lines) == warned and all("x:3306" in line and AHEAD in line for line in lines)


@for_each("error", [SourceAuthError("MySQL refuses the account", why="1045"), SourceConnectionError("gone", why="x")])
def test_a_server_that_cannot_be_asked_is_named(monkeypatch: pytest.MonkeyPatch, error: SourceError) -> None:
    """It may be the one that was promoted."""

    def refuse(settings: ConnectionSettings) -> None:
        raise error

    monkeypatch.setattr(source_server, "connect", refuse)
    lines: list[str] = []
    source_server.require_not_left_behind(
        ConnectionSettings("a"), [ConnectionSettings("b")], lambda uuid: True, lines.append
    )
    assert len(lines) == 1 and "b:3306" in lines[0] and error.what in lines[0] and error.why in lines[0]


@for_each(
    ("views", "result"),
    [
        ({"a": "abc", "b": "abc", "c": "abc"}, ""),
        ({"a": "a", "b": "bc", "c": "bc"}, ""),  # of another one: it has not executed anything that a lacks
        ({"a": "a--", "b": "bc", "c": "bc"}, "left behind"),  # cut off from two of three
        ({"a": "abc", "b": "bc", "c": "bc"}, "left behind"),  # it does not know that they have gone on without it
        ({"a": "", "b": "bc", "c": "bc"}, "left behind"),
        ({"a": "ab-", "b": "ab-", "c": ""}, ""),  # c is out of the group
    ],
)
def test_members_of_a_group_go_on_together(
    monkeypatch: pytest.MonkeyPatch, views: Mapping[str, str], result: str
) -> None:
    """Letters are the members that each one reaches; ``-`` one that it does not reach."""

    def fetch(conn: str, sql: str, args: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        if sql.startswith("SHOW"):
            return [("group_replication_group_name", A)]
        if "MEMBER_STATE" in sql:
            return [
                (UUIDS.get(m, f"lost {n}"), "ONLINE" if m in UUIDS else "UNREACHABLE")
                for n, m in enumerate(views[conn])
            ]
        if "GTID_SUBTRACT" not in sql:
            return [(UUIDS[conn], "ON", AHEAD if conn != "a" and result else "", 0)]
        return [(str(GtidSet.parse(args[0])),)]

    monkeypatch.setattr(source_server, "connect", lambda settings: contextlib.nullcontext(settings.host))
    monkeypatch.setattr(source_server, "fetch_all", fetch)
    monkeypatch.setattr(source_server, "replica_channels", lambda conn: [])
    others = [ConnectionSettings(name) for name in "bc"]
    with pytest.raises(ServerChangedError, match=result) if result else contextlib.nullcontext():
        source_server.require_not_left_behind(ConnectionSettings("a"), others, lambda uuid: True, lambda line: None)
