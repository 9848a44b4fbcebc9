"""What else contract 1.9 has otherwise than 3.x: floating point, unsigned BIGINT, names of schemas, side records."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from golden.contract_rig import OLD, created
from kit.cases import for_each
from kit.decode_builder import one_text, one_value

from airflow_provider_mysql_cdc.cdc.binlog.table_map import WireType
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.lexer import REAL_AS_FLOAT
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.decode import native_kernel, native_text
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.codegen.renderers import ColumnRequest
from airflow_provider_mysql_cdc.cdc.drain import side_records
from airflow_provider_mysql_cdc.cdc.emit.envelope import envelope_text
from airflow_provider_mysql_cdc.cdc.emit.heartbeat import heartbeat_record, transaction_record
from airflow_provider_mysql_cdc.cdc.emit.topic_names import heartbeat_topic
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table

NEW = replace(OLD, contract="3.x")
BASE = {"topic.prefix": "p-1", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}
# Statement's type, its type in contract 1.9 (TYPE-11 to TYPE-13; Debezium 1.9.7 for the synonyms) and in 3.x.
FLOATING = [
    ("REAL", "float", "double"),
    ("REAL(7,2)", "float", "double"),
    ("FLOAT", "double", "float"),
    ("FLOAT(7,2)", "double", "double"),
    ("FLOAT(24)", "double", "float"),
    ("FLOAT(25)", "double", "double"),
    ("FLOAT4", "double", "float"),
    ("FLOAT8", "double", "double"),
    ("DOUBLE", "double", "double"),
    ("DOUBLE(7,2)", "double", "double"),
    ("DOUBLE PRECISION", "double", "double"),
]


def only(ddl_type: str) -> Column:
    (column,) = created(f"CREATE TABLE t (c {ddl_type})").columns
    return column


def schema_of(table: Table, options: DecoderOptions) -> Any:
    schema = json.loads(envelope_text(table, options).value_schema or "")
    return schema["fields"][1]["fields"][0]


def both(column: Column, value: float, options: DecoderOptions) -> set[str]:
    """Return a value as the row image and as the snapshot give it."""
    single = column.type_name == "FLOAT"
    wire = (wt.FLOAT, 4) if single else (wt.DOUBLE, 8)
    stored = struct.pack("<f" if single else "<d", value)
    # What the snapshot selects: a double with all its digits.
    text = repr(struct.unpack("<f" if single else "<d", stored)[0]).encode()
    return {one_value(column, wire, stored, options), one_text(column, text, options)}


@pytest.mark.req("TYPE-11", "TYPE-12", "TYPE-13", "TYPE-69")
@for_each(("ddl_type", "old", "new"), FLOATING)
def test_types_of_floating_point_columns(ddl_type: str, old: str, new: str) -> None:
    table = created(f"CREATE TABLE t (c {ddl_type})")
    found = (schema_of(table, options) for options in (OLD, NEW))
    assert [f["type"] for f in found] == [old, new]


@pytest.mark.req("TYPE-11", "TYPE-12", "TYPE-13")
@for_each(("ddl_type", "old", "new"), FLOATING)
def test_values_of_floating_point_columns_are_of_their_type_in_stream_and_snapshot(
    ddl_type: str, old: str, new: str
) -> None:
    """A FLOAT widened to a double shows all digits of its 4 bytes; a narrowed DOUBLE shows the float's fewest."""
    column = only(ddl_type)
    stored = 1.100000023841858 if column.type_name == "FLOAT" else 1.1
    assert both(column, 1.1, OLD) == {repr(stored) if old == "double" else "1.1"}
    assert both(column, 1.1, NEW) == {repr(stored) if new == "double" else "1.1"}


@pytest.mark.req("TYPE-11")
@for_each(
    ("value", "written"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (16777217.0, "1.6777216E7"),
        (3.141592653589793, "3.1415927"),
        (-123456.789, "-123456.79"),
        (1e-300, "0.0"),
        (1e-45, "1.4E-45"),
        (3.4028234663852886e38, "3.4028235E38"),
        (9.9999999e9, "1.0E10"),
    ],
)
def test_real_is_rounded_to_the_nearest_float(value: float, written: str) -> None:
    assert both(only("REAL"), value, OLD) == {written}


@pytest.mark.req("TYPE-11", "STRM-23")
@pytest.mark.parametrize("value", [1e300, -3.5e38])
def test_a_real_beyond_a_float_is_an_error_and_not_infinity(value: float) -> None:
    column = only("REAL")
    for attempt in (
        lambda: one_value(column, (wt.DOUBLE, 8), struct.pack("<d", value), OLD),
        lambda: one_text(column, repr(value).encode(), OLD),
    ):
        with pytest.raises(ValueDecodeError, match="beyond what a 4-byte float holds"):
            attempt()


@pytest.mark.req("TYPE-11")
def test_real_follows_the_statement_where_mysql_stores_a_float() -> None:
    session = DdlContext(default_db="inventory", sql_mode=REAL_AS_FLOAT)
    (table,) = apply_ddl(SchemaState(), "CREATE TABLE t (c REAL)", session).state.tables.values()
    (column,) = table.columns
    assert column.type_name == "FLOAT"
    assert schema_of(table, OLD)["type"] == "float"
    assert both(column, 1.1, OLD) == both(column, 1.1, NEW) == {"1.1"}


@pytest.mark.req("TYPE-11", "TYPE-12")
def test_defaults_of_floating_point_columns_are_of_their_type() -> None:
    real, single = (created(f"CREATE TABLE t (c {t} DEFAULT 3.14159265358)") for t in ("REAL", "FLOAT"))
    assert (schema_of(real, OLD)["default"], schema_of(real, NEW)["default"]) == (3.1415927, 3.14159265358)
    assert (schema_of(single, NEW)["default"], schema_of(single, OLD)["default"]) == (3.1415927, 3.14159265358)


@pytest.mark.req("TYPE-59", "TYPE-55")
def test_unsigned_bigint_as_decimal_has_a_scale_only() -> None:
    table = created("CREATE TABLE t (c BIGINT UNSIGNED)")
    old, new = (schema_of(table, replace(o, bigint_unsigned_mode="precise")) for o in (OLD, NEW))
    assert old["parameters"] == {"scale": "0"}
    assert new["parameters"] == {"scale": "0", "connect.decimal.precision": "20"}
    decimal = created("CREATE TABLE t (c DECIMAL(10,4))")
    assert schema_of(decimal, OLD) == schema_of(decimal, NEW)


@pytest.mark.req("EVT-04", "EVT-06", "EVT-07", "DIS-27")
@for_each(
    ("properties", "name"),
    [
        ({"event.contract": "1.9"}, "p_1.my_db.t_x"),
        ({"event.contract": "1.9", "schema.name.adjustment.mode": "none"}, "p-1.my-db.t x"),
        ({}, "p-1.my-db.t_x"),
        ({"schema.name.adjustment.mode": "avro"}, "p_1.my_db.t_x"),
    ],
)
def test_schema_names_are_adjusted_by_default_in_contract_1_9(properties: dict[str, str], name: str) -> None:
    """The envelope is named by the topic in any case; in 1.9 the others by the table (read from Debezium 1.9.7)."""
    cfg = ConnectorConfig.from_properties(BASE | properties)
    (table,) = apply_ddl(
        SchemaState(), "CREATE TABLE `my-db`.`t x` (i INT PRIMARY KEY)", DdlContext()
    ).state.tables.values()
    text = table_options.envelope_text(cfg, table, table_options.table_options(cfg, table))
    value = json.loads(text.value_schema or "")
    assert json.loads(text.key_schema or "")["name"] == f"{name}.Key"
    assert {f["name"] for f in value["fields"][:2]} == {f"{name}.Value"}
    assert value["name"] == f"{name.replace(' ', '_')}.Envelope"


@pytest.mark.req("EVT-04")
@pytest.mark.parametrize(("contract", "name"), [("1.9", "_srv.inventory.t.Key"), ("3.x", "_1srv.inventory.t.Key")])
def test_a_leading_digit_becomes_an_underscore_in_contract_1_9(contract: str, name: str) -> None:
    options = replace(OLD, contract=contract, prefix="1srv", schema_names="avro")
    text = envelope_text(created("CREATE TABLE t (i INT PRIMARY KEY)"), options)
    assert json.loads(text.key_schema or "")["name"] == name


@pytest.mark.req("TOPIC-09", "STRM-28")
def test_heartbeats_have_schemas_without_versions() -> None:
    cfg = ConnectorConfig.from_properties(BASE | {"event.contract": "1.9"})
    topic, key, value, _ = side_records.heartbeat(cfg)
    assert topic == heartbeat_topic("p-1") == "__debezium-heartbeat.p-1"
    names = ("io.debezium.connector.common.ServerNameKey", "io.debezium.connector.common.Heartbeat")
    for data, name in zip((key, value), names, strict=True):
        schema = json.loads(data or b"")["schema"]
        assert schema["name"] == name and "version" not in schema
    assert [json.loads(d)["schema"]["version"] for d in heartbeat_record("p", 0)] == [1, 1]


@pytest.mark.req("TXN-03", "TXN-05", "TXN-06")
def test_transaction_records_have_schemas_without_versions() -> None:
    key, value = (json.loads(d)["schema"] for d in transaction_record("u:1", 0, {"d.t": 1}, recent=False))
    assert key == {
        "type": "struct",
        "fields": [{"type": "string", "optional": False, "field": "id"}],
        "optional": False,
        "name": "io.debezium.connector.common.TransactionMetadataKey",
    }
    assert value["name"] == "io.debezium.connector.common.TransactionMetadataValue" and "version" not in value
    collections = value["fields"][-1]
    assert (collections["field"], collections["optional"]) == ("data_collections", True)
    assert collections["items"] == {
        "type": "struct",
        "fields": [
            {"type": "string", "optional": False, "field": "data_collection"},
            {"type": "int64", "optional": False, "field": "event_count"},
        ],
        "optional": False,
    }


@pytest.mark.req("TXN-06", "CFG-72")
def test_the_old_names_of_the_topics_properties_are_read() -> None:
    old = {"transaction.topic": "${database.server.name}.tx", "heartbeat.topics.prefix": "beat"}
    named = {"database.server.name": "p-1", **{k: v for k, v in BASE.items() if k != "topic.prefix"}}
    cfg = ConnectorConfig.from_properties(named | old | {"event.contract": "1.9"})
    assert (cfg.topic_prefix, cfg[F.TOPIC_TRANSACTION], cfg[F.TOPIC_HEARTBEAT_PREFIX]) == ("p-1", "tx", "beat")


@dataclass
class At:
    """Stand for the writer's place in a transaction."""

    gtid: str | None = "u:1"
    commit_us: int = 5_000_000
    thread: int = 7
    query: str | None = None


@pytest.mark.req("EVT-34", "TXN-09")
@pytest.mark.parametrize(("metadata", "more"), [("false", ["transaction"]), ("true", ["transaction"])])
def test_a_truncate_event_has_the_members_of_its_schema(metadata: str, more: list[str]) -> None:
    properties = {"event.contract": "1.9", "provide.transaction.metadata": metadata, "skipped.operations": "none"}
    event: Any = SimpleNamespace(timestamp=5, server_id=1, file="b.000001", start_pos=4)
    table = created("CREATE TABLE t (i INT)")
    data = side_records.truncate_value(ConnectorConfig.from_properties(BASE | properties), table, event, At())
    value = json.loads(data)
    assert list(value["payload"]) == ["before", "after", "source", "op", "ts_ms", *more]
    assert list(value["payload"]) == [f["field"] for f in value["schema"]["fields"]]


TIMESTAMPS = [
    (0, 1704164645, 0, "2024-01-02 03:04:05", "2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z"),
    (1, 1704164645, 0, "2024-01-02 03:04:05.0", "2024-01-02T03:04:05Z", "2024-01-02T03:04:05.0Z"),
    (3, 1704164645, 1200, "2024-01-02 03:04:05.120", "2024-01-02T03:04:05.12Z", "2024-01-02T03:04:05.120Z"),
    (4, 1704164640, 20, "2024-01-02 03:04:00.0020", "2024-01-02T03:04:00.002Z", "2024-01-02T03:04:00.0020Z"),
    (6, 1704164640, 0, "2024-01-02 03:04:00.000000", "2024-01-02T03:04:00Z", "2024-01-02T03:04:00.000000Z"),
    (6, 1704164645, 100, "2024-01-02 03:04:05.000100", "2024-01-02T03:04:05.0001Z", "2024-01-02T03:04:05.000100Z"),
]


@pytest.mark.req("TYPE-30")
@for_each(("digits", "seconds", "fraction", "text", "old", "new"), TIMESTAMPS)
def test_the_text_of_a_timestamp_has_no_zeros_at_the_end_of_its_fraction(
    digits: int, seconds: int, fraction: int, text: str, old: str, new: str
) -> None:
    """Debezium 1.9.7 writes it so in snapshot, stream and defaults, 3.6.1 with the column's digits."""
    column = only(f"TIMESTAMP({digits}) NULL DEFAULT '{text}'")
    stored = struct.pack(">I", seconds) + fraction.to_bytes((digits + 1) // 2, "big")
    for options, written in ((OLD, old), (NEW, new)):
        found = {one_value(column, (wt.TIMESTAMP2, digits), stored, options), one_text(column, text.encode(), options)}
        assert found == {f'"{written}"'}
        table = created(f"CREATE TABLE t (c TIMESTAMP({digits}) NULL DEFAULT '{text}')")
        assert schema_of(table, options)["default"] == written


@pytest.mark.req("TYPE-30")
def test_the_kernel_leaves_the_texts_of_old_timestamps_to_python() -> None:
    for digits, known in ((0, True), (3, False)):
        column = only(f"TIMESTAMP({digits}) NULL")
        request = ColumnRequest(column, WireType(wt.TIMESTAMP2, digits), OLD, "null")
        assert (native_kernel.binlog_op(request) is not None) is known
        if known:
            native_text.text_op(column, OLD, "null")
        else:
            with pytest.raises(Declined, match="no zeros at its end"):
                native_text.text_op(column, OLD, "null")
