"""The comparison of two runs of a workload: their clocks, zones, notifications, and sessions beside each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from kit.captured_lines import BEGAN, OURS, RUNS, THEIRS, TS, column, line, row
from kit.cases import case
from prooflib.clock import SessionZones
from prooflib.compare_cli import LIST, judge, main
from prooflib.differ import Result, compare
from prooflib.explained import read_explained
from prooflib.records import parse_records

IDS = [f"{digit * 8}-1111-4111-8111-111111111111" for digit in "1234"]


def result(ours: list[str], theirs: list[str], zones: SessionZones | None = None) -> Result:
    return compare(parse_records(ours, "o"), parse_records(theirs, "t"), zones or SessionZones())


def told(ours: list[str], theirs: list[str]) -> list[str]:
    return [d.where for d in result(ours, theirs).differences]


def plain(topic: str, key: dict[str, Any], value: dict[str, Any], side: str = "theirs") -> str:
    members = {"topic": topic, "partition": 0, "key": key, "value": value}
    headers = [{"__debezium.context.runId": RUNS[side]}]
    return json.dumps({**members, "headers": headers}, separators=(",", ":"))


def unwrapped(side: str, uuid: str, *, later: int = 0, number: int = 7, thread: int = 9) -> list[str]:
    """Return a row behind transforms, with members of its event under other names and in headers."""
    ts = BEGAN[side] + 1000 + later
    value = {
        "id": 1,
        "__ts_us": ts * 1000,
        "__source_ts_ms": ts,
        "m.gtid": f"{uuid}:{number}",
        "transaction.id": f"{uuid}:{number}",
        "s.thread": thread,
        "at": 5,
    }
    members = {"topic": "cap.d.t", "partition": 0, "key": {"id": 1}, "value": value}
    headers = [{"__debezium.context.runId": RUNS[side]}, {"__source_ts_ms": str(ts)}, {"__op": "c"}]
    return [json.dumps({**members, "headers": headers}, separators=(",", ":"))]


def test_members_of_events_that_transforms_have_renamed_are_masked_like_those_of_events() -> None:
    ours, theirs = unwrapped("ours", OURS, thread=4043), unwrapped("theirs", THEIRS)
    assert told(ours, theirs) == []
    assert told(unwrapped("ours", OURS, number=8), theirs) == ["value.payload.m.gtid", "value.payload.transaction.id"]
    far = unwrapped("ours", OURS, later=10_000_000)
    assert told(far, theirs) == ["value.payload.__ts_us", "value.payload.__source_ts_ms", "headers.__source_ts_ms"]
    assert told([ours[0].replace('"at":5', '"at":6')], theirs) == ["value.payload.at"]
    assert told([ours[0].replace('"__op":"c"', '"__op":"u"')], theirs) == ["headers.__op"]


# -- the clock ------------------------------------------------------------------------------------------------------


def beats(side: str, *moments: int, **more: Any) -> list[str]:
    return [plain("hb.cap", {"serverName": "cap"}, {"ts_ms": BEGAN[side] + ms, **more}, side) for ms in moments]


def test_any_number_of_heartbeats_is_compared_but_not_one_against_none() -> None:
    theirs = beats("theirs", 5)
    for count in (1, 2, 4):
        assert told(beats("ours", *range(count)), theirs) == []
        assert told(theirs, beats("theirs", *range(count))) == []
    lost = 'record.{"serverName":"cap"}'
    assert told([], theirs) == told(theirs, []) == [lost]
    assert told(beats("ours", 1, 2, 4_000_000_000_000), theirs) == ["value.payload.ts_ms"]
    other = [plain("hb.cap", {"serverName": "cop"}, {"ts_ms": TS})]
    assert told([*theirs, *other], theirs) == ["key.payload.serverName"]


def test_a_clock_value_is_that_of_the_server_s_zone() -> None:
    def rows(side: str, hours: float, kind: str) -> list[str]:
        ts = BEGAN[side] + 1000
        shown = ts + int(hours * 3_600_000)
        value: Any = shown if kind == "io.debezium.time.Timestamp" else f"2026-0{side == 'ours'}-01T00:00:00Z"
        uuid = OURS if side == "ours" else THEIRS
        return [line(row({"c": value}, fields=column("c", "int64", name=kind), ts=ts, uuid=uuid), run=RUNS[side])]

    kind = "io.debezium.time.Timestamp"
    for zone, hours, left in (
        ("UTC", 0, 0),
        ("UTC", 5.5, 1),
        ("Asia/Kolkata", 5.5, 0),
        ("Asia/Kolkata", 0, 1),
        ("Asia/Kolkata", -5.5, 1),
    ):
        with case(zone, hours):
            zones = SessionZones(server=ZoneInfo(zone))
            assert len(result(rows("ours", hours, kind), rows("theirs", hours, kind), zones).differences) == left


@pytest.mark.parametrize(
    ("connection", "server", "theirs", "left"),
    [
        ("Asia/Kolkata", "UTC", "2024-02-29T07:04:56Z", 0),
        # The server shows 07:34:56 at 12:34:56 UTC, which is taken for a time in India.
        ("Asia/Kolkata", "-05:00", "2024-02-29T02:04:56Z", 0),
        ("Asia/Kolkata", "-05:00", "2024-02-29T07:04:56Z", 1),
        ("Asia/Kolkata", "UTC", "2024-02-29T02:04:56Z", 1),
        ("SERVER", "-05:00", "2024-02-29T07:34:56Z", 1),
    ],
)
def test_the_zone_of_the_server_decides_what_debezium_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], connection: str, server: str, theirs: str, left: int
) -> None:
    fields = column("c", name="io.debezium.time.ZonedTimestamp")
    files = [tmp_path / "ours.jsonl", tmp_path / "theirs.jsonl"]
    for file, value in zip(files, ("2024-02-29T12:34:56Z", theirs), strict=True):
        file.write_text(line(row({"c": value}, fields=fields, snapshot="true", op="r")) + "\n")
    (tmp_path / "p").write_text(f"database.connectionTimeZone={connection}\n")
    arguments = [*map(str, files), "--properties", str(tmp_path / "p"), f"--server-zone={server}"]
    assert main(arguments) == bool(left)
    assert f"{left} left" in capsys.readouterr().out
    assert main([*arguments[:-1], "--server-zone=Moon/Tycho"]) == 2
    assert "Moon/Tycho" in capsys.readouterr().err


def test_numbers_of_columns_without_sign_are_known_without_schemas() -> None:
    def bare(value: str) -> list[str]:
        change = {"source": {"db": "d", "table": "t"}, "ddl": "CREATE", "databaseName": "d", "tableChanges": []}
        names = {"f": "FLOAT UNSIGNED", "g": "FLOAT UNSIGNED ZEROFILL", "h": "FLOAT", "i": "INT UNSIGNED"}
        columns = [{"name": name, "typeName": kind, "length": None} for name, kind in names.items()]
        change["tableChanges"] = [{"type": "CREATE", "table": {"columns": columns}}]
        source = {**row({})["payload"]["source"], "db": "d", "table": "t"}
        event = f'{{"before":null,"after":{{{value}}},"source":{json.dumps(source)},"op":"c","ts_ms":{TS}}}'
        return [plain("cap", {"databaseName": "d"}, change), line(None, raw=event).replace('"schema":{},', "", 1)]

    def left(ours: str, theirs: str) -> list[str]:
        found = result(bare(ours), bare(theirs))
        return [d.where.rpartition(".")[2] for d in judge("w/m", found, read_explained(LIST))[0]]

    ours = ",".join(f'"{name}":1.1754944e-38' for name in "fghi")
    assert left(ours, ours.replace("1.1754944e-38", "1.17549435e-38")) == ["i"]
    assert left(ours, ours.replace("1.1754944e-38", "1.1754946e-38")) == ["f", "g", "h", "i"]


# -- notifications --------------------------------------------------------------------------------------------------


def note(side: str, id_: str, kind: str = "STARTED", at: int = 0, **data: str) -> str:
    value = {
        "id": id_,
        "type": kind,
        "aggregate_type": "Initial Snapshot",
        "additional_data": {"connector_name": "cap", **data},
        "timestamp": BEGAN[side] + at,
    }
    return plain("notes", {"id": id_}, value, side)


def test_random_ids_and_times_of_notifications_are_masked_and_nothing_else() -> None:
    theirs = [note("theirs", IDS[0]), note("theirs", IDS[1], "COMPLETED", 10)]
    ours = [note("ours", IDS[2], at=3), note("ours", IDS[3], "COMPLETED", 99)]
    kafka = "kafka-0-12-1a2b3c"
    assert told(ours, theirs) == []
    assert told([note("ours", kafka), note("ours", kafka, "COMPLETED")], theirs) == []
    both = ["key.payload.id", "value.payload.id"]
    for changed, paths in [
        # One id where Debezium has two, a name, a time of another day, another kind or datum.
        ([ours[0], note("ours", IDS[2], "COMPLETED")], both),
        ([note("ours", "mine"), ours[1]], both),
        ([note("ours", IDS[2], at=86_400_000), ours[1]], ["value.payload.timestamp"]),
        ([note("ours", IDS[2], tables="d.t"), ours[1]], ["value.payload.additional_data.tables"]),
        ([ours[1]], ["record." + json.dumps({"id": IDS[0]}, separators=(",", ":"))]),
    ]:
        with case(paths):
            assert told(changed, theirs) == paths
    assert told([note("ours", IDS[2])], [note("theirs", kafka)]) == both, "Debezium has no such id"


# -- sessions beside each other -------------------------------------------------------------------------------------


class Writer:
    """The stream of a capture: transactions one after the other, each of so many bytes."""

    def __init__(self, side: str) -> None:
        self.side, self.number, self.pos = side, 10, 1000
        self.uuid = OURS if side == "ours" else THEIRS
        self.lines: list[str] = []

    def transaction(self, thread: int | None, *rows: tuple[str, int, int], size: int = 300) -> Writer:
        """Write a transaction.

        Args:
            thread: Its session.
            rows: Table, key and value of each row.
            size: Its length.
        """
        id_ = f"{self.uuid}:{self.number}"
        status = {"ts_ms": BEGAN[self.side] + 1000, "event_count": None, "data_collections": None}
        self.lines.append(plain("cap.transaction", {"id": id_}, {"status": "BEGIN", "id": id_, **status}, self.side))
        for at, (table, key, value) in enumerate(rows):
            source = {"gtid": id_, "pos": self.pos + 100 + 40 * at, "thread": thread, "ts": BEGAN[self.side] + 1000}
            event = row({"id": key, "v": value}, uuid=self.uuid, **source)
            event["payload"]["transaction"] = {"id": id_, "total_order": at + 1}
            self.lines.append(line(event, key=key, topic=f"cap.d.{table}", run=RUNS[self.side]))
        end = {**status, "event_count": len(rows)}
        self.lines.append(plain("cap.transaction", {"id": id_}, {"status": "END", "id": id_, **end}, self.side))
        self.number, self.pos = self.number + 1, self.pos + size
        return self


A, B, C = ("t", 1, 11), ("t", 2, 22), ("u", 3, 33)


def written(side: str, *transactions: tuple[int | None, tuple[str, int, int], int]) -> list[str]:
    writer = Writer(side).transaction(5, ("t", 100, 0))
    for thread, change, size in transactions:
        writer.transaction(thread, change, size=size)
    return writer.transaction(5, ("t", 200, 0)).lines


RECORDED = written("theirs", (7, A, 300), (8, B, 500), (9, C, 410))


def test_transactions_of_sessions_beside_each_other_are_compared_in_the_recorded_order() -> None:
    for order in ([1, 0, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]):
        with case(order):
            done = [((17, A, 300), (18, B, 500), (19, C, 410))[n] for n in order]
            found = result(written("ours", *done), RECORDED)
            assert found.differences == () and found.moved in (2, 3)
    same = result(written("ours", (17, A, 300), (18, B, 500), (19, C, 410)), RECORDED)
    assert same.differences == () and same.moved == 0


def test_another_fault_within_other_orders_is_reported() -> None:
    for done, path in [
        (((18, ("t", 2, 23), 500), (17, A, 300), (19, C, 410)), "value.payload.after.v"),
        (((18, B, 500), (19, C, 410)), 'record.{"id":1}'),
        (((18, B, 500), (17, A, 300), (17, A, 300), (19, C, 410)), 'record.{"id":1}'),
    ]:
        with case(path):
            assert path in told(written("ours", *done), RECORDED)
    moved = written("ours", (18, B, 500), (17, A, 300), (19, C, 410))
    assert told(moved, RECORDED) == []
    # Transactions that ours writes in another order than that of their commits.
    behind = [text for text in moved if f"{OURS}:12" in text]
    assert told([*(text for text in moved if text not in behind), *behind], RECORDED) != []
    # A place that is not before the next one's, the number of another transaction, and another order within one.
    for old, new in (
        ('"pos":1400', '"pos":1960'),
        (f'"{OURS}:11"', f'"{OURS}:19"'),
        ('"total_order":1', '"total_order":2'),
    ):
        wrong = [text.replace(old, new, 1) for text in moved]
        assert wrong != moved and told(wrong, RECORDED) != [], new


def test_what_cannot_have_another_order_is_reported() -> None:
    swapped = written("ours", (18, B, 500), (17, A, 300), (19, C, 410))
    assert told(swapped, RECORDED) == []
    for what, ours, theirs in [
        ("one session", [(17, B), (17, A)], [(7, A), (8, B)]),
        ("one recorded session", [(18, B), (17, A)], [(7, A), (7, B)]),
        ("no session is named", [(None, B), (None, A)], [(None, A), (None, B)]),
        ("one row", [(18, ("t", 1, 12)), (17, A)], [(7, A), (8, ("t", 1, 12))]),
    ]:
        with case(what):
            sides = [
                written(side, *((thread, change, 300) for thread, change in done))
                for side, done in (("ours", ours), ("theirs", theirs))
            ]
            assert told(*sides) != []
