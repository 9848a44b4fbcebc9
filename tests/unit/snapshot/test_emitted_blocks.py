"""Rows of a chunk in blocks: each is written once, in order, with its marker, however many are decoded at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from kit.cases import for_each
from kit.decode_builder import packet
from kit.native_identity import at_time
from kit.row_blocks import block_of
from unit.snapshot.test_snapshot_task import CUT, TABLE, TOPIC, WHOLE, Rig

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import EventContext
from airflow_provider_mysql_cdc.cdc.emit.source_block import snapshot_marker
from airflow_provider_mysql_cdc.cdc.snapshot import range_writer
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.rows import RowBlock
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_task import SnapshotTask

_ROUTE = SnapshotTask._route


class AtOnce:
    """Decode so many rows at once, and leave some to be looked at alone.

    Args:
        plain: The decoder.
        most: Rows at once.
        odd: Rows that are left.
    """

    def __init__(self, plain: Any, most: int, odd: frozenset[int]) -> None:
        self.plain, self.most, self.odd = plain, most, odd
        self.alone: list[int] = []
        self.number = 0

    def __call__(self, row: bytes, pos: int, ctx: EventContext, out: list[Any]) -> None:
        self.number += 1
        self.alone.append(self.number)
        self.plain(row, pos, ctx, out)

    def decode_many(self, data: bytes, at: int, most: int, ctx: EventContext, out: list[Any]) -> tuple[int, int]:
        assert most > 0
        plain, rows = EventContext(ctx.src_head, ctx.src_tail, at_time(ctx.tail, 5_000_000)), list[Any]()
        block = RowBlock(most, data)
        while len(rows) < min(most, self.most) and self.number + 1 not in self.odd:
            row, at = block.row_at(at)
            self.number += 1
            self.plain(row, 0, plain, rows)
        out.extend(rows)
        return len(rows), at


def events(rig: Rig) -> list[Any]:
    return [json.loads(record.value or b"") for record in rig.kafka.committed(TOPIC)]


def blocks(sizes: list[int]) -> Iterator[RowBlock]:
    number = 0
    for size in sizes:
        yield block_of(packet(str(n).encode()) for n in range(number, number + size))
        number += size


MARKERS = {
    "a whole table": (WHOLE, True, True),
    "the last of several chunks": (replace(CUT, number=1), True, True),
    "one between": (replace(CUT, number=1, last=False), False, False),
}


@for_each("sizes", [[1], [2], [3], [2, 3, 1], [1, 1, 5], [7]])
@for_each(("most", "odd"), [(99, ()), (2, ()), (99, (3, 4)), (1, (1, 2, 5)), (99, range(9))])
@for_each("what", MARKERS)
def test_rows_at_once_are_written_as_rows_one_by_one(
    monkeypatch: pytest.MonkeyPatch, what: str, sizes: list[int], most: int, odd: Any
) -> None:
    chunk: SnapshotChunk = MARKERS[what][0]
    written = []
    for at_once in (False, True):
        rig, rows = Rig(chunk), sum(sizes)
        monkeypatch.setattr(range_writer, "stream_blocks", lambda *_: blocks(sizes))
        monkeypatch.setattr(SnapshotTask, "_route", _ROUTE)
        route, made = rig.task._route(TABLE), None
        if at_once:
            made = AtOnce(route.text_rows.decode, most, frozenset(odd))
        given = route if made is None else replace(route, text_rows=replace(route.text_rows, decode=made))
        monkeypatch.setattr(SnapshotTask, "_route", lambda *_, given=given: given)
        assert rig.task.run() == {TOPIC: rows}
        found = events(rig)
        assert [event["after"]["id"] for event in found] == [*range(rows)]
        written.append([(event["source"], event["op"]) for event in found])
        if made is not None and not odd and most > rows:
            # Only the first row of a table and the last one have markers of their own.
            assert made.alone == sorted({1, rows})
    assert written[0] == written[1]
    markers = [source["snapshot"] for source, _ in written[0]]
    middle = snapshot_marker()
    assert all(marker == middle for marker in markers[1:-1])
    assert (markers[-1] != middle) is chunk.last and (markers[0] != middle or chunk.number > 0)
