import json

import pytest

from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify.event_entries import key_bytes_of
from airflow_provider_mysql_cdc.cdc.verify.event_record import UnreadableRecord
from airflow_provider_mysql_cdc.cdc.verify.json_slices import slice_event, source_members
from airflow_provider_mysql_cdc.cdc.verify.row_text import row_bytes

pytestmark = pytest.mark.quick

SOURCE = '{"version":"3","name":"s","file":"binlog.000012","pos":345,"row":0,"query":"x \\"op\\":\\"d\\""}'


def event(op: str, before: str, after: str) -> bytes:
    return f'{{"before":{before},"after":{after},"source":{SOURCE},"transaction":null,"op":"{op}","ts_ms":1}}'.encode()


ROW = '{"id":1,"t":"},\\"after\\":{\\"x\\":1},\\"source\\":{\\"version\\":","g":{"wkb":"AA==","srid":null}}'
OTHER = '{"id":1,"t":null,"g":null}'


@pytest.mark.parametrize(
    ("op", "before", "after"), [("c", "null", ROW), ("r", "null", ROW), ("u", ROW, OTHER), ("u", OTHER, ROW)]
)
@pytest.mark.parametrize("prefix", [b"", b'{"schema":{"fields":[]},"payload":'])
def test_the_row_after_an_event_is_taken_as_it_is(op: str, before: str, after: str, prefix: bytes) -> None:
    text = prefix + event(op, before, after) + (b"}" if prefix else b"")
    json.loads(text)
    found = slice_event(text, prefix, ordered=True)
    assert found is not None
    assert (found.op, found.after.decode(), found.file_number, found.pos) == (op, after, 12, 345)


@pytest.mark.parametrize(("table", "is_read"), [("a", False), ("b", True), ("a.b", True)])
def test_an_event_of_another_table_of_the_topic_is_read(table: str, is_read: bool) -> None:
    text = event("c", "null", ROW).replace(b'"file"', b'"db":"shop","table":"a","file"')
    assert (slice_event(text, b"", ordered=True, members=source_members(TableId("shop", table))) is None) is is_read
    assert slice_event(text, b"", ordered=True, members=source_members(TableId("other", "a"))) is None


def test_a_delete_has_no_row_after_it() -> None:
    found = slice_event(event("d", ROW, "null"), b"", ordered=False)
    assert found is not None and (found.op, found.after, found.pos) == ("d", b"", 0)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"{}",
        b'{"after":{},"before":null,"source":{"version":"3"},"op":"c"}',
        event("c", "null", ROW).replace(b'"source"', b'"origin"'),
        event("c", "null", ROW).replace(b'"op":"c"', b'"op":null'),
        event("c", "null", '{"t":"' + "x" * 5000 + '"}'),
        b'{"schema":{},"payload":' + event("c", "null", ROW) + b"}",
    ],
)
def test_other_texts_are_read_instead(text: bytes) -> None:
    assert slice_event(text, b"", ordered=True) is None


@pytest.mark.parametrize(
    "key", ['{"id":1}', '{"id":-7}', '{"id": 1}', '{"b":1,"a":"x"}', '{"schema":{"type":"struct"},"payload":{"id":1}}']
)
def test_keys_have_one_form(key: str) -> None:
    document = json.loads(key)
    row = document.get("payload", document)
    assert key_bytes_of(key.encode(), frozenset(row)) == row_bytes(row)


def test_a_key_of_columns_named_schema_and_payload_is_whole() -> None:
    key = b'{"payload":2,"schema":1}'
    assert key_bytes_of(key, frozenset({"schema", "payload"})) == key


@pytest.mark.parametrize("key", ['{"id":1}', '{"id":"a"}', '{"id":1,"n":2}', '{"schema":{},"payload":{"id":1}}'])
@pytest.mark.parametrize("fields", [("n",), ("id", "n", "m")])
def test_a_key_of_other_fields_has_to_be_read_with_its_row(key: str, fields: tuple[str, ...]) -> None:
    assert key_bytes_of(key.encode(), frozenset(fields)) is None


@pytest.mark.parametrize("key", [b"", b"\xff", b"[1]", b"7", b'{"id":'])
def test_what_is_no_key_is_named(key: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        key_bytes_of(key, frozenset({"id"}))
