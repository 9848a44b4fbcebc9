"""Rows of a chunk, kept in memory and on disk."""

from __future__ import annotations

import errno

import pytest
from row_blocks import block_of

from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.snapshot.row_spool import RowSpool
from airflow_provider_mysql_cdc.cdc.snapshot.rows import RowBlock


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


def test_a_full_disk_is_a_named_error() -> None:
    class Full:
        def write(self, block: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    spool = RowSpool("snapshot of d.t/0")
    spool._file = Full()  # type: ignore[assignment]
    with pytest.raises(StateError, match="local disk") as caught:
        spool.fill([block_of([b"x"])], lambda _: None)
    assert caught.value.can_retry and "TMPDIR" in caught.value.remedy and "d.t/0" in caught.value.where
