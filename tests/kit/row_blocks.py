"""Rows as a snapshot reads them, for tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from airflow_provider_mysql_cdc.cdc.snapshot.rows import RowBlock


def block_of(packets: Iterable[bytes]) -> RowBlock:
    """Return rows as one block."""
    given = list(packets)
    return RowBlock(len(given), b"".join(len(p).to_bytes(3, "little") + b"\7" + p for p in given))


def each_alone(packets: Iterable[bytes]) -> Iterator[RowBlock]:
    """Yield each row as a block."""
    for packet in packets:
        yield block_of([packet])
