"""Records as Avro: wire format, subjects, key or value alone, and what stays as it is."""

from __future__ import annotations

import io
import json
from typing import Any
from uuid import UUID

import fastavro
import pytest
from avrolib.fake_registry import guid_of
from kit.avro_rig import avro
from kit.create_statement import parse_create

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.drain.side_records import heartbeat
from airflow_provider_mysql_cdc.cdc.errors import SchemaError, ValueDecodeError
from airflow_provider_mysql_cdc.cdc.formats import record_topics, table_options
from airflow_provider_mysql_cdc.cdc.formats.record_formats import AvroSerializer, RecordFormats
from airflow_provider_mysql_cdc.cdc.model.connection import SchemaId
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import Table

pytestmark = pytest.mark.quick

BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}
AVRO = avro("http://registry:1")
CREATE = "CREATE TABLE t (id INT PRIMARY KEY, note VARCHAR(20) DEFAULT 'none')"


class Asked:
    """Gives ids from 7 on, or GUIDs, and remembers what it was asked for."""

    def __init__(self, *, guids: bool = False) -> None:
        self._guids = guids
        self.schemas: list[tuple[str, str, str]] = []

    def __call__(self, part: str, subject: str, text: str, about: str) -> SchemaId:
        self.schemas.append((part, subject, text))
        return SchemaId(6 + len(self.schemas), guid_of(text) if self._guids else None)


def config(**given: str) -> ConnectorConfig:
    return ConnectorConfig.from_properties(BASE | {name.replace("_", "."): value for name, value in given.items()})


def table(sql: str = CREATE) -> Table:
    return parse_create(sql, DdlContext(default_db="shop"))


def form_of(cfg: ConnectorConfig, made: Table) -> tuple[Any, Asked]:
    asked = Asked()
    forms = RecordFormats.from_config(cfg, asked)
    assert forms is not None
    return forms.table_format(
        made, table_options.table_options(cfg, made), record_topics.table_topic_name(cfg, made.id)
    ), asked


def test_the_bytes_are_magic_id_and_value():
    form, asked = form_of(ConnectorConfig.from_properties(BASE | AVRO), table())
    assert form.key_bytes(b'{"id":5}') == b"\x00\x00\x00\x00\x07\x0a"
    assert [(part, subject) for part, subject, _ in asked.schemas] == [
        ("key", "p.shop.t-key"), ("value", "p.shop.t-value"),
    ]  # fmt: skip
    assert form.key_bytes(None) is None
    assert form.value_bytes(None) is None
    value = {"before": None, "after": {"id": 5, "note": None}, "source": SOURCE, "op": "c", "ts_ms": 1}
    data = form.value_bytes(json.dumps(value).encode())
    assert data[:5] == b"\x00\x00\x00\x00\x08"
    parsed = fastavro.parse_schema(json.loads(asked.schemas[1][2]))
    read = fastavro.schemaless_reader(io.BytesIO(data[5:]), parsed)
    assert (read["after"], read["op"], read["before"]) == ({"id": 5, "note": None}, "c", None)


SOURCE = {
    "version": "3", "connector": "mysql", "name": "p", "ts_ms": 1, "db": "shop", "server_id": 1, "file": "b", "pos": 4,
    "row": 0, "ts_us": 1, "ts_ns": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("strategy", "subjects"),
    [
        ("TopicNameStrategy", ["p.shop.t-key", "p.shop.t-value"]),
        ("RecordNameStrategy", ["p.shop.t.Key", "p.shop.t.Envelope"]),
        (
            "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy",
            ["p.shop.t-p.shop.t.Key", "p.shop.t-p.shop.t.Envelope"],
        ),
    ],
)
def test_subjects(strategy, subjects):
    named = {f"{part}.converter.{part}.subject.name.strategy": strategy for part in ("key", "value")}
    _, asked = form_of(ConnectorConfig.from_properties(BASE | AVRO | named), table())
    assert [subject for _, subject, _ in asked.schemas] == subjects


def test_keys_or_values_alone():
    form, asked = form_of(ConnectorConfig.from_properties(BASE | avro("http://r:1", "value")), table())
    assert form.key_bytes(b'{"schema":..}') == b'{"schema":..}'
    assert [part for part, _, _ in asked.schemas] == ["value"]
    assert RecordFormats.from_config(ConnectorConfig.from_properties(BASE), asked) is None


def test_a_table_without_a_key_has_no_schema_of_keys():
    form, asked = form_of(ConnectorConfig.from_properties(BASE | AVRO), table("CREATE TABLE t (a INT)"))
    assert form.key is None
    assert [part for part, _, _ in asked.schemas] == ["value"]


def test_null_stays_null_unless_confluents_default_is_asked_for():
    kept = ConnectorConfig.from_properties(BASE | AVRO)
    assert not table_options.decoder_options(kept).replace_null_with_default
    given = {"value.converter.ignore.default.for.nullables": "false"}
    assert table_options.decoder_options(ConnectorConfig.from_properties(BASE | AVRO | given)).replace_null_with_default


def test_without_meta_data_the_schema_is_plain():
    given = {f"{part}.converter.connect.meta.data": "false" for part in ("key", "value")}
    _, asked = form_of(ConnectorConfig.from_properties(BASE | AVRO | given), table())
    assert not any("connect." in text for _, _, text in asked.schemas)
    assert '"default":"none"' in asked.schemas[1][2]


def test_a_name_that_avro_does_not_allow_stops_with_the_table():
    odd = table("CREATE TABLE t (`a-b` INT PRIMARY KEY)")
    with pytest.raises(SchemaError, match=r"table shop\.t, key.*field\.name\.adjustment\.mode"):
        form_of(ConnectorConfig.from_properties(BASE | AVRO), odd)
    form_of(ConnectorConfig.from_properties(BASE | AVRO | {"field.name.adjustment.mode": "avro"}), odd)


def test_a_value_that_does_not_fit_is_an_error_of_its_table():
    form, _ = form_of(ConnectorConfig.from_properties(BASE | AVRO), table())
    with pytest.raises(ValueDecodeError, match=r"table shop\.t.*id is null"):
        form.key_bytes(b"{}")


def test_records_other_than_rows_are_converted_and_those_of_the_ledger_are_not():
    cfg, asked = ConnectorConfig.from_properties(BASE | AVRO | {"heartbeat.interval.ms": "1"}), Asked()
    forms = RecordFormats(cfg, asked)
    beats = [heartbeat(cfg) for _ in range(3)]
    inner = [SideRecord(cfg.ledger_topic, b"k", b"{}"), SideRecord(cfg.history_topic, None, b"{}")]
    context = [("a", b"1")]
    found = forms.format_side_records([*(beat._replace(headers=context) for beat in beats), *inner])
    assert found[3:] == inner
    assert {key for _, key, _, _ in found[:3]} == {b"\x00\x00\x00\x00\x07\x02p"}
    assert all(value is not None and value[:5] == b"\x00\x00\x00\x00\x08" for _, _, value, _ in found[:3])
    assert all(headers is context for *_, headers in found[:3])
    assert [subject for _, subject, _ in asked.schemas] == [
        "__debezium-heartbeat.p-key", "__debezium-heartbeat.p-value",
    ]  # fmt: skip


def guid_header(part: str, text: str) -> tuple[str, bytes]:
    return f"__{part}_schema_id", b"\x01" + UUID(guid_of(text)).bytes


def test_guids_are_in_headers_after_the_others_and_nothing_is_before_the_bytes():
    cfg, asked = ConnectorConfig.from_properties(BASE | AVRO), Asked(guids=True)
    form = RecordFormats(cfg, asked).table_format(table(), table_options.table_options(cfg, table()), "p.shop.t")
    assert form.key_bytes(b'{"id":5}') == b"\x0a"
    assert form.prefixes(keyed=True) == ("", "")
    key, value = (guid_header(part, text) for part, _, text in asked.schemas)
    ids, before = form.id_headers(), [("__debezium.newkey", b"{}"), ("a", b"1")]
    assert ids is not None
    assert ids.append_to(before, b"k", b"v") == [*before, key, value]
    # Null has no schema: of a tombstone the key is told, of a table without a key the value.
    assert ids.append_to(before, b"k", None) == [*before, key]
    assert ids.append_to(before, None, b"v") == [*before, value]
    assert before == [("__debezium.newkey", b"{}"), ("a", b"1")]


def test_ids_before_the_bytes_need_no_headers():
    form, _ = form_of(ConnectorConfig.from_properties(BASE | AVRO), table())
    assert form.id_headers() is None


@pytest.mark.parametrize("part", ["key", "value"])
def test_guids_of_keys_or_of_values_alone(part):
    cfg, asked = ConnectorConfig.from_properties(BASE | AVRO), Asked()

    def ask(of: str, subject: str, text: str, about: str) -> SchemaId:
        found = asked(of, subject, text, about)
        return SchemaId(found.number, guid_of(text)) if of == part else found

    form = RecordFormats(cfg, ask).table_format(table(), table_options.table_options(cfg, table()), "p.shop.t")
    heads = form.prefixes(keyed=True)
    assert heads is not None
    assert {name for name, head in zip(("key", "value"), heads, strict=True) if not head} == {part}
    assert [name for name, _ in form.id_headers().append_to([], b"k", b"v")] == [f"__{part}_schema_id"]


def test_records_other_than_rows_have_guids_in_headers_too():
    cfg, asked = ConnectorConfig.from_properties(BASE | AVRO | {"heartbeat.interval.ms": "1"}), Asked(guids=True)
    forms, beat = RecordFormats(cfg, asked), heartbeat(cfg)
    for _ in range(2):  # the second time its schemas are known
        _, name, _, headers = forms.format_side_record(beat._replace(headers=[("a", b"1")]))
        told = [guid_header(part, text) for part, _, text in asked.schemas]
        assert (name, list(headers)) == (b"\x02p", [("a", b"1"), *told])
        assert forms.format_side_record(beat._replace(value=None)).headers == told[:1]
    assert len(asked.schemas) == 2
    inner = SideRecord(cfg.ledger_topic, b"k", b"{}")
    assert forms.format_side_records([inner]) == [inner]


def test_the_time_to_wait_for_ids_counts_both_registries():
    cfg = ConnectorConfig.from_properties(BASE | AVRO)
    assert RecordFormats(cfg, Asked()).max_wait_s == 2 * (4 * 10 + 1 + 2 + 4)


def test_text_that_is_no_json_is_named_like_a_value_that_does_not_fit() -> None:
    """Damaged values make such text; where bad rows are left out, this one is left out too."""
    form = AvroSerializer("", str, "db.t")
    for data in (b'{"a":1e}', b'{"a":"\xff"}', b""):
        with pytest.raises(ValueDecodeError, match=r"a record of db\.t cannot be written as Avro"):
            form.serialize_json(data)


def test_a_schema_of_somebody_else_is_compared_with_the_names_of_its_types():
    options = {"value.converter.connect.meta.data": "false"}
    made = table("CREATE TABLE t (id INT PRIMARY KEY, at DATETIME)")
    _, asked = form_of(ConnectorConfig.from_properties(BASE | AVRO | options), made)
    assert "io.debezium.time.Timestamp" not in asked.schemas[1][2]
    others = {"value.converter.use.latest.version": "true", "value.converter.auto.register.schemas": "false"}
    _, asked = form_of(ConnectorConfig.from_properties(BASE | AVRO | options | others), made)
    assert "io.debezium.time.Timestamp" in asked.schemas[1][2]


def test_a_name_that_begins_with_a_digit_is_refused_and_each_way_out_gives_a_valid_one():
    made = parse_create("CREATE TABLE `1t` (id INT PRIMARY KEY)", DdlContext(default_db="shop"))
    modes = {f"{name}.name.adjustment.mode": "avro" for name in ("schema", "field")}
    with pytest.raises(SchemaError, match="ByLogicalTableRouter") as found:
        form_of(ConnectorConfig.from_properties(BASE | AVRO | modes), made)
    assert "avro_unicode" in found.value.remedy
    router = {
        "transforms": "r",
        "transforms.r.type": "io.debezium.transforms.ByLogicalTableRouter",
        "transforms.r.topic.regex": "p\\.shop\\.1t",
        "transforms.r.topic.replacement": "p.shop.t1",
        "transforms.r.key.enforce.uniqueness": "false",
    }
    _, asked = form_of(ConnectorConfig.from_properties(BASE | AVRO | router), made)
    for _, _, text in asked.schemas:
        assert json.loads(text)["namespace"] == "p.shop.t1"
        fastavro.parse_schema(json.loads(text))
    arabic = parse_create("CREATE TABLE t (`\u0663a` INT PRIMARY KEY)", DdlContext(default_db="shop"))
    with pytest.raises(SchemaError, match="not ASCII"):
        form_of(ConnectorConfig.from_properties(BASE | AVRO | modes), arabic)
    unicode_modes = dict.fromkeys(modes, "avro_unicode")
    _, asked = form_of(ConnectorConfig.from_properties(BASE | AVRO | unicode_modes), arabic)
    assert [f["name"] for f in json.loads(asked.schemas[0][2])["fields"]] == ["_u663a"]
