"""Records read back: what is wrong with one is named, and nothing of it reaches SQL unchecked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker, encode
from airflow_provider_mysql_cdc.cdc.errors import CdcError, DamagedRecordError, SchemaError, from_json
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk, chunk_condition
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import key_kind_of

pytestmark = pytest.mark.quick

START, END = BinlogOffset("binlog.000007", 157), BinlogOffset("binlog.000008", 4)
PLAN = BatchPlan(6, "drain", START, END, 2, {"t": 2}, {"t": (0, 1)}, "o")
MARKER = Marker(6, 1, START, END, ResumePosition(START))
CHUNK = SnapshotChunk(TableId("d", "t"), 0, ("n",), ("a",), ("z",), True, 5, ("utf8mb4 utf8mb4_bin",))
DONE: dict[str, Any] = {"epoch": 6, "list": "a", "order": 0, "chunk": {}, "offset": START.to_json(), "rows": 1,
                        "left_out": 0, "ts_ms": 1}  # fmt: skip
HOSTILE = "utf8mb4) FROM (SELECT 1 AS n) x WHERE SLEEP(9) -- "


def changed(data: dict[str, Any], *path: Any) -> dict[str, Any]:
    """Return plain JSON with the member at a path (all but the last argument) replaced by the last argument."""
    copy: dict[str, Any] = json.loads(json.dumps(data))
    inside: Any = copy
    for name in path[:-2]:
        inside = inside[name]
    inside[path[-2]] = path[-1]
    return copy


@for_each(
    "kinds",
    [
        [f"{HOSTILE}utf8mb4_bin"],
        [f"utf8mb4 utf8mb4_bin{HOSTILE}"],
        ["utf8mb4  utf8mb4_bin"],
        ["utf8mb4 latin1_bin"],
        ["SIGNED)"],
        ["signed"],
        [""],
        [7],
        ["SIGNED", "SIGNED"],
        "SIGNED",
    ],
)
def test_kinds_of_a_chunk_are_of_a_closed_set(kinds: Any) -> None:
    with pytest.raises(DamagedRecordError, match="kinds"):
        SnapshotChunk.from_json(changed(CHUNK.to_json(), "kinds", kinds))


@for_each("kind", [f"{HOSTILE}utf8mb4_bin", "utf8mb4", "utf8mb4 utf8mb4_bin x", ""])
def test_no_unknown_kind_becomes_sql(kind: str) -> None:
    assert key_kind_of(kind) is None


def test_what_becomes_sql_is_quoted() -> None:
    kind = key_kind_of("latin1 latin1_bin")
    assert kind is not None and kind.literal("a'b") == "_utf8mb4 0x612762"
    hostile = changed(CHUNK.to_json(), "columns", ["n` > 0 OR SLEEP(9) OR `n"])
    assert chunk_condition(SnapshotChunk.from_json(hostile)).startswith("(`n`` > 0 OR SLEEP(9) OR ``n` >")


@for_each("name", ["low", "high"])
@for_each("bound", [["a", "b"], [], [1], [True], [None], [1.5], [["a"]], [{}], "a", ["\ud800"], {"a": 1}])
def test_bounds_of_a_chunk_are_values_of_their_columns(name: str, bound: Any) -> None:
    with pytest.raises(DamagedRecordError, match=name):
        SnapshotChunk.from_json(changed(CHUNK.to_json(), name, bound))


def test_numbers_as_bounds_are_numbers() -> None:
    numbers = SnapshotChunk(TableId("d", "t"), 0, ("n",), (1,), (2**63,), True, 5, ("UNSIGNED",))
    assert SnapshotChunk.from_json(numbers.to_json()) == numbers
    for low in ("1 OR TRUE", True, 1.0):
        with pytest.raises(DamagedRecordError, match="low"):
            SnapshotChunk.from_json(changed(numbers.to_json(), "low", [low]))


@for_each(
    ("change", "why"),
    [
        (("epoch", -1), "epoch"),
        (("start", "file", "binlog"), "start.file"),
        (("end", "gtids", "1-2"), "end.gtids"),
        (("writers", 0), "writers"),
        (("writers", 10**9), "writers"),
        (("partitions", "t", 0), "partitions"),
        (("assignment", "t", []), "assignment"),
        (("assignment", "t", [0, 2]), "assignment.t"),
        (("prepared", [1]), r"prepared\[0\]"),
    ],
)
def test_a_plan_names_the_member_that_is_damaged(change: tuple[Any, ...], why: str) -> None:
    records: dict[str, bytes | None] = {"plan": encode(changed(PLAN.to_json(), *change))}
    with pytest.raises(DamagedRecordError, match=rf"topic l, key plan.*{why}"):
        build_ledger_state(records, where=lambda key: f"topic l, key {key}, offset 3")


@for_each(
    ("key", "value"),
    [
        ("writer/1", changed(MARKER.to_json(), "reached", {})),
        ("writer/1", changed(MARKER.to_json(), "writer", 10**9)),
        ("chunk/d.t/0", {"epoch": 6}),
        ("chunk/d.t/0", DONE | {"offset": {"file": "x", "pos": 1}}),
        ("snapshot", {"epoch": 6, "status": "done", "offset": []}),
        ("snapshot", {"epoch": 6, "status": "perhaps"}),
        ("chunk/d.t/0", {name: value for name, value in DONE.items() if name != "rows"}),
        ("chunk/d.t/0", {"epoch": 6, "list": "a", "chunk": {}, "order": "first"}),
        ("snapshot", {"epoch": 6, "status": "planned", "list": "a", "count": "b"}),
        ("outcome", {"epoch": 6, "counts": {"t": "many"}}),
        ("view", {"epoch": 6}),
    ],
)
def test_a_damaged_ledger_record_is_named_by_its_key(key: str, value: dict[str, Any]) -> None:
    with pytest.raises(DamagedRecordError, match=f"key {key}"):
        build_ledger_state({key: encode(value)})


@for_each("text", [b"[" * 100_000, b"1" * 10_000, b"\xff", b"null", b'{"a":'])
def test_what_is_no_json_object_is_named(text: bytes, tmp_path: Path) -> None:
    with pytest.raises(DamagedRecordError, match="key later"):
        build_ledger_state({"later": text})
    with pytest.raises(SchemaError, match="topic h, offset 1"):
        HistoryRecord.from_bytes(text, "topic h, offset 1")
    path = tmp_path / "spec.json"
    path.write_bytes(text)
    with pytest.raises(DamagedRecordError, match=r"spec\.json"):
        JobSpec.read(path)


@for_each("change", [("context", "sql_mode", "x"), ("context", "client_collation", []),
                                    ("tableChanges", [1]), ("position", "pos", None), ("ddl", None)])  # fmt: skip
def test_a_damaged_history_record_is_named(change: tuple[Any, ...]) -> None:
    record = HistoryRecord("p", START, 6, 1, "d", "CREATE TABLE t (a INT)")
    data = json.loads(record.to_bytes())
    assert HistoryRecord.from_bytes(record.to_bytes()) == record
    with pytest.raises(SchemaError, match=f"topic h, offset 1.*{change[-2]}"):
        HistoryRecord.from_bytes(encode(changed(data, *change)), "topic h, offset 1")


@for_each("change", [("pending", []), ("committed", {}), ("history", [{}]), ("revision", None),
                                    ("snapshot", {"epoch": 1})])  # fmt: skip
def test_a_damaged_stored_state_is_named(change: tuple[Any, ...]) -> None:
    with pytest.raises(DamagedRecordError, match=f"asset state.*{change[0]}"):
        StoredState.read(changed(StoredState().to_json(), *change), "asset state, key offset/p")


def test_a_damaged_job_spec_never_shows_a_property() -> None:
    spec = JobSpec("drain", {"database.password": ["hidden-7"]}, PLAN.to_json(), "o")
    with pytest.raises(DamagedRecordError, match=r"database\.password") as caught:
        JobSpec.from_json(spec.to_json())
    assert "hidden-7" not in str(caught.value) + repr(spec)


@for_each("data", [None, [], "x", {}, {"what": 1, "type": []}, {"type": "ConfigError", "what": "w"}])
def test_an_error_is_rebuilt_from_any_record(data: object) -> None:
    assert isinstance(from_json(data), CdcError)
