"""The forms of a connector's stored offset."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.debezium.connect_offsets import (
    DebeziumOffset,
    offset_in_file,
    offset_key,
    require_no_incremental,
    rest_document,
    stored_offset,
    with_offset,
    written_offset,
)
from airflow_provider_mysql_cdc.cdc.debezium.java_map import read_byte_map, write_byte_map
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, NoOffsetError, StateError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
# Written by java.io.ObjectOutputStream of JDK 17 from a HashMap<byte[], byte[]> with three entries, one of them null.
JAVA_FILE = bytes.fromhex(
    "aced0005737200116a6176612e7574696c2e486173684d61700507dac1c31660d103000246000a6c6f6164466163746f72490009746872657368"
    "6f6c6478703f4000000000000c770800000010000000037572"
    "00025b42acf317f8060854e002000078700000000178"
    "7571007e00020000000179"
    "7571007e00020000000162"
    "70"
    "7571007e0002000000145b2263222c7b22736572766572223a2270227d5d"
    "7571007e0002000000097b22706f73223a347d78"
)
PLAIN = {"file": "binlog.000012", "pos": 157, "ts_sec": 1, "server_id": 1}
INSIDE = PLAIN | {"gtids": f"{UUID.upper()}:1-5", "event": 2, "row": 1, "transaction_id": f"{UUID}:6"}


def entry(offset: dict[str, Any], connector: str = "c", prefix: str = "p") -> tuple[bytes, bytes]:
    return offset_key(connector, prefix), json.dumps(offset).encode()


def test_the_file_of_a_standalone_worker_is_read_and_written_byte_for_byte() -> None:
    entries = read_byte_map(JAVA_FILE, "offsets")
    assert entries == {b"x": b"y", b"b": None, b'["c",{"server":"p"}]': b'{"pos":4}'}
    assert write_byte_map(entries) == JAVA_FILE
    many = {str(n).encode(): b"v" * n for n in range(100)}
    assert read_byte_map(write_byte_map(many), "offsets") == many


@for_each("size", [0, 3, 40, 90, len(JAVA_FILE) - 1])
def test_a_file_that_is_cut_off_is_named(size: int) -> None:
    with pytest.raises(ConfigError, match=r"not a file of Kafka Connect's offsets \[offsets.dat\].*GET /connectors"):
        read_byte_map(JAVA_FILE[:size], "offsets.dat")


@for_each("data", [JAVA_FILE.replace(b"HashMap", b"HashSet"), JAVA_FILE.replace(b"[B", b"[I")])
def test_other_java_objects_are_refused(data: bytes) -> None:
    with pytest.raises(ConfigError, match="expected at byte"):
        read_byte_map(data, "offsets.dat")


def test_each_form_gives_the_same_offset() -> None:
    expected = DebeziumOffset("binlog.000012", 157, f"{UUID}:1-5", 2, 1)
    key, value = entry(INSIDE)
    older = json.dumps({"schema": None, "payload": ["c", {"server": "p"}]}).encode()
    files = [write_byte_map(dict([entry(PLAIN, "other", "o"), (key, value)])), json.dumps(rest_document(INSIDE, "p"))]
    for data in files:
        assert offset_in_file(data if isinstance(data, bytes) else data.encode(), "c", "p", "f") == expected
    assert stored_offset([entry(PLAIN), (key, value)], "c", "p", "topic t") == expected, "the last one counts"
    assert stored_offset([(older, value)], "", "p", "topic t") == expected
    boundary = stored_offset([entry(PLAIN)], "c", "p", "topic t")
    assert boundary == DebeziumOffset("binlog.000012", 157)


@for_each("connector, prefix", [("d", "p"), ("c", "q")])
def test_an_offset_of_another_connector_is_not_taken(connector: str, prefix: str) -> None:
    with pytest.raises(NoOffsetError, match=r'has no offset there.*it has \["c",'):
        stored_offset([entry(PLAIN)], connector, prefix, "topic t")
    with pytest.raises(NoOffsetError, match="has no offset there"):
        stored_offset([entry(PLAIN), (offset_key("c", "p"), None)], "c", "p", "topic t")  # type: ignore[list-item]


def test_a_file_that_a_killed_worker_has_left_empty_is_named() -> None:
    with pytest.raises(NoOffsetError, match=r"is empty \[offsets.dat\].*killed while it stores.*mysql_cdc_snapshot"):
        offset_in_file(b"", "c", "p", "offsets.dat")


def test_without_a_name_only_one_connector_may_have_an_offset() -> None:
    entries = [entry(PLAIN | {"pos": 4}, "old"), entry(PLAIN), entry(PLAIN, "other", "q")]
    with pytest.raises(ConfigError, match=r"several connectors.*they are c, old.*--connector-name"):
        stored_offset(entries, "", "p", "topic t")
    assert stored_offset(entries, "old", "p", "topic t").pos == 4
    deleted = [*entries, (offset_key("old", "p"), None)]
    assert stored_offset(deleted, "", "p", "topic t").pos == 157
    with pytest.raises(NoOffsetError, match="it was deleted there"):
        stored_offset(deleted, "old", "p", "topic t")


@for_each("more", [{"snapshot": True}, {"snapshot": "INITIAL"}, {"snapshot": "BLOCKING", "snapshot_completed": False}])
def test_a_snapshot_that_is_not_complete_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(NoOffsetError, match=r"snapshot is not complete.*wait until it has written a change after"):
        stored_offset([entry(PLAIN | more)], "c", "p", "topic t")


@for_each(
    "more, text",
    [
        ({"incremental_snapshot_collections": '[{"incremental_snapshot_collections_id":"d.t"}]'}, "d.t"),
        ({"incremental_snapshot_collections": '["d.a","d.b"]', "snapshot": "INCREMENTAL"}, "d.a, d.b"),
    ],
)
def test_an_incremental_snapshot_that_is_not_over_is_refused(more: dict[str, Any], text: str) -> None:
    offset = stored_offset([entry(PLAIN | more)], "c", "p", "topic t")
    with pytest.raises(StateError, match=f"not over.*{text}.*stop-snapshot"):
        require_no_incremental(offset)
    require_no_incremental(stored_offset([entry(PLAIN | {"incremental_snapshot_collections": "[]"})], "c", "p", "t"))


@for_each("other", [{"lsn": 5}, PLAIN | {"pos": -1}, PLAIN | {"gtids": "0-1-5"}, PLAIN | {"file": "x"}, []])
def test_the_offset_of_another_kind_of_connector_is_refused(other: Any) -> None:
    with pytest.raises(ConfigError, match="not the offset of a Debezium connector for MySQL"):
        stored_offset([(offset_key("c", "p"), json.dumps(other).encode())], "c", "p", "topic t")


def test_an_offset_of_ours_is_written_as_a_connector_reads_it_and_others_stay() -> None:
    written = written_offset(BinlogOffset("binlog.000003", 400, f"{UUID}:1-9", UUID), 7)
    assert written == {"file": "binlog.000003", "pos": 400, "gtids": f"{UUID}:1-9", "ts_sec": 7}
    data = with_offset(JAVA_FILE, offset_key("c", "p"), written, "f")
    assert offset_in_file(data, "c", "p", "f") == DebeziumOffset("binlog.000003", 400, f"{UUID}:1-9")
    assert read_byte_map(data, "f")[b"x"] == b"y"
    assert "gtids" not in written_offset(BinlogOffset("binlog.000003", 400), 7)
