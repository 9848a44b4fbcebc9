"""Stretches are cut along the key, as many rows at a time as the configuration says, up to the key that was last."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.incremental import key_range_assignment as stretches
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import IncrementalState
from airflow_provider_mysql_cdc.cdc.incremental.key_range_assignment import CHUNKS_PER_RANGE, KeyRangeQueue
from airflow_provider_mysql_cdc.cdc.incremental.scan_updates import SnapshotRequest, queue_scans
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import KeyRange
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY
from airflow_provider_mysql_cdc.cdc.model.table import TableId

T = TableId("d", "t")


class Keys:
    """A table of whole numbers, and how often it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        self.keys, self.queries = list(range(count)), 0
        monkeypatch.setattr(stretches, "find_bound", self._find)

    def _find(self, *_: Any, low: Any, high: Any, skip: int, **__: Any) -> tuple[int] | None:
        self.queries += 1
        above, up_to = -1 if low is None else low[0], high[0]
        found = [key for key in self.keys if above < key <= up_to]
        return (found[skip],) if skip < len(found) else None


def cut(size: int, last: int) -> Iterator[KeyRange]:
    """Yield the stretches of a scan whose last key was found when it began."""
    asked = queue_scans(IncrementalState(), SnapshotRequest("s", "incremental", [T], {}), 1)
    scan = asked.scans[0].begin(("id",), ("SIGNED",), (last,), 1)
    queue = KeyRangeQueue.for_scans(None, asked.with_scans([scan]), [scan], size, float("inf"), lambda line: None)
    while (found := queue.next(0, EMPTY).assigned) is not None:
        yield found.key_range


@pytest.mark.req("CFG-69", "INC-11")
def test_a_chunk_has_1024_rows_where_nothing_else_is_said() -> None:
    assert config()[F.INCREMENTAL_SNAPSHOT_CHUNK_SIZE] == 1024
    assert config(incremental__snapshot__chunk__size="7")[F.INCREMENTAL_SNAPSHOT_CHUNK_SIZE] == 7


@pytest.mark.req("INC-11", "INC-12")
@pytest.mark.parametrize(("size", "queries"), [(1, 63), (5, 13), (1000, 1)])
def test_larger_chunks_mean_fewer_queries_and_more_rows_at_a_time(
    monkeypatch: pytest.MonkeyPatch, size: int, queries: int
) -> None:
    table = Keys(monkeypatch, 1000)
    found = list(cut(size, 999))
    assert table.queries == len(found) == queries
    edges = [-1, *(stretch.high[0] for stretch in found if stretch.high is not None)]
    rows = [b - a for a, b in pairwise(edges)]
    assert sum(rows) == 1000 and max(rows) <= size * CHUNKS_PER_RANGE
    assert set(rows[:-1]) <= {size * CHUNKS_PER_RANGE}


@pytest.mark.req("INC-19")
def test_a_table_ends_with_the_key_that_was_last_when_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is inserted behind it comes as an event; a table that grows as fast as it is read would have no end."""
    table = Keys(monkeypatch, 100)
    found = []
    for stretch in cut(1, 99):
        found.append(stretch)
        assert len(found) < 10, "it follows its own growth"
        table.keys += range(len(table.keys), len(table.keys) + 50)
    assert len(found) == 7 and found[-1].final and found[-1].high == (99,)


@pytest.mark.req("INC-19")
def test_an_empty_list_asks_for_nothing() -> None:
    asked = queue_scans(IncrementalState(), SnapshotRequest("s", "incremental", [], {}), 1)
    assert asked.runnable_scans == [] and asked.requests["s"].scan_count == 0
