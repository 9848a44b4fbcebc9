"""The demo's verifier: whatever is done to a topic's records, it says so."""

from __future__ import annotations

import json
from typing import Any

import pytest
from demolib.verify import check_again, check_alter
from kit.cases import case
from topiclib.checks import TableVerdict, check_table, checksum
from topiclib.events import Event, EventReader, Layout, position_of
from topiclib.topics import KafkaRecord
from topiclib.wire import RecordError

GTID = "a1730108-e599-11f1-8bb7-02fc00000001"
KEYED = Layout("orders", ("id", "status", "channel"), ("id",), (None, None, "web"))
KEYLESS = Layout("views", ("id", "status", "channel"), (), (None, None, "web"))
ROW_FIELDS = [
    {"type": "int64", "optional": False, "field": "id"},
    {"type": "string", "optional": True, "field": "status"},
    {"type": "string", "optional": False, "default": "web", "field": "channel"},
]


def schema_of(width: int) -> dict[str, Any]:
    fields = [{"type": "struct", "fields": ROW_FIELDS[:width], "field": side} for side in ("before", "after")]
    return {"type": "struct", "fields": fields}


class Topic:
    """Build the records of one topic as the drain would write them."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.records = layout, []  # type: ignore[var-annotated]
        self.transaction = 0

    def _add(self, identity: str, key: Any, value: Any) -> None:
        key_data = None
        if self.layout.key:
            schema = {"type": "struct", "fields": ROW_FIELDS[:1]}
            key_data = json.dumps({"schema": schema, "payload": {"id": key}}, separators=(",", ":")).encode()
        partition = key % 2 if self.layout.key else 0
        data = None if value is None else json.dumps(value, separators=(",", ":")).encode()
        headers = {"cdc-id": identity.encode()}
        self.records.append(KafkaRecord(partition, len(self.records), key_data, data, headers, 1_000_000))

    def _value(self, op: str, before: Any, after: Any, pos: int) -> dict[str, Any]:
        rows = [None if r is None else dict(zip(("id", "status", "channel"), r, strict=False)) for r in (before, after)]
        width = max(len(r) for r in (before, after) if r is not None)
        source = {"file": "binlog.000002", "pos": pos, "ts_ms": 999_000}
        payload = {"before": rows[0], "after": rows[1], "source": source, "op": op}
        return {"schema": schema_of(width), "payload": payload}

    def read(self, *row: Any) -> None:
        of_row = row[0] if self.layout.key else f"chunk/{len(self.records)}"
        self._add(f"snapshot/1/t/{of_row}", row[0], self._value("r", None, row, 100))

    def change(self, before: Any, after: Any) -> None:
        """Add what one row change gives: a key change is delete, tombstone and create."""
        self.transaction += 1
        pos, base = 100 + 10 * self.transaction, f"{GTID}:{self.transaction}/1/0"
        moved = bool(self.layout.key) and before is not None and after is not None and before[0] != after[0]
        if before is None or moved:
            if moved:
                self._delete(before, pos, base)
            self._add(f"{base}/{2 if moved else 0}", after[0], self._value("c", None, after, pos))
        elif after is None:
            self._delete(before, pos, base)
        else:
            self._add(f"{base}/0", after[0], self._value("u", before, after, pos))

    def _delete(self, before: Any, pos: int, base: str) -> None:
        self._add(f"{base}/0", before[0], self._value("d", before, None, pos))
        self._add(f"{base}/1", before[0], None)


def story(layout: Layout) -> tuple[list[KafkaRecord], list[tuple[Any, ...]]]:
    """Return the records of a small table's life, and its rows at the end."""
    topic = Topic(layout)
    for number in range(1, 6):
        topic.read(number, "new")
    topic.change((1, "new"), (1, "paid"))
    topic.change((1, "paid"), (1, "sent"))
    topic.change((2, "new"), None)
    topic.change(None, (2, "again"))
    topic.change((3, "new"), (9, "new"))
    # From here on the table has a third column.
    topic.change((9, "new", "web"), (9, "paid", "app"))
    topic.change((4, "new", "web"), None)
    topic.change(None, (7, None, "shop"))
    topic.change((7, None, "shop"), None)
    topic.change((1, "sent", "web"), (1, "closed", "web"))
    return topic.records, [(1, "closed", "web"), (2, "again", "web"), (5, "new", "web"), (9, "paid", "app")]


def verdict(layout: Layout, records: list[KafkaRecord], rows: list[tuple[Any, ...]]) -> TableVerdict:
    reader = EventReader(layout)

    def event(record: KafkaRecord) -> Event | RecordError:
        try:
            return reader.event(record)
        except RecordError as error:
            return error

    return check_table(layout, map(event, records), rows)


both = pytest.mark.parametrize("layout", [KEYED, KEYLESS], ids=["keyed", "keyless"])


@both
def test_a_true_topic_passes(layout: Layout) -> None:
    records, rows = story(layout)
    found = verdict(layout, records, rows)
    assert found.ok, found.lines()
    assert found.rows_topic == found.rows_table == 4
    assert found.sum_topic == found.sum_table == checksum(rows)
    assert found.lags_ms and set(found.lags_ms) == {1000}


@both
def test_any_event_taken_away_is_noticed(layout: Layout) -> None:
    records, rows = story(layout)
    for i in range(len(records)):
        assert not verdict(layout, records[:i] + records[i + 1 :], rows).ok, records[i]


@both
def test_any_event_doubled_is_noticed(layout: Layout) -> None:
    records, rows = story(layout)
    for i, record in enumerate(records):
        for at in (i + 1, len(records)):
            found = verdict(layout, [*records[:at], record, *records[at:]], rows)
            assert not found.ok, (record, at)
            if layout.key or not record.headers["cdc-id"].startswith(b"snapshot"):  # type: ignore[union-attr]
                assert "twice" in found.problems


@both
def test_any_two_changes_of_a_partition_swapped_are_noticed(layout: Layout) -> None:
    records, rows = story(layout)
    streamed = [i for i, r in enumerate(records) if position_of(r.headers["cdc-id"] or b"") is not None]
    for i in streamed:
        for j in streamed:
            if i < j and records[i].partition == records[j].partition:
                swapped = list(records)
                swapped[i], swapped[j] = swapped[j], swapped[i]
                assert "order" in verdict(layout, swapped, rows).problems, (records[i], records[j])


def edited(records: list[KafkaRecord], text: bytes, other: bytes) -> list[KafkaRecord]:
    """Return the records with the first value that holds a text changed."""
    at = next(i for i, r in enumerate(records) if text in (r.value or b""))
    r = records[at]
    changed = KafkaRecord(r.partition, r.offset, r.key, (r.value or b"").replace(text, other), r.headers)
    return [*records[:at], changed, *records[at + 1 :]]


def changed_row(records: list[KafkaRecord]) -> list[KafkaRecord]:
    return edited(records, b'"sent"', b'"SENT"')


def changed_source(records: list[KafkaRecord]) -> list[KafkaRecord]:
    return edited(records, b'"pos":200', b'"pos":1')


def moved_partition(records: list[KafkaRecord]) -> list[KafkaRecord]:
    last = records[-1]
    return [*records[:-1], KafkaRecord(7, 0, last.key, last.value, last.headers)]


def no_identity(records: list[KafkaRecord]) -> list[KafkaRecord]:
    last = records[-1]
    return [*records[:-1], KafkaRecord(last.partition, last.offset, last.key, last.value, {})]


def broken_value(records: list[KafkaRecord]) -> list[KafkaRecord]:
    last = records[-1]
    return [*records[:-1], KafkaRecord(last.partition, last.offset, last.key, b"{", last.headers)]


def foreign_key(records: list[KafkaRecord]) -> list[KafkaRecord]:
    last = records[-1]
    key = (last.key or b"").replace(b'"id":1', b'"id":5')
    return [*records[:-1], KafkaRecord(last.partition, last.offset, key, last.value, last.headers)]


def test_damage_is_named() -> None:
    for damage, kind in [
        (changed_row, "gap"),
        (changed_source, "order"),
        (moved_partition, "partition"),
        (no_identity, "unreadable"),
        (broken_value, "unreadable"),
        (foreign_key, "key"),
    ]:
        with case(damage, kind):
            records, rows = story(KEYED)
            found = verdict(KEYED, damage(records), rows)
            assert kind in found.problems, found.lines()


def test_a_table_that_differs_shows_the_key_and_the_column() -> None:
    records, rows = story(KEYED)
    found = verdict(KEYED, records, [*rows[:-1], (9, "paid", "web"), (11, "x", "web")])
    text = "\n".join(found.lines())
    assert "(9,): channel: 'app', table 'web'" in text
    assert "(11,) is in the table only" in text
    assert found.sum_topic != found.sum_table
    assert "(9,) is in the topic only" in "\n".join(verdict(KEYED, records, rows[:-1]).lines())


def test_equal_rows_without_key_are_counted() -> None:
    topic = Topic(KEYLESS)
    for _ in range(3):
        topic.read(1, "same", "web")
    assert verdict(KEYLESS, topic.records, [(1, "same", "web")] * 3).ok
    assert not verdict(KEYLESS, topic.records, [(1, "same", "web")] * 2).ok


def alter(table: str, columns: list[str], ddl: str = "ALTER TABLE orders ADD COLUMN channel INT") -> dict[str, object]:
    described = {"columns": [{"name": c} for c in columns]}
    return {"ddl": ddl, "tableChanges": [{"type": "ALTER", "id": f'"shop"."{table}"', "table": described}]}


def test_the_alter_must_be_there_once() -> None:
    create = {"ddl": "CREATE TABLE orders (id INT)", "tableChanges": []}
    good = alter("orders", ["id", "channel"])
    assert check_alter([create, good], "orders", "channel") == []
    assert check_alter([create], "orders", "channel")
    assert check_alter([good, good], "orders", "channel")
    assert check_alter([alter("orders", ["id"])], "orders", "channel")
    assert check_alter([alter("lines", ["id", "channel"])], "orders", "channel")


def read_again(value: str, *, rows: int | None = 1) -> dict[str, Any]:
    """Return the problems of a topic in which one row is read again behind a change of it."""
    topic = Topic(KEYED)
    topic.read(1, "new")
    topic.change((1, "new"), (1, "paid"))
    topic._add("incremental/7/t/1", 1, topic._value("r", None, (1, value), 110 + 10))
    topic.change((1, value), (1, "sent"))
    found = verdict(KEYED, topic.records, [(1, "sent", "web")])
    check_again(found, rows)
    return found.problems


def test_a_row_that_is_read_again_is_the_topic_s_last_state() -> None:
    assert read_again("paid") == {}
    assert list(read_again("new")) == ["gap"], "an older row behind a newer change"


def test_rows_that_are_read_again_are_as_many_as_the_snapshot_says() -> None:
    assert list(read_again("paid", rows=2)) == ["again"]
    assert list(read_again("paid", rows=None)) == ["again"], "nobody asked for it"
    assert list(read_again("paid", rows=0)) == ["again"], "the snapshot read nothing"
