import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.emit.contracts import MYSQL_3
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify.event_layout import layout_of
from airflow_provider_mysql_cdc.cdc.verify.event_tails import MAX_TRIES, EventTails
from airflow_provider_mysql_cdc.cdc.verify.exact_json import is_exact_json
from airflow_provider_mysql_cdc.cdc.verify.json_slices import JsonSlices
from airflow_provider_mysql_cdc.cdc.verify.plain_entries import PlainKeys
from airflow_provider_mysql_cdc.cdc.verify.row_text import row_bytes
from airflow_provider_mysql_cdc.cdc.verify.source_place import position_order

pytestmark = pytest.mark.quick

TABLE = TableId("shop", "a")
SOURCE: dict[str, Any] = {
    "version": "3", "connector": "mysql", "name": "s", "ts_ms": 5, "snapshot": "false", "db": "shop", "table": "a",
    "gtid": None, "file": "binlog.000012", "pos": 345, "row": 0, "query": 'x "op":"d"',
}  # fmt: skip
ROW = '{"id":1,"t":"},\\"after\\":{\\"x\\":1},\\"source\\":{\\"version\\":","g":{"wkb":"AA==","srid":null}}'
OTHER = '{"id":1,"t":null,"g":null}'
FIELDS = layout_of(("id", "t", "g"), TABLE, MYSQL_3, has_schema=False).row
PREFIXES = [b"", b'{"schema":{"fields":[]},"payload":']


def event(op: str, before: str, after: str, prefix: bytes = b"", more: str = "", **source: Any) -> bytes:
    block = json.dumps(SOURCE | source, separators=(",", ":"))
    text = f'{{"before":{before},"after":{after},"source":{block},"transaction":null,"op":"{op}","ts_ms":1{more}}}'
    return prefix + text.encode() + (b"}" if prefix else b"")


def slices(prefix: bytes = b"") -> JsonSlices:
    found = JsonSlices(TABLE, prefix, FIELDS)
    assert found.knows_none
    found.learn(event("c", "null", OTHER, prefix))
    assert not found.knows_none
    return found


@for_each(
    ("op", "before", "after"),
    [("c", "null", ROW), ("r", "null", ROW), ("u", "null", ROW), ("u", ROW, OTHER), ("u", OTHER, ROW)],
)
@for_each("prefix", PREFIXES)
def test_the_row_after_an_event_is_taken_as_it_is(op: str, before: str, after: str, prefix: bytes) -> None:
    text = event(op, before, after, prefix, gtid="1-2:3", query=None, pos=346)
    json.loads(text)
    assert slices(prefix).slice(text) == (after.encode(), position_order(12, 346))
    assert JsonSlices(TABLE, prefix, FIELDS).of_row(text) == after.encode()


@pytest.mark.parametrize("before", [ROW, "null"])
def test_a_delete_has_no_row_after_it(before: str) -> None:
    assert slices().slice(event("d", before, "null")) == (b"", position_order(12, 345))


@for_each(("table", "is_read"), [("a", False), ("b", True), ("a.b", True), ("A", True)])
def test_an_event_of_another_table_of_the_topic_is_read(table: str, is_read: bool) -> None:
    assert (slices().slice(event("c", "null", ROW, table=table)) is None) is is_read
    assert slices().slice(event("c", "null", ROW, db="other")) is None
    learned = JsonSlices(TABLE, b"", FIELDS)
    learned.learn(event("c", "null", ROW, table="b"))
    assert learned.knows_none


OTHERS: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda text: b"",
    "null": lambda text: b"null",
    "other members": lambda text: text.replace(b'"source"', b'"origin"'),
    "other order": lambda text: text.replace(b'"transaction":null,"op":"c"', b'"op":"c","transaction":null'),
    "no op": lambda text: text.replace(b'"op":"c"', b'"op":null'),
    "truncate": lambda text: text.replace(b'"op":"c"', b'"op":"t"'),
    "delete with a row": lambda text: text.replace(b'"op":"c"', b'"op":"d"'),
    "create with a row before": lambda text: text.replace(b'"before":null', b'"before":{"id":1}'),
    "update without a row": lambda text: text.replace(ROW.encode(), b"null").replace(b'"op":"c"', b'"op":"u"'),
    "another column": lambda text: text.replace(b'"id":1', b'"id":1,"x":1'),
    "a column twice": lambda text: text.replace(b'"id":1', b'"id":1,"id":2'),
    "long row": lambda text: text.replace(b'"id":1', b'"id":1,"x":"' + b"x" * 5000 + b'"'),
    "schema": lambda text: b'{"schema":{},"payload":' + text + b"}",
    "after twice": lambda text: text[:-1] + b',"after":{"id":2}}',
    "after twice, escaped": lambda text: text[:-1] + b',"\\u0061fter":{"id":2}}',
    "op twice": lambda text: text[:-1] + b',"op":"d"}',
    "source twice": lambda text: text.replace(b',"transaction"', b',"source":{"version":"3"},"transaction"'),
    "table twice": lambda text: text.replace(b'"table":"a"', b'"table":"a","table":"b"'),
    "another member": lambda text: text[:-1] + b',"more":1}',
    "bytes behind it": lambda text: text + b" ",
    "its end is gone": lambda text: text[:-1],
    "no number": lambda text: text.replace(b'"ts_ms":1}', b'"ts_ms":01}'),
    "no text": lambda text: text.replace(b'"name":"s"', b'"name":"\n"'),
    "escaped place": lambda text: text.replace(b"binlog.000012", b"binlog.\\u0030"),
    "rows before twice": lambda text: text.replace(b'"before":null', b'"before":{"id":1},"after":null,"x":{"a":1}'),
    "damaged before": lambda text: text.replace(b'"before":null', b'"before":{"id":}').replace(b'"c"', b'"u"'),
}


@for_each("how", OTHERS)
@for_each("prefix", PREFIXES)
def test_other_texts_are_read_instead(how: str, prefix: bytes) -> None:
    found = slices(prefix)
    text = event("c", "null", ROW)
    damaged = OTHERS[how](text)
    assert damaged != text
    assert found.slice(prefix + damaged + (b"}" if prefix else b"")) is None
    assert found.slice(prefix + text + (b"}" if prefix else b"")) is not None


@for_each("more", [',"op":"c"', ',"after":{"id":2}', ',"list":[1]', ',"n":1.5', ',"\\u006f":1', ',"s":{"before":null}'])
def test_a_text_with_other_members_teaches_nothing(more: str) -> None:
    text = event("c", "null", OTHER, more=more)
    assert orjson.loads(text)
    found = JsonSlices(TABLE, b"", FIELDS)
    found.learn(text)
    assert found.knows_none and found.slice(text) is None


def test_texts_of_many_kinds_are_not_all_learned() -> None:
    tails, seen = EventTails(TABLE, b""), 0
    for number in range(MAX_TRIES + 5):
        text = event("c", "null", OTHER, more=f',"m{number}":1')
        start = text.index(b',"source"')
        tails.learn(text, start)
        seen += tails.read(text, start) is not None
    assert seen == MAX_TRIES


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
    assert PlainKeys(b"", tuple(row)).identity_of(key.encode()) == row_bytes(row)
    if len(row) > 1:
        assert PlainKeys(b"", tuple(reversed(row))).identity_of(key.encode()) is None, "another order"


@for_each("key", INEXACT)
def test_a_key_in_other_bytes_is_not_the_key(key: str) -> None:
    row = json.loads(key)
    assert not is_exact_json(key.encode(), len(row))
    assert PlainKeys(b"", tuple(row)).identity_of(key.encode()) is None


def test_a_key_with_another_schema_is_read() -> None:
    keys = PlainKeys(b'{"schema":1,"payload":', ("id",))
    assert keys.identity_of(b'{"schema":1,"payload":{"id":7}}') == b'{"id":7}'
    for key in (b'{"schema":2,"payload":{"id":7}}', b'{"id":7}', b'{"schema":1,"payload":{"id":7', b""):
        assert keys.identity_of(key) is None


@for_each("key", ['{"id":1}', '{"id":"a"}', '{"id":1,"n":2}', '{"schema":{},"payload":{"id":1}}', "", "[1]", '{"id":'])
@for_each("fields", [("n",), ("id", "n", "m")])
def test_a_key_of_other_fields_has_to_be_read_with_its_row(key: str, fields: tuple[str, ...]) -> None:
    assert PlainKeys(b"", fields).identity_of(key.encode()) is None
