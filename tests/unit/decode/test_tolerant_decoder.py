"""Rows that cannot be decoded are left out, and those beside them stay what they are."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import Any

import pytest
from kit.decode_builder import DEFAULT, NO_SCHEMA, body, column, context, image, table, table_map
from kit.json_builder import change, document

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import compile_text_decoder
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import BadRow, TolerantDecoder
from airflow_provider_mysql_cdc.cdc.decode.values.json_diff import REPLACE
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.formats.dead_letter import (
    SKIPPED_SUFFIX,
    DeadLetterReporter,
    dead_letter_headers,
    dead_letter_value,
)
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.column_rule import ColumnTreatment, ValueChange, ValueChangeKind

T = table(
    column("id", "INT", nullable=False),
    column("name", "VARCHAR", length=20, charset="utf8mb4"),
    column("doc", "JSON"),
    key=("id",),
)
MAP = table_map((wt.LONG, 0), (wt.VARCHAR, 80), (wt.JSON, 4))
BAD = b"\xff\xfe"


def row(number: int, name: bytes = b"n", doc: bytes | None = None) -> bytes:
    data = struct.pack("<i", number) + bytes([len(name)]) + name
    return image(3, data if doc is None else data + len(doc).to_bytes(4, "little") + doc, 4 if doc is None else 0)


def made(options: DecoderOptions = DEFAULT, texts: EnvelopeText = NO_SCHEMA) -> tuple[TolerantDecoder, list[BadRow]]:
    failed: list[BadRow] = []
    return TolerantDecoder(compile_decoder(T, MAP, options, texts), failed), failed


def decode(kind: str, *rows: bytes, images: int = 1, options: DecoderOptions = DEFAULT, first: int = 0) -> Any:
    decoder, failed = made(options)
    out: list[Any] = []
    buf, pos, end = body(*rows, columns=3, images=images)
    ctx = context(first_row=first)
    assert getattr(decoder, kind)(buf, pos, end, ctx, out) == len(rows) // images
    assert ctx.first_row == first
    return out, failed


def test_the_other_rows_of_an_event_are_the_same_as_without_the_bad_one() -> None:
    rows = [row(i, BAD if i in (2, 5) else b"ok") for i in range(7)]
    out, failed = decode("write", *rows, first=3)
    clean, none = decode("write", *[row(i, b"ok") for i in range(7)], first=3)
    assert none == []
    assert out == [record for record in clean if record[2] not in (5, 8)]
    assert [(b.row, b.op, b.key) for b in failed] == [(5, "c", b'{"id":2}'), (8, "c", b'{"id":5}')]
    bad = failed[0]
    assert bad.before is None and json.loads(bad.after or "") == {"id": 2, "doc": None}
    assert [column for column, _ in bad.failed] == ["name"] and "UnicodeDecodeError" in bad.failed[0][1]
    assert bad.error.where == "binlog.000001:4, table db.t, row 5, key id=2"


def test_deletes_and_their_tombstones() -> None:
    out, failed = decode("delete", row(1), row(2, BAD), row(3))
    assert [(r[0], r[2], r[3]) for r in out] == [
        (b'{"id":1}', 0, 0), (b'{"id":1}', 0, 1), (b'{"id":3}', 2, 0), (b'{"id":3}', 2, 1)
    ]  # fmt: skip
    assert failed[0].after is None and json.loads(failed[0].before or "")["id"] == 2


def test_an_update_is_one_row_with_two_images_and_the_key_of_the_row_it_changes() -> None:
    out, failed = decode("update", row(1), row(1, b"x"), row(2), row(22, BAD), row(3), row(3, b"y"), images=2)
    assert [(r[0], r[2]) for r in out] == [(b'{"id":1}', 0), (b'{"id":3}', 2)]
    (bad,) = failed
    assert (bad.row, bad.key) == (1, b'{"id":2}')
    assert json.loads(bad.before or "")["name"] == "n" and "name" not in json.loads(bad.after or "")


def test_a_partial_update_whose_change_does_not_fit() -> None:
    def pair(number: int, path: str) -> bytes:
        return row(number, doc=document({"a": 1})) + b"\x01\x01" + row(number, doc=change(REPLACE, path, 2))

    decoder, failed = made()
    out: list[Any] = []
    buf, pos, end = body(pair(1, "$.a"), pair(2, "$.b"), pair(3, "$.a"), columns=3, images=2)
    assert decoder.partial_update(buf, pos, end, context(), out) == 3
    assert [r[2] for r in out] == [0, 2]
    assert (failed[0].row, failed[0].op) == (1, "u")
    assert "does not have" in failed[0].error.why and "column doc" in failed[0].error.what


def test_row_images_without_all_columns() -> None:
    decoder, failed = made()
    rows = [bytes([0]) + struct.pack("<i", i) + bytes([0, 1 + (i == 2)]) + (BAD if i == 2 else b"v") for i in range(4)]
    buf = b"\x01\x02" + b"".join(rows)
    out: list[Any] = []
    assert decoder.update(buf, 2, len(buf), context(), out) == 4
    assert [r[2] for r in out] == [0, 1, 3] and failed[0].key == b'{"id":2}'


def test_rows_whose_bounds_are_unknown_stop_the_run() -> None:
    decoder, failed = made()
    buf, pos, end = body(row(1, BAD), row(2), columns=3)
    out: list[Any] = []
    with pytest.raises(ValueDecodeError):
        decoder.write(buf, pos, end - 3, context(), out)
    assert failed == [] and out == []


def test_masked_values_stay_masked_in_what_is_known_of_a_row() -> None:
    rules = (("name", ColumnTreatment(change=ValueChange(ValueChangeKind.TRUNCATE_TEXT, length=2))),)
    options = replace(DEFAULT, treatments=rules)
    _, failed = decode("write", row(1, b"secret", b"\xff"), options=options)
    assert json.loads(failed[0].after or "") == {"id": 1, "name": "se"}
    _, failed = decode("write", row(1, BAD + b"secret"), options=options)
    assert failed[0].failed == (("name", "UnicodeDecodeError"),)


# -- dead letters ---------------------------------------------------------------------------------------------------


def config(**more: str) -> ConnectorConfig:
    return ConnectorConfig.from_properties(
        {
            "database.hostname": "h",
            "database.user": "u",
            "database.password": "p",
            "topic.prefix": "cap",
            "kafka.bootstrap.servers": "k:9092",
            **{name.replace("__", "."): value for name, value in more.items()},
        }
    )


def bad_row() -> BadRow:
    _, failed = decode("write", row(1), row(2, BAD))
    return failed[0]


@pytest.mark.req("STRM-23", "CFG-28")
def test_a_dead_letter_has_position_row_values_and_the_full_cause() -> None:
    value = json.loads(dead_letter_value("cap.db.t", bad_row(), context()))
    assert list(value) == ["topic", "op", "source", "key", "before", "after", "failed", "error"]
    assert value["source"] == {"row": 1} and value["key"] == {"id": 2}
    assert value["before"] is None and value["after"] == {"id": 2, "doc": None}
    assert value["failed"][0]["column"] == "name"
    assert value["error"]["type"] == "ValueDecodeError" and "table db.t, row 1" in value["error"]["where"]
    headers = dict(dead_letter_headers("cap", 3, "cap.db.t", bad_row(), context()))
    assert headers["__connect.errors.topic"] == b"cap.db.t" and headers["__connect.errors.task.id"] == b"3"
    assert headers["__connect.errors.offset"] == b"binlog.000001:4/1"
    assert headers["__connect.errors.exception.class.name"] == b"ValueDecodeError"
    assert b"Caused by: UnicodeDecodeError" in headers["__connect.errors.exception.stacktrace"]


@pytest.mark.req("STRM-23")
def test_without_a_dead_letter_topic_rows_are_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    counts: dict[str, int] = {}

    def produce(*record: Any) -> None:
        raise AssertionError(record)

    letters = DeadLetterReporter(config(event__processing__failure__handling__mode="warn"), 0, produce, counts)
    for _ in range(200):
        letters.report("cap.db.t", bad_row(), context(), [])
    assert counts == {"cap.db.t" + SKIPPED_SUFFIX: 200}
    assert 0 < len(caplog.records) <= 100 and "table db.t, row 1" in caplog.text
    caplog.clear()
    quiet = DeadLetterReporter(config(event__processing__failure__handling__mode="ignore"), 0, produce, counts)
    quiet.report("cap.db.t", bad_row(), context(), [])
    assert caplog.text == "" and counts["cap.db.t" + SKIPPED_SUFFIX] == 201


def test_rows_are_left_out_only_when_asked_for() -> None:
    assert not DeadLetterReporter.enabled(config())
    assert DeadLetterReporter.enabled(config(event__deserialization__failure__handling__mode="warn"))


def test_a_snapshot_row_that_fails_is_named_by_its_key() -> None:
    decode_row = compile_text_decoder(
        table(column("id", "INT", nullable=False), column("t", "TIME", nullable=False), key=("id",)),
        replace(DEFAULT, time_mode="connect"),
        NO_SCHEMA,
    )
    with pytest.raises(ValueDecodeError, match="column t") as caught:
        decode_row(b"\x0242\x09100:00:00", 0, context(), [])
    assert caught.value.where == "binlog.000001:4, table db.t, key id=42"
