"""Events as consumers meet them: schemas, keys and values of one table, from DDL and row bytes to record bytes."""

from __future__ import annotations

import json
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from golden.golden_data import real_schema, sample
from kit.cases import for_each
from kit.decode_builder import body, column, context, image, table, table_map, write

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EventContext
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import compile_text_decoder
from airflow_provider_mysql_cdc.cdc.emit.envelope import envelope_text
from airflow_provider_mysql_cdc.cdc.emit.source_block import fill
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId

BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}
TEMPORAL = ("DATE", "TIME(3)", "TIME(6)", "DATETIME(3)", "DATETIME(6)")
TIME_MODES = (
    "adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds",
)  # fmt: skip


def created(ddl: str) -> Table:
    """Return the table that a CREATE TABLE statement makes."""
    state = apply_ddl(SchemaState(), ddl, DdlContext(default_db="inventory")).state
    (made,) = state.tables.values()
    return made


def field_of(made: Table, options: DecoderOptions, name: str) -> dict[str, Any]:
    """Return the schema of a column in the after image, its own name left out."""
    schema = json.loads(envelope_text(made, options).value_schema or "")
    return next(
        {k: v for k, v in f.items() if k != "field"} for f in schema["fields"][1]["fields"] if f["field"] == name
    )


@pytest.mark.parametrize(
    ("declaration", "kind", "name", "options"),
    [
        pytest.param("BIT(1)", "boolean", None, {}, marks=pytest.mark.req("TYPE-04")),
        pytest.param("BIT(9)", "bytes", "io.debezium.data.Bits", {}, marks=pytest.mark.req("TYPE-05")),
        pytest.param("TINYINT", "int16", None, {}, marks=pytest.mark.req("TYPE-06")),
        pytest.param("SMALLINT(5)", "int16", None, {}, marks=pytest.mark.req("TYPE-07")),
        pytest.param("MEDIUMINT(7)", "int32", None, {}, marks=pytest.mark.req("TYPE-08")),
        pytest.param("INT", "int32", None, {}, marks=pytest.mark.req("TYPE-09")),
        pytest.param("INTEGER(9)", "int32", None, {}, marks=pytest.mark.req("TYPE-09")),
        pytest.param("BIGINT(20)", "int64", None, {}, marks=pytest.mark.req("TYPE-10")),
        pytest.param("CHAR(3)", "string", None, {}, marks=pytest.mark.req("TYPE-14")),
        pytest.param("VARCHAR(3)", "string", None, {}, marks=pytest.mark.req("TYPE-15")),
        pytest.param("BINARY(3)", "bytes", None, {}, marks=pytest.mark.req("TYPE-16")),
        pytest.param("VARBINARY(3)", "bytes", None, {}, marks=pytest.mark.req("TYPE-17")),
        pytest.param("JSON", "string", "io.debezium.data.Json", {}, marks=pytest.mark.req("TYPE-26")),
        pytest.param("ENUM('a','b')", "string", "io.debezium.data.Enum", {}, marks=pytest.mark.req("TYPE-27")),
        pytest.param("SET('a','b')", "string", "io.debezium.data.EnumSet", {}, marks=pytest.mark.req("TYPE-28")),
        pytest.param("YEAR", "int32", "io.debezium.time.Year", {}, marks=pytest.mark.req("TYPE-29")),
        pytest.param("TIMESTAMP(6)", "string", "io.debezium.time.ZonedTimestamp", {}, marks=pytest.mark.req("TYPE-30")),
        pytest.param("DATE", "int32", "io.debezium.time.Date", {}, marks=pytest.mark.req("TYPE-37")),
        pytest.param("TIME(3)", "int64", "io.debezium.time.MicroTime", {}, marks=pytest.mark.req("TYPE-38")),
        pytest.param("DATETIME", "int64", "io.debezium.time.Timestamp", {}, marks=pytest.mark.req("TYPE-39")),
        pytest.param("DATETIME(3)", "int64", "io.debezium.time.Timestamp", {}, marks=pytest.mark.req("TYPE-39")),
        pytest.param("DATETIME(4)", "int64", "io.debezium.time.MicroTimestamp", {}, marks=pytest.mark.req("TYPE-40")),
        pytest.param("DATETIME(6)", "int64", "io.debezium.time.MicroTimestamp", {}, marks=pytest.mark.req("TYPE-40")),
        pytest.param(
            "DATE",
            "int32",
            "org.apache.kafka.connect.data.Date",
            {"time_mode": "connect"},
            marks=pytest.mark.req("TYPE-43"),
        ),
        pytest.param(
            "TIME",
            "int32",
            "org.apache.kafka.connect.data.Time",
            {"time_mode": "connect"},
            marks=pytest.mark.req("TYPE-48"),
        ),
        pytest.param(
            "DATETIME(6)",
            "int64",
            "org.apache.kafka.connect.data.Timestamp",
            {"time_mode": "connect"},
            marks=pytest.mark.req("TYPE-45"),
        ),
        pytest.param(
            "DECIMAL(9,2)", "bytes", "org.apache.kafka.connect.data.Decimal", {}, marks=pytest.mark.req("TYPE-55")
        ),
        pytest.param("NUMERIC(9,2)", "double", None, {"decimal_mode": "double"}, marks=pytest.mark.req("TYPE-56")),
        pytest.param("DECIMAL(9,2)", "string", None, {"decimal_mode": "string"}, marks=pytest.mark.req("TYPE-57")),
        pytest.param("BIGINT UNSIGNED", "int64", None, {}, marks=pytest.mark.req("TYPE-58")),
        pytest.param(
            "BIGINT UNSIGNED",
            "bytes",
            "org.apache.kafka.connect.data.Decimal",
            {"bigint_unsigned_mode": "precise"},
            marks=pytest.mark.req("TYPE-59"),
        ),
        pytest.param("POINT", "struct", "io.debezium.data.geometry.Point", {}, marks=pytest.mark.req("TYPE-68")),
        pytest.param("GEOMETRY", "struct", "io.debezium.data.geometry.Geometry", {}, marks=pytest.mark.req("TYPE-66")),
        pytest.param(
            "LINESTRING", "struct", "io.debezium.data.geometry.Geometry", {}, marks=pytest.mark.req("TYPE-66")
        ),
        pytest.param("POLYGON", "struct", "io.debezium.data.geometry.Geometry", {}, marks=pytest.mark.req("TYPE-66")),
        pytest.param(
            "MULTIPOINT", "struct", "io.debezium.data.geometry.Geometry", {}, marks=pytest.mark.req("TYPE-66")
        ),
        pytest.param(
            "MULTILINESTRING", "struct", "io.debezium.data.geometry.Geometry", {}, marks=pytest.mark.req("TYPE-66")
        ),
        pytest.param(
            "MULTIPOLYGON", "struct", "io.debezium.data.geometry.Geometry", {}, marks=pytest.mark.req("TYPE-66")
        ),
        pytest.param(
            "GEOMETRYCOLLECTION", "struct", "io.debezium.data.geometry.Geometry", {}, marks=pytest.mark.req("TYPE-66")
        ),
    ],
)
def test_each_type_has_the_schema_of_the_manuals(
    declaration: str, kind: str, name: str | None, options: dict[str, Any]
) -> None:
    made = created(f"CREATE TABLE t (c {declaration})")
    field = field_of(made, DecoderOptions(prefix="p", **options), "c")
    assert (field["type"], field.get("name")) == (kind, name)


@pytest.mark.req("EVT-11", "EX-05")
def test_the_key_of_the_sample_comes_out_byte_for_byte() -> None:
    made = created("CREATE TABLE customers (id INTEGER NOT NULL AUTO_INCREMENT PRIMARY KEY, first_name VARCHAR(255))")
    options = DecoderOptions(contract="1.9", prefix="mysql-server-1")
    texts = envelope_text(made, options)
    decoder = compile_decoder(made, table_map((wt.LONG, 0), (wt.VARCHAR, 1020)), options, texts)
    (record,) = write(decoder, image(2, struct.pack("<i", 1001), nulls=2), columns=2)
    theirs = sample("EX-05")
    assert record[0].decode() == dumps({**theirs, "schema": real_schema(theirs["schema"])})
    (field,) = json.loads(record[0])["schema"]["fields"]
    assert (field["field"], field["type"], field["optional"]) == ("id", "int32", False)


@pytest.mark.req("EVT-18", "EVT-03")
@pytest.mark.parametrize("contract", ["3.x", "1.9"])
def test_all_operations_of_a_table_carry_one_value_schema(contract: str) -> None:
    made = table(column("id", "INT", nullable=False), key=("id",))
    options = DecoderOptions(contract=contract, prefix="p")
    decoder = compile_decoder(made, table_map((wt.LONG, 0)), options, envelope_text(made, options))
    one, two = (image(1, struct.pack("<i", n)) for n in (1, 2))
    records: list[Any] = []
    buf, pos, end = body(one, columns=1)
    decoder.write(buf, pos, end, context(), records)
    decoder.delete(buf, pos, end, context(), records)
    for rows in ((one, one), (one, two)):
        buf, pos, end = body(*rows, columns=1, images=2)
        decoder.update(buf, pos, end, context(), records)
    compile_text_decoder(made, options, envelope_text(made, options))(b"\x011", 0, context(), records)
    values = [json.loads(r[1]) for r in records if r[1] is not None]
    assert [v["payload"]["op"] for v in values] == ["c", "d", "u", "d", "c", "r"]
    assert len({dumps(v["schema"]) for v in values}) == 1
    assert all(json.loads(r[0])["payload"]["id"] in (1, 2) for r in records), "every event has its key"


@pytest.mark.req("EVT-19")
def test_row_schemas_are_named_by_source_database_and_table() -> None:
    def row_names(prefix: str, name: str) -> set[str]:
        made = created(f"CREATE TABLE {name} (id INT PRIMARY KEY)")
        schema = json.loads(envelope_text(made, DecoderOptions(prefix=prefix)).value_schema or "")
        return {f["name"] for f in schema["fields"][:2]}

    assert row_names("fulfillment", "customers") == {"fulfillment.inventory.customers.Value"}
    names = [row_names(prefix, name).pop() for prefix in ("a", "b") for name in ("t", "u")]
    assert len(set(names)) == 4, "each table of each source has a schema history of its own in a registry"


@pytest.mark.req("EVT-34")
def test_the_operations_that_the_manuals_can_skip_are_known() -> None:
    """Truncate events, which no seed describes, are left out unless asked for."""
    cfg = ConnectorConfig.from_properties(BASE)
    assert table_options.decoder_options(cfg).skipped_ops == {"t"}
    cfg = ConnectorConfig.from_properties(BASE | {"skipped.operations": "c,u,d"})
    assert table_options.decoder_options(cfg).skipped_ops == {"c", "u", "d"}


@pytest.mark.req("TYPE-03", "TYPE-60", "TYPE-61")
def test_boolean_columns_of_a_create_table_in_the_stream() -> None:
    """SHOW CREATE TABLE, which a snapshot reads, knows TINYINT(1) only."""
    made = created("CREATE TABLE t (a BOOLEAN, b BOOL NOT NULL DEFAULT TRUE, c TINYINT(1))")
    options = DecoderOptions(prefix="p")
    assert field_of(made, options, "a") == {"type": "boolean", "optional": True}
    assert field_of(made, options, "b") == {"type": "boolean", "optional": False, "default": True}
    assert field_of(made, options, "c") == {"type": "int16", "optional": True}
    decoder = compile_decoder(made, table_map(*((wt.TINY, 0),) * 3), options, envelope_text(made, options))
    (record,) = write(decoder, image(3, b"\x01\x00\x01"), columns=3)
    assert json.loads(record[1])["payload"]["after"] == {"a": True, "b": False, "c": 1}


BLOBS = ("TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB")
TEXTS = ("TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT")


@pytest.mark.req("TYPE-18", "TYPE-20", "TYPE-22", "TYPE-24")
@for_each("size", range(1, 5))
@for_each(
    ("mode", "type_name", "written"),
    [
        ("bytes", "bytes", "+/8="),
        ("base64", "string", "+/8="),
        ("base64-url-safe", "string", "-_8="),
        ("hex", "string", "fbff"),
    ],
)
def test_blobs_are_bytes_or_strings_by_mode(size: int, mode: str, type_name: str, written: str) -> None:
    name = BLOBS[size - 1]
    made, options = created(f"CREATE TABLE t (c {name})"), DecoderOptions(prefix="p", binary_mode=mode)
    assert field_of(made, options, "c") == {"type": type_name, "optional": True}
    decoder = compile_decoder(made, table_map((wt.BLOB, size)), options, envelope_text(made, options))
    (record,) = write(decoder, image(1, (2).to_bytes(size, "little") + b"\xfb\xff"), columns=1)
    assert json.loads(record[1])["payload"]["after"] == {"c": written}


@pytest.mark.req("TYPE-19", "TYPE-21", "TYPE-23", "TYPE-25")
@for_each("size", range(1, 5))
@for_each("mode", ["bytes", "hex"])
def test_texts_are_strings_whatever_the_binary_mode(size: int, mode: str) -> None:
    name = TEXTS[size - 1]
    made = created(f"CREATE TABLE t (c {name} CHARACTER SET utf8mb4)")
    options = DecoderOptions(prefix="p", binary_mode=mode)
    assert field_of(made, options, "c") == {"type": "string", "optional": True}
    decoder = compile_decoder(made, table_map((wt.BLOB, size)), options, envelope_text(made, options))
    raw = "ü中".encode()
    (record,) = write(decoder, image(1, len(raw).to_bytes(size, "little") + raw), columns=1)
    assert json.loads(record[1])["payload"]["after"] == {"c": "ü中"}


@pytest.mark.req("TYPE-24", "TYPE-25", "TYPE-32")
@pytest.mark.parametrize(("name", "written"), [("LONGBLOB", "eHh4"), ("LONGTEXT", "xxx")])
def test_values_longer_than_a_network_packet_are_read_whole(name: str, written: str) -> None:
    """A length beyond three bytes, 18 MB; what Kafka takes is said by the writer (RecordTooLargeError)."""
    made, options = created(f"CREATE TABLE t (c {name} CHARACTER SET utf8mb4)"), DecoderOptions(prefix="p")
    if name == "LONGBLOB":
        made = created("CREATE TABLE t (c LONGBLOB)")
    decoder = compile_decoder(made, table_map((wt.BLOB, 4)), options, envelope_text(made, options))
    count = 6 << 20
    (record,) = write(decoder, image(1, (3 * count).to_bytes(4, "little") + b"xxx" * count), columns=1)
    assert json.loads(record[1])["payload"]["after"]["c"] == written * count


@pytest.mark.req("TYPE-36")
def test_every_temporal_type_but_timestamp_follows_the_mode() -> None:
    columns = ", ".join(f"c{i} {t}" for i, t in enumerate((*TEMPORAL, "TIMESTAMP(3) NULL", "TIMESTAMP(6) NULL")))
    made = created(f"CREATE TABLE t ({columns})")
    seen: dict[int, set[str]] = {}
    for mode in TIME_MODES:
        for i in range(len(TEMPORAL) + 2):
            seen.setdefault(i, set()).add(dumps(field_of(made, DecoderOptions(prefix="p", time_mode=mode), f"c{i}")))
    zoned = {dumps({"type": "string", "optional": True, "name": "io.debezium.time.ZonedTimestamp", "version": 1})}
    assert seen.pop(len(TEMPORAL)) == seen.pop(len(TEMPORAL) + 1) == zoned
    assert all(len(schemas) >= 3 for schemas in seen.values()), seen


@pytest.mark.req("TYPE-43", "TYPE-47")
def test_connect_mode_has_kafka_connects_own_types() -> None:
    made, options = created("CREATE TABLE t (d DATE, t TIME, dt DATETIME(6))"), DecoderOptions(time_mode="connect")
    connect = {"optional": True, "version": 1}
    assert field_of(made, options, "d") == {"type": "int32", "name": "org.apache.kafka.connect.data.Date", **connect}
    assert field_of(made, options, "t") == {"type": "int32", "name": "org.apache.kafka.connect.data.Time", **connect}
    assert field_of(made, options, "dt") == {
        "type": "int64", "name": "org.apache.kafka.connect.data.Timestamp", **connect,
    }  # fmt: skip
    out: list[Any] = []
    packet = b"\x0a2024-02-29\x0823:59:59\x1a2024-02-29 12:34:56.789999"
    compile_text_decoder(made, options, envelope_text(made, options, key=False, value=False))(packet, 0, context(), out)
    # Days, milliseconds of the day, and milliseconds: the last three digits of the fraction are lost.
    assert json.loads(out[0][1])["after"] == {"d": 19782, "t": 86_399_000, "dt": 1_709_210_096_789}


@pytest.mark.req("COL-17", "STRM-18")
def test_masks_do_not_reach_the_statement_in_the_source_block() -> None:
    statement = "INSERT INTO db.t VALUES ('secret')"
    cfg = ConnectorConfig.from_properties(
        BASE
        | {"include.query": "true", "column.mask.with.3.chars": "db.t.c"}
        | {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
    )
    made = table(column("c", "VARCHAR", charset="utf8mb4", length=20))
    options = table_options.table_options(cfg, made)
    decoder = compile_decoder(
        made, table_map((wt.VARCHAR, 80)), options, table_options.envelope_text(cfg, made, options)
    )
    ctx = EventContext()
    event = SimpleNamespace(timestamp=1, server_id=1, file="b.000001", start_pos=4)
    at = SimpleNamespace(gtid=None, commit_us=1, thread=1, query=statement)
    fill(ctx, table_options.table_source_block(cfg, TableId("db", "t")), event, at)
    (record,) = write(decoder, image(1, b"\x06secret"), columns=1, ctx=ctx)
    value = json.loads(record[1])
    assert value["after"] == {"c": "***"}
    assert value["source"]["query"] == statement, "include.query shows what the masks hide"
