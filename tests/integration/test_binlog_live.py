"""The event stream of a real server."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog import event_parsers as ev
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all, fetch_dicts
from airflow_provider_mysql_cdc.cdc.binlog.dump import RegisteredClient, client_uuid
from airflow_provider_mysql_cdc.cdc.binlog.position import current_offset
from airflow_provider_mysql_cdc.cdc.binlog.preflight import find_problems, read_facts
from airflow_provider_mysql_cdc.cdc.binlog.server_facts import RunRequirements
from airflow_provider_mysql_cdc.cdc.binlog.stream import BinlogStream, Event, open_stream
from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMap, parse_table_map
from airflow_provider_mysql_cdc.cdc.errors import (
    BinlogPurgedError,
    ServerIdInUseError,
    SourceConnectionError,
)
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings, Secret
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset

SERVER_ID = 770_001
ROWS = (c.WRITE_ROWS_EVENT_V2, c.UPDATE_ROWS_EVENT_V2, c.DELETE_ROWS_EVENT_V2)
Sql = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def settings(stack: Any) -> ConnectionSettings:
    return ConnectionSettings(stack.mysql_host, stack.mysql_port, stack.cdc_user, Secret(stack.cdc_password))


@pytest.fixture
def sql(root: Any, database: str) -> Sql:
    """Run statements as root in the test's own database."""
    root.select_db(database)

    def run(*statements: str) -> list[tuple[Any, ...]]:
        return [fetch_all(root, statement) for statement in statements][-1]

    return run


def needs(stack: Any, version: tuple[int, ...], what: str) -> None:
    if tuple(int(n) for n in stack.mysql_version.split("-")[0].split(".")) < version:
        pytest.skip(f"MySQL {stack.mysql_version} has no {what}")


def read(settings: ConnectionSettings, start: BinlogOffset, end: BinlogOffset, **kwargs: Any) -> list[Event]:
    with open_stream(settings, start, server_id=SERVER_ID, silence_timeout_s=10, **kwargs) as stream:
        return list(stream.events(end))


def of_database(events: list[Event], database: str) -> list[tuple[TableMap, Event]]:
    """Return row events of one database with their TABLE_MAP; other tests write to the server too."""
    maps: dict[bytes, TableMap] = {}
    out: list[tuple[TableMap, Event]] = []
    for event in events:
        key = event.buf[event.body : event.body + 6]
        if event.type == c.TABLE_MAP_EVENT:
            maps[key] = parse_table_map(event)
        elif event.type in ROWS and maps[key].db == database:
            out.append((maps[key], event))
    return out


def bodies(events: list[tuple[TableMap, Event]]) -> list[tuple[int, bytes, bytes]]:
    # Without the table id, which changes whenever the server opens the table again.
    return [(e.type, m.raw, e.buf[e.body + 6 : e.end]) for m, e in events]


def test_events_are_those_the_server_lists(root: Any, sql: Sql, settings: ConnectionSettings) -> None:
    """SHOW BINLOG EVENTS is the server's own view of types and positions."""
    start = current_offset(root)
    sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(30))", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    sql("FLUSH BINARY LOGS", "UPDATE t SET v = 'c'", "FLUSH BINARY LOGS", "FLUSH BINARY LOGS", "DELETE FROM t")
    end = current_offset(root)
    events = read(settings, start, end)
    listed = []
    for file in dict.fromkeys(e.file for e in events):
        for row in fetch_dicts(root, f"SHOW BINLOG EVENTS IN '{file}'"):
            place = BinlogOffset(file, row["Pos"]).key()
            if start.key() <= place < end.key() and row["Event_type"] != "Format_desc":
                listed.append((file, row["Pos"], row["End_log_pos"], row["Server_id"], row["Event_type"]))
    found = [(e.file, e.start_pos, e.end_pos, e.server_id) for e in events]
    assert found == [entry[:4] for entry in listed]
    assert len({e.file for e in events}) == 4
    by_type = {(entry[4], event.type) for entry, event in zip(listed, events, strict=True)}
    assert ("Write_rows", c.WRITE_ROWS_EVENT_V2) in by_type and ("Rotate", c.ROTATE_EVENT) in by_type
    assert len(by_type) == len({kind for kind, _ in by_type}) == len({number for _, number in by_type})


def test_by_gtid_gives_the_events_that_follow_the_set(
    stack: Any, root: Any, sql: Sql, settings: ConnectionSettings
) -> None:
    sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", "FLUSH BINARY LOGS")
    start = current_offset(root)
    sql("INSERT INTO t VALUES (2)")
    if stack.mysql_version.startswith("9"):
        sql("SET GTID_NEXT = 'AUTOMATIC:blue'")
    sql("INSERT INTO t VALUES (3)", "SET GTID_NEXT = 'AUTOMATIC'", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (4)")
    end = current_offset(root)
    elsewhere = replace(start, file="binlog.000001", pos=4, server_uuid=None)
    control = (c.ROTATE_EVENT, c.PREVIOUS_GTIDS_LOG_EVENT)
    by_gtid, by_position = (
        [e[:7] for e in read(settings, place, end, by_gtid=gtid) if e.type not in control]
        for place, gtid in ((elsewhere, True), (start, False))
    )
    assert by_gtid == by_position and len(by_position) >= 15


def test_compressed_transactions_equal_uncompressed_ones(
    stack: Any, root: Any, sql: Sql, database: str, settings: ConnectionSettings
) -> None:
    needs(stack, (8, 0, 20), "compressed transactions")
    sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(2000))")
    found = []
    for switch in ("OFF", "ON"):
        start = current_offset(root)
        sql(f"SET binlog_transaction_compression = {switch}", "BEGIN")
        sql(*(f"INSERT INTO t VALUES ({n}, REPEAT('{n % 10}', 1900))" for n in range(300)))
        sql("COMMIT", "UPDATE t SET v = CONCAT(v, 'x')", "DELETE FROM t")
        found.append(of_database(read(settings, start, current_offset(root)), database))
    sql("SET binlog_transaction_compression = OFF")
    plain, packed = found
    assert bodies(plain) == bodies(packed) and len(plain) > 300
    assert {e.inner for _, e in plain} == {False} and {e.inner for _, e in packed} == {True}
    assert len({(e.start_pos, e.end_pos) for _, e in packed}) == 3


def test_rows_query_and_commands_of_a_session(root: Any, sql: Sql, settings: ConnectionSettings) -> None:
    sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(30))")
    start = current_offset(root)
    statement = "INSERT INTO t VALUES (1, 'größe €') /* " + "x" * 300 + " */"
    sql("SET binlog_rows_query_log_events = ON", statement, "SET binlog_rows_query_log_events = OFF")
    sql("SET sql_mode = 'REAL_AS_FLOAT', character_set_client = latin1, collation_connection = latin1_bin")
    sql("CREATE TABLE u (a REAL)", "SET NAMES utf8mb4")
    events = read(settings, start, current_offset(root))
    assert statement in [ev.parse_rows_query(e) for e in events if e.type == c.ROWS_QUERY_LOG_EVENT]
    create = next(
        q for e in events if e.type == c.QUERY_EVENT and (q := ev.parse_query(e)).sql.startswith("CREATE TABLE u")
    )
    assert (create.sql_mode, create.client_charset, create.collation_connection) == (1, 8, 47)


def test_a_start_beyond_four_gigabytes_is_reached_from_the_files_start(
    root: Any, sql: Sql, settings: ConnectionSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is moved down, so that no such file is needed."""
    from airflow_provider_mysql_cdc.cdc.binlog import dump, stream

    sql("FLUSH BINARY LOGS", "CREATE TABLE t (id INT PRIMARY KEY)")
    start = current_offset(root)
    sql("INSERT INTO t VALUES (1)")
    end = current_offset(root)
    expected = [e[:7] for e in read(settings, start, end)]
    monkeypatch.setattr(dump, "_LOW32", 100)
    monkeypatch.setattr(stream, "_MAX_START_POSITION", 100)
    assert [e[:7] for e in read(settings, start, end)] == expected


# -- connections ----------------------------------------------------------------------------------------------------


@pytest.fixture
def live(root: Any, settings: ConnectionSettings) -> Iterator[BinlogStream]:
    """Return a stream from the current position, with heartbeats every tenth of a second."""
    with open_stream(settings, current_offset(root), server_id=SERVER_ID, silence_timeout_s=0.3) as stream:
        yield stream


def later(seconds: float, action: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(seconds, action)
    timer.start()
    return timer


def test_heartbeats_keep_a_quiet_stream_alive(live: BinlogStream, sql: Sql) -> None:
    timer = later(1.0, lambda: sql("CREATE TABLE t (id INT PRIMARY KEY)"))
    for event in live.events(None):
        if event.type == c.QUERY_EVENT and "CREATE TABLE t (id" in ev.parse_query(event).sql:
            break
    timer.join()
    assert live.heartbeats >= 2


@pytest.mark.req("FAULT-06")
def test_a_killed_connection_is_a_retriable_error(live: BinlogStream, root: Any) -> None:
    number = live._connection.thread_id()
    timer = later(0.5, lambda: fetch_all(root, f"KILL {number}"))
    with pytest.raises(SourceConnectionError) as caught:
        for _ in live.events(None):
            pass
    timer.join()
    assert caught.value.can_retry


@pytest.mark.req("STRM-02")
def test_a_server_id_used_twice_ends_the_older_stream(
    live: BinlogStream, root: Any, settings: ConnectionSettings
) -> None:
    timer = later(0.5, lambda: read(settings, current_offset(root), current_offset(root)))
    with pytest.raises(ServerIdInUseError) as caught:
        for _ in live.events(None):
            pass
    timer.join()
    assert not caught.value.can_retry and "database.server.id" in caught.value.remedy


def unregistered_dump(settings: ConnectionSettings, start: BinlogOffset) -> Any:
    """Read the binlog as the client of Debezium does: with the same id, without registering and without a UUID."""
    conn = connect(settings)
    fetch_all(conn, "SET @master_binlog_checksum = @@global.binlog_checksum, @master_heartbeat_period = 300000000")
    conn._execute_command(0x12, struct.pack("<IHI", start.pos, 0, SERVER_ID) + start.file.encode())
    conn._read_packet()
    return conn


def dumps(root: Any) -> set[int]:
    """Return the connections that read the binlog."""
    sql = "SELECT processlist_id FROM performance_schema.threads WHERE processlist_command LIKE 'Binlog Dump%'"
    return {int(row[0]) for row in fetch_all(root, sql)}


@pytest.mark.exhaustive(but="ours")
@pytest.mark.req("STRM-02")
@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_a_client_without_uuid_and_ours_with_one_id_do_not_end_each_other(
    first: str, root: Any, settings: ConnectionSettings, sql: Sql
) -> None:
    start, ours, theirs = current_offset(root), None, None
    try:
        for whose in ("ours", "theirs") if first == "ours" else ("theirs", "ours"):
            if whose == "ours":
                ours = open_stream(settings, start, server_id=SERVER_ID, silence_timeout_s=5)
            else:
                theirs = unregistered_dump(settings, start)
        assert ours is not None and theirs is not None
        time.sleep(1)
        sql("CREATE TABLE beside (id INT PRIMARY KEY)")
        for event in ours.events(None):
            if event.type == c.QUERY_EVENT and "CREATE TABLE beside" in ev.parse_query(event).sql:
                break
        for _ in range(20):  # heartbeats and events, and no error packet
            theirs._read_packet()
        assert {ours._connection.thread_id(), theirs.thread_id()} <= dumps(root)
    finally:
        for client in (ours, theirs):
            if client is not None:
                client.close()


@pytest.mark.req("STRM-02")
def test_streams_of_two_prefixes_with_one_id_do_not_end_each_other(
    root: Any, settings: ConnectionSettings, sql: Sql
) -> None:
    start = current_offset(root)
    streams = [
        open_stream(replace(settings, client_name=name), start, server_id=SERVER_ID, silence_timeout_s=5)
        for name in ("a", "b")
    ]
    try:
        time.sleep(0.5)
        sql("CREATE TABLE beside (id INT PRIMARY KEY)")
        for stream in streams:
            assert any(
                event.type == c.QUERY_EVENT and "CREATE TABLE beside" in ev.parse_query(event).sql
                for event in stream.events(None)
            )
        # Of clients with one id the server lists the last one.
        listed = find_problems(read_facts(root, "db"), own_ids("a"))
        assert ["'mysql-cdc/b'" in f.why for f in listed if isinstance(f.error, ServerIdInUseError)] == [True]
        again = open_stream(replace(settings, client_name="a"), start, server_id=SERVER_ID, silence_timeout_s=5)
        with again, pytest.raises(ServerIdInUseError):
            for _ in streams[0].events(None):
                pass
    finally:
        for stream in streams:
            stream.close()


def own_ids(client_name: str) -> RunRequirements:
    return RunRequirements(snapshot=False, server_ids=range(SERVER_ID, SERVER_ID + 1), client_name=client_name)


def test_the_next_run_says_nothing_of_the_connection_that_the_last_one_has_closed(
    root: Any, settings: ConnectionSettings
) -> None:
    stream = open_stream(replace(settings, client_name="a"), current_offset(root), server_id=SERVER_ID)
    next(stream.events(current_offset(root)), None)
    stream.close()
    facts = read_facts(root, "db")
    assert SERVER_ID in [client.server_id for client in facts.replicas], "the server still lists it"
    assert [f.what for f in find_problems(facts, own_ids("a")) if "registered" in f.what] == []


def test_the_client_is_listed_as_a_replica(live: BinlogStream, root: Any, settings: ConnectionSettings) -> None:
    listed = RegisteredClient(SERVER_ID, "mysql-cdc", client_uuid("", SERVER_ID))
    assert listed in read_facts(root, "db").replicas
    with connect(settings) as conn:
        assert listed in read_facts(conn, "db").replicas


@pytest.mark.req("STRM-36")
@pytest.mark.parametrize("mode", ["disabled", "preferred", "required", "verify_ca"])
def test_tls_modes(mode: str, root: Any, sql: Sql, database: str, settings: ConnectionSettings) -> None:
    ca = Path(sql("SELECT @@datadir")[0][0]) / "ca.pem"
    if mode == "verify_ca" and not ca.exists():
        pytest.skip("the server's certificate is not on this machine")
    chosen = replace(settings, ssl_mode=mode, ssl_ca=str(ca) if mode == "verify_ca" else None)
    with connect(chosen) as conn:
        cipher = fetch_all(conn, "SHOW STATUS LIKE 'Ssl_cipher'")[0][1]
    assert bool(cipher) is (mode != "disabled")
    start = current_offset(root)
    sql("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", "BEGIN")
    sql(*(f"INSERT INTO t VALUES ({n}, REPEAT('x', 9000))" for n in range(100)), "COMMIT")
    assert len(of_database(read(chosen, start, current_offset(root)), database)) == 100


@pytest.mark.req("STRM-36")
def test_a_certificate_that_nobody_vouches_for_is_refused(settings: ConnectionSettings) -> None:
    with pytest.raises(SourceConnectionError, match="encrypted") as caught:
        connect(replace(settings, ssl_mode="verify_identity"))
    assert not caught.value.can_retry and "certificate" in caught.value.why


@pytest.mark.req("FAULT-04")
@pytest.mark.parametrize("place", [("binlog.000000", 4), ("binlog.999999", 4), (None, 1 << 31)])
def test_a_place_that_is_gone_is_named(place: tuple[str | None, int], root: Any, settings: ConnectionSettings) -> None:
    here = current_offset(root)
    with pytest.raises(BinlogPurgedError) as caught:
        read(settings, here.with_position(place[0] or here.file, place[1]), here.with_position("binlog.9999999", 4))
    assert "new snapshot" in caught.value.remedy and not caught.value.can_retry


def test_a_set_ahead_of_the_server_is_named(root: Any, settings: ConnectionSettings) -> None:
    here = current_offset(root)
    ahead = replace(here, gtids=str(GtidSet.parse(here.gtids).add(f"{here.server_uuid}:9999999999")))
    with pytest.raises(BinlogPurgedError, match="lacks transactions"):
        read(settings, ahead, here, by_gtid=True)


@pytest.mark.req("STRM-06", "FAULT-08", "SETUP-28")
def test_the_position_of_another_server_is_refused(root: Any, settings: ConnectionSettings) -> None:
    foreign = replace(current_offset(root), server_uuid="00000000-0000-0000-0000-000000000000")
    with pytest.raises(BinlogPurgedError, match="another server"):
        read(settings, foreign, foreign)
