"""Reads of ad-hoc snapshots around a statement, and the forms in which two captures have one value."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from kit.captured_lines import BEGAN, OURS, RUNS, THEIRS, TS, column, line, row
from prooflib.compare_cli import LIST, judge, main
from prooflib.differ import compare
from prooflib.explained import read_explained
from prooflib.records import parse_records
from prooflib.time_kinds import connection_zone

ASKED = {"data-collections": ["d.t"], "type": "incremental"}
WINDOW = "0f1d3a52-9a0e-4d4b-8f7e-0123456789ab"
SETTINGS = {"signal.data.collection": "d.sig"}
ID, V, W = column("id", "int32"), column("v", "int32"), column("w", "int32")
JSON = column("c", name="io.debezium.data.Json")
TIMESTAMP = column("c", name="io.debezium.time.ZonedTimestamp")
Row = dict[str, Any]


class Side:
    """Lines of one capture: a request, its window, rows before and in it, and statements."""

    def __init__(self, run: str, uuid: str, ts: int) -> None:
        self.run, self.uuid, self.ts = run, uuid, ts

    def event(
        self, number: int, after: Row, op: str, table: str = "t", key: Any = None, fields: Any = None, **more: Any
    ) -> str:
        source = {"gtid": f"{self.uuid}:{number}", "db": "d", "table": table, "pos": number * 1000, **more}
        value = row(after, fields=fields, op=op, ts=self.ts, uuid=self.uuid, **source)
        return line(value, key=key if key is not None else after["id"], topic=f"cap.d.{table}", run=self.run)

    def signal(self, number: int, name: str = "s1", kind: str = "execute-snapshot", data: Any = ASKED) -> str:
        return self.event(number, {"id": name, "type": kind, "data": json.dumps(data)}, "c", "sig")

    def marks(self, first: int) -> list[str]:
        return [
            self.signal(first + n, f"{WINDOW}-{which}", f"snapshot-window-{which}", {f"{which}WindowTimestamp": "x"})
            for n, which in enumerate(("open", "close"))
        ]

    def alter(self, number: int, table: str = "t") -> str:
        value = row(None, ts=self.ts, uuid=self.uuid, gtid=f"{self.uuid}:{number}", db="d", table=table)
        value["payload"] = {"source": value["payload"]["source"], "ddl": "ALTER TABLE t ADD w INT", "tableChanges": []}
        return line(value, key="d", topic="cap", run=self.run)

    def read(self, number: int, after: Row, fields: Any) -> str:
        return self.event(number, after, "r", fields=fields, snapshot="incremental", thread=None)


US, THEM = Side(RUNS["ours"], OURS, BEGAN["ours"] + 1000), Side(RUNS["theirs"], THEIRS, TS)


def left(ours: list[str], theirs: list[str], settings: dict[str, str] = SETTINGS) -> list[str]:
    """Return what the list does not explain, by path."""
    sides = parse_records(ours, "ours"), parse_records(theirs, "theirs")
    result = compare(*sides, connection_zone(settings))
    return [d.where for d in judge("w/m", result, read_explained(LIST), settings)[0]]


def explained(ours: list[str], theirs: list[str]) -> dict[str, str]:
    """Return the kind by which the list explains each path, those of the reads' positions left out."""
    result = compare(parse_records(ours, "ours"), parse_records(theirs, "theirs"))
    entries = [e for e in read_explained(LIST) if e.applies_to("w/m", SETTINGS)]
    found = {d.where: next((e.kind for e in entries if e.names(d, SETTINGS)), "left") for d in result.differences}
    return {path: kind for path, kind in found.items() if kind not in ("watermark", "read-at")}


def story(side: Side, change_at: int | None, rows: list[Row], read_at: int) -> list[str]:
    """Return a capture: rows of the first structure, a request, perhaps a statement, and reads in a window."""
    first = [side.event(2, {"id": k, "v": 0}, "c", fields=ID + V) for k in (1, 2)]
    statement = [side.alter(change_at)] if change_at is not None else []
    fields = ID + [f for f in V + W if f["field"] in rows[0]]
    later = [side.event(20, {"id": 9, "v": 1, "w": 1}, "c", fields=ID + V + W)]
    reads = [side.read(read_at, r, fields) for r in rows]
    return [*first, side.signal(10), *statement, *side.marks(read_at - 1), *reads, *later]


OLD = [{"id": 1, "v": 0}, {"id": 2, "v": 0}]
NEW = [{"id": 1, "v": 0, "w": 7}, {"id": 2, "v": 0, "w": 7}]


def test_a_read_behind_a_statement_has_what_the_statement_left_alone() -> None:
    """The added column has the value of the recorded capture; another value, or another old column, is stale."""
    ours, theirs = story(US, 11, NEW, 14), story(THEM, 11, NEW, 14)
    assert left(ours, theirs) == []
    other = [{**NEW[0], "w": 8}, NEW[1]]
    assert left(story(US, 11, other, 14), theirs) == [
        "value.payload.after.w",
        'stale.{"id":1}.w',
        'last.{"id":1}.w',
    ]
    lost = [{**NEW[0], "v": 5}, NEW[1]]
    assert 'stale.{"id":1}' in left(story(US, 11, lost, 14), story(THEM, 11, lost, 14))


def test_a_structure_without_a_statement_is_stale() -> None:
    assert 'stale.{"id":1}' in left(story(US, None, NEW, 14), story(THEM, None, NEW, 14))
    elsewhere = [*story(US, None, NEW, 14), US.alter(11, "other")]
    assert 'stale.{"id":1}' in left(elsewhere, story(THEM, None, NEW, 14))


def test_a_row_may_be_read_on_both_sides_of_a_statement() -> None:
    """Theirs read it before the statement, ours after it, or the other way round; both have both structures."""
    before, after = story(THEM, 14, OLD, 12), story(US, 11, NEW, 14)
    found = explained(after, before)
    assert found["value.payload.after.w"] == found['last.{"id":1}.w'] == "other-structure"
    assert found['stale.{"id":1}.w'] == "left"
    late, early = story(THEM, 11, NEW, 14), story(US, 14, OLD, 12)
    assert {
        p: k for p, k in explained(early, late).items() if k != "other-structure" and p != "value.payload.source.pos"
    } == {}


def test_a_column_that_an_event_lacks_is_told() -> None:
    """The last record of a key that is an event has the columns of its structure; only a read may be older."""
    ends = [{"id": 1, "v": 1}, {"id": 1, "v": 1, "w": 7}]
    fields = [ID + V, ID + V + W]
    ours, theirs = (
        [
            *story(side, 11, NEW, 14),
            side.event(30, ends[n], "u", fields=fields[n]),
            side.event(31, {"id": 8, "v": 1}, "c", fields=ID + V),
        ]
        for side, n in ((US, 0), (THEM, 1))
    )
    assert 'last.{"id":1}.w' in left(ours, theirs)


def test_a_structure_that_only_one_capture_has_is_told() -> None:
    """Also a value that differs in a column of both structures."""
    late = [t for t in story(THEM, 11, NEW, 14) if '"w":1}' not in t]
    never = [t for t in story(US, 11, OLD, 14) if '"w":1}' not in t]
    assert "value.payload.after.w" in left(never, late)
    wrong = [{**r, "v": 3} for r in OLD]
    assert "value.payload.after.v" in left(story(US, 14, wrong, 12), story(THEM, 11, NEW, 14))


@pytest.mark.parametrize(
    ("kind", "fields", "ours", "theirs"),
    [
        ("trailing-zeros", TIMESTAMP, "2024-03-31T02:30:00.120Z", "2024-03-31T02:30:00.12Z"),
        ("json-text", JSON, '{"a":[1,2]}', '{"a": [1, 2]}'),
    ],
)
def test_the_last_value_of_a_key_is_equal_if_only_its_notation_differs(
    kind: str, fields: Any, ours: str, theirs: str
) -> None:
    """It is named, by its kind; another value is left."""

    def sides(a: str, b: str) -> tuple[list[str], list[str]]:
        return tuple(
            [s.signal(10), *s.marks(12), s.read(13, {"id": 1, "c": v}, ID + fields)] for s, v in ((US, a), (THEM, b))
        )  # type: ignore[return-value]

    assert explained(*sides(ours, theirs)) == {"value.payload.after.c": kind, 'last.{"id":1}.c': kind}
    other = theirs.replace("2", "1")
    assert explained(*sides(ours, other)) == {"value.payload.after.c": "left", 'last.{"id":1}.c': "left"}


BERLIN = {**SETTINGS, "database.connectionTimeZone": "Europe/Berlin"}


def keyed(side: Side, text: str, **more: Any) -> list[str]:
    """Return a read of a row whose key is a TIMESTAMP."""
    schema = {"type": "struct", "fields": column("c", name="io.debezium.time.ZonedTimestamp")}
    key = json.dumps({"schema": schema, "payload": {"c": text}}, separators=(",", ":"))
    read = side.event(13, {"c": text}, "r", key="@", fields=TIMESTAMP, snapshot="incremental", thread=None, **more)
    return [side.signal(10), *side.marks(12), read.replace('{"schema":{},"payload":{"id":"@"}}', key)]


def test_reads_are_paired_by_the_time_that_the_server_stores() -> None:
    """Debezium's read has the key in the connection's zone and without zeros at its end."""
    ours = keyed(US, "2024-07-15T12:00:00.120Z")
    assert left(ours, keyed(THEM, "2024-07-15T10:00:00.12Z"), BERLIN) == []
    assert left(ours, keyed(THEM, "2024-07-15T12:00:00.12Z")) == []
    for settings, theirs in ((BERLIN, "2024-07-15T11:00:00.12Z"), (SETTINGS, "2024-07-15T10:00:00.12Z")):
        assert any(path.startswith("record.") for path in left(ours, keyed(THEM, theirs), settings))


_KEY = re.compile(r'"key":\{"schema":.*?,"payload":(\{[^{}]*\})\},"value"')


@pytest.mark.parametrize("bare", [{"ours"}, {"theirs"}, {"ours", "theirs"}])
def test_keys_without_schemas_are_paired_by_their_recorded_types(bare: set[str]) -> None:
    sides = {"ours": keyed(US, "2024-07-15T12:00:00.120Z"), "theirs": keyed(THEM, "2024-07-15T12:00:00.12Z")}
    columns = [{"name": "c", "typeName": "TIMESTAMP"}]
    changes = json.dumps([{"type": "CREATE", "table": {"columns": columns}}], separators=(",", ":"))
    for name, side in (("ours", US), ("theirs", THEM)):
        sides[name].insert(0, side.alter(5).replace('"tableChanges":[]', f'"tableChanges":{changes}'))
        if name in bare:
            sides[name] = [_KEY.sub(r'"key":\1,"value"', text) for text in sides[name]]
    assert left(sides["ours"], sides["theirs"]) == []


def test_properties_may_be_named(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("ours.jsonl", "theirs.jsonl", "connector.properties")]
    texts = [keyed(US, "2024-07-15T12:00:00.120Z"), keyed(THEM, "2024-07-15T10:00:00.12Z")]
    texts.append([f"{name}={value}" for name, value in BERLIN.items()])
    for path, lines in zip(paths, texts, strict=True):
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert main([str(paths[0]), str(paths[1])]) == 1
    assert main([str(paths[0]), str(paths[1]), "--properties", str(paths[2])]) == 0
