"""Entries of a verification's blocks, one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from airflow_provider_mysql_cdc.cdc.verify.entries import (
    HEADER,
    ROW_RUN,
    EntryKind,
    FoldEntry,
    event_of_run,
    run_entries,
)


def read_entries(blocks: Iterable[bytes]) -> Iterator[FoldEntry]:
    """Yield the entries of blocks.

    Args:
        blocks: Blocks of one bucket.
    """
    size, kinds = HEADER.size, tuple(EntryKind)
    for block in blocks:
        pos, end = 0, len(block)
        while pos < end:
            table, kind, partition, offset, order, key_size, value_size = HEADER.unpack_from(block, pos)
            pos += size
            key_end = pos + key_size
            value_end = key_end + value_size
            if kind >= ROW_RUN:
                yield from _of_run(table, kind, partition, block[pos:value_end])
            else:
                key, value = block[pos:key_end], block[key_end:value_end]
                yield FoldEntry(table, kinds[kind], partition, offset, order, key, value)
            pos = value_end


def _of_run(table: int, kind: int, partition: int, run: bytes) -> Iterator[FoldEntry]:
    for key, value in zip(*run_entries(run), strict=True):
        if kind == ROW_RUN:
            yield FoldEntry(table, EntryKind.ROW, partition, 0, 0, key, value)
        else:
            yield event_of_run(table, partition, key, value)
