"""The comparison of captures: nothing that differs is overlooked, nothing that cannot be equal is told."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kit.captured_lines import BEGAN, OURS, RUNS, TS, column, compared, differences, line, row
from prooflib.align import align_records
from prooflib.compare_cli import LIST, case_of, judge, main, report
from prooflib.differ import compare
from prooflib.explained import parse_explained, read_explained
from prooflib.lines import read_lines
from prooflib.records import parse_records, text_difference
from prooflib.workload import ProofError, parse_workload, read_properties

from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord

YEAR = 365 * 86_400_000


# -- what cannot be equal -------------------------------------------------------------------------------------------


def test_times_gtid_uuid_thread_server_id_and_run_id_are_masked() -> None:
    ours = row({"a": 1}, ts=BEGAN["ours"] + 4711, uuid=OURS, server_id=3, thread=44)
    assert differences([line(ours, run=RUNS["ours"])], [line(row({"a": 1}))]) == []


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"gtid": f"{OURS}:8"}, "value.payload.source.gtid"),
        ({"thread": None}, "value.payload.source.thread"),
        ({"server_id": 0}, "value.payload.source.server_id"),
        ({"ts_us": 1_600_000_000_000_000}, "value.payload.source.ts_us"),
        ({"ts_ms": "1700000000000"}, "value.payload.source.ts_ms"),
        ({"row": 1}, "value.payload.source.row"),
    ],
)
def test_what_is_masked_must_still_fit(change: dict[str, Any], path: str) -> None:
    """Transaction numbers, nulls, the relation of times, and types are compared."""
    assert path in [p for p, _ in differences([line(row({"a": 1}, **change))], [line(row({"a": 1}))])]


def test_ids_must_map_one_to_one() -> None:
    """Two sessions of the recorded capture cannot be one session of ours."""
    ours = [line(row({"a": n}, thread=5), key=n) for n in (1, 2)]
    theirs = [line(row({"a": n}, thread=n), key=n) for n in (1, 2)]
    assert [p for p, _ in differences(ours, theirs)] == ["value.payload.source.thread"]


@pytest.mark.parametrize("named", ["payload", "other"])
def test_the_value_of_a_member_of_a_schema_is_compared_whatever_its_name(named: str) -> None:
    """A schema that is written alike is passed over; it does not end where a member of its own is called payload."""

    def told(version: int, after: str = "") -> str:
        schema = f'{{"parameters":{{"a":"b","{named}":{{}}}},"version":{version}}}'
        return line(None, raw=f'{{"schema":{schema},"payload":{{"n":1}}{after}}}')

    assert differences([told(1)], [told(1)]) == []
    assert differences([told(1)], [told(2)]) == [("value.schema.version", "ours 1, theirs 2")]
    assert differences([told(1, ',"more":2')], [told(1)]) == [("value.more", "ours 2, theirs absent")]


def test_a_column_that_is_called_like_a_time_is_compared() -> None:
    found = differences([line(row({"ts_ms": 1}))], [line(row({"ts_ms": 2}))])
    assert found == [("value.payload.after.ts_ms", "ours 1, theirs 2")]


@pytest.mark.parametrize(
    ("change", "paths"),
    [
        # Years off, a zone off, before it happened; each by itself and the whole record.
        ({"source": -10 * YEAR}, {"source"}),
        ({"source": +10 * YEAR}, {"source"}),
        ({"source": -1_800_000}, {"source"}),
        ({"source": +900_000}, {"source"}),
        ({"envelope": -10 * YEAR}, {"envelope", "source"}),
        ({"envelope": +3_600_000}, {"envelope", "source"}),
        ({"source": -YEAR, "envelope": -YEAR}, {"envelope", "source"}),
        ({"source": -300_000}, set()),
    ],
)
def test_a_time_lies_within_its_capture_and_a_little_before_it_was_produced(
    change: dict[str, int], paths: set[str]
) -> None:
    began = BEGAN["ours"] + 1000
    ours = row({"a": 1}, ts=began + change.get("source", 0))
    ours["payload"]["ts_ms"] = began + 5 + change.get("envelope", 0)
    found = {d.path for d in compared([line(ours, run=RUNS["ours"])], [line(row({"a": 1}))])}
    expected = {
        "source": {("value", "payload", "source", t) for t in ("ts_ms", "ts_us", "ts_ns")},
        "envelope": {("value", "payload", "ts_ms")},
    }
    assert found == {path for name in paths for path in expected[name]}


def test_a_recorded_snapshot_may_be_a_zone_off_but_ours_may_not() -> None:
    began = BEGAN["ours"] + 1000
    off = row({"a": 1}, ts=TS - 19_800_000, snapshot="true")
    off["payload"]["ts_ms"] = TS
    ours = row({"a": 1}, ts=began, snapshot="true")
    assert differences([line(ours, run=RUNS["ours"])], [line(off)]) == []
    wrong = row({"a": 1}, ts=began - 19_800_000, snapshot="true")
    wrong["payload"]["ts_ms"] = began
    assert len(differences([line(wrong, run=RUNS["ours"])], [line(off)])) == 3


def test_values_of_the_clock_are_masked_only_when_they_may_come_from_there() -> None:
    fields = column("c", "int64", name="io.debezium.time.Timestamp")
    began = BEGAN["ours"] + 2000
    ours = row({"c": began - 1000}, fields=fields, ts=began)
    theirs = row({"c": TS}, fields=fields)
    assert differences([line(ours, run=RUNS["ours"])], [line(theirs)]) == []
    far = row({"c": began - 5 * YEAR}, fields=fields, ts=began)
    assert [p for p, _ in differences([line(far, run=RUNS["ours"])], [line(theirs)])] == ["value.payload.after.c"]


def uuid_of(ms: int, node: int = 1) -> str:
    """Return what MySQL's UUID() gives at a time."""
    ticks = ms * 10_000 + 0x01B21DD213814000
    return str(UUID(fields=(ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 | 0x1000, 0x96, 0x8E, node)))


def test_values_of_uuid_are_masked_only_when_they_were_made_at_the_time_of_the_record() -> None:
    began = BEGAN["ours"] + 2000

    def told(ours: list[str], theirs: list[str]) -> list[str]:
        lines = [
            [line(row({"c": u}, fields=column("c"), ts=ts), key=n, run=run) for n, u in enumerate(uuids)]
            for uuids, ts, run in ((ours, began, RUNS["ours"]), (theirs, TS, RUNS["theirs"]))
        ]
        return [d.where for d in compared(*lines)]

    mine, other = [uuid_of(began - n) for n in (500, 400)], [uuid_of(TS - n) for n in (500, 400)]
    assert told(mine, other) == []
    assert told([mine[0]] * 2, [other[0]] * 2) == []
    # A UUID that was stored; one made years ago, one of another version; two that are one in the other capture.
    path = "value.payload.after.c"
    assert told(["11111111-2222-1333-8444-555555555555"], other[:1]) == [path]
    assert told([uuid_of(began - YEAR)], other[:1]) == [path]
    assert told(["7694e365-e5a1-41f1-968e-02fc00000001"], other[:1]) == [path]
    assert told(mine, [other[0]] * 2) == [path]
    assert told([mine[0]] * 2, other) == [path]


def test_run_ids_are_uuids_of_version_7_and_each_of_ours_stands_for_one_run() -> None:
    theirs = [line(row({"a": n}), key=n) for n in (1, 2)]
    assert differences([text.replace(RUNS["theirs"], RUNS["ours"][:-1] + "0") for text in theirs], theirs) == []
    for other in (OURS, "01a1fe19"):
        wrong = [text.replace(RUNS["theirs"], other) for text in theirs]
        assert {p for p, _ in differences(wrong, theirs)} == {"headers.__debezium.context.runId"}
    of_two = [theirs[0], theirs[1].replace(RUNS["theirs"], RUNS["theirs"][:-1] + "9")]
    mine = [text.replace(RUNS["theirs"], RUNS["ours"]) for text in theirs]
    assert [p for p, _ in differences(mine, of_two)] == ["headers.__debezium.context.runId"]


def at(positions: Iterable[int], file: str = "binlog.000001") -> list[str]:
    return [line(row({"a": n}, pos=pos, file=file), key=n) for n, pos in enumerate(positions)]


def test_positions_are_equal_or_shifted_by_the_longer_statement_of_the_sentinel() -> None:
    theirs = at(range(100, 900, 100))
    assert differences(theirs, theirs) == []
    assert differences(at(range(88, 888, 100)), theirs) == []
    # The header of an event, a checksum, the sentinel's twelve bytes the other way, a whole event.
    for distance in (19, 4, 12, -13, -31, 1000):
        shifted = at(range(100 + distance, 900 + distance, 100))
        assert {p for p, _ in differences(shifted, theirs)} == {"value.payload.source.pos"}, distance
    ragged = at(100 * n - n for n in range(1, 9))
    assert {p for p, _ in differences(ragged, theirs)} == {"value.payload.source.pos"}
    other = at(range(88, 888, 100), "binlog.000002")
    assert {p for p, _ in differences(other, theirs)} == {"value.payload.source.pos", "value.payload.source.file"}


def test_each_binlog_file_begins_without_a_shift() -> None:
    first = at(range(100, 900, 100))
    theirs, ours = ([*one, *at((150, 250), "binlog.000002")] for one in (first, at(range(88, 888, 100))))
    assert differences(ours, theirs) == []
    for distance in (-12, 4, 19, 100):
        shifted = [*ours[:-2], *at((150 + distance, 250 + distance), "binlog.000002")]
        assert "value.payload.source.pos" in {p for p, _ in differences(shifted, theirs)}, distance


def test_positions_after_compressed_transactions_may_shift_by_some_bytes_often() -> None:
    """zstd makes the same rows longer or shorter for the times in them; no event is shorter than 23 bytes."""
    theirs = at(1000 * n for n in range(1, 41))
    assert differences(at(1000 * n - 3 * (n // 4) for n in range(1, 41)), theirs) == []
    events = at(1000 * n - 30 * (n // 4) for n in range(1, 41))
    assert {p for p, _ in differences(events, theirs)} == {"value.payload.source.pos"}


# -- what must be told ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "path"),
    [
        ('{"a":1.0}', '{"a":1.00}', "value.payload.a"),
        ('{"a":1}', '{"a":"1"}', "value.payload.a"),
        ('{"a":1,"b":2}', '{"b":2,"a":1}', "value.payload.(order)"),
        ('{"a":1}', '{"a":1,"b":null}', "value.payload.b"),
        ('{"a":[1,2]}', '{"a":[1]}', "value.payload.a[1]"),
        ('{"a":"\\u00e9"}', '{"a":"é"}', "value.(text)"),
        ('{"a": 1}', '{"a":1}', "value.(text)"),
        ('{"fields":[{"field":"x","d":1}]}', '{"fields":[{"field":"x","d":2}]}', "value.payload.fields[x].d"),
        ("null", '{"a":1}', "value"),
    ],
)
def test_every_difference_has_a_path(ours: str, theirs: str, path: str) -> None:
    assert [p for p, _ in differences([line(None, raw=ours)], [line(None, raw=theirs)])] == [path]


def test_header_names_are_compared() -> None:
    bare = line(row({"a": 1})).replace('[{"__debezium.context.runId":"' + RUNS["theirs"] + '"}]', "[]")
    assert [p for p, _ in differences([bare], [line(row({"a": 1}))])] == ["headers.(names)"]


def test_a_missing_record_is_reported_once_and_shifts_nothing() -> None:
    theirs = [line(row({"a": n}), key=n) for n in range(5)]
    found = differences(theirs[:2] + theirs[3:], theirs)
    assert [p for p, _ in found] == ['record.{"id":2}']
    assert found[0][1].startswith("ours absent")


def test_records_without_key_are_paired_by_their_rows() -> None:
    ours, theirs = ([line(row({"a": n}), key=None) for n in values] for values in ([1, 3], [1, 2, 3]))
    pairs = list(align_records(parse_records(ours, "o"), parse_records(theirs, "t")))
    assert [(a is None, b is None) for a, b in pairs] == [(False, False), (True, False), (False, False)]


def test_texts_are_compared_token_by_token() -> None:
    assert text_difference('{"a":"x"}', '{"a":"x"}') is None
    assert text_difference('{"a":"\\/"}', '{"a":"/"}') == ('"\\/"', '"/"')


def test_a_member_that_stands_twice_is_refused() -> None:
    with pytest.raises(ProofError, match="twice"):
        parse_records([line(None, raw='{"a":1,"a":1}')], "ours")


def test_a_line_of_another_form_is_refused_with_its_number() -> None:
    with pytest.raises(ProofError, match="ours, line 1"):
        parse_records(['{"partition":0}'], "ours")


def test_lines_end_at_line_feeds_only(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a":"\x85\u2028\x0b"}\n{"b":1}\n', encoding="utf-8")
    assert read_lines(path) == ['{"a":"\x85\u2028\x0b"}', '{"b":1}']


# -- the list and the command ---------------------------------------------------------------------------------------

TABLE = """# Title
| case | topic | path | kind | reason |
|---|---|---|---|---|
| d/* | cap.* | `value.payload.after.*` | any | A reason |
"""


def test_the_list_is_a_table() -> None:
    (entry,) = parse_explained(TABLE.splitlines(), "list")
    assert (entry.case, entry.path, entry.reason, entry.line) == ("d/*", "value.payload.after.*", "A reason", 4)


@pytest.mark.parametrize("row_text", ["| a | b | c | any |", "| a | b | c | nonsense | r |", "| a |  | c | any | r |"])
def test_a_wrong_row_is_refused(row_text: str) -> None:
    with pytest.raises(ProofError, match="line 5"):
        parse_explained([*TABLE.splitlines(), row_text], "list")


def test_an_entry_explains_only_its_case_topic_and_path() -> None:
    entries = parse_explained(TABLE.splitlines(), "list")
    records = (parse_records([line(row({"a": n}, row=n))], "x") for n in (1, 2))
    result = compare(*records)
    left, used = judge("d/default", result, entries)
    assert [d.where for d in left] == ["value.payload.source.row"]
    assert sum(used.values()) == 1
    assert len(judge("e/default", result, entries)[0]) == 2


def test_an_entry_may_hold_for_a_property() -> None:
    entries = parse_explained([line.replace("d/*", "a.zone=*") for line in TABLE.splitlines()], "list")
    result = compare(*(parse_records([line(row({"a": n}))], "x") for n in (1, 2)))
    assert len(judge("d/default", result, entries)[0]) == 1
    assert judge("d/default", result, entries, {"a.zone": "UTC"})[0] == []


def test_the_project_list_parses_and_gives_reasons() -> None:
    entries = read_explained(LIST)
    assert entries
    assert all(len(e.reason) > 10 or e.reason.startswith("As above") for e in entries)


def test_a_difference_of_many_records_is_reported_once_with_its_keys() -> None:
    lines = ([line(row({"a": n}), key=k) for k in range(9)] for n in (1, 2))
    result = compare(*(parse_records(one, "x") for one in lines))
    (told,) = report(result.differences)
    assert told.startswith('cap.d.t key={"id":0}#0 {"id":1}#1 {"id":2}#2 and 6 more value.payload.after.a: ours 1')


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0 without differences, 1 with one that is not explained, 2 on input that cannot be read; .gz is accepted."""
    folder = tmp_path / "d"
    folder.mkdir()
    explained, none = tmp_path / "list.md", tmp_path / "none.md"
    explained.write_text(TABLE)
    none.write_text("")
    ours, theirs = tmp_path / "ours.jsonl.gz", folder / "default.jsonl"
    ours.write_bytes(gzip.compress((line(row({"a": 1})) + "\n").encode()))
    theirs.write_text(line(row({"a": 2})) + "\n")
    assert main([str(ours), str(ours), "--differences", str(none)]) == 0
    assert main([str(ours), str(theirs), "--differences", str(none)]) == 1
    assert 'cap.d.t key={"id":1}#0 value.payload.after.a: ours 1, theirs 2' in capsys.readouterr().out
    assert main([str(ours), str(theirs), "--differences", str(explained)]) == 0
    assert main([str(ours), str(theirs), "--differences", str(explained), "--case", "other/default"]) == 1
    assert main([str(tmp_path / "none"), str(theirs), "--differences", str(none)]) == 2


def test_the_case_is_the_name_of_the_recorded_file() -> None:
    assert case_of(Path("/x/captured/types/time_connect.jsonl.gz")) == "types/time_connect"


# -- the capture's own parts ----------------------------------------------------------------------------------------


def test_a_workload_is_read_section_by_section() -> None:
    text = "ignored\n-- @setup\nA;\n-- @both\nB;\n-- @session2\nC;\n-- @session1\nD;\n-- @wait 2\nE;\n-- @end\nF;\n"
    workload = parse_workload("w", text.splitlines(keepends=True))
    assert [s.text for s in workload.sections_of("setup", "both")] == ["A;\n", "B;\n"]
    assert [[s.kind for s in g] for g in workload.streaming()] == [["both"], ["session2", "session1"], ["wait"]]
    assert next(s.argument for s in workload.sections if s.kind == "wait") == "2"
    with pytest.raises(ProofError, match="unknown section @chnage"):
        parse_workload("w", ["-- @chnage\n"])


def test_a_record_is_written_with_the_bytes_it_has() -> None:
    from prooflib.lines import line as written

    record = TopicRecord(0, 7, b'{"a":1.50}', None, headers=(("h", b'{"k":"\xc3\xa9"}'), ("n", None)))
    expected = (
        '{"topic":"cap.t","partition":0,"key":{"a":1.50},"value":null,"headers":[{"h":"{\\"k\\":\\"é\\"}"},{"n":null}]}'
    )
    assert written("cap.t", record) == expected + "\n"


def test_records_of_the_sentinel_are_left_out() -> None:
    from prooflib.lines import without_sentinel

    def record(payload: dict[str, Any]) -> TopicRecord:
        return TopicRecord(0, 0, None, json.dumps({"schema": {}, "payload": payload}).encode())

    end = {"id": "u:9", "data_collections": [{"data_collection": "peer_end.done"}]}
    found = [
        ("cap.peer_end.done", record({})),
        ("cap", record({"databaseName": "peer_end"})),
        ("cap", record({"databaseName": "d"})),
        ("cap.transaction", record({"id": "u:9", "status": "BEGIN"})),
        ("cap.transaction", record(end)),
        ("cap.transaction", record({"id": "u:8"})),
    ]
    kept = without_sentinel(found, "cap")
    assert [(t, json.loads(r.value or b"")["payload"]) for t, r in kept] == [
        ("cap", {"databaseName": "d"}),
        ("cap.transaction", {"id": "u:8"}),
    ]


def test_a_mode_is_read_as_java_reads_properties(tmp_path: Path) -> None:
    path = tmp_path / "m.properties"
    path.write_text(
        "! comment\n  # comment\na.b = x \nc : y\nd z\nempty=\nlong=one,\\\n   two\n"
        "regex=d\\\\.t\\.u=v\nalone\nu=\\u00e9\n"
    )
    assert read_properties(path) == {
        "a.b": "x", "c": "y", "d": "z", "empty": "", "long": "one,two", "regex": "d\\.t.u=v", "alone": "", "u": "é",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("day", "now"),
    [("2027-11-22Z", "2026-11-22"), ("2026-11-22Z", "2026-11-22"), ("2025-02-28Z", "2024-02-29")],
)
def test_a_day_is_volatile_when_it_is_that_of_the_record_or_a_year_later(day: str, now: str) -> None:
    from prooflib import clock

    noon = clock._iso_day(now) + 43_200
    assert clock._is_close(clock._iso_day, clock._iso_day(day), noon)
    for days in (-1, 1, 366):
        assert not clock._is_close(clock._iso_day, clock._iso_day(day) + days * 86_400, noon)
