"""Damaged binlog bytes: nothing but named errors, no event that takes for ever, no memory for what is not there."""

from __future__ import annotations

import contextlib
import struct
from functools import cache
from typing import Any

import zstandard
from binlog_corpus import Group, changed, corpus, place, read, stream_bytes
from hypothesis import given
from hypothesis import strategies as st
from json_samples import documents, vectors
from kit.binlog_bytes import event_bytes, payload_body
from kit.fuzzing import within_memory, within_time

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.control_events import decompress_events
from airflow_provider_mysql_cdc.cdc.binlog.rows_header import ROW_EVENTS
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ROW_ERRORS
from airflow_provider_mysql_cdc.cdc.decode.values.binary_json import json_text
from airflow_provider_mysql_cdc.cdc.decode.values.json_diff import patched_text
from airflow_provider_mysql_cdc.cdc.errors import CdcError


@cache
def groups(rows: bool) -> tuple[Group, ...]:
    return tuple(g for g in corpus() if any(k in ROW_EVENTS or k == 40 for k, *_ in g.raws) is rows)


def test_the_recording_itself_is_read_without_an_error() -> None:
    found = [read(stream_bytes(list(g.raws)), g.tables) for g in corpus()]
    kinds = {kind for g in corpus() for kind, *_ in g.raws}
    assert kinds >= {2, 16, 19, 29, 30, 31, 32, 33, 38, 39, 40, 42}
    assert sum(f.rows for f in found) > 500
    assert len({tables for g in corpus() for tables in g.tables.tables}) > 30


def damaged(data: st.DataObject, group: Group) -> bytes:
    raws, number = list(group.raws), data.draw(st.integers(0, len(group.raws) - 1), "event")
    kind, flags, timestamp, body = raws[number]
    kind = data.draw(st.one_of(st.just(kind), st.just(kind), st.integers(0, 45)), "type")
    raws[number] = (kind, flags, timestamp, data.draw(changed(body), "body"))
    if data.draw(st.integers(0, 9), "double") == 0:
        raws.insert(data.draw(st.integers(0, len(raws)), "to"), raws[number])
    return stream_bytes(raws)


@given(st.data(), st.booleans())
def test_a_damaged_transaction_of_rows(data: st.DataObject, tolerant: bool) -> None:
    group = data.draw(st.sampled_from(range(len(groups(True)))).map(lambda n: groups(True)[n]), "transaction")
    stream = damaged(data, group)
    with within_time(), contextlib.suppress(CdcError):
        read(stream, group.tables, tolerant=tolerant)


@given(st.data())
def test_a_damaged_transaction_of_statements(data: st.DataObject) -> None:
    group = data.draw(st.sampled_from(range(len(groups(False)))).map(lambda n: groups(False)[n]), "transaction")
    stream = damaged(data, group)
    with within_time(), contextlib.suppress(CdcError):
        read(stream, group.tables)


@given(st.data())
def test_a_damaged_row_event(data: st.DataObject) -> None:
    """Change only row events, behind their header as well as in it: every decoder sees its share."""
    group = data.draw(st.sampled_from(range(len(groups(True)))).map(lambda n: groups(True)[n]), "transaction")
    raws = list(group.raws)
    numbers = [n for n, raw in enumerate(raws) if raw[0] in ROW_EVENTS] or [len(raws) - 1]
    number = data.draw(st.sampled_from(numbers), "event")
    kind, flags, timestamp, body = raws[number]
    head = min(data.draw(st.sampled_from((0, 10, 10, 10, 12)), "head"), len(body))
    raws[number] = (kind, flags, timestamp, body[:head] + data.draw(changed(body[head:]), "body"))
    with within_time(), contextlib.suppress(CdcError):
        read(stream_bytes(raws), group.tables, tolerant=data.draw(st.booleans(), "tolerant"))


@given(st.data())
def test_damaged_bytes_of_a_stream(data: st.DataObject) -> None:
    group = data.draw(st.sampled_from(range(len(corpus()))).map(lambda n: corpus()[n]), "transaction")
    stream = stream_bytes(list(group.raws))
    at = data.draw(st.integers(0, len(stream)), "from")
    stream = stream[:at] + data.draw(changed(stream[at : at + 200]), "bytes") + stream[at + 200 :]
    with within_time(), contextlib.suppress(CdcError):
        read(stream, group.tables)


@given(st.data())
def test_a_damaged_compressed_transaction(data: st.DataObject) -> None:
    group = data.draw(st.sampled_from(range(len(groups(True)))).map(lambda n: groups(True)[n]), "transaction")
    inner = b"".join(event_bytes(kind, body, 0, crc=False) for kind, _, _, body in group.raws)
    plain = data.draw(st.one_of(st.just(inner), changed(inner)), "inner")
    packed = zstandard.ZstdCompressor().compress(plain)
    packed = data.draw(st.one_of(st.just(packed), changed(packed)), "packed")
    size = data.draw(st.sampled_from((0, 1, len(plain), len(plain) + 1, 1 << 40)), "size")
    body = data.draw(
        st.one_of(st.just(payload_body(packed, size=size)), changed(payload_body(packed, size=size))), "body"
    )
    with within_time(), within_memory(48), contextlib.suppress(CdcError):
        for _ in decompress_events(place(c.TRANSACTION_PAYLOAD_EVENT, body)):
            pass
    with within_time(), contextlib.suppress(CdcError):
        read(stream_bytes([(c.TRANSACTION_PAYLOAD_EVENT, 0, 0, body)]), group.tables)


def small_enough(call: Any, *data: bytes) -> None:
    """Decode JSON: the row's decoder names what these errors mean."""
    with within_time(), within_memory(4 + sum(map(len, data)) // 5000), contextlib.suppress(*ROW_ERRORS):
        call(*data)


@given(st.data())
def test_a_damaged_json_document(data: st.DataObject) -> None:
    document = data.draw(st.sampled_from(documents()), "document")
    small_enough(json_text, data.draw(changed(document), "changed"))


@given(st.data())
def test_damaged_changes_of_a_json_document(data: st.DataObject) -> None:
    document, vector = data.draw(st.sampled_from(vectors()), "update")
    document = data.draw(st.one_of(st.just(document), changed(document)), "document")
    small_enough(patched_text, document, data.draw(changed(vector), "vector"))


@given(st.binary(max_size=300))
def test_any_bytes_as_a_json_document(data: bytes) -> None:
    small_enough(json_text, data)


@given(st.integers(0, 45), st.binary(max_size=120))
def test_any_bytes_as_an_event(kind: int, body: bytes) -> None:
    with within_time(), contextlib.suppress(CdcError):
        read(stream_bytes([(kind, 0, 0, body)]), corpus()[-1].tables)


@given(st.binary(max_size=200), st.integers(0, 3))
def test_any_bytes_as_packets(data: bytes, status: int) -> None:
    head = stream_bytes([])
    frame = struct.pack("<I", len(data) + 1)[:3] + b"\0" + bytes([status])
    with within_time(), contextlib.suppress(CdcError):
        read(head + frame + data, corpus()[-1].tables)
