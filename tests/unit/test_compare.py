"""The comparison of captures: nothing that differs is overlooked, nothing that cannot be equal is told."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from prooflib.align import aligned
from prooflib.compare_cli import LIST, case_of, judge, main, report
from prooflib.differ import compare
from prooflib.explained import parse_explained, read_explained
from prooflib.kinds import KINDS
from prooflib.lines import read_lines
from prooflib.records import parse_records, text_difference
from prooflib.workload import ProofError, parse_workload, read_properties

from airflow_provider_mysql_cdc.cdc.sink.topics import TopicRecord

OURS, THEIRS = "7694e365-e5a1-11f1-968e-02fc00000001", "e62e8b76-e57c-11f1-a402-02fc00000001"
RUNS = {"ours": "01a1fd19-e889-779b-8cd0-c4aeea4e1be8", "theirs": "01a1fd20-0000-7000-8000-c4aeea4e1be8"}


def row(
    after: dict[str, Any] | None,
    *,
    fields: list[dict[str, Any]] | None = None,
    before: dict[str, Any] | None = None,
    pos: int = 100,
    ts: int = 1_700_000_000_000,
    uuid: str = THEIRS,
    **source: Any,
) -> dict[str, Any]:
    """Return a row event with its schema."""
    columns = [{"type": "struct", "field": part, "fields": fields or []} for part in ("before", "after")]
    block = {
        "ts_ms": ts,
        "snapshot": "false",
        "ts_us": ts * 1000 + 1,
        "ts_ns": (ts * 1000 + 1) * 1000,
        "server_id": 1,
        "gtid": f"{uuid}:7",
        "file": "binlog.000001",
        "pos": pos,
        "row": 0,
        "thread": 9,
        **source,
    }
    payload = {"before": before, "after": after, "source": block, "op": "c", "ts_ms": ts + 5}
    return {"schema": {"type": "struct", "fields": columns}, "payload": payload}


def line(value: Any, *, key: Any = 1, topic: str = "cap.d.t", run: str = RUNS["theirs"], raw: str | None = None) -> str:
    """Return a line of a capture."""
    key_text = "null" if key is None else json.dumps({"schema": {}, "payload": {"id": key}}, separators=(",", ":"))
    text = raw if raw is not None else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    headers = json.dumps([{"__debezium.context.runId": run}], separators=(",", ":"))
    return f'{{"topic":"{topic}","partition":0,"key":{key_text},"value":{text},"headers":{headers}}}'


def differences(ours: list[str], theirs: list[str]) -> list[tuple[str, str]]:
    result = compare(parse_records(ours, "ours"), parse_records(theirs, "theirs"))
    return [(d.where, d.values()) for d in result.differences]


def column(called: str, kind: str = "string", **more: Any) -> list[dict[str, Any]]:
    return [{"type": kind, "optional": True, "field": called, **more}]


def kinds_of(ours: Any, theirs: Any, *, fields: list[dict[str, Any]], snapshot: str = "false") -> set[str]:
    """Return the kinds that hold for a difference of column ``c``; numbers are given as JSON text."""
    lines = [line(row({"c": v}, fields=fields, snapshot=snapshot)) for v in (ours, theirs)]
    result = compare(parse_records(lines[:1], "ours"), parse_records(lines[1:], "theirs"))
    (found,) = result.differences
    return {name for name, holds in KINDS.items() if name != "any" and holds(found)}


# -- what cannot be equal -------------------------------------------------------------------------------------------


def test_times_gtid_uuid_thread_server_id_and_run_id_are_masked() -> None:
    ours = row({"a": 1}, ts=1_700_000_111_111, uuid=OURS, server_id=3, thread=44)
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


def test_a_column_that_is_called_like_a_time_is_compared() -> None:
    found = differences([line(row({"ts_ms": 1}))], [line(row({"ts_ms": 2}))])
    assert found == [("value.payload.after.ts_ms", "ours 1, theirs 2")]


def test_values_of_the_clock_and_of_uuid_are_masked_only_when_they_may_come_from_there() -> None:
    fields = column("c", "int64", name="io.debezium.time.Timestamp")
    ours = row({"c": 1_700_000_110_000}, fields=fields, ts=1_700_000_111_000)
    theirs = row({"c": 1_700_000_000_000}, fields=fields)
    assert differences([line(ours)], [line(theirs)]) == []
    far = row({"c": 1_500_000_000_000}, fields=fields, ts=1_700_000_111_000)
    assert [p for p, _ in differences([line(far)], [line(theirs)])] == ["value.payload.after.c"]
    uuids = [[line(row({"c": u}, fields=column("c")))] for u in (OURS, THEIRS)]
    assert differences(*uuids) == []


def test_positions_are_equal_or_shifted_as_a_whole() -> None:
    theirs = [line(row({"a": n}, pos=100 * n), key=n) for n in range(1, 9)]
    shifted = [line(row({"a": n}, pos=100 * n - 12), key=n) for n in range(1, 9)]
    assert differences(theirs, theirs) == []
    assert differences(shifted, theirs) == []
    ragged = [line(row({"a": n}, pos=100 * n - n), key=n) for n in range(1, 9)]
    assert {p for p, _ in differences(ragged, theirs)} == {"value.payload.source.pos"}


def test_positions_behind_compressed_transactions_may_shift_by_some_bytes_often() -> None:
    """zstd makes the same rows longer or shorter for the times in them; no event is shorter than 23 bytes."""
    theirs = [line(row({"a": n}, pos=1000 * n), key=n) for n in range(1, 41)]
    ours = [line(row({"a": n}, pos=1000 * n - 3 * (n // 4)), key=n) for n in range(1, 41)]
    assert differences(ours, theirs) == []
    events = [line(row({"a": n}, pos=1000 * n - 30 * (n // 4)), key=n) for n in range(1, 41)]
    assert {p for p, _ in differences(events, theirs)} == {"value.payload.source.pos"}


# -- what must be told ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "path"),
    [
        ('{"a":1.0}', '{"a":1.00}', "value.a"),
        ('{"a":1}', '{"a":"1"}', "value.a"),
        ('{"a":1,"b":2}', '{"b":2,"a":1}', "value.(order)"),
        ('{"a":1}', '{"a":1,"b":null}', "value.b"),
        ('{"a":[1,2]}', '{"a":[1]}', "value.a[1]"),
        ('{"a":"\\u00e9"}', '{"a":"é"}', "value.(text)"),
        ('{"a": 1}', '{"a":1}', "value.(text)"),
        ('{"fields":[{"field":"x","d":1}]}', '{"fields":[{"field":"x","d":2}]}', "value.fields[x].d"),
        ("null", '{"a":1}', "value"),
    ],
)
def test_every_difference_has_a_path(ours: str, theirs: str, path: str) -> None:
    assert [p for p, _ in differences([line(None, raw=ours)], [line(None, raw=theirs)])] == [path]


def test_header_names_are_compared() -> None:
    bare = line(row({"a": 1})).replace('[{"__debezium.context.runId":"' + RUNS["theirs"] + '"}]', "[]")
    assert [p for p, _ in differences([bare], [line(row({"a": 1}))])] == ["headers.(names)"]


def test_a_missing_record_is_told_once_and_shifts_nothing() -> None:
    theirs = [line(row({"a": n}), key=n) for n in range(5)]
    found = differences(theirs[:2] + theirs[3:], theirs)
    assert [p for p, _ in found] == ["record"]
    assert found[0][1].startswith("ours absent")


def test_records_without_key_are_paired_by_their_rows() -> None:
    ours, theirs = ([line(row({"a": n}), key=None) for n in values] for values in ([1, 3], [1, 2, 3]))
    pairs = list(aligned(parse_records(ours, "o"), parse_records(theirs, "t")))
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


# -- kinds ----------------------------------------------------------------------------------------------------------

JSON = column("c", name="io.debezium.data.Json")
FLOAT = column("c", "float")
DATETIME = column("c", "int64", name="io.debezium.time.Timestamp")
NOT_NULL_DATETIME = column("c", "int64", name="io.debezium.time.Timestamp", optional=False)
TIMESTAMP = column("c", name="io.debezium.time.ZonedTimestamp")
BITS = column("c", "bytes", name="io.debezium.data.Bits")


@pytest.mark.parametrize(
    ("kind", "ours", "theirs", "fields", "snapshot"),
    [
        ("json-text", '{"a":[1,2]}', '{"a": [1, 2]}', JSON, "true"),
        ("json-text", "0.1", "0.1000000000000000055511151231257827", JSON, "false"),
        ("json-opaque", '"01:02:03.000000"', '"01:02:03"', JSON, "false"),
        ("json-opaque", '"base64:type15:AP8="', '"AP8="', JSON, "false"),
        ("json-negative-time", '"-12:34:56.000001"', '"13:0-35:0-57.00000-1"', JSON, "false"),
        ("float-six-digits", 3.1415927, 3.14159, FLOAT, "true"),
        ("float-six-digits", 2.1474836e9, 2.14748006e9, FLOAT, "true"),
        ("float-text", 1.1754944e-38, 1.17549435e-38, FLOAT, "false"),
        ("year-zero", 0, 1900, column("c", "int32", name="io.debezium.time.Year"), "false"),
        ("date-in-year-zero", None, 10957, column("c", "int32", name="io.debezium.time.Date"), "true"),
        ("date-in-year-zero", 0, 978307200000, NOT_NULL_DATETIME, "true"),
        ("date-in-year-zero", None, -719402, column("c", "int32", name="io.debezium.time.Date"), "true"),
        ("gregorian-gap", -12219724800000, -12218860800000, DATETIME, "true"),
        (
            "trailing-zeros",
            "2024-03-31T02:30:00.120Z",
            "2024-03-31T02:30:00.12Z",
            column("c", name="io.debezium.time.ZonedTimestamp"),
            "true",
        ),
        ("zone-of-session", "2024-02-29T12:34:56.10Z", "2024-02-29T07:04:56.1Z", TIMESTAMP, "true"),
        ("sql-literal", "abc", "616263", column("c"), "false"),
        ("sql-literal", "nat", "N'nat'", column("c"), "false"),
        ("sql-literal", "1", "true", column("c"), "false"),
        ("sql-literal", "ab", "a''b", column("c"), "false"),
        ("sql-literal", "AP8=", "MDBGRg==", column("c", "bytes"), "false"),
        ("sql-literal", "QQ==", "MDEwMDAwMDE=", column("c", "bytes"), "false"),
        ("sql-literal", "3", "11", column("c"), "false"),
        ("sql-literal", "16", "10", column("c", "int32"), "false"),
        ("trailing-blanks", "a,b", "a  ,b ", column("c", name="io.debezium.data.EnumSet"), "false"),
        ("sql-literal", "31", "1F", column("c", "int32"), "false"),
        ("unpadded", "YQAA", "YQ==", column("c", "bytes"), "false"),
        ("full-day", None, "00:00:00Z", column("c", name="io.debezium.time.IsoTime"), "false"),
        ("real-as-float", 1.7976931348623157e308, "Infinity", FLOAT, "false"),
        ("real-as-float", 0.1, 0.10000000149011612, FLOAT, "false"),
        ("reversed-bits", "BQAA", "AAAF", BITS, "true"),
        ("json-garbled-datetime", '"9999-12-31 23:59:59.999999"', '"9999-12-31 23:0-5:59.999999"', JSON, "false"),
        ("escaped-bytes", "YWIAAA==", "YWJcMFww", column("c", "bytes"), "true"),
        ("backslashes", "a\nb", "a\\nb", column("c"), "true"),
        ("escaped-comma", "x,y", "x\\,y", column("c"), "false"),
        ("doubled-quotes", "it's", "it''s", column("c"), "false"),
        ("hex-default", "AP8=", "MDBG", column("c"), "false"),
        ("undefined-byte", "a\x81b", "a\ufffdb", column("c"), "false"),
        ("hex-text-default", "中é", "4E2D00E", column("c"), "false"),
        ("hex-text-default", "😀", "9439FC3", column("c"), "false"),
        ("server-charset", "ԱԲ x", "²´ x", column("c"), "false"),
        ("server-charset", "Їжак", "╥жак", column("c"), "false"),
        ("server-charset", "a?", "aٹ", column("c"), "false"),
        ("server-charset", "日\\", "日\uff3c", column("c"), "false"),
    ],
)
def test_a_kind_holds_for_its_case(kind: str, ours: Any, theirs: Any, fields: Any, snapshot: str) -> None:
    assert kind in kinds_of(ours, theirs, fields=fields, snapshot=snapshot)


@pytest.mark.parametrize(
    ("ours", "theirs", "fields", "snapshot"),
    [
        ('{"a":1}', '{"a": 2}', JSON, "true"),
        ('{"a":1,"b":2}', '{"b":2,"a":1}', JSON, "true"),
        ('"01:02:03.000001"', '"01:02:03"', JSON, "false"),
        ('{"a":1}', '{"a": 1}', column("c"), "true"),
        (3.1415927, 3.14, FLOAT, "true"),
        (3.1415927, 3.14159, FLOAT, "false"),
        (0, 1999, column("c", "int32", name="io.debezium.time.Year"), "false"),
        (-12219724800000, -12218860800000, DATETIME, "false"),
        (1, 864000001, DATETIME, "true"),
        ("x", "y", column("c"), "false"),
        ("ab", "a\ufffdb", column("c"), "false"),
        (2.1474836e9, 2.14748e9, FLOAT, "false"),
        ("中é", "4E2D00F", column("c"), "false"),
        ("2024-02-29T12:34:56Z", "2024-02-29T12:34:57Z", TIMESTAMP, "true"),
        ("2024-02-29T12:34:56Z", "2024-02-29T07:04:56Z", TIMESTAMP, "false"),
        ("BQAA", "AAAF", BITS, "false"),
        (3.0e38, "Infinity", FLOAT, "false"),
        (0.1, "Infinity", FLOAT, "false"),
        ("YWIAAA==", "YWIA", column("c", "bytes"), "true"),
        ('"9999-12-31 23:59:59"', '"9999-12-30 23:0-5:59"', JSON, "false"),
        ("ԱԲ x", "²´ x", column("c"), "true"),
        ("ԱЇ", "²╥", column("c"), "false"),
        ("caf?", "café", column("c"), "false"),
        ("a", "a ", column("c"), "false"),
    ],
)
def test_no_kind_holds_for_another_case(ours: Any, theirs: Any, fields: Any, snapshot: str) -> None:
    found = kinds_of(ours, theirs, fields=fields, snapshot=snapshot)
    assert found - {"replaced-characters"} == set()


def test_a_row_that_only_the_recording_has_is_explained_when_it_names_no_thread() -> None:
    """So Debezium writes rows of XA transactions; of any other transaction it knows the thread."""
    for thread, snapshot, expected in ((None, "false", True), (9, "false", False), (None, "true", False)):
        both = line(row({"a": 1}))
        more = line(row({"a": 2}, thread=thread, snapshot=snapshot), key=2)
        for ours, theirs, holds in (([both], [both, more], expected), ([both, more], [both], False)):
            (found,) = compare(parse_records(ours, "ours"), parse_records(theirs, "theirs")).differences
            assert KINDS["undecided-xa"](found) is holds, (thread, snapshot)


def schema_kinds(ours: list[dict[str, Any]], theirs: list[dict[str, Any]], value: Any = None) -> set[str]:
    """Return the kinds that hold for the only difference of two schemas of column ``c``, that of the row image."""
    lines = [line(row({"c": value}, fields=fields)) for fields in (ours, theirs)]
    found = compare(parse_records(lines[:1], "ours"), parse_records(lines[1:], "theirs")).differences
    difference = next(d for d in found if d.path[3] == "[after]")
    return {name for name, holds in KINDS.items() if name != "any" and holds(difference)}


@pytest.mark.parametrize(
    ("kind", "schema", "ours", "theirs"),
    [
        ("rounded-half", {"kind": "int32"}, {"default": -2}, {"default": -1}),
        ("cut-bits", {"kind": "bytes", "name": "io.debezium.data.Bits"}, {"default": "VQ=="}, {"default": "Kg=="}),
        ("unread-default", {"kind": "int32", "name": "io.debezium.time.Date"}, {"default": 19756}, {}),
        ("unread-default", {"kind": "int32", "name": "io.debezium.time.Date"}, {"default": 19756}, {"default": 0}),
        ("sql-literal", {"kind": "int32"}, {"default": 16}, {"default": 10}),
    ],
)
def test_a_kind_holds_for_its_default(
    kind: str, schema: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    assert kind in schema_kinds(*(column("c", **schema, **default) for default in (ours, theirs)))


@pytest.mark.parametrize(
    ("schema", "ours", "theirs"),
    [
        ({"kind": "int32"}, {"default": 2}, {"default": 1}),
        ({"kind": "int32"}, {"default": 12}, {"default": 0}),
        ({"kind": "int32"}, {"default": -2}, {"default": -3}),
        ({"kind": "int32"}, {"default": 10}, {"default": 11}),
        ({"kind": "int32"}, {"default": 19756}, {}),
        ({"kind": "int32", "name": "io.debezium.time.Date"}, {}, {"default": 19756}),
        ({"kind": "int32", "name": "io.debezium.time.Date"}, {"default": 19756}, {"default": 19757}),
        ({"kind": "bytes", "name": "io.debezium.data.Bits"}, {"default": "VQ=="}, {"default": "VA=="}),
    ],
)
def test_no_kind_holds_for_another_default(
    schema: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    assert schema_kinds(*(column("c", **schema, **default) for default in (ours, theirs))) == set()


def test_a_float4_that_lost_its_values_is_told_from_another_type() -> None:
    types = column("c", "float"), column("c", "double")
    assert schema_kinds(*types) == {"lost-float4"}
    assert schema_kinds(*types, value=1.5) == set()
    assert schema_kinds(column("c", "double"), column("c", "float")) == {"real-as-float"}


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


def test_a_difference_of_many_records_is_told_once_with_its_keys() -> None:
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
    assert [s.text for s in workload.of("setup", "both")] == ["A;\n", "B;\n"]
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
    from prooflib import volatile

    noon = volatile._iso_day(now) + 43_200
    assert volatile._is_near(volatile._iso_day, volatile._iso_day(day), noon)
    for days in (-1, 1, 366):
        assert not volatile._is_near(volatile._iso_day, volatile._iso_day(day) + days * 86_400, noon)
