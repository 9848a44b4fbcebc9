"""Rows of a chunk, kept in memory and on disk."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest
from kit.row_blocks import block_of

from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.snapshot.rows import RowBlock, RowSpool


@pytest.mark.parametrize("memory", [1 << 20, 100])
def test_rows_come_back_as_they_went_in(memory: int) -> None:
    given = [b"", b"a" * 300, bytes(range(256)) * 9000, b"last"]
    seen: list[int] = []
    with RowSpool("here", memory) as spool:
        blocks = [block_of(given[:2]), RowBlock(1, given[2], large=True), block_of(given[3:])]
        spool.fill(iter(blocks), seen.append)
        assert list(spool.blocks()) == blocks
        assert list(spool) == []
        assert [row for block in blocks for row in block] == given
    assert seen == [2, 3, 4] and spool.rows == 4


@pytest.fixture
def room() -> Iterator[int]:
    """Return the bytes beyond which no file of this process can grow, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield 100_000
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("beyond", [1, 3000, 200_000], ids=["with the last rows", "in the file's buffer", "before"])
def test_a_full_disk_is_a_named_error(room: int, beyond: int) -> None:
    """Whichever call finds it: the last write, going back to the beginning, or closing on the way out."""
    rows = [b"x" * 1000] * ((room + beyond) // 1000)
    with pytest.raises(StateError, match="local disk") as caught, RowSpool("snapshot of d.t/0", 10) as spool:
        spool.fill((block_of([row]) for row in rows), lambda _: None)
    assert caught.value.can_retry and "TMPDIR" in caught.value.remedy and "d.t/0" in caught.value.where
