"""The comparison of captures: nothing that differs is overlooked, nothing that cannot be equal is told."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

import pytest
from kit.captured_lines import BEGAN, OURS, RUNS, TS, column, compared, differences, line, row
from kit.cases import case
from prooflib.compare_cli import LIST, judge, main
from prooflib.differ import compare
from prooflib.explained import parse_explained, read_explained
from prooflib.records import parse_records
from prooflib.workload import ProofError

YEAR = 365 * 86_400_000


# -- what cannot be equal -------------------------------------------------------------------------------------------


def test_times_gtid_uuid_thread_server_id_and_run_id_are_masked() -> None:
    ours = row({"a": 1}, ts=BEGAN["ours"] + 4711, uuid=OURS, server_id=3, thread=44)
    assert differences([line(ours, run=RUNS["ours"])], [line(row({"a": 1}))]) == []


def test_what_is_masked_must_still_fit() -> None:
    """Transaction numbers, nulls, the relation of times, and types are compared."""
    for change, path in [
        ({"gtid": f"{OURS}:8"}, "value.payload.source.gtid"),
        ({"thread": None}, "value.payload.source.thread"),
        ({"server_id": 0}, "value.payload.source.server_id"),
        ({"ts_us": 1_600_000_000_000_000}, "value.payload.source.ts_us"),
        ({"ts_ms": "1700000000000"}, "value.payload.source.ts_ms"),
        ({"row": 1}, "value.payload.source.row"),
    ]:
        with case(change, path):
            assert path in [p for p, _ in differences([line(row({"a": 1}, **change))], [line(row({"a": 1}))])]


def test_ids_must_map_one_to_one() -> None:
    """Two sessions of the recorded capture cannot be one session of ours."""
    ours = [line(row({"a": n}, thread=5), key=n) for n in (1, 2)]
    theirs = [line(row({"a": n}, thread=n), key=n) for n in (1, 2)]
    assert [p for p, _ in differences(ours, theirs)] == ["value.payload.source.thread"]


def test_a_time_lies_within_its_capture_and_a_little_before_it_was_produced() -> None:
    for change, paths in [
        # Years off, a zone off, before it happened; each by itself and the whole record.
        ({"source": -10 * YEAR}, {"source"}),
        ({"source": +10 * YEAR}, {"source"}),
        ({"source": -1_800_000}, {"source"}),
        ({"source": +900_000}, {"source"}),
        ({"envelope": -10 * YEAR}, {"envelope", "source"}),
        ({"envelope": +3_600_000}, {"envelope", "source"}),
        ({"source": -YEAR, "envelope": -YEAR}, {"envelope", "source"}),
        ({"source": -300_000}, set()),
    ]:
        with case(change, paths):
            began = BEGAN["ours"] + 1000
            ours = row({"a": 1}, ts=began + change.get("source", 0))
            ours["payload"]["ts_ms"] = began + 5 + change.get("envelope", 0)
            found = {d.path for d in compared([line(ours, run=RUNS["ours"])], [line(row({"a": 1}))])}
            expected = {
                "source": {("value", "payload", "source", t) for t in ("ts_ms", "ts_us", "ts_ns")},
                "envelope": {("value", "payload", "ts_ms")},
            }
            assert found == {path for name in paths for path in expected[name]}


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


# -- what must be told ----------------------------------------------------------------------------------------------


def test_every_difference_has_a_path() -> None:
    for ours, theirs, path in [
        ('{"a":1.0}', '{"a":1.00}', "value.payload.a"),
        ('{"a":1}', '{"a":"1"}', "value.payload.a"),
        ('{"a":1,"b":2}', '{"b":2,"a":1}', "value.payload.(order)"),
        ('{"a":1}', '{"a":1,"b":null}', "value.payload.b"),
        ('{"a":[1,2]}', '{"a":[1]}', "value.payload.a[1]"),
        ('{"a":"\\u00e9"}', '{"a":"é"}', "value.(text)"),
        ('{"a": 1}', '{"a":1}', "value.(text)"),
        ('{"fields":[{"field":"x","d":1}]}', '{"fields":[{"field":"x","d":2}]}', "value.payload.fields[x].d"),
        ("null", '{"a":1}', "value"),
    ]:
        with case(ours, theirs, path):
            assert [p for p, _ in differences([line(None, raw=ours)], [line(None, raw=theirs)])] == [path]


def test_a_missing_record_is_reported_once_and_shifts_nothing() -> None:
    theirs = [line(row({"a": n}), key=n) for n in range(5)]
    found = differences(theirs[:2] + theirs[3:], theirs)
    assert [p for p, _ in found] == ['record.{"id":2}']
    assert found[0][1].startswith("ours absent")


# -- the list and the command ---------------------------------------------------------------------------------------

TABLE = """# Title
| case | topic | path | kind | reason |
|---|---|---|---|---|
| d/* | cap.* | `value.payload.after.*` | any | A reason |
"""


def test_a_wrong_row_is_refused() -> None:
    for row_text in ["| a | b | c | any |", "| a | b | c | nonsense | r |", "| a |  | c | any | r |"]:
        with case(row_text), pytest.raises(ProofError, match="line 5"):
            parse_explained([*TABLE.splitlines(), row_text], "list")


def test_an_entry_explains_only_its_case_topic_and_path() -> None:
    entries = parse_explained(TABLE.splitlines(), "list")
    records = (parse_records([line(row({"a": n}, row=n))], "x") for n in (1, 2))
    result = compare(*records)
    left, used = judge("d/default", result, entries)
    assert [d.where for d in left] == ["value.payload.source.row"]
    assert sum(used.values()) == 1
    assert len(judge("e/default", result, entries)[0]) == 2


def test_the_project_list_parses_and_gives_reasons() -> None:
    entries = read_explained(LIST)
    assert entries
    assert all(len(e.reason) > 10 or e.reason.startswith("As above") for e in entries)


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


def test_a_capture_may_be_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pipeline that stops at its first record writes none, and so did Debezium."""
    ours, theirs, some = (tmp_path / f"{name}.jsonl" for name in ("ours", "theirs", "some"))
    ours.write_text("")
    theirs.with_suffix(".jsonl.gz").write_bytes(gzip.compress(b""))
    some.write_text(line(row({"a": 1})) + "\n")
    assert main([str(ours), str(theirs.with_suffix(".jsonl.gz"))]) == 0
    assert "0 records, 0 equal" in capsys.readouterr().out
    assert main([str(ours), str(some)]) == main([str(some), str(ours)]) == 1


# -- the capture's own parts ----------------------------------------------------------------------------------------
