"""Captures whose converters wrote no schemas are compared by their payloads, and nothing else is passed over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.captured_lines import BEGAN, OURS, RUNS, column, compared, kinds, line, row
from prooflib.compare_cli import main
from prooflib.differ import compare
from prooflib.records import parse_records

TIMESTAMP = column("c", name="io.debezium.time.ZonedTimestamp")


def bare(value: dict[str, Any], **more: Any) -> str:
    """Return a line whose value was written without its schema."""
    return line(None, raw=json.dumps(value["payload"], separators=(",", ":")), **more)


def test_payloads_without_schemas_are_masked_and_compared_like_those_with_them() -> None:
    ours = row({"a": 1}, ts=BEGAN["ours"] + 4711, uuid=OURS, server_id=3, thread=44)
    assert compared([bare(ours, run=RUNS["ours"])], [bare(row({"a": 1}))]) == ()
    found = compared([bare(row({"a": 1}))], [bare(row({"a": 2}))])
    assert [(d.where, d.values()) for d in found] == [("value.payload.after.a", "ours 1, theirs 2")]


@pytest.mark.parametrize("swapped", [False, True])
def test_one_capture_may_have_no_schemas(swapped: bool) -> None:
    """The payloads are compared then, to the last character, and the result says so."""

    def result(mine: Any, other: Any) -> Any:
        sides = [[line(row({"a": mine}))], [bare(row({"a": other}))]]
        sides = sides[::-1] if swapped else sides
        return compare(*(parse_records(side, "x") for side in sides))

    assert (result(1, 1).differences, result(1, 1).without_schemas) == ((), {"value"})
    assert [d.where for d in result(1, 2).differences] == ["value.payload.after.a"]
    escaped = [[line(row({"a": "é"}))], [bare(row({"a": "é"}))]]
    assert [d.where for d in compared(*(escaped[::-1] if swapped else escaped))] == ["value.(text)"]


def test_a_capture_that_has_schemas_in_a_part_of_its_records_is_told() -> None:
    ours = [line(row({"a": 1})), bare(row({"a": 2}), key=2)]
    theirs = [line(row({"a": n}), key=n) for n in (1, 2)]
    bare_ones = [bare(row({"a": n}), key=n) for n in (1, 2)]
    assert [d.where for d in compared(ours, theirs)] == ["value.schema"]
    assert [d.where for d in compared(ours, bare_ones)] == ["value.schema"]


def test_keys_may_lack_their_schemas_too() -> None:
    def told(a: str, b: str) -> list[str]:
        texts = line(row({"a": 1})), line(row({"a": 1}))
        keyed = [[t.replace('{"schema":{},"payload":{"id":1}}', k)] for t, k in zip(texts, (a, b), strict=True)]
        return [d.where for d in compared(*keyed)]

    assert told('{"id":1}', '{"schema":{},"payload":{"id":1}}') == []
    assert told('{"id":2}', '{"schema":{},"payload":{"id":1}}') == ["key.payload.id"]
    # Columns that have the names of an envelope's members.
    assert told('{"schema":1,"payload":1}', '{"schema":1,"payload":1}') == []
    assert told('{"schema":1,"payload":1}', '{"schema":2,"payload":1}') == ["key.payload.schema"]


@pytest.mark.parametrize("without", ["ours", "theirs"])
def test_a_type_is_read_from_the_capture_that_has_it(without: str) -> None:
    """Without a schema in either, and without a schema change, a kind that asks for the type does not hold."""
    times = {"ours": "2024-03-31T02:30:00.120Z", "theirs": "2024-03-31T02:30:00.12Z"}
    rows = {side: row({"c": t}, fields=TIMESTAMP, snapshot="true", op="r") for side, t in times.items()}
    sides = [[(bare if side == without else line)(rows[side])] for side in ("ours", "theirs")]
    assert "trailing-zeros" in kinds(*compared(*sides))
    assert kinds(*compared(*([bare(value)] for value in rows.values()))) == set()


def changed(*types: tuple[str, str], length: int | None = None, table: str = "t") -> str:
    """Return a bare schema change of a table."""
    columns = [{"name": n, "typeName": t, "length": length} for n, t in types]
    value = row(None, db="d", table=table)["payload"]
    change = {"type": "CREATE", "id": "x", "table": {"columns": columns}}
    return bare({"payload": {"source": value["source"], "ddl": "x", "tableChanges": [change]}}, topic="cap")


TIMES = ("2024-03-31T02:30:00.120Z", "2024-03-31T02:30:00.12Z")


@pytest.mark.parametrize(
    ("kind", "values", "changes", "holds"),
    [
        ("trailing-zeros", TIMES, [changed(("c", "TIMESTAMP"))], True),
        ("json-text", ("[1,2]", "[1, 2]"), [changed(("c", "JSON"))], True),
        ("float-six-digits", (3.1415927, 3.14159), [changed(("c", "FLOAT"))], True),
        # Another type or table, a FLOAT(m,d), a type that was changed.
        ("trailing-zeros", TIMES, [changed(("c", "VARCHAR"))], False),
        ("trailing-zeros", TIMES, [changed(("c", "TIMESTAMP"), table="other")], False),
        ("float-six-digits", (3.1415927, 3.14159), [changed(("c", "FLOAT"), length=7)], False),
        ("trailing-zeros", TIMES, [changed(("c", "TIMESTAMP")), changed(("c", "VARCHAR"))], False),
        ("trailing-zeros", TIMES, [changed(("c", "VARCHAR")), changed(("c", "TIMESTAMP"))], False),
    ],
)
def test_without_schemas_a_type_is_the_one_of_all_recorded_schema_changes(
    kind: str, values: tuple[Any, Any], changes: list[str], holds: bool
) -> None:
    more = {"snapshot": "true", "op": "r", "db": "d", "table": "t"}
    sides = [[*changes, bare(row({"c": v}, **more))] for v in values]
    (found,) = compared(*sides)
    assert (found.where, kind in kinds(found)) == ("value.payload.after.c", holds)
    (other,) = compared(sides[0], [*changes, bare(row({"c": "x"}, **more))])
    assert kinds(other) == set()


def test_the_command_says_what_it_did_not_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs, none = (tmp_path / name for name in ("ours.jsonl", "theirs.jsonl", "none.md"))
    none.write_text("")
    ours.write_text(line(row({"a": 1})) + "\n")
    theirs.write_text(bare(row({"a": 1})) + "\n")
    assert main([str(ours), str(theirs), "--differences", str(none)]) == 0
    assert "one of the captures has values without schemas; their payloads are compared" in capsys.readouterr().out
    assert main([str(ours), str(ours), "--differences", str(none)]) == 0
    assert "without schemas" not in capsys.readouterr().out
