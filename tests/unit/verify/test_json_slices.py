import json

import pytest

from airflow_provider_mysql_cdc.cdc.verify.event_entries import key_bytes_of
from airflow_provider_mysql_cdc.cdc.verify.event_record import UnreadableRecord
from airflow_provider_mysql_cdc.cdc.verify.json_slices import slice_event
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
    assert key_bytes_of(key.encode()) == row_bytes(document.get("payload", document))


@pytest.mark.parametrize("key", [b"", b"\xff", b"[1]", b"7", b'{"id":'])
def test_what_is_no_key_is_named(key: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        key_bytes_of(key)
