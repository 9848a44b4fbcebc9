"""The comparison of ad-hoc snapshots: what the moment of a read explains, and the faults beside it that it must not."""

from __future__ import annotations

import json
from typing import Any

from kit.captured_lines import BEGAN, OURS, RUNS, THEIRS, TS, line, row
from kit.cases import case
from prooflib.compare_cli import LIST, judge
from prooflib.differ import compare
from prooflib.explained import read_explained
from prooflib.records import parse_records

ASKED = {"data-collections": ["d.t"], "type": "incremental"}
WINDOW = "0f1d3a52-9a0e-4d4b-8f7e-0123456789ab"


class Side:
    """Lines of one capture."""

    def __init__(self, run: str, uuid: str, ts: int) -> None:
        self.run, self.uuid, self.ts = run, uuid, ts

    def event(self, number: int, key: Any, after: Any, op: str = "c", topic: str = "t", **more: Any) -> str:
        source = {"gtid": f"{self.uuid}:{number}", "db": "d", "table": topic, "pos": number * 1000, **more}
        value = row(after, op=op, ts=self.ts, uuid=self.uuid, **source)
        return line(value, key=key, topic=f"cap.d.{topic}", run=self.run)

    def signal(self, number: int, name: str = "s1", kind: str = "execute-snapshot", data: Any = ASKED) -> str:
        text = data if isinstance(data, str) else json.dumps(data)
        return self.event(number, name, {"id": name, "type": kind, "data": text}, topic="sig")

    def mark(self, number: int, which: str) -> str:
        data = {f"{which}WindowTimestamp": "2026-01-01T00:00:00Z"}
        return self.signal(number, f"{WINDOW}-{which}", f"snapshot-window-{which}", data)

    def read(self, number: int, key: int, v: int) -> str:
        return self.event(number, key, {"id": key, "v": v}, "r", snapshot="incremental", thread=None)

    def change(self, number: int, key: int, v: int) -> str:
        return self.event(number, key, {"id": key, "v": v}, "u", before={"id": key, "v": v - 1})

    def begin(self) -> list[str]:
        rows = [self.event(1, k, {"id": k, "v": 0}, "r", snapshot="true", gtid=None, thread=None) for k in (1, 2)]
        return [self.signal(10), *rows]


US, THEM = Side(RUNS["ours"], OURS, BEGAN["ours"] + 1000), Side(RUNS["theirs"], THEIRS, TS)
# The recorded chunk was read before the change of row 1, ours behind it.
RECORDED = [
    *(*THEM.begin(), THEM.mark(11, "open"), THEM.mark(12, "close"), THEM.read(12, 1, 0), THEM.read(12, 2, 0)),
    THEM.change(13, 1, 1),
]
BEGUN = [*US.begin(), US.change(11, 1, 1), US.mark(12, "open"), US.mark(13, "close")]


def left(ours: list[str], theirs: list[str] | None = None) -> list[str]:
    """Return what the list does not explain, by path."""
    result = compare(parse_records(ours, "ours"), parse_records(theirs or RECORDED, "theirs"))
    found, _ = judge("w/m", result, read_explained(LIST), {"signal.data.collection": "d.sig"})
    return [d.where for d in found]


def test_another_moment_of_a_read_is_explained() -> None:
    assert left([*BEGUN, US.read(13, 2, 0), US.read(13, 1, 1)]) == []


def test_a_read_that_an_event_of_the_window_replaces_may_be_missing() -> None:
    """Row 1 was changed inside our window: it is left to the event."""
    assert left([*US.begin(), US.mark(11, "open"), US.change(12, 1, 1), US.mark(13, "close"), US.read(13, 2, 0)]) == []


def test_another_fault_is_reported() -> None:
    for reads, paths in [
        # An older value behind a newer change: of itself, and as the key's last value.
        ([(1, 0), (2, 0)], ['stale.{"id":1}', 'last.{"id":1}.v']),
        ([(1, 1)], ['record.{"id":2}']),
        ([(1, 1), (2, 0), (2, 0)], ['repeated.{"id":2}', 'record.{"id":2}']),
        ([(1, 1), (2, 5)], ["value.payload.after.v", 'stale.{"id":2}', 'last.{"id":2}.v']),
        ([(1, 1), (2, 0), (3, 0)], ['record.{"id":3}', 'last.{"id":3}']),
        # No read at all tells of no window in which the event of row 1 could lie.
        ([], ['record.{"id":1}', 'record.{"id":2}']),
    ]:
        with case(reads, paths):
            assert left([*BEGUN, *(US.read(13, key, v) for key, v in reads)]) == paths


def test_the_stream_is_compared_in_order_all_the_same() -> None:
    """Neither a lost change nor one at another transaction or place is taken for one of the snapshot."""
    reads = [US.read(13, 1, 1), US.read(13, 2, 0)]
    marks = BEGUN[-2:]
    assert 'record.{"id":1}' in left([*US.begin(), *marks, US.read(13, 1, 0), US.read(13, 2, 0)])
    assert left([*US.begin(), US.change(14, 1, 1), *marks, *reads])[0] == "value.payload.source.gtid"
    moved = US.event(11, 1, {"id": 1, "v": 1}, "u", before={"id": 1, "v": 0}, file="binlog.000002")
    assert left([*US.begin(), moved, *marks, *reads]) == [
        "value.payload.source.file",
        "value.payload.source.pos",
    ]


def test_a_blocking_snapshot_may_name_no_transaction_but_an_initial_one_of_ours_may_not_name_one() -> None:
    none = {"snapshot": "true", "gtid": None, "thread": None, "server_id": 0}

    def blocking(side: Side, number: int, **source: Any) -> str:
        return side.event(number, 2, {"id": 2, "v": 0}, "r", **{"snapshot": "true", "thread": None, **source})

    theirs = [*THEM.begin(), blocking(THEM, 11, **none)]
    assert left([*US.begin(), blocking(US, 11)], theirs) == []
    for wrong, paths in [
        ({"server_id": None}, ["value.payload.source.server_id"]),
        ({"thread": 4}, ["value.payload.source.thread"]),
        # Nothing was changed up to this transaction: the read is the initial snapshot's.
        ({"gtid": f"{OURS}:9"}, [f"value.payload.source.{name}" for name in ("server_id", "gtid")]),
    ]:
        with case(wrong):
            assert left([*US.begin(), blocking(US, 11, **wrong)], theirs) == paths
