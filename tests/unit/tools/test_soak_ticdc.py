"""The soak's verifier of TiCDC's rows: its reader, the check of rows without the row before, TRUNCATE, commit times."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from soaklib.binlog_facts import Gtid
from topiclib.checks import TableVerdict
from topiclib.events import Event, Layout
from topiclib.row_check import RowCheck
from topiclib.ticdc import CommitTimes, FlatWire, TicdcReader
from topiclib.topics import KafkaRecord
from topiclib.wire import RecordError

SOURCE = "a1730108-e599-11f1-8bb7-02fc00000001"
KEYED = Layout("w", ("id", "v", "ver"), ("id",), (None, None, 0))
KEYLESS = Layout("k", ("v",), (), (None,))
EXTENSION = [
    {"name": "_tidb_op", "type": "string"},
    {"name": "_tidb_commit_ts", "type": "long"},
    {"name": "_tidb_commit_physical_time", "type": "long"},
]
SCHEMAS = {
    "id": {"connect.parameters": {"tidb_type": "INT"}, "type": "int"},
    "v": ["null", {"connect.parameters": {"tidb_type": "TEXT"}, "type": "string"}],
    "ver": {"connect.parameters": {"tidb_type": "INT"}, "type": "int"},
    "d": {"connect.parameters": {"tidb_type": "DATE"}, "type": "string"},
    "t": ["null", {"connect.parameters": {"tidb_type": "DATETIME"}, "type": "string"}],
    "m": {
        "connect.parameters": {"tidb_type": "DECIMAL"},
        **{"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
    },
}


class Registry:
    """Schemas by id."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def pack(self, fields: dict[str, Any], *, key: bool = False) -> bytes:
        """Return a key, or a value with the fields of the extension, as TiCDC writes it."""
        names = [n for n in fields if not n.startswith("_tidb")]
        schema = {"type": "record", "name": "w", "fields": [{"name": n, "type": SCHEMAS[n]} for n in names]}
        schema["fields"] += [] if key else EXTENSION
        text = json.dumps(schema)
        if text not in self.texts:
            self.texts.append(text)
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(text)), fields)
        return b"\0" + struct.pack(">I", self.texts.index(text)) + out.getvalue()


class Topic:
    """The records of one topic as a drain writes them."""

    def __init__(self, layout: Layout = KEYED) -> None:
        self.layout, self.registry, self.records = layout, Registry(), list[KafkaRecord]()

    def put(self, number: int | str, op: str, key: int | None, row: dict[str, Any] | None, ms: int = 0) -> None:
        """Add a record of a transaction, or of a snapshot whose identity is given."""
        identity = f"{SOURCE}:{number}/1/0/0" if isinstance(number, int) else f"{number}/{len(self.records)}"
        ms = ms or 1000 + (number if isinstance(number, int) else 0)
        extension = {"_tidb_op": op, "_tidb_commit_ts": ms << 18, "_tidb_commit_physical_time": ms}
        value = None if row is None else self.registry.pack(row | extension)
        data = None if key is None else self.registry.pack({"id": key}, key=True)
        self.records.append(KafkaRecord(0, len(self.records), data, value, {"cdc-id": identity.encode()}, 2000))

    def events(self, times: CommitTimes | None = None, layout: Layout | None = None) -> list[Event]:
        reader = TicdcReader(layout or self.layout, FlatWire(self.registry.texts.__getitem__), times or CommitTimes())
        return [reader.event(record) for record in self.records]

    def verdict(self, rows: Sequence[tuple[Any, ...]], **more: Any) -> TableVerdict:
        return RowCheck(self.layout, **more).feed(self.events()).finish(rows)


def row(key: int, v: str | None, ver: int = 0) -> dict[str, Any]:
    return {"id": key, "v": v, "ver": ver}


@pytest.fixture
def topic() -> Topic:
    """Two rows of the snapshot, an insert, updates, and a delete."""
    topic = Topic()
    topic.put("snapshot/1", "c", 1, row(1, "a"))
    topic.put("snapshot/1", "c", 2, row(2, "b"))
    topic.put(11, "c", 3, row(3, None))
    topic.put(12, "u", 1, row(1, "c", 1))
    topic.put(13, "u", 1, row(1, "d", 2))
    topic.put(14, "d", 2, None)
    return topic


ROWS = [(1, "d", 2), (3, None, 0)]


def take(records: list[KafkaRecord], i: int) -> None:
    del records[i]


def double(records: list[KafkaRecord], i: int) -> None:
    records.insert(i, records[i])


@pytest.mark.req("FAULT-01")
@pytest.mark.parametrize("damage", [take, double])
def test_every_row_taken_away_or_doubled_is_reported(
    topic: Topic, damage: Callable[[list[KafkaRecord], int], None]
) -> None:
    assert topic.verdict(ROWS).lines() == []
    for i in range(len(topic.records)):
        before = list(topic.records)
        damage(topic.records, i)
        assert topic.verdict(ROWS).lines(), i
        topic.records = before


def test_two_updates_of_a_row_swapped_are_reported(topic: Topic) -> None:
    topic.records[3], topic.records[4] = topic.records[4], topic.records[3]
    assert {"order", "gap"} <= topic.verdict(ROWS).problems.keys()


def test_an_insert_of_a_row_that_is_there_and_an_update_of_one_that_is_not_are_reported(topic: Topic) -> None:
    topic.put(15, "c", 3, row(3, None))
    assert list(topic.verdict(ROWS).problems) == ["gap"]
    topic.records.pop()
    topic.put(15, "u", 4, row(4, "x", 1))
    assert "gap" in topic.verdict([*ROWS, (4, "x", 1)]).problems


def test_a_row_of_a_window_is_the_last_state_of_its_key(topic: Topic) -> None:
    topic.put("incremental/7", "c", 1, row(1, "d", 2))
    topic.put("incremental/7", "c", 9, row(9, "unseen"))
    verdict = topic.verdict([*ROWS, (9, "unseen", 0)], interrupted=True)
    assert verdict.lines() == [] and verdict.again == 2
    assert "gap" in topic.verdict([*ROWS, (9, "unseen", 0)]).problems, "only an interrupted snapshot has not read it"
    topic.put("incremental/7", "c", 3, row(3, "stale"))
    assert "gap" in topic.verdict([(1, "d", 2), (3, "stale", 0), (9, "unseen", 0)], interrupted=True).problems


def test_rows_before_a_truncate_are_gone_and_later_ones_are_there(topic: Topic) -> None:
    truncated: list[Gtid] = [(SOURCE, 15)]
    topic.put(16, "c", 1, row(1, "new"))
    assert topic.verdict([(1, "new", 0)], truncations=truncated).lines() == []
    assert "gap" in topic.verdict([(1, "new", 0)]).problems
    assert "rows" in topic.verdict([(1, "new", 0), (3, None, 0)], truncations=truncated).problems
    assert "rows" in topic.verdict([], truncations=truncated).problems


def test_rows_without_a_key_are_counted_and_were_written() -> None:
    topic = Topic(KEYLESS)
    for number, v in enumerate("aab", 11):
        topic.put(number, "c", None, {"v": v})
    topic.put(14, "u", None, {"v": "c"})
    topic.put(15, "d", None, None)
    assert topic.verdict([("a",), ("c",)]).lines() == []
    assert "rows" in topic.verdict([("a",)]).problems
    assert "rows" in topic.verdict([("a",), ("x",)]).problems
    assert "rows" in topic.verdict([("c",), ("c",)]).problems
    topic.put("incremental/7", "c", None, {"v": "z"})
    assert topic.verdict([("z",)], interrupted=True).lines() == []
    assert "rows" in topic.verdict([("a",)], interrupted=True).problems
    topic.put(16, "c", 1, {"v": "keyed"})
    assert "key" in topic.verdict([("z",), ("keyed",)], interrupted=True).problems


def test_values_are_those_that_select_returns() -> None:
    layout = Layout("e", ("d", "t", "m", "x2"), (), (None, None, None, 7))
    topic = Topic(layout)
    topic.put(11, "c", None, {"d": "2024-02-29", "t": "2024-02-29 01:02:03.500", "m": Decimal("1.50")})
    topic.put(12, "c", None, {"d": "2024-03-01", "t": None, "m": Decimal("-0.25")})
    assert [event.after for event in topic.events()] == [
        (date(2024, 2, 29), datetime(2024, 2, 29, 1, 2, 3, 500000), Decimal("1.50"), 7),
        (date(2024, 3, 1), None, Decimal("-0.25"), 7),
    ]
    assert topic.events()[0].lag_ms == 2000 - 1011


def test_a_record_that_is_not_as_the_protocol_says_is_reported(topic: Topic) -> None:
    topic.put(16, "r", 5, row(5, "x"))
    with pytest.raises(RecordError, match="_tidb_op is r"):
        topic.events()
    topic.records.pop()
    topic.put("snapshot/1", "u", 5, row(5, "x"))
    with pytest.raises(RecordError, match="_tidb_op is u"):
        topic.events()
    good = topic.records[0]
    for bad, said in (
        (replace(good, headers={}), "cdc-id"),
        (replace(good, value=b"{}"), "zero byte"),
        (replace(good, value=(good.value or b"") + b"\0"), "1 bytes after"),
    ):
        topic.records = [bad]
        with pytest.raises(RecordError, match=said):
            topic.events()


def test_a_transaction_has_one_commit_timestamp_and_later_ones_have_higher_ones(topic: Topic) -> None:
    times = CommitTimes()
    topic.events(times)
    assert sorted(n for _, n in times.times) == [11, 12, 13] and times.differences(set()) == []
    topic.put(13, "u", 3, row(3, "y", 1), ms=5)
    topic.put(15, "u", 3, row(3, "y", 2), ms=7)
    topic.events(times)
    wrong = times.differences(set())
    assert len(wrong) == 2 and "13: its rows have different" in wrong[0] and "15: its commit timestamp" in wrong[1]
    assert len(times.differences({f"{SOURCE}:15"})) == 1


def test_the_verifiers_share_no_code_with_the_provider() -> None:
    tools = Path(__file__).parents[3] / "tools"
    modules = [f"topiclib.{path.stem}" for path in (tools / "topiclib").glob("*.py")]
    code = f"import sys, soaklib.verify, demolib.verify, {', '.join(modules)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tools, capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "topiclib.checks" in loaded and "confluent_kafka" in loaded
    assert [name for name in loaded if name.startswith("airflow_provider_mysql_cdc")] == []
