"""Events that carry no rows, as MySQL 9.7.4 wrote them and as older servers write them."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kit.binlog_bytes import UUID, UUID_TEXT
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog import event_parsers as ev
from airflow_provider_mysql_cdc.cdc.binlog.event import Event, lenenc, signed_varint, varint
from airflow_provider_mysql_cdc.cdc.binlog.query import begin_thread_id
from airflow_provider_mysql_cdc.cdc.errors import BinlogCorruptError, UnsupportedEventError

SERVER = "a1730108-e599-11f1-8bb7-02fc00000001"
GTID_9_7 = bytes.fromhex(
    "01a1730108e59911f18bb702fc00000001931900000000000002fe07000000000000ff07000000000000133022ccc76006d350620100"
)
TAGGED_9_7 = bytes.fromhex(
    "0272000000028502e602109503650222c5032d02dd0204f1030000000204100608626c756508580a640c7f094da1a1c7600610ed051283120b"
)


def event(kind: int, body: bytes) -> Event:
    """Return an event whose body lies in the middle of other bytes."""
    return Event(kind, 0, 1, 0, "binlog.000001", 4, 99, b"\xfe" * 7 + body + b"\xfe" * 4, 7, 7 + len(body))


def micros(value: int) -> bytes:
    return value.to_bytes(7, "little")


def test_gtid_of_9_7() -> None:
    found = ev.parse_gtid(event(c.GTID_LOG_EVENT, GTID_9_7))
    assert found.gtid == f"{SERVER}:6547"
    assert (found.last_committed, found.sequence_number, found.transaction_length) == (2046, 2047, 211)
    assert found.commit_us == found.immediate_commit_us == 0x0660C7CC223013


def test_tagged_gtid_of_9_7() -> None:
    found = ev.parse_gtid(event(c.GTID_TAGGED_LOG_EVENT, TAGGED_9_7))
    assert found == ev.GtidEvent(f"{SERVER}:blue:4", 1795260386725129, 1795260386725129, 22, 25, 379)


def test_gtid_of_a_replica_has_both_times() -> None:
    body = b"\1" + UUID + struct.pack("<qBqq", 9, 2, 1, 2) + micros(500 | 1 << 55) + micros(400) + b"\xfc\x10\x27"
    found = ev.parse_gtid(event(c.GTID_LOG_EVENT, body))
    assert found == ev.GtidEvent(f"{UUID_TEXT}:9", 400, 500, 1, 2, 10_000)


@pytest.mark.parametrize(
    ("body", "clock"),
    [
        (b"\1" + UUID + struct.pack("<q", 9), (0, 0)),
        (b"\1" + UUID + struct.pack("<qBqq", 9, 2, 5, 6), (5, 6)),
        (b"\1" + UUID + struct.pack("<qBqq", 9, 0, 5, 6), (0, 0)),
    ],
    ids=["5.6", "5.7", "no-clock"],
)
def test_gtid_of_old_servers_has_no_times(body: bytes, clock: tuple[int, int]) -> None:
    assert ev.parse_gtid(event(c.GTID_LOG_EVENT, body)) == ev.GtidEvent(f"{UUID_TEXT}:9", 0, 0, *clock, 0)


def test_anonymous_transactions_have_times_but_no_gtid() -> None:
    found = ev.parse_gtid(event(c.ANONYMOUS_GTID_LOG_EVENT, GTID_9_7))
    assert found.gtid is None and found.commit_us == 0x0660C7CC223013


def test_other_events_announce_no_transaction() -> None:
    with pytest.raises(UnsupportedEventError):
        ev.parse_gtid(event(c.XID_EVENT, bytes(8)))


@for_each("length", range(len(TAGGED_9_7)))
def test_a_cut_tagged_gtid_is_refused(length: int) -> None:
    with pytest.raises(BinlogCorruptError):
        ev.parse_gtid(event(c.GTID_TAGGED_LOG_EVENT, TAGGED_9_7[:length]))


def test_a_cut_gtid_is_refused() -> None:
    for length in range(25):
        with pytest.raises(BinlogCorruptError):
            ev.parse_gtid(event(c.GTID_LOG_EVENT, GTID_9_7[:length]))


def test_a_field_that_must_not_be_ignored_stops_the_stream() -> None:
    # version 2, size 6, nothing above field 20 may be ignored; then field 15, which is not known
    with pytest.raises(UnsupportedEventError, match="field 15"):
        ev.parse_gtid(event(c.GTID_TAGGED_LOG_EVENT, bytes([2, 12, 20 << 1, 15 << 1, 0, 0])))


@for_each(
    ("data", "value"),
    [
        ("00", 0), ("fe", 127), ("0102", 128), ("fdff", 16383), ("030002", 16384),
        ("ff" + "ff" * 8, 2**64 - 1), ("ff00000000000000", None), ("7f" + "00" * 6 + "01", 1 << 48),
        ("ff01" + "00" * 7, 1), ("01", None),
    ],
)  # fmt: skip
def test_varint(data: str, value: int | None) -> None:
    raw = bytes.fromhex(data)
    if value is None:
        with pytest.raises(IndexError):
            varint(raw, 0)
    else:
        assert varint(b"x" + raw + b"y", 1) == (value, 1 + len(raw))


@for_each(("data", "value"), [(0, 0), (1 << 1, -1), (2 << 1, 1), (3 << 1, -2), (44 << 1, 22)])
def test_signed_varint(data: int, value: int) -> None:
    assert signed_varint(bytes([data]), 0) == (value, 1)


def test_lenenc() -> None:
    for data, value in (
        (b"\xfa", 250),
        (b"\xfc\x01\x02", 513),
        (b"\xfd\1\0\1", 65537),
        (b"\xfe" + b"\xff" * 8, 2**64 - 1),
    ):
        assert lenenc(data, 0) == (value, len(data))
    for data in (b"", b"\xfb", b"\xff", b"\xfc\x01", b"\xfe\0\0"):
        with pytest.raises(IndexError):
            lenenc(data, 0)


def test_rotate_xid_and_rows_query() -> None:
    assert ev.parse_rotate(event(4, struct.pack("<Q", 1 << 33) + b"bin.000009")) == ev.RotateEvent(
        "bin.000009", 1 << 33
    )
    assert ev.parse_xid(event(16, struct.pack("<Q", 2**63))) == 2**63
    statement = "UPDATE t SET ö = '" + "x" * 500 + "'"
    assert ev.parse_rows_query(event(29, b"\xff" + statement.encode())) == statement
    assert ev.parse_rows_query(event(29, b"\x05caf\xe9!")) == "caf\ufffd!"


def test_previous_gtids() -> None:
    body = struct.pack("<Q", 1) + UUID + struct.pack("<QQQ", 1, 1, 6)
    assert str(ev.parse_previous_gtids(event(35, body))) == f"{UUID_TEXT}:1-5"
    with pytest.raises(BinlogCorruptError):
        ev.parse_previous_gtids(event(35, body[:-1]))


# -- QUERY ----------------------------------------------------------------------------------------------------------


def query_body(sql: bytes, status: bytes = b"", db: bytes = b"shop") -> bytes:
    return struct.pack("<IIBHH", 42, 3, len(db), 0, len(status)) + status + db + b"\0" + sql


def charset(client: int) -> bytes:
    return b"\x04" + struct.pack("<HHH", client, 33, 255)


def query(sql: bytes, status: bytes = b"", **kwargs: Any) -> ev.QueryEvent:
    return ev.parse_query(event(c.QUERY_EVENT, query_body(sql, status, **kwargs)))


def thread_of(body: bytes) -> int | None:
    return begin_thread_id(event(c.QUERY_EVENT, body))


def test_begin_is_known_by_its_letters_and_by_their_place() -> None:
    begin = query_body(b"BEGIN", b"\x01" + bytes(8))
    assert thread_of(begin) == ev.parse_query(event(c.QUERY_EVENT, begin)).thread_id != 0
    assert thread_of(query_body(b"BEGIN", db=b"")) is not None
    for sql in (b"BEGINS", b" BEGIN", b"begin", b"DROP TABLE x -- BEGIN", b"XBEGIN", b""):
        assert thread_of(query_body(sql)) is None
    # The name of the database ends in the letters; a length that goes beyond them; a body that is cut.
    assert thread_of(query_body(b"", db=b"BEGIN")) is None
    assert thread_of(begin[:8] + b"\x09" + begin[9:]) is None
    assert thread_of(b"BEGIN") is None


def test_query_of_9_7() -> None:
    body = bytes.fromhex(
        "020400000000000000000031000000000000012000a04500000000060373746404ff00ff00ff000c01625f7465737400112ef0000000"
        "00000012ff00130000637265617465207461626c6520625f746573742e6632286120696e742c206220696e742c207072696d617279206b"
        "657928622c612929"
    )
    found = ev.parse_query(event(c.QUERY_EVENT, body))
    assert found.sql == "create table b_test.f2(a int, b int, primary key(b,a))"
    assert (found.thread_id, found.db, found.error_code, found.sql_mode) == (1026, "", 0, 0x45A00020)
    assert (found.client_charset, found.collation_connection, found.collation_server) == (255, 255, 255)
    assert (found.updated_dbs, found.ddl_xid) == (("b_test",), 0xF02E)
    assert (found.default_collation_for_utf8mb4, found.sql_require_primary_key) == (255, False)
    assert found.explicit_defaults_for_timestamp is None


def test_every_status_variable_is_measured_rightly() -> None:
    status = b"".join((
        b"\x00" + bytes(4), b"\x01" + struct.pack("<Q", 1 << 40), b"\x02\x03std\0", b"\x03" + bytes(4), charset(8),
        b"\x05\x03UTC", b"\x06\x03std", b"\x07" + bytes(2), b"\x08" + struct.pack("<H", 45), b"\x09" + bytes(8),
        b"\x0a" + bytes(4), b"\x0b\x04root\x09localhost", b"\x0c\x02one\0two\0", b"\x0d\x40\xe2\x01", b"\x10\x01",
        b"\x11" + struct.pack("<Q", 77), b"\x12" + struct.pack("<H", 255), b"\x13\x01", b"\x14\x01",
    ))  # fmt: skip
    found = query(b"CREATE TABLE t (a INT)", status)
    assert found == ev.QueryEvent(
        42, 3, 0, "shop", "CREATE TABLE t (a INT)",
        1 << 40, 8, 33, 255, 45, "UTC", ("one", "two"), 123456, True, 77, 255, True,
    )  # fmt: skip


def test_what_follows_an_unknown_status_variable_is_left_out() -> None:
    found = query(b"SELECT 1", charset(33) + b"\x77garbage")
    assert found.client_charset == 33 and found.sql == "SELECT 1"


def test_more_than_sixteen_databases_are_not_named() -> None:
    assert query(b"DROP DATABASE x", b"\x0c\xfe" + charset(33)).client_charset == 33


@for_each(
    ("client", "data", "sql"),
    [
        (255, "é€😀".encode(), "é€😀"),
        (33, "é€".encode(), "é€"),
        (8, b"caf\xe9 \x80", "café €"),
        (63, "é".encode(), "é"),
        (28, "表".encode("gbk"), "表"),
        (13, "表".encode("shift_jis"), "表"),
        (249, "表😀".encode("gb18030"), "表😀"),
        (7, "ж".encode("koi8_r"), "ж"),
        (5000, "é".encode(), "é"),
    ],
)
def test_statements_are_read_in_the_client_character_set(client: int, data: bytes, sql: str) -> None:
    assert query(b"-- " + data, charset(client)).sql == "-- " + sql


def test_bytes_that_do_not_fit_the_character_set_survive() -> None:
    found = query(b"INSERT INTO t VALUES (_binary'\xff\xfe')", charset(255)).sql
    assert found == "INSERT INTO t VALUES (_binary X'fffe')"


def test_what_the_server_wrote_has_settings_of_its_own() -> None:
    sql = "CREATE TABLE `t` (\n  `ä` enum('a\\\\') DEFAULT NULL\n) START TRANSACTION"
    status = charset(8) + b"\x01" + struct.pack("<Q", 0x100004)
    found = query(sql.encode(), status)
    assert (found.sql, found.sql_mode) == (sql, 0x4)
    assert (found.client_charset, found.collation_connection, found.collation_server) == (45, 45, 255)
    sent = query(b"CREATE TABLE t (`\xe4` INT)", status)
    assert (sent.sql, sent.sql_mode, sent.client_charset) == ("CREATE TABLE t (`ä` INT)", 0x100004, 8)


EMPTIED = "TRUNCATE TABLE {} /* generated by server */"
IN_MEMORY = "TRUNCATE TABLE {} /* generated by server, implicitly emptying in-memory table */"


@for_each(
    ("sql", "updated", "expected"),
    [
        ("DELETE FROM `d`.`größe`", "", EMPTIED.format("`d`.`größe`")),
        ('DELETE FROM "d"."a""b c"', "", EMPTIED.format('"d"."a""b c"')),
        ("DELETE FROM d.t", "", EMPTIED.format("d.t")),  # sql_quote_show_create=OFF
        (IN_MEMORY.format("`d`.`größe`"), "", IN_MEMORY.format("`d`.`größe`")),
        ("DELETE FROM `d`.`t`", "d", None),  # a session's own statement
        ("DELETE FROM `d`.`t` WHERE a = 1", "", None),
        ("DELETE FROM `d`.`t` /* generated by server */", "", None),
        ("DELETE FROM `t`", "", None),
        ("TRUNCATE TABLE `d`.`t`", "", None),
    ],
)
def test_the_server_says_that_a_restart_has_emptied_a_table_in_memory(sql: str, updated: str, expected: str) -> None:
    """The bytes of 5.7.22, 8.0.15 and 9.7.4, in a session of latin1."""
    status = charset(8) + (b"\x0c\x01" + updated.encode() + b"\0" if updated else b"")
    found = query(sql.encode(), status, db=b"")
    assert found.written_by_server == (expected is not None)
    assert found.sql == (expected or sql)


@pytest.mark.parametrize(
    "body", [query_body(b"SELECT 1")[:12], struct.pack("<IIBHH", 1, 1, 200, 0, 0) + b"x", query_body(b"", b"\x04\1")]
)
def test_a_cut_query_is_refused(body: bytes) -> None:
    with pytest.raises(BinlogCorruptError):
        ev.parse_query(event(c.QUERY_EVENT, body))
