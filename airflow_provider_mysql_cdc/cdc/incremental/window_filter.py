"""The rows of a stretch that no event of its window touched, in blocks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from typing import TypeVar

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.native_keys import native_keys
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import compile_key_reader
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table
from airflow_provider_mysql_cdc.cdc.snapshot.rows import RowBlock

T = TypeVar("T")


class OwnKeys:
    """Read rows' own keys, in the form of ``TouchedKeys``.

    Args:
        table: The table.
        options: From ``row_key_options``.
        columns: The columns that the SELECT gives, in its order.
    """

    def __init__(self, table: Table, options: DecoderOptions, columns: tuple[Column, ...]) -> None:
        self._one = compile_key_reader(table, options, columns)
        self._many = native_keys(table, options, columns)

    def of(self, block: RowBlock) -> list[bytes]:
        """Return the keys of all rows.

        Args:
            block: The rows.

        Raises:
            ValueDecodeError: A key cannot be read.
        """
        if self._many is None or block.large:
            return [self._one(packet) for packet in block]
        keys, at = self._many(block.data, 0, block.rows)
        while len(keys) < block.rows:
            packet, at = block.row_at(at)
            keys.append(self._one(packet))
            more, at = self._many(block.data, at, block.rows - len(keys))
            keys += more
        return keys


def untouched(blocks: Iterable[RowBlock], keys: OwnKeys, touched: Set[bytes]) -> Iterator[RowBlock]:
    """Yield the rows whose keys no event had.

    Args:
        blocks: The rows.
        keys: Reads their keys.
        touched: The keys of events.
    """
    for block in blocks:
        found = keys.of(block)
        left = block if touched.isdisjoint(found) else _without(block, found, touched)
        if left.rows:
            yield left


def _without(block: RowBlock, keys: Sequence[bytes], touched: Collection[bytes]) -> RowBlock:
    """Return the rows of a block whose keys are not among others."""
    if block.large:
        return RowBlock(0, b"")
    kept, at, rows = list[bytes](), 0, 0
    for key in keys:
        _, stop = block.row_at(at)
        if key not in touched:
            kept.append(block.data[at:stop])
            rows += 1
        at = stop
    return RowBlock(rows, b"".join(kept))


def with_last(items: Iterable[T]) -> Iterator[tuple[T, bool]]:
    """Yield each item with whether it is the last one.

    Args:
        items: The items.
    """
    held: list[T] = []
    for item in items:
        if held:
            yield held.pop(), False
        held.append(item)
    if held:
        yield held.pop(), True
