"""The first pass by checksums never says "equal" where a comparison of the rows finds something."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from zlib import crc32

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.emit.contracts import MYSQL_3, Member
from airflow_provider_mysql_cdc.cdc.formats.record_topics import partition_of
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify import checksum_reader
from airflow_provider_mysql_cdc.cdc.verify.checksum_reader import RecordChecksums, TaskChecksums, has_checksums
from airflow_provider_mysql_cdc.cdc.verify.compare.checksum_entries import (
    NO_ROW,
    STATE,
    STATES,
    ChecksumBlocks,
    KeyStates,
    SumKind,
    bucket_count,
    checksum_of,
    key_bucket,
    key_id,
)
from airflow_provider_mysql_cdc.cdc.verify.compare.checksum_fold import (
    ChecksumFold,
    ChecksumResult,
    DifferingKeys,
    KeyFilter,
    differing_keys,
    keys_left,
    merge_checksums,
)
from airflow_provider_mysql_cdc.cdc.verify.compare.json_slices import JsonSlices, KeyTexts
from airflow_provider_mysql_cdc.cdc.verify.read.entries import is_sampled
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import position_order
from airflow_provider_mysql_cdc.cdc.verify.read.sql_row_text import SqlTexts, sums_sql
from airflow_provider_mysql_cdc.cdc.verify.structures.event_layout import layout_of

pytestmark = pytest.mark.quick

TABLE = TableId("shop", "orders")
VALUE_SCHEMA, KEY_SCHEMA = '{"type":"struct","name":"v"}', '{"type":"struct","name":"k"}'
BUCKETS, SHUFFLE, PARTITIONS = 8, 3, 4
MEMBERS = *(Member(name) for name in ("version", "connector", "db", "table", "file")), Member("pos", "int64")
LAYOUT = replace(MYSQL_3, source=MEMBERS, tail=(Member("op"), Member("ts_ms", "int64")))
ROWS = {i: {"id": i, "name": f"n{i}", "note": '","source":{"version":"'} for i in range(40)}


class Message:
    def __init__(self, key: bytes | None, value: bytes | None) -> None:
        self._key, self._value = key, value

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def __len__(self) -> int:
        return len(self._value or b"")


def text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


class Side:
    """Write records with or without schemas, and compare what they say with the rows."""

    def __init__(self, schemas: bool, *, states: bool = False) -> None:
        self.schemas, self.states = schemas, states
        keys = KeyTexts(f'{{"schema":{KEY_SCHEMA},"payload":'.encode() if schemas else b"", ("id",))
        prefix = f'{{"schema":{VALUE_SCHEMA},"payload":'.encode() if schemas else b""
        layout = layout_of(("id", "name", "note"), TABLE, LAYOUT, has_schema=schemas)
        self.slices = JsonSlices(keys, prefix, layout)

    def key(self, id_: Any, form: str = "") -> bytes:
        fields = form or text({"id": id_})
        return (f'{{"schema":{KEY_SCHEMA},"payload":{fields}}}' if self.schemas else fields).encode()

    def value(self, op: str, before: Any, after: Any, table: str = "orders", schema: str = VALUE_SCHEMA) -> bytes:
        source = f'{{"version":"3","connector":"mysql","db":"shop","table":"{table}","file":"b.1","pos":4}}'
        event = f'{{"before":{text(before)},"after":{text(after)},"source":{source},"op":"{op}","ts_ms":1}}'
        return (f'{{"schema":{schema},"payload":{event}}}' if self.schemas else event).encode()

    def created(self) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
        """Return the records of all rows by partition."""
        records: dict[int, list[tuple[bytes | None, bytes | None]]] = {p: [] for p in range(PARTITIONS)}
        for id_, row in ROWS.items():
            records[self.partition(id_)].append((self.key(id_), self.value("c", None, row)))
        return records

    def partition(self, id_: Any) -> int:
        return partition_of(self.key(id_), PARTITIONS)

    def compare(
        self,
        records: dict[int, list[tuple[bytes | None, bytes | None]]],
        rows: Iterable[dict[str, Any]],
        part: int = 7,
        is_older: Callable[[int], bool] | None = None,
        blocks: ChecksumBlocks | None = None,
        earlier: Sequence[tuple[int, bytes]] = (),
    ) -> ChecksumResult:
        blocks = blocks or ChecksumBlocks(SHUFFLE)
        states = KeyStates(5, self.slices, PARTITIONS, BUCKETS, blocks)
        for row in rows:
            fields, after = text({"id": row["id"]}).encode(), text(row).encode()
            if self.states:
                states.add_rows([self.key(row["id"])], [after])
                blocks.add(SumKind.COUNTED_ROWS, 5, number=1)
                continue
            number = int.from_bytes(checksum_of(b"5" + fields + after), "big")
            blocks.add(SumKind.ROWS, 5, key_bucket(fields, BUCKETS), 1, number)
        handed_on = list(earlier)
        for partition, of_partition in records.items():
            # The parts of a partition are read by different tasks, in any order.
            for start in reversed(range(0, len(of_partition), part)):
                reader = RecordChecksums(5, states, self.slices, blocks, is_older)
                messages = [Message(*record) for record in of_partition[start : start + part]]
                reader.add(messages, partition, start + len(messages))
                handed_on += blocks.take_full()
        handed_on += blocks.take_rest()
        folds = [ChecksumFold() for _ in range(SHUFFLE)]
        for bucket, block in reversed(handed_on):
            folds[bucket].add(block)
        return merge_checksums(fold.result() for fold in folds)

    def bucket(self, id_: Any) -> int:
        return key_bucket(text({"id": id_}).encode(), BUCKETS)


SIDES = list(itertools.product([False, True], repeat=2))
"""Whether records have schemas, and whether rows come as states of keys."""


def changed(side: Side) -> tuple[dict[int, list[tuple[bytes | None, bytes | None]]], dict[int, dict[str, Any]]]:
    """Return records and rows after updates, a delete with its tombstone, and a row that came back."""
    records, rows = side.created(), {id_: dict(row) for id_, row in ROWS.items()}
    for id_ in (3, 11, 3):
        before, rows[id_] = rows[id_], {**rows[id_], "name": rows[id_]["name"] + "x"}
        records[side.partition(id_)].append((side.key(id_), side.value("u", before, rows[id_])))
    for id_ in (7, 9):
        records[side.partition(id_)] += [(side.key(id_), side.value("d", rows[id_], None)), (side.key(id_), None)]
        gone = rows.pop(id_)
    rows[9] = gone
    records[side.partition(9)].append((side.key(9), side.value("c", None, gone)))
    records[side.partition(12)].append((side.key(12), side.value("r", None, rows[12])))
    return records, rows


@for_each("part", [1, 2, 7, 1000])
@for_each("schemas, states", SIDES)
def test_equal_sides_have_equal_checksums_whatever_the_parts(schemas: bool, states: bool, part: int) -> None:
    side = Side(schemas, states=states)
    records, rows = changed(side)
    result = side.compare(records, rows.values(), part)
    assert (result.differing, result.unjudged) == ({}, set())
    assert (result.rows, result.records) == ({5: 39}, {5: 40 + 3 + 2 + 1 + 1})


Damaged = tuple[dict[int, list[tuple[bytes | None, bytes | None]]], dict[int, dict[str, Any]], list[int] | None]


def _missing(side: Side, records: Any, rows: Any) -> list[int] | None:
    records[side.partition(1)] = [r for r in records[side.partition(1)] if r[0] != side.key(1)]
    return [1]


def _deleted(side: Side, records: Any, rows: Any) -> list[int] | None:
    records[side.partition(1)].append((side.key(1), side.value("d", rows[1], None)))
    return [1]


def _ghost(side: Side, records: Any, rows: Any) -> list[int] | None:
    del rows[1]
    return [1]


def _new_ghost(side: Side, records: Any, rows: Any) -> list[int] | None:
    records[side.partition(999)].append((side.key(999), side.value("c", None, {**rows[1], "id": 999})))
    return [999]


def _stale(side: Side, records: Any, rows: Any) -> list[int] | None:
    rows[1]["name"] = "later"
    return [1]


def _swapped(side: Side, records: Any, rows: Any) -> list[int] | None:
    rows[1]["name"], rows[2]["name"] = rows[2]["name"], rows[1]["name"]
    return [1, 2]


def _swapped_rows(side: Side, records: Any, rows: Any) -> list[int] | None:
    """The events of two keys have each other's row."""
    for id_, other in ((1, 2), (2, 1)):
        records[side.partition(id_)].append((side.key(id_), side.value("c", None, rows[other])))
    return [1, 2]


def _reordered(side: Side, records: Any, rows: Any) -> list[int] | None:
    of_partition = records[side.partition(3)]
    mine = [index for index, (key, _) in enumerate(of_partition) if key == side.key(3)]
    of_partition[mine[0]], of_partition[mine[-1]] = of_partition[mine[-1]], of_partition[mine[0]]
    return [3]


def _other_partition(side: Side, records: Any, rows: Any) -> list[int] | None:
    records[(side.partition(1) + 1) % PARTITIONS].append((side.key(1), side.value("u", rows[1], rows[1])))
    return [1]


def _moved_partition(side: Side, records: Any, rows: Any) -> list[int] | None:
    mine = [r for r in records[side.partition(1)] if r[0] == side.key(1)]
    records[side.partition(1)] = [r for r in records[side.partition(1)] if r[0] != side.key(1)]
    records[(side.partition(1) + 1) % PARTITIONS] += mine
    return [1]


def _tombstone(side: Side, records: Any, rows: Any) -> list[int] | None:
    records[side.partition(1)].append((side.key(1), None))
    return [1]


def _unreadable(value: bytes) -> Any:
    def damage(side: Side, records: Any, rows: Any) -> list[int] | None:
        good = side.value("u", rows[1], rows[1])
        # A good event behind it does not make it readable.
        records[side.partition(1)] += [(side.key(1), value), (side.key(1), good)]
        return [1]

    return damage


def _edited(edit: Any) -> Any:
    def damage(side: Side, records: Any, rows: Any) -> list[int] | None:
        value = edit(side, rows[1])
        assert value != side.value("u", rows[1], rows[1])
        records[side.partition(1)] += [(side.key(1), value), (side.key(1), side.value("u", rows[1], rows[1]))]
        return [1]

    return damage


def _other_key(form: str) -> Any:
    def damage(side: Side, records: Any, rows: Any) -> list[int] | None:
        """A delete of the row under a key of another text, which is the last event of its key."""
        records[side.partition(1)].append((side.key(1, form), side.value("d", rows[1], None)))
        return None

    return damage


def _no_key(side: Side, records: Any, rows: Any) -> list[int] | None:
    records[0].append((None, side.value("c", None, rows[1])))
    return None


def _no_key_tombstone(side: Side, records: Any, rows: Any) -> list[int] | None:
    records[0].append((None, None))
    return None


def _older_key_schema(side: Side, records: Any, rows: Any) -> list[int] | None:
    key = side.key(1).replace(b'"k"', b'"o"') if side.schemas else b'{"schema":{},"payload":{"id":1}}'
    records[side.partition(1)].append((key, side.value("d", rows[1], None)))
    return None


DAMAGES = {
    "missing": _missing,
    "missing, its last event is a delete": _deleted,
    "ghost": _ghost,
    "ghost of a key that never was": _new_ghost,
    "stale": _stale,
    "values of two rows exchanged": _swapped,
    "rows of two keys exchanged": _swapped_rows,
    "an earlier event is last": _reordered,
    "an event in another partition": _other_partition,
    "all events of a key in another partition": _moved_partition,
    "a tombstone without a delete": _tombstone,
    "no JSON": _unreadable(b"\xff"),
    "empty": _unreadable(b""),
    "another value": _unreadable(b'{"ts_ms":1}'),
    "an event of another table": _edited(lambda side, row: side.value("u", row, row, table="other")),
    "no op": _edited(lambda side, row: side.value("u", row, row).replace(b'"op":"u"', b'"op":null')),
    "an op of no row": _edited(lambda side, row: side.value("t", row, row)),
    "a delete with a row": _edited(lambda side, row: side.value("d", row, row)),
    "a change without a row": _edited(lambda side, row: side.value("u", row, None)),
    "an insert with a row before": _edited(lambda side, row: side.value("c", row, row)),
    "cut off": _edited(lambda side, row: side.value("u", row, row)[:-1] if not side.schemas else b"{"),
    "cut off in the row": _edited(lambda side, row: side.value("u", None, row)[:60]),
    "members in another order": _edited(
        lambda side, row: (
            side.value("u", row, row)
            .replace(b'"before":', b'"later":')
            .replace(b'"after":', b'"before":')
            .replace(b'"later":', b'"after":')
        )
    ),
    "no JSON before the row": _edited(
        lambda side, row: side.value("u", row, row).replace(b'"before":{"id":1,', b'"before":{"id":one,')
    ),
    "no JSON behind the row": _edited(lambda side, row: side.value("u", row, row).replace(b'"pos":4', b'"pos":four')),
    "a text that is none in JSON": _edited(
        lambda side, row: side.value("u", row, row).replace(b'"file":"b.1"', b'"file":"b\0.1"')
    ),
    "no UTF-8": _edited(
        lambda side, row: side.value("u", row, row).replace(
            b'"before":{"id":1,"name":"n', b'"before":{"id":1,"name":"\xff'
        )
    ),
    "blanks": _edited(lambda side, row: side.value("u", row, row).replace(b'"before":', b' "before":')),
    "another schema": _edited(
        lambda side, row: side.value("u", row, row, schema='{"v":0}') if side.schemas else b'{"schema":{},"payload":{}}'
    ),
    "a key with blanks": _other_key('{"id": 1}'),
    "a key twice": _other_key('{"id":2,"id":1}'),
    "a key of minus zero": _other_key('{"id":-0}'),
    "a key of other fields": _other_key('{"id":1,"n":2}'),
    "a key that is none": _other_key("[1]"),
    "a key of an earlier schema": _older_key_schema,
    "a record without a key": _no_key,
    "a tombstone without a key": _no_key_tombstone,
}


@for_each("part", [2, 1000])
@for_each("damage", DAMAGES)
@for_each("schemas, states", SIDES)
def test_each_damage_reaches_the_comparison_of_rows(schemas: bool, states: bool, damage: str, part: int) -> None:
    side = Side(schemas, states=states)
    records, rows = changed(side)
    keys = DAMAGES[damage](side, records, rows)
    result = side.compare(records, rows.values(), part)
    if keys is None:
        assert result.unjudged == {5}, "which row it is about is not known, so all are compared"
    else:
        assert result.unjudged == set()
        assert result.differing == {5: {side.bucket(id_) for id_ in keys}}, "and no other bucket is"


@for_each("schemas, states", SIDES)
def test_events_twice_and_another_order_with_the_same_last_state_are_equal_without_histories(
    schemas: bool, states: bool
) -> None:
    side = Side(schemas, states=states)
    records, rows = changed(side)
    for of_partition in records.values():
        if of_partition:
            of_partition.append(of_partition[-1])
    assert side.compare(records, rows.values()).differing == {}


def test_two_keys_in_one_form_are_two_keys() -> None:
    keys = KeyTexts(b"", ("id", "t"))
    assert keys.fields_of('{"id":1,"t":"ä"}'.encode()) == '{"id":1,"t":"ä"}'.encode()
    assert keys.fields_of(b'{"id":1,"t":"\\u00e4"}') is None
    assert keys.fields_of(b'{"t":"a","id":1}') is None
    assert keys.fields_of(b'{"id":12345678901234567890,"t":null}') is not None
    assert keys.fields_of(b'{"id":99999999999999999999,"t":null}') is None, "a reader makes a float of it"
    assert keys.fields_of(b'{"id":01,"t":null}') is None
    assert keys.fields_of(b'{"id":1,"t":"\xff"}') is None


def test_keys_are_looked_at_one_by_one_where_one_is_not_plain() -> None:
    keys, plain = KeyTexts(b"", ("id",)), [b'{"id":1}', b'{"id":2}']
    assert list(keys.fields_of_all(plain)) == plain
    for other in (b'{"id":1}\n{"id":2}', b'{"id": 1}', b"", b"\n", b'{"id":3}\n'):
        assert list(keys.fields_of_all([*plain, other])) == [*plain, None]
        assert list(keys.fields_of_all([other, *plain])) == [None, *plain]
    prefix = b'{"schema":1,"payload":'
    with_schema = [prefix + key + b"}" for key in plain]
    assert list(KeyTexts(prefix, ("id",)).fields_of_all(with_schema)) == plain
    for other in (plain[0], with_schema[0][:-1], prefix.replace(b"1", b"2") + b'{"id":1}}'):
        assert list(KeyTexts(prefix, ("id",)).fields_of_all([*with_schema, other])) == [*plain, None]


@for_each("schemas", [False, True])
def test_a_row_without_a_checksum_is_counted(schemas: bool) -> None:
    """The server counts a row that it cannot write, with a sum that has nothing of it."""
    side = Side(schemas)
    records, rows = changed(side)
    id_ = next(iter(rows))
    blocks = ChecksumBlocks(SHUFFLE)
    blocks.add(SumKind.ROWS, 5, side.bucket(id_), 1, 0)
    assert side.compare(records, rows.values(), blocks=blocks).differing == {5: {side.bucket(id_)}}


@for_each("part", [1, 1000])
@for_each("together", [False, True])
def test_rows_with_one_key_in_records_are_compared_though_one_has_the_event(part: int, together: bool) -> None:
    side = Side(schemas=False, states=True)
    records, rows = changed(side)
    blocks = ChecksumBlocks(SHUFFLE)
    states = KeyStates(5, side.slices, PARTITIONS, BUCKETS, blocks)
    states.add_rows([side.key(1)], [text({**rows[1], "name": "another"}).encode()])
    earlier = [] if together else list(blocks.take_rest())
    result = side.compare(records, rows.values(), part, blocks=blocks, earlier=earlier)
    assert (result.differing, result.unjudged) == ({5: {side.bucket(1)}}, set())


def test_rows_of_which_the_key_is_not_known_are_compared() -> None:
    blocks = ChecksumBlocks(1)
    states = KeyStates(5, Side(schemas=False).slices, PARTITIONS, BUCKETS, blocks)
    states.add_rows([b'{"id": 1}'], [b'{"id":1}'])
    fold = ChecksumFold()
    for _, block in blocks.take_rest():
        fold.add(block)
    assert fold.result().unjudged == {5}


def test_memory_is_bounded_by_states_that_are_handed_on_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum_reader, "_MAX_STATES", 3)
    side = Side(schemas=False)
    records, rows = changed(side)
    assert side.compare(records, rows.values()).differing == {}


def test_a_table_has_as_many_buckets_as_its_size_needs() -> None:
    assert [bucket_count(rows) for rows in (0, 255, 2560, 10**9)] == [1, 1, 10, 1024]


@pytest.mark.parametrize("exchanged", [False, True])
def test_rows_of_two_keys_of_one_bucket_are_told_apart_though_they_do_not_have_their_keys(exchanged: bool) -> None:
    side = Side(schemas=False)
    one, other = next((a, b) for a in range(9) for b in range(a) if side.bucket(a) == side.bucket(b))
    blocks = ChecksumBlocks(SHUFFLE)
    names = {one: "a", other: "b"}
    for id_, name in names.items():
        number = int.from_bytes(checksum_of(b"5" + text({"id": id_}).encode() + text({"name": name}).encode()), "big")
        blocks.add(SumKind.ROWS, 5, side.bucket(id_), 1, number)
    for id_ in names:
        name = names[other if exchanged == (id_ == one) else one]
        states = KeyStates(5, side.slices, PARTITIONS, BUCKETS, blocks)
        reader = RecordChecksums(5, states, side.slices, blocks)
        reader.add([Message(side.key(id_), side.value("c", None, {"name": name}))], side.partition(id_), 1)
    folds = [ChecksumFold() for _ in range(SHUFFLE)]
    for bucket, block in blocks.take_rest():
        folds[bucket].add(block)
    differing = merge_checksums(fold.result() for fold in folds).differing
    assert differing == ({5: {side.bucket(one)}} if exchanged else {})


@pytest.mark.parametrize(("begins", "is_read"), [(0, False), (4, False), (5, True)])
def test_events_of_an_earlier_structure_are_read_where_records_do_not_say_it(begins: int, is_read: bool) -> None:
    side = Side(schemas=False)
    records, rows = changed(side)
    result = side.compare(records, rows.values(), is_older=lambda order: order < position_order(1, begins))
    assert (result.unjudged, result.differing) == ({5} if is_read else set(), {})


def compared(number: int, table: Any = "t", **facts: bool) -> Any:
    facts = {"own_key": True, "alone": True} | facts
    name = TableId("shop", f"t{number}")
    return SimpleNamespace(number=number, table=SimpleNamespace(id=name, structure=table), **facts)


def test_what_differs_is_compared_row_by_row() -> None:
    tables = [compared(number) for number in range(6)]
    result = ChecksumResult(rows={0: 9}, records={1: 3}, differing={0: {2}, 1: set(range(6)), 3: {1}}, unjudged={2})
    buckets = dict.fromkeys(range(6), 10)
    found = differing_keys(tables, buckets, result, compared_by_rows={3, 5})
    assert {name.table: keys.differing for name, keys in found.items()} == {
        "t0": frozenset({2}),
        "t1": frozenset(range(6)),
        "t2": None,
    }


SLICES = Side(schemas=False).slices


def test_keys_are_chosen_by_their_bucket_while_the_structure_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum_reader, "record_slices", lambda *_: SLICES)
    table = compared(0)
    name, structure = table.table.id, table.table

    def chosen_of(keys: DifferingKeys, of: Any = table) -> KeyFilter | None:
        task = TaskChecksums(Mock(), ChecksumBlocks(1), None, {}, {name: keys}, 100.0, {}, Mock(), sums_in_sql=False)
        return task.filter_of(of)

    chosen = chosen_of(DifferingKeys(structure, BUCKETS, frozenset({3})))
    assert chosen is not None
    assert {id_ for id_ in range(100) if chosen.has(b'{"id":%d}' % id_)} == {
        id_ for id_ in range(100) if key_bucket(b'{"id":%d}' % id_, BUCKETS) == 3
    }
    assert chosen.has(None) and chosen.has(b'{"id": 1}'), "records of other keys are looked at"
    assert chosen_of(DifferingKeys(structure, BUCKETS, frozenset({3})), compared(0, "altered")) is None
    assert chosen_of(DifferingKeys(structure, BUCKETS)) is None


def test_the_server_chooses_rows_by_the_buckets_of_their_keys_and_by_the_sample() -> None:
    texts, bucket, share = (
        SqlTexts("f", "a"),
        f"MOD(CRC32(f), {BUCKETS})",
        "MOD(CRC32(CONCAT('sample', f)), 1000000)",
    )
    in_buckets = f"({bucket} IN (3, 5) OR {bucket} IS NULL)"
    in_sample = f"({share} < 400000.0 OR {share} IS NULL)"
    assert KeyFilter(SLICES, BUCKETS, frozenset({5, 3}), 100.0, texts).condition == in_buckets
    assert KeyFilter(SLICES, BUCKETS, frozenset({5, 3}), 40.0, texts).condition == f"{in_buckets} AND {in_sample}"
    assert KeyFilter(SLICES, BUCKETS, None, 40.0, texts).condition == in_sample
    assert KeyFilter(SLICES, BUCKETS, frozenset({5, 3}), 40.0).condition == "", "it cannot tell"
    assert crc32(b'sample{"id":1}') % 1_000_000 < 700_000 and is_sampled(b'{"id":1}', 70.0)


@for_each("states", [False, True])
@for_each("damage", ["", "stale", "a key with blanks", "an event in another partition"])
def test_a_sample_judges_its_keys_alone(states: bool, damage: str) -> None:
    side = Side(schemas=False, states=states)
    records, rows = changed(side)
    keys = DAMAGES[damage](side, records, rows) if damage else []
    for percent in (20.0, 60.0):
        sample = KeyFilter(side.slices, BUCKETS, None, percent)
        of_sample = {p: [r for r in found if sample.has(r[0])] for p, found in records.items()}
        in_sample = [row for row in rows.values() if sample.has(side.key(row["id"]))]
        result = side.compare(of_sample, in_sample)
        assert result.rows.get(5, 0) == len(in_sample) < len(rows)
        assert result.unjudged == ({5} if keys is None else set())
        if keys is not None:
            assert result.differing.get(5, set()) == {side.bucket(i) for i in keys if sample.has(side.key(i))}


def test_all_rows_are_compared_where_events_come_with_keys_that_the_server_does_not_know() -> None:
    names = [TableId("shop", name) for name in "abc"]
    table = compared(0).table
    differing = {
        names[0]: DifferingKeys(table, BUCKETS, frozenset({3})),
        names[1]: DifferingKeys(table, BUCKETS, frozenset({3})),
        names[2]: DifferingKeys(table, BUCKETS),
    }
    assert keys_left(differing, {names[0], names[2]}) == {names[0]: DifferingKeys(table, BUCKETS)}


@pytest.mark.parametrize("fact", ["own_key", "alone"])
def test_tables_of_which_records_do_not_say_the_row_have_no_checksums(
    monkeypatch: pytest.MonkeyPatch, fact: str
) -> None:
    monkeypatch.setattr(checksum_reader, "value_prefix", lambda cfg, table: b"")
    assert has_checksums(None, compared(0)) and not has_checksums(None, compared(0, **{fact: False}))  # type: ignore[arg-type]
    monkeypatch.setattr(checksum_reader, "value_prefix", lambda cfg, table: None)
    monkeypatch.setattr(checksum_reader, "record_schemas", lambda cfg, table: None)
    assert not has_checksums(Mock(is_ticdc=False), compared(0))


def test_the_server_adds_up_what_python_does() -> None:
    sql = sums_sql(TABLE, 5, SqlTexts("f", "a"), 64, "id > 5")
    assert sql == (
        "SELECT MOD(CRC32(f), 64), COUNT(*), SUM(CAST(CONV(LEFT(SHA2(CONCAT('5', f, a), 256), 16), 16, 10) AS "
        "UNSIGNED)) FROM `shop`.`orders` WHERE id > 5 GROUP BY 1"
    )


@for_each("blocks", [(1, 2), (2, 1), (12,), (21,)])
def test_the_last_state_of_a_key_counts_whichever_block_comes_first(blocks: tuple[int, ...]) -> None:
    rows = {1: {"id": 1, "name": "old", "note": None}, 2: {"id": 1, "name": "new", "note": None}}
    fields, fold = b'{"id":1}', ChecksumFold()
    bucket = key_bucket(fields, BUCKETS)
    checksums = {n: checksum_of(b"5" + fields + text(row).encode()) for n, row in rows.items()}
    for numbers in blocks:
        states = (STATE.pack(5, bucket, key_id(fields), int(n), checksums[int(n)]) for n in str(numbers))
        fold.add(STATES + b"".join(states))
    sums = ChecksumBlocks(1)
    sums.add(SumKind.ROWS, 5, bucket, 1, int.from_bytes(checksums[2], "big"))
    for _, block in sums.take_rest():
        fold.add(block)
    assert fold.result().differing == {}


def _folded(states: Iterable[tuple[bytes, int, bytes]], rows: Sequence[bytes]) -> dict[int, set[int]]:
    """Return the buckets that differ of a topic with states of keys, each in a block, and a table with such rows."""
    fold, sums = ChecksumFold(), ChecksumBlocks(1)
    for key, order, checksum in states:
        fold.add(STATES + STATE.pack(5, 3, key, order, checksum))
    for checksum in rows:
        sums.add(SumKind.ROWS, 5, 3, 1, int.from_bytes(checksum, "big"))
    for _, block in sums.take_rest():
        fold.add(block)
    return fold.result().differing


def test_keys_with_one_state_each_are_equal_to_rows_with_such_checksums() -> None:
    one, two = checksum_of(b"1"), checksum_of(b"2")
    assert _folded([(b"a", 7, one), (b"b", 7, two)], [one, two]) == {}
    assert _folded([(b"a", 7, one), (b"b", 7, two)], [one, one]) == {5: {3}}
    assert _folded([(b"a", 7, one), (b"b", 7, two)], [one]) == {5: {3}}


def test_rows_with_one_key_differ_though_their_events_have_all_checksums() -> None:
    one, two = checksum_of(b"1"), checksum_of(b"2")
    assert _folded([(b"a", 7, one), (b"a", 9, two)], [one, two]) == {5: {3}}


def test_a_delete_counts_though_the_event_before_it_has_the_checksum_of_the_row() -> None:
    one = checksum_of(b"1")
    assert _folded([(b"a", 7, one), (b"a", 9, NO_ROW)], [one]) == {5: {3}}
    assert _folded([(b"a", 9, one), (b"a", 7, NO_ROW)], [one]) == {}


def test_a_row_that_the_server_cannot_write_is_equal_to_no_delete() -> None:
    one = checksum_of(b"1")
    assert _folded([(b"a", 7, one), (b"b", 7, NO_ROW)], [one, NO_ROW]) == {5: {3}}


@for_each(
    "odd",
    [
        (b'{"id":3}', b'{"name":"\\u001F"}'),  # the server writes such characters otherwise
        (b'{"id":3}', b'{"name":"\\"u\\n"}'),
        (b'{"id":1234567890123}', b'{"name":"long key"}'),
        (b'{"id":3}', b""),
        (b'{"id": 3}', b'{"name":"a key that is read"}'),
    ],
)
def test_states_are_the_same_whichever_keys_are_beside_them(odd: tuple[bytes, bytes]) -> None:
    records = [(b'{"id":1}', b'{"name":"a"}'), odd, (b'{"id":2}', b'{"name":"b"}')]

    def written(runs: Sequence[Sequence[tuple[bytes, bytes]]]) -> list[tuple[int, bytes]]:
        blocks = ChecksumBlocks(SHUFFLE)
        states = KeyStates(5, Side(schemas=False).slices, 1, BUCKETS, blocks)
        for run in runs:
            end = records.index(run[-1]) + 1
            states.add_events([key for key, _ in run], [row for _, row in run], 0, end)
        return list(blocks.take_rest())

    together = written([records])
    assert together == written([[record] for record in records])
    fields, row = odd
    if b" " not in fields:
        checksum = checksum_of(b"5" + fields + row) if row else NO_ROW
        state = STATE.pack(5, key_bucket(fields, BUCKETS), key_id(fields), 1, checksum)
        assert any(state in block for _, block in together)
