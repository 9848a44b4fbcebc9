"""Which rows and tables a round leaves out: what stands behind the low watermark, and nothing before it.

Each row has a key of its own in a window, or it is known that it may not.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from kit.cases import for_each
from kit.decode_builder import column, packet, table

from airflow_provider_mysql_cdc.cdc.ddl.apply import TableChange
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import KeyReader, NativeKeyReader
from airflow_provider_mysql_cdc.cdc.drain import joined_tables
from airflow_provider_mysql_cdc.cdc.drain import window_keys as touched_keys
from airflow_provider_mysql_cdc.cdc.drain.joined_tables import UnwrittenRows
from airflow_provider_mysql_cdc.cdc.drain.window_keys import WindowKeys, row_key_options, shared_key_check
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.model.charset_decoders import shared_characters, text_decoder
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import NEW_KEY
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId

A, B, C = (TableId("shop", name) for name in "abc")
LOW = BinlogOffset("binlog.000009", 500, None, "u")


def event(pos: int, file: str = "binlog.000009") -> Any:
    return SimpleNamespace(file=file, end_pos=pos, buf=b"", end=0, where=lambda: f"{file}:{pos}")


class Decoder:
    """Gives keys as a compiled decoder does, or fails."""

    def __init__(self, *keys: bytes | None, fails: bool = False) -> None:
        self._keys, self._fails = keys, fails
        self.write = self.update = self.delete = self.partial_update = self._decode

    def _decode(self, buf: bytes, pos: int, end: int, context: object, out: list[Any]) -> None:
        if self._fails:
            raise ValueDecodeError("a value")
        out += [(key, None, row, 0, None, None) for row, key in enumerate(self._keys)]


def touched(decoder: Any, **more: Any) -> WindowKeys:
    found = WindowKeys(frozenset({A, B}), **more)
    found._decoders[A] = decoder
    return found


def at(pos: int, kind: int = 0, file: str = "binlog.000009") -> Any:
    return SimpleNamespace(event=event(pos, file), pos=0, operation=kind)


@pytest.mark.req("INC-15", "INC-20")
@for_each("kind", range(4))
def test_rows_after_a_position_count(kind: int) -> None:
    keys = touched(Decoder(b"1", b"2", None), low_watermark=LOW)
    keys.add_rows(A, at(500, kind), event(500))
    assert keys.keys == {}
    keys.add_rows(A, at(400, kind), event(501))
    assert keys.keys_of(A) == {b"1", b"2"}
    keys.add_rows(A, at(4, kind, "binlog.000010"), event(4, "binlog.000010"))
    assert (keys.unreadable, keys.missing_watermark()) == ({}, None)


@pytest.mark.req("INC-15", "INC-20")
def test_rows_count_from_the_watermark_row_on() -> None:
    keys = touched(Decoder(b"1"), low_watermark_id="mine-open")
    keys.on_watermark("another-open", "snapshot-window-open")
    keys.add_rows(A, at(10), event(10))
    assert keys.keys == {}
    assert keys.missing_watermark() is not None
    keys.on_watermark("mine-open", "snapshot-window-open")
    keys.add_rows(A, at(20), event(20))
    assert (keys.keys_of(A), keys.keys_of(B)) == ({b"1"}, set())
    assert keys.missing_watermark() is None


def test_a_second_pass_waits_for_the_watermark_again_and_keeps_what_is_known() -> None:
    keys = touched(Decoder(b"2"), low_watermark_id="mine-open", keys={A: {b"1": 1}}, unreadable={B: "held"})
    keys.on_watermark("mine-open", "snapshot-window-open")
    keys.restart()
    keys.add_rows(A, at(10), event(10))
    assert (keys.keys, keys.unreadable) == ({A: {b"1": 1}}, {B: "held"})
    assert keys.missing_watermark() is not None
    keys.on_watermark("mine-open", "snapshot-window-open")
    keys.add_rows(A, at(20), event(20))
    assert (keys.keys, keys.missing_watermark()) == ({A: {b"1": 1, b"2": 1}}, None)


def test_what_cannot_be_distinguished_is_not_read() -> None:
    keys = touched(Decoder(fails=True), low_watermark=LOW)
    keys.add_rows(A, at(600), event(600))
    keys.add_rows(B, at(600), event(600))
    keys.add_rows(C, at(600), event(600))
    assert set(keys.unreadable) == {A, B}


def test_more_keys_than_can_be_remembered_spoil_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touched_keys, "MAX_KEYS", 2)
    keys = touched(Decoder(b"1", b"2"), low_watermark=LOW)
    keys.add_rows(A, at(600), event(600))
    assert keys.unreadable == {}
    keys._decoders[A] = Decoder(b"3")
    for _ in range(2):
        keys.add_rows(A, at(700), event(700))
    assert set(keys.unreadable) == {A}
    assert keys.keys == {}


def test_a_key_of_several_rows_spoils_the_table() -> None:
    keys = touched(Decoder(b"1"), low_watermark=LOW)
    keys._shared_key_checks[A] = lambda key: key == b"2"
    keys.add_rows(A, at(600), event(600))
    assert keys.unreadable == {}
    keys._decoders[A] = Decoder(b"3", b"2")
    keys.add_rows(A, at(700), event(700))
    assert set(keys.unreadable) == {A}


class Moves(Decoder):
    """Gives the two records of a row that moves from one key to another."""

    def _decode(self, buf: bytes, pos: int, end: int, context: object, out: list[Any]) -> None:
        out += [(b"1", None, 0, 0, None, None), (b"2", None, 0, NEW_KEY, None, None)]


@pytest.mark.parametrize("writers", [1, 2])
def test_changes_without_a_record_do_not_count_in_any_task(writers: int) -> None:
    """Key 1 has no record of its change, key 2 one of two, key 3 one of one."""
    tasks = [touched(Decoder(b"1", b"2", b"3"), low_watermark=LOW) for _ in range(writers)]
    total = UnwrittenRows()
    for task in tasks:
        task.add_rows(A, at(600), event(600))
    for row in (0, 1):
        tasks[-1].on_unwritten_row(row)
    for task in tasks:
        task._decoders[A] = Decoder(b"2")
        task.add_rows(A, at(700), event(700))
        total.merge(UnwrittenRows.from_json(task.unwritten.to_json()))
    for task in tasks:
        task.exclude_unwritten(total)
        assert (task.keys_of(A), task.unreadable) == ({b"2", b"3"}, {})
        assert (task.unwritten_keys_of(A), task.unwritten_keys_of(B)) == ({b"1", b"2"}, set())


def test_rows_before_the_watermark_and_of_other_tables_are_not_reported() -> None:
    keys = touched(Decoder(b"1"), low_watermark=LOW)
    keys.add_rows(A, at(600), event(600))
    keys.add_rows(A, at(400), event(400))
    keys.on_unwritten_row(0)
    keys.add_rows(C, at(600), event(600))
    keys.on_unwritten_row(0)
    assert not keys.unwritten


def test_a_row_without_a_record_that_may_be_any_row_spoils_the_table_in_every_task() -> None:
    """It moved to another key, or the task that left it out cannot read the table and has not looked at its key."""
    for keys in (
        touched(Moves(), low_watermark=LOW),
        touched(Decoder(b"1"), low_watermark=LOW, unreadable={A: "locked"}),
        touched(Decoder(None), low_watermark=LOW),
    ):
        keys.add_rows(A, at(600, 1), event(600))
        keys.on_unwritten_row(0)
        other = touched(Decoder(b"1"), low_watermark=LOW)
        other.exclude_unwritten(keys.unwritten)
        assert keys.unwritten == UnwrittenRows(tables={A}) and set(other.unreadable) == {A}


@for_each("kind", range(4))
def test_skipped_operations_do_not_count_unless_a_row_moved(kind: int) -> None:
    skipped = frozenset({"cudu"[kind]})
    keys = touched(Decoder(b"1"), low_watermark=LOW, skipped_ops=skipped)
    keys.add_rows(A, at(600, kind), event(600))
    assert (keys.keys_of(A), keys.unreadable) == (set(), {})
    if kind in (1, 3):
        keys._decoders[A] = Moves()
        keys.add_rows(A, at(600, kind), event(600))
        assert set(keys.unreadable) == {A}


def test_a_writer_that_reads_events_a_second_time_does_not_compare_their_number() -> None:
    keys, total = touched(Decoder(b"1"), low_watermark=LOW), UnwrittenRows()
    total.add(A, b"1")
    keys.add_rows(A, at(600), event(600))
    keys.restart()
    keys.exclude_unwritten(total)
    assert set(keys.unreadable) == {A}


def test_more_unwritten_keys_than_a_message_takes_spoil_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_tables, "MAX_BYTES", 4)
    rows = UnwrittenRows()
    for key in (b"1", b"2", b"3", b"1"):
        rows.add(A, key)
    rows.add(B, b"4")
    assert rows == UnwrittenRows({A: {b"1": 2, b"2": 1, b"3": 1}, B: {b"4": 1}})
    rows.add(A, b"5")
    rows.add(A, b"6")
    rows.add(B, b"77")
    assert rows == UnwrittenRows({B: {b"4": 1, b"77": 1}}, {A})


@pytest.mark.req("INC-25")
def test_a_statement_spoils_the_tables_that_it_names_and_those_it_moves() -> None:
    def change(kind: Any, table: TableId | None, previous: TableId | None = None) -> TableChange:
        return TableChange(kind, table, previous, None, "", "shop")

    keys = touched(Decoder(), low_watermark=LOW)
    keys.on_statement([change("DROP", None), change("ALTER", C)], event(600))
    assert keys.unreadable == {}
    keys.on_statement([change("RENAME", C, A), change("RENAME", A, B)], event(700))
    assert set(keys.unreadable) == {A, B}


@pytest.mark.req("INC-18", "INC-25")
def test_a_statement_before_the_window_counts_too_and_so_do_tables_whose_rows_it_moves() -> None:
    """Before the low watermark a table may have taken the name; EXCHANGE PARTITION names another table's rows."""
    keys = touched(Decoder(), low_watermark=LOW)
    keys.on_statement([TableChange("ALTER", A, None, None, "", "shop")], event(400))
    assert set(keys.unreadable) == {A}
    keys.on_statement([TableChange("ALTER", C, None, None, "", "shop")], event(700), [C, B])
    assert set(keys.unreadable) == {A, B}


def keyed_by(type_name: str, **more: Any) -> Table:
    return table(column("v", "INT"), column("k", type_name, nullable=False, **more), key=("k",))


@pytest.mark.req("INC-27")
@for_each(
    ("made", "values"),
    [
        (keyed_by("DATE"), ("0000-00-00", "2020-00-01", "1970-01-01", "0070-01-01", "2020-02-30")),
        (keyed_by("DATETIME", length=2), ("2020-00-01 00:00:00.00", "1970-01-01 00:00:00.00")),
        (keyed_by("TIMESTAMP"), ("0000-00-00 00:00:00", "1970-01-01 00:00:01")),
        (keyed_by("TIME"), ("-00:00:01", "00:00:01")),
        (keyed_by("TINYINT", declared_type="BOOL"), ("0", "1", "2", "-1")),
    ],
    ids=lambda value: value.columns[1].type_name if isinstance(value, Table) else None,
)
def test_a_key_is_what_the_server_has(made: Table, values: tuple[str, ...]) -> None:
    read = KeyReader(made, row_key_options(made), made.columns)
    keys = [json.loads(read(packet(b"1", value.encode())))["k"] for value in values]
    assert [str(key) for key in keys] == [*values]
    assert shared_key_check(made) is None
    with pytest.raises(Declined):
        NativeKeyReader(made, row_key_options(made), made.columns, None)


def test_other_keys_are_left_to_the_kernel() -> None:
    made = table(column("d", "DATE"), column("k", "TINYINT", nullable=False), key=("k",))
    assert not row_key_options(made).flat


@pytest.mark.req("INC-27")
@for_each(
    ("made", "shared", "own"),
    [
        (keyed_by("ENUM", enum_values=("", "a")), [""], ["a"]),
        (keyed_by("ENUM", enum_values=("a", "b", "a")), ["a"], ["", "b"]),
        (keyed_by("SET", enum_values=("", "a")), ["", "a"], []),
        (keyed_by("VARCHAR", charset="gbk"), ["?", "中?"], ["中", "a"]),
        (keyed_by("VARCHAR", charset="cp932"), ["∪"], ["語"]),
        (keyed_by("CHAR", charset="greek"), ["?"], ["α"]),
    ],
    ids=["enum", "lax enum", "set", "gbk", "cp932", "greek"],
)
def test_texts_of_several_rows_are_known(made: Table, shared: list[str], own: list[str]) -> None:
    is_shared = shared_key_check(made)
    assert is_shared is not None
    texts = {text: is_shared(json.dumps({"k": text}).encode()) for text in [*shared, *own]}
    assert texts == dict.fromkeys(shared, True) | dict.fromkeys(own, False)


@for_each(
    "made",
    [
        keyed_by("ENUM", enum_values=("a", "b")),
        keyed_by("SET", enum_values=("a", "b")),
        keyed_by("VARCHAR", charset="utf8mb4"),
        keyed_by("CHAR", charset="latin1"),
        keyed_by("VARBINARY", charset="binary"),
        keyed_by("INT"),
    ],
    ids=["enum", "set", "utf8mb4", "latin1", "binary", "int"],
)
def test_other_texts_are_of_one_row(made: Table) -> None:
    assert shared_key_check(made) is None


def test_codes_of_one_character_are_found() -> None:
    assert text_decoder("cp932")(b"\x81\xbe") == text_decoder("cp932")(b"\x87\x9c") == "∪"
    assert text_decoder("eucjpms")(b"\x8f\xa2\xb7") in shared_characters("eucjpms")
    assert {"\\", "?"} <= shared_characters("sjis")
