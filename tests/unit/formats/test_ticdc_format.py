"""From the events of decoders to TiCDC's records: keys, values, deletes and partitions."""

from __future__ import annotations

import io
import json
import struct
from types import SimpleNamespace
from typing import Any

import fastavro
import pytest
from kit.cases import for_each
from kit.decode_builder import body, column, context, image, table, table_map
from unit.config.test_ticdc_properties import TICDC

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.emit import source_block as source
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, ValueDecodeError
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.formats import ticdc_format as ticdc_forms
from airflow_provider_mysql_cdc.cdc.formats.ticdc_format import TicdcFormat
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.connection import SchemaId
from airflow_provider_mysql_cdc.cdc.model.table import Table
from airflow_provider_mysql_cdc.cdc.ticdc.commit_ts import commit_ts

T = table(column("id", "INT", nullable=False), column("n", "INT", nullable=False), key=("id",))
WIRES = table_map((wt.LONG, 0), (wt.LONG, 0))
US = 1_700_000_000_123_456
ORDER = str(commit_ts(US, 7).value)


class Registry:
    """Give each schema an id, and read what was written with it."""

    def __init__(self) -> None:
        self.schemas: list[tuple[str, str, str]] = []

    def ask(self, part: str, subject: str, text: str, about: str) -> SchemaId:
        self.schemas.append((subject, text, about))
        return SchemaId(len(self.schemas))

    def read(self, data: bytes | None) -> Any:
        if data is None:
            return None
        schema = fastavro.parse_schema(json.loads(self.schemas[int.from_bytes(data[1:5], "big") - 1][1]))
        return fastavro.schemaless_reader(io.BytesIO(data[5:]), schema, None)


def made(rule: dict[str, Any] | None = None, of: Table = T, **more: str) -> tuple[TicdcFormat, Registry, Any]:
    """Return the form of a table, its registry, and the function that decodes an event of a kind."""
    given = TICDC | more
    if rule is not None:
        given |= {"dispatchers": json.dumps([{"matcher": ["*.*"], "topic": "{schema}{table}", **rule}])}
    cfg, registry = ConnectorConfig.from_properties(given), Registry()
    options = table_options.table_options(cfg, of)
    decoder = compile_decoder(of, WIRES, options, EnvelopeText())

    def decode(kind: str, *rows: bytes, order: str = ORDER, present: bytes = b"\xff") -> list[Any]:
        out: list[Any] = []
        ctx = context(transaction=order)
        ctx.src_head = f'{{"ts_us":{US},"row":'
        images = 2 if kind == "update" else 1
        buf, pos, end = body(*rows, columns=2, images=images)
        buf = buf[: pos - images] + present * images + buf[pos:]
        getattr(decoder, kind)(buf, pos, end, ctx, out)
        return out

    return TicdcFormat(cfg, of, options, "topic", registry.ask), registry, decode


def row(*values: int) -> bytes:
    return image(2, struct.pack("<2i", *values))


@pytest.mark.req("AVRO-02", "AVRO-08", "AVRO-58")
def test_schemas_are_registered_under_the_topics_subjects_when_the_form_is_made() -> None:
    _, registry, _ = made()
    assert [(subject, about) for subject, _, about in registry.schemas] == [
        ("topic-key", "table db.t"),
        ("topic-value", "table db.t"),
    ]


@pytest.mark.req("AVRO-10", "AVRO-11", "AVRO-13")
def test_inserts_updates_deletes_and_changed_keys() -> None:
    form, registry, decode = made(**{"enable-tidb-extension": "true"})
    rows = [
        *decode("write", row(1, 5)),
        *decode("update", row(1, 5) + row(1, 6)),
        *decode("update", row(1, 6) + row(2, 6)),
        *decode("delete", row(2, 6)),
    ]
    found = [(registry.read(key), registry.read(value), header) for key, value, _, _, header, _ in form.records(rows)]
    at = commit_ts(US, 7)
    stamp = {"_tidb_commit_ts": at.value, "_tidb_commit_physical_time": US // 1000}
    assert found == [
        ({"id": 1}, {"id": 1, "n": 5, "_tidb_op": "c", **stamp}, None),
        ({"id": 1}, {"id": 1, "n": 6, "_tidb_op": "u", **stamp}, None),
        ({"id": 1}, None, None),
        ({"id": 2}, {"id": 2, "n": 6, "_tidb_op": "c", **stamp}, None),
        ({"id": 2}, None, None),
    ]


def test_records_are_the_same_where_events_tell_no_more_of_their_source_than_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    form, _, _ = made(**{"enable-tidb-extension": "true"})
    cfg = ConnectorConfig.from_properties(TICDC)
    decoder = compile_decoder(T, WIRES, table_options.table_options(cfg, T), EnvelopeText())
    monkeypatch.setattr(source.time, "time_ns", lambda: US * 1000)
    event: Any = SimpleNamespace(timestamp=5, server_id=1, file="binlog.000007", start_pos=4711)
    block, whole, little = (
        table_options.table_source_block(cfg, T.id),
        context(transaction="7"),
        context(transaction="7"),
    )
    for commit_us in (US, 0):
        at: Any = SimpleNamespace(gtid=None, commit_us=commit_us, thread=9, query=None)
        source.fill(whole, block, event, at)
        source.fill_time(little, block, event, at)
        assert len(little.src_head) < len(whole.src_head) and little.where == whole.where
        for kind, *rows in (("write", row(1, 5)), ("update", row(1, 5) + row(2, 6)), ("delete", row(2, 6))):
            found = []
            for ctx in (whole, little):
                out: list[Any] = []
                getattr(decoder, kind)(*body(*rows, columns=2, images=2 if kind == "update" else 1), ctx, out)
                found.append(list(form.records(out)))
            assert found[0] == found[1]
        told, again = little.as_json(), whole.as_json()
        assert (told.src_head, told.src_tail, told.tail) == (again.src_head, again.src_tail, again.tail)
    source.fill(little, block, event, at)
    assert little.as_json() is little


def test_a_table_without_a_key_has_null_keys() -> None:
    form, registry, decode = made(of=table(*T.columns))
    ((key, value, *_),) = form.records(decode("write", row(1, 5)))
    assert key is None and registry.read(value) == {"id": 1, "n": 5}
    assert [subject for subject, _, _ in registry.schemas] == ["topic-value"]


@for_each(
    ("rule", "together"),
    [
        ({"partition": "table"}, lambda id_, n, order: 0),
        ({"partition": "index-value"}, lambda id_, n, order: id_),
        ({"partition": "columns", "columns": ["n"]}, lambda id_, n, order: n),
        ({"partition": "ts"}, lambda id_, n, order: order),
    ],
)
def test_rows_are_spread_as_the_dispatcher_says(rule: dict[str, Any], together: Any) -> None:
    form, _, decode = made(rule)
    seen: dict[int, set[int]] = {}
    for id_ in range(12):
        for n in range(3):
            for order in (1, 2):
                for kind in ("write", "delete"):
                    ((key, value, *_),) = decode(kind, row(id_, n), order=str(order))
                    part = form.partition(form.key_bytes(key), key, value, 1 << 30)
                    seen.setdefault(together(id_, n, order), set()).add(part)
    assert all(len(parts) == 1 for parts in seen.values())
    assert len({part for parts in seen.values() for part in parts}) == len(seen)


def test_a_dispatcher_for_a_column_that_is_excluded_is_named() -> None:
    rule = {"partition": "columns", "columns": ["n"]}
    with pytest.raises(ConfigError, match=r"does not have: n .*table db\.t"):
        made(rule, **{"column.exclude.list": "db.t.n"})


def test_a_value_that_does_not_fit_is_named() -> None:
    form, _, _ = made()
    with pytest.raises(ValueDecodeError, match=r"table db\.t.*column n is NULL"):
        form.value_bytes(b'{"op":"c","after":{"id":1,"n":null}}')


def test_a_record_is_read_once_for_its_partition_and_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []
    plain = ticdc_forms.parse_payload
    monkeypatch.setattr(ticdc_forms, "parse_payload", lambda data: read.append(data) or plain(data))
    for rule in ({"partition": "index-value"}, {"partition": "columns", "columns": ["n"]}, {"partition": "ts"}):
        form, registry, decode = made(rule)
        for id_ in (1, 2):
            ((key, value, *_),) = decode("write", row(id_, 5))
            read.clear()
            form.partition(form.key_bytes(key), key, value, 3)
            assert registry.read(form.value_bytes(value)) == {"id": id_, "n": 5}
            assert read == [key, value]


@pytest.mark.parametrize(("rule", "sure"), [({"partition": "columns", "columns": ["n"]}, False), ({}, True)])
def test_a_deleted_row_whose_image_lacks_what_decides_has_no_partition(rule: dict[str, Any], sure: bool) -> None:
    form, _, decode = made(rule)
    key_alone = image(1, struct.pack("<i", 1))
    ((key, value, *_),) = decode("delete", key_alone, present=b"\x01")
    name = form.key_bytes(key)
    assert form.value_bytes(value) is None
    if sure:
        assert form.partition(name, key, value, 8) in range(8)
    else:
        with pytest.raises(ValueDecodeError, match=r"a deleted row of table db\.t cannot.*binlog_row_image"):
            form.partition(name, key, value, 8)
