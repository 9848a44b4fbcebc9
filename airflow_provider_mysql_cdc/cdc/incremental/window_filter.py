"""Leave out rows of a key range that an event of the window changed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.native_keys import native_key_reader
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import KeyReader
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table
from airflow_provider_mysql_cdc.cdc.snapshot.rows import RowBlock


class RowKeyReader:
    """Read the primary keys of rows, in the format of ``WindowKeys``.

    Args:
        table: The table.
        options: From ``row_key_options``.
        columns: The columns of the SELECT in its order.
    """

    def __init__(self, table: Table, options: DecoderOptions, columns: tuple[Column, ...]) -> None:
        self._read_row_key = KeyReader(table, options, columns)
        self._read_block_keys = native_key_reader(table, options, columns)

    def keys_of(self, block: RowBlock) -> list[bytes]:
        """Return the keys of all rows.

        Args:
            block: The rows.

        Raises:
            ValueDecodeError: A key cannot be read.
        """
        if self._read_block_keys is None or block.large:
            return [self._read_row_key(packet) for packet in block]
        keys, pos = self._read_block_keys(block.data, 0, block.rows)
        while len(keys) < block.rows:
            packet, pos = block.row_at(pos)
            keys.append(self._read_row_key(packet))
            more_keys, pos = self._read_block_keys(block.data, pos, block.rows - len(keys))
            keys += more_keys
        return keys


def untouched_rows(
    blocks: Iterable[RowBlock],
    key_reader: RowKeyReader,
    touched: Set[bytes],
    unwritten: Set[bytes] = frozenset(),
    on_unwritten: Callable[[], None] = lambda: None,
) -> Iterator[RowBlock]:
    """Yield the rows whose keys are in no event.

    Args:
        blocks: The rows.
        key_reader: Reads their keys.
        touched: The keys of events.
        unwritten: The keys of changes of which the stream has no record.
        on_unwritten: Called where a row has one of these.
    """
    for block in blocks:
        row_keys = key_reader.keys_of(block)
        if not unwritten.isdisjoint(row_keys):
            on_unwritten()
        remaining = block if touched.isdisjoint(row_keys) else _without_touched(block, row_keys, touched)
        if remaining.rows:
            yield remaining


def _without_touched(block: RowBlock, keys: Sequence[bytes], touched: Collection[bytes]) -> RowBlock:
    """Return the rows of a block whose keys are not in ``touched``."""
    if block.large:
        return RowBlock(0, b"")
    packets, pos, rows = list[bytes](), 0, 0
    for key in keys:
        _, stop = block.row_at(pos)
        if key not in touched:
            packets.append(block.data[pos:stop])
            rows += 1
        pos = stop
    return RowBlock(rows, b"".join(packets))
