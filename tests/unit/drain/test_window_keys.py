"""Which rows and tables a round leaves out: what stands behind the low watermark, and nothing before it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.ddl.apply import TableChange
from airflow_provider_mysql_cdc.cdc.drain import window_keys as touched_keys
from airflow_provider_mysql_cdc.cdc.drain.window_keys import WindowKeys
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId

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
        out += [(key, None, 0, 0, None, None) for key in self._keys]


def touched(decoder: Any, **more: Any) -> WindowKeys:
    found = WindowKeys(frozenset({A, B}), **more)
    found._decoders[A] = decoder
    return found


def at(pos: int, kind: int = 0, file: str = "binlog.000009") -> Any:
    return SimpleNamespace(event=event(pos, file), pos=0, operation=kind)


@pytest.mark.req("INC-15", "INC-20")
@pytest.mark.parametrize("kind", range(4))
def test_rows_after_a_position_count(kind: int) -> None:
    keys = touched(Decoder(b"1", b"2", None), low_watermark=LOW)
    keys.add_rows(A, at(500, kind), event(500))
    assert keys.keys == {}
    keys.add_rows(A, at(400, kind), event(501))
    assert keys.keys == {A: {b"1", b"2"}}
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
    assert keys.keys == {A: {b"1"}}
    assert keys.missing_watermark() is None


def test_a_second_pass_waits_for_the_watermark_again_and_keeps_what_is_known() -> None:
    keys = touched(Decoder(b"2"), low_watermark_id="mine-open", keys={A: {b"1"}}, unreadable={B: "held"})
    keys.on_watermark("mine-open", "snapshot-window-open")
    keys.restart()
    keys.add_rows(A, at(10), event(10))
    assert (keys.keys, keys.unreadable) == ({A: {b"1"}}, {B: "held"})
    assert keys.missing_watermark() is not None
    keys.on_watermark("mine-open", "snapshot-window-open")
    keys.add_rows(A, at(20), event(20))
    assert (keys.keys, keys.missing_watermark()) == ({A: {b"1", b"2"}}, None)


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
