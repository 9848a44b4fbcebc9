"""Which keys and events in JSON need not be read: those alone that are written as the stream writes them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.emit.contracts import MYSQL_3
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify.compare.json_slices import JsonSlices, KeyTexts, place_in_binlog
from airflow_provider_mysql_cdc.cdc.verify.read.json_events import is_exact_json
from airflow_provider_mysql_cdc.cdc.verify.structures.event_layout import RecentTails, json_times, layout_of

pytestmark = pytest.mark.quick

TABLE = TableId("shop", "a")
NAMED: dict[str, Any] = {
    "version": "3", "connector": "mysql", "name": "s", "snapshot": "false", "db": "shop", "table": "a",
    "sequence": None, "gtid": None, "file": "binlog.000012", "pos": 345, "query": 'x "op":"d"',
}  # fmt: skip
SOURCE = {member.name: NAMED.get(member.name, 0) for member in MYSQL_3.source}
ROW = '{"id":1,"t":"},\\"after\\":{\\"x\\":1},\\"source\\":{\\"version\\":","g":{"wkb":"AA==","srid":null}}'
OTHER = '{"id":1,"t":null,"g":null}'
PREFIXES = [b"", b'{"schema":{"fields":[]},"payload":']
TIMES = (1795791281307, 1795791281408, 1795791281509)


def event(op: str, before: str, after: str, prefix: bytes = b"", ms: int = TIMES[0], **source: Any) -> bytes:
    block = json.dumps(SOURCE | source, separators=(",", ":"))
    values = {"op": json.dumps(op), "transaction": "null"}
    tail = "".join(f',"{m.name}":{values.get(m.name, ms)}' for m in MYSQL_3.tail)
    text = f'{{"before":{before},"after":{after},"source":{block}{tail}}}'
    return prefix + text.encode() + (b"}" if prefix else b"")


def slices(prefix: bytes = b"", *, op: str = "") -> JsonSlices:
    """Return what takes records apart; with an operation it has read such an event."""
    layout = layout_of(("id", "t", "g"), TABLE, MYSQL_3, has_schema=bool(prefix))
    found = JsonSlices(KeyTexts(b"", ("id",)), prefix, layout)
    assert not op or found.row_after(event(op, "null", OTHER, prefix)) == OTHER.encode()
    return found


@for_each(
    ("op", "before", "after"),
    [("c", "null", ROW), ("r", "null", ROW), ("u", "null", ROW), ("u", ROW, OTHER), ("u", OTHER, ROW)],
)
@for_each("prefix", PREFIXES)
def test_the_row_after_an_event_is_taken_as_it_is(op: str, before: str, after: str, prefix: bytes) -> None:
    text = event(op, before, after, prefix, gtid="1-2:3", query=None, pos=346)
    json.loads(text)
    assert slices(prefix).row_after(text) == slices(prefix, op="c").row_after(text) == after.encode()
    assert slices(prefix).row_of(text) == after.encode()
    assert place_in_binlog(text) == (12, 346)


@for_each("before", [ROW, "null"])
def test_a_delete_has_no_row_after_it(before: str) -> None:
    assert slices().row_after(event("d", before, "null")) == b""


OTHERS: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda text: b"",
    "null": lambda text: b"null",
    "another table": lambda text: text.replace(b'"table":"a"', b'"table":"A"'),
    "another database": lambda text: text.replace(b'"db":"shop"', b'"db":"other"'),
    "other members": lambda text: text.replace(b'"source"', b'"origin"'),
    "other order": lambda text: text.replace(b'"db":"shop","table":"a"', b'"table":"a","db":"shop"').replace(
        b'"connector":"mysql","name":"s"', b'"name":"s","connector":"mysql"'
    ),
    "no op": lambda text: text.replace(b'"op":"c"', b'"op":null'),
    "truncate": lambda text: text.replace(b'"op":"c"', b'"op":"t"'),
    "delete with a row": lambda text: text.replace(b'"op":"c"', b'"op":"d"'),
    "create with a row before": lambda text: text.replace(b'"before":null', b'"before":{"id":1}'),
    "update without a row": lambda text: text.replace(ROW.encode(), b"null").replace(b'"op":"c"', b'"op":"u"'),
    "schema": lambda text: b'{"schema":{},"payload":' + text + b"}",
    "after twice": lambda text: text[:-1] + b',"after":{"id":2}}',
    "after twice, escaped": lambda text: text[:-1] + b',"\\u0061fter":{"id":2}}',
    "op twice": lambda text: text[:-1] + b',"op":"d"}',
    "source twice": lambda text: text.replace(b',"op"', b',"source":{"version":"3"},"op"'),
    "table twice": lambda text: text.replace(b'"table":"a"', b'"table":"a","table":"b"'),
    "another member": lambda text: text[:-1] + b',"more":1}',
    "bytes behind it": lambda text: text + b" ",
    "its end is gone": lambda text: text[:-1],
    "no number": lambda text: text.replace(b'"pos":345', b'"pos":0345'),
    "no text": lambda text: text.replace(b'"name":"s"', b'"name":"\n"'),
    "rows before twice": lambda text: text.replace(b'"before":null', b'"before":{"id":1},"after":null,"x":{"a":1}'),
    "damaged before": lambda text: text.replace(b'"before":null', b'"before":{"id":}').replace(b'"c"', b'"u"'),
}


@for_each("how", OTHERS)
@for_each("prefix", PREFIXES)
def test_other_texts_are_read_instead(how: str, prefix: bytes) -> None:
    text = event("c", "null", ROW)
    damaged = OTHERS[how](text)
    assert damaged != text
    for found in (slices(prefix), slices(prefix, op="c")):
        assert found.row_after(prefix + damaged + (b"}" if prefix else b"")) is None
        assert found.row_after(prefix + text + (b"}" if prefix else b"")) is not None


ROWS = [ROW.encode(), OTHER.encode(), b'{"id":3,"t":"","g":null}']


def run(prefix: bytes = b"") -> list[bytes]:
    return [event("r", "null", row.decode(), prefix, ms) for row, ms in zip(ROWS, TIMES, strict=True)]


def of_run(found: JsonSlices, values: Sequence[bytes]) -> list[bytes] | None:
    """Return the rows of events that are looked at together."""
    return found._recent.rows_of(values, found._new_row, {b"r", b"c", b"u"})


@for_each("prefix", PREFIXES)
def test_rows_of_a_run_are_those_of_its_events(prefix: bytes) -> None:
    found = slices(prefix, op="r")
    assert of_run(found, run(prefix)) == ROWS == found.rows_after(run(prefix))
    assert of_run(found, []) is None


@for_each("prefix", PREFIXES)
@for_each("place", range(3))
def test_a_byte_that_differs_is_seen_in_a_run_as_in_an_event(prefix: bytes, place: int) -> None:
    found, accepted, opening = slices(prefix, op="r"), 0, b'{"before":null,"after":'
    sound = run(prefix)[place]
    for at, cut, byte in itertools.product(range(len(sound)), (0, 1), (b"0", b"}", b"")):
        changed, values = sound[:at] + byte + sound[at + cut :], run(prefix)
        values[place] = changed
        rows = of_run(found, values)
        if rows is not None:
            accepted += 1
            assert rows == [found.row_after(each) for each in values], changed
            head, tail = changed.partition(opening)[0], changed[changed.rindex(b',"source"') :]
            assert json.loads(head + opening + b"{}" + tail), changed
    assert accepted  # other letters in the row, and other times


@for_each(
    "other",
    [
        event("r", "null", OTHER, ms=179579128130),
        event("r", "null", OTHER).replace(b":1795791281307", b":0795791281307"),
        event("r", "null", OTHER).replace(b":1795791281307", b":17957912x1307"),
        event("r", "null", OTHER, pos=5),
        event("c", "null", OTHER),
        event("r", "null", OTHER[:-1]),
        event("r", "null", "null"),
        event("r", "{}", OTHER),
        b"",
    ],
)
@for_each("place", range(3))
def test_events_that_do_not_end_as_the_last_one_are_looked_at_one_by_one(other: bytes, place: int) -> None:
    values = run()
    values[place] = other
    assert of_run(slices(op="r"), values) is None


@for_each("prefix", PREFIXES)
def test_rows_are_taken_out_of_records_that_end_as_others_and_of_those_that_do_not(prefix: bytes) -> None:
    found = slices(prefix)
    values = [event(op, "null", row.decode(), prefix) for op in ("r", "c") for row in ROWS]
    assert list(map(found.row_of, values)) == ROWS * 2
    assert found.row_of(event("u", ROW, OTHER, prefix)) == OTHER.encode()
    assert found.row_of(event("d", ROW, "null", prefix)) == b""
    assert found.row_of(values[-1][:-1]) is None and found.row_of(values[-1]) == ROWS[-1]


LONG = json.dumps({"id": "x" * 2000}, separators=(",", ":"))
# Keys as the stream writes them, and others that read the same.
EXACT = ('{"id":1}', '{"id":-7}', '{"id":1.0}', '{"id":1.0E10}', '{"id":"a\\n"}', '{"id":"\\u001F"}', '{"id":"ä"}',
         '{"id":"\\uD83D\\uDE00"}', '{"b":1,"a":"x"}', '{"a":"x","b":1}', '{"payload":2,"schema":1}', LONG)  # fmt: skip
INEXACT = ('{"id": 1}', '{"id":1} ', '{"id":1,"id":1}', '{"id":-0}', '{"id":1e0}', '{"id":1.00}', '{"id":"\\u0061"}',
          '{"id":"\\u001f"}', '{"id":"😀"}', '{"id":"\\/"}', '{"\\u0069d":1}', '{"b":1,"a": "x"}',
          '{"id":10000000000.0}')  # fmt: skip


@for_each("key", EXACT)
def test_keys_have_one_form(key: str) -> None:
    row = json.loads(key)
    assert is_exact_json(key.encode(), len(row))
    assert KeyTexts(b"", tuple(row)).fields_of(key.encode()) in (key.encode(), None)
    if len(row) > 1:
        assert KeyTexts(b"", tuple(reversed(row))).fields_of(key.encode()) is None, "another order"


@for_each("key", INEXACT)
def test_a_key_in_other_bytes_is_not_the_key(key: str) -> None:
    row = json.loads(key)
    assert not is_exact_json(key.encode(), len(row))


def test_a_key_with_another_schema_is_read() -> None:
    keys = KeyTexts(b'{"schema":1,"payload":', ("id",))
    assert keys.fields_of(b'{"schema":1,"payload":{"id":7}}') == b'{"id":7}'
    for key in (b'{"schema":2,"payload":{"id":7}}', b'{"id":7}', b'{"schema":1,"payload":{"id":7', b""):
        assert keys.fields_of(key) is None


@for_each("key", ['{"id":1}', '{"id":"a"}', '{"id":1,"n":2}', '{"schema":{},"payload":{"id":1}}', "", "[1]", '{"id":'])
@for_each("fields", [("n",), ("id", "n", "m")])
def test_a_key_of_other_fields_has_to_be_read_with_its_row(key: str, fields: tuple[str, ...]) -> None:
    assert KeyTexts(b"", fields).fields_of(key.encode()) is None


TAIL = b',"source":{"pos":4,"ts_ms":12},"op":"r","ts_ms":%d,"ts_us":%d}'


def tails(value: bytes, start: int = 0) -> RecentTails:
    found = RecentTails(json_times)
    assert found.read(value, start) is None
    assert found.learn(value, start, b"r") == b"r"
    return found


def test_an_end_is_known_where_only_its_times_differ() -> None:
    recent = tails(b"row" + TAIL % (17, 2), 3)
    for value, start in ((TAIL % (1, 2), 0), (b"longer" + TAIL % (0, 1_795_748_230_487_902), 6)):
        assert recent.read(value, start) == b"r"
    for value, end in (
        (TAIL % (99, 0), (0, b"r")),
        (b"longer" + TAIL % (10, 9), (6, b"r")),
        (TAIL % (1, 22), None),
        (TAIL % (7, 2), None),
        (TAIL.replace(b":%d,", b":0%d,") % (7, 2), None),
        ((TAIL % (17, 2))[1:], None),
    ):
        assert recent.read_end(value) == end


@for_each(
    "other",
    [
        TAIL.replace(b'"pos":4', b'"pos":5') % (1, 2),
        TAIL.replace(b'"op":"r"', b'"op":"c"') % (1, 2),
        TAIL.replace(b"ts_us", b"ts_ns") % (1, 2),
        TAIL % (1, 2) + b"}",
        TAIL % (1, 2) + b" ",
        TAIL.replace(b',"ts_us":%d', b"") % 1,
        TAIL.replace(b',"ts_ms":%d,', b',"ts_ms":%d,"more":1,') % (1, 2),
        TAIL.replace(b',"ts_ms":%d,', b',"ts_ms":%d,"ts_ms":1,') % (1, 2),
        TAIL.replace(b',"ts_ms":%d,', b',"ts_ms":0%d,') % (1, 2),
        TAIL.replace(b',"ts_ms":%d,', b',"ts_ms":null%d,') % (1, 2),
        TAIL % (1, -2),
        b"",
    ],
)
def test_every_other_end_is_read(other: bytes) -> None:
    recent = tails(TAIL % (1, 2))
    assert recent.read(other, 0) is None and recent.read_end(other) is None and recent.read_end(b"r" + other) is None


def test_one_of_several_changes_is_remembered_and_none_without_times_at_its_end() -> None:
    recent, texts = tails(TAIL % (1, 2)), [TAIL.replace(b'"pos":4', b'"pos":%d' % n) for n in range(10, 30)]
    for text in texts:
        recent.learn(text % (1, 2), 0, b"u")
    assert len([text for text in texts if recent.read(text % (3, 4), 0) is not None]) == 1
    assert recent.read(TAIL % (1, 2), 0) is None
    text = b',"source":{"ts_ms":12},"op":"r","transaction":null}'
    assert tails(text).read(text, 0) is None and tails(text).read_end(text) is None
