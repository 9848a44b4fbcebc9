"""Rows of a stretch in blocks without those that an event touched."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kit.cases import for_each
from kit.decode_builder import column, packet, table
from kit.fake_kernel import installed
from kit.row_blocks import block_of

from airflow_provider_mysql_cdc.cdc.decode import text_decoder
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import PANIC
from airflow_provider_mysql_cdc.cdc.drain.window_keys import row_key_options
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.incremental.key_range_reader import RowKeyReader, untouched_rows
from airflow_provider_mysql_cdc.cdc.snapshot.rows import RowBlock

T = table(
    column("v", "TIME"), column("b", "INT", nullable=False), column("a", "VARCHAR", charset="utf8mb4", length=9),
    key=("a", "b"),
)  # fmt: skip


def row(number: int) -> bytes:
    return packet(b"no time", str(number).encode(), None if number == 3 else b"x%d" % number)


def key(number: int) -> bytes:
    return b'{"a":null,"b":3}' if number == 3 else b'{"a":"x%d","b":%d}' % (number, number)


def own_keys() -> RowKeyReader:
    return RowKeyReader(T, row_key_options(T), T.columns)


BLOCKS = [
    block_of(map(row, (1, 2, 3))),
    block_of([row(4)]),
    RowBlock(1, row(5), large=True),
    block_of(map(row, (6, 7))),
]


@pytest.mark.req("INC-27")
@for_each("touched", [(), (1,), (2,), (3,), (1, 3), (4,), (5,), (5, 6), (1, 2, 3, 4, 5, 6, 7), (9,), (2, 4, 7)])
def test_rows_are_left_out_by_their_own_key_alone(touched: tuple[int, ...]) -> None:
    """A key of two columns in another order than the row's, one of them NULL, behind a value that cannot be read."""
    left = list(untouched_rows(BLOCKS, own_keys(), {key(n) for n in touched}))
    assert [p for block in left for p in block] == [row(n) for n in range(1, 8) if n not in touched]
    assert all(block.rows for block in left)
    assert [block for block in BLOCKS if block in left] == [block for block in left if block in BLOCKS]


def test_a_row_that_the_kernel_leaves_is_read_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows the kernel reads at once, and wherever it stops."""
    for most in range(4):
        keys = own_keys()
        keys._read_block_keys = some(keys, most)  # type: ignore[assignment]
        assert keys.keys_of(BLOCKS[0]) == [key(1), key(2), key(3)]


def some(keys: RowKeyReader, at_once: int) -> Callable[[bytes, int, int], tuple[list[bytes], int]]:
    def many(data: bytes, at: int, most: int) -> tuple[list[bytes], int]:
        found, block = [], RowBlock(most, data)
        while len(found) < min(most, at_once):
            given, at = block.row_at(at)
            found.append(keys._read_row_key(given))
        return found, at

    return many


def test_a_key_that_cannot_be_read_is_an_error() -> None:
    bad = block_of([row(1), packet(b"1", b"2", b"\xff")])
    with pytest.raises(ValueDecodeError):
        own_keys().keys_of(bad)


def test_a_kernel_with_a_defect_is_not_asked_for_keys_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, text_decoder, "NativeKeyReader") as fake:
        fake.many = PANIC
        keys = own_keys()
        assert [keys.keys_of(block) for block in BLOCKS[:2]] == [[key(1), key(2), key(3)], [key(4)]]
        assert len(fake.asked) == 1
