"""Converters of one's own: what is refused, what they are given, what comes out of rows (TYPE-65)."""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
from kit.cases import for_each
from kit.decode_builder import body, column, context, image, packet, python_decoder, table, table_map, write
from kit.json_builder import change, document

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.resolve import with_default
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.ddl.statements import Default, DefaultKind
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import compile_text_decoder
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import BadRow, TolerantDecoder
from airflow_provider_mysql_cdc.cdc.decode.values.json_diff import REPLACE
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SchemaError, ValueDecodeError
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table

pytestmark = pytest.mark.req("TYPE-65")

BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}
NO_SCHEMAS = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
TEXT = {"charset": "utf8mb4", "length": 20}


def given(kind: str, **more: str) -> dict[str, str]:
    """Return the properties of one converter, named ``x``."""
    return {"converters": "x", "x.type": f"sample_converters.{kind}", **{f"x.{k}": v for k, v in more.items()}}


def configured(properties: dict[str, str]) -> ConnectorConfig:
    return ConnectorConfig.from_properties({**BASE, **NO_SCHEMAS, **properties})


def decoders(made: Table, wires: Any, properties: dict[str, str]) -> tuple[Any, Any]:
    cfg = configured(properties)
    options = table_options.table_options(cfg, made)
    texts = table_options.envelope_text(cfg, made, options)
    return compile_decoder(made, wires, options, texts), compile_text_decoder(made, options, texts)


def shown(record: Any) -> tuple[Any, Any]:
    return record[0] and json.loads(record[0]), json.loads(record[1])["after"]


def chars(name: str, **more: Any) -> Column:
    return column(name, "VARCHAR", **{**TEXT, **more})


def var(*values: str | None) -> bytes:
    """Return the image of VARCHAR columns."""
    nulls = sum(1 << i for i, v in enumerate(values) if v is None)
    data = b"".join(bytes([len(v.encode())]) + v.encode() for v in values if v is not None)
    return image(len(values), data, nulls)


def both(made: Table, properties: dict[str, str], *values: str | None) -> tuple[Any, Any]:
    """Return key and row of VARCHAR columns, which row image and text protocol must show alike."""
    stream, text = decoders(made, table_map(*((wt.VARCHAR, 80),) * len(values)), properties)
    (record,) = write(stream, var(*values), columns=len(values))
    out: list[Any] = []
    text(packet(*(None if v is None else v.encode() for v in values)), 0, context(), out)
    assert shown(record) == shown(out[0])
    return shown(record)


ONE = table(chars("a"), chars("b"), key=("a",))
KEYED = table(chars("a", nullable=False), chars("b"), key=("a",))


# -- what is refused --------------------------------------------------------------------------------------------------


@for_each(
    ("kind", "said"),
    [
        ("io.debezium.connector.mysql.converters.JdbcSinkDataTypesConverter", "is not a converter that exists here"),
        ("com.example.IsbnConverter", "module com.example cannot be imported: ModuleNotFoundError"),
        ("no_such_module.Isbn", "No module named 'no_such_module'"),
        ("broken_module.Isbn", "module broken_module cannot be imported: ZeroDivisionError"),
        ("sample_converters.Missing", "module sample_converters has no class Missing"),
        ("sample_converters.re", "is not a class of a converter"),
        ("sample_converters.NotAConverter", "it lacks converter_for"),
        ("IsbnConverter", "is not a dotted path"),
        ("os; rm.X", "is not a dotted path"),
        ("", "is missing"),
    ],
)
def test_a_class_that_cannot_be_used_is_a_problem_of_its_property(
    kind: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_module.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    (found,) = ConnectorConfig.check({**BASE, "converters": "x", "x.type": kind})
    assert found.name == "x.type" and said in found.what
    if "import" in said or "class" in said:
        assert "--py-files" in found.fix and "Airflow worker" in found.fix


def test_an_error_in_configure_is_a_problem_of_the_property() -> None:
    (found,) = ConnectorConfig.check({**BASE, **given("Programmed", refuse="why not")})
    assert (found.name, found.value) == ("x.type", "sample_converters.Programmed")
    assert "KeyError: 'why not'" in found.what and "x.* properties" in found.fix


@for_each(
    ("more", "said"),
    [
        ({"answer": "1 / 0"}, "converter_for raised ZeroDivisionError"),
        ({"answer": "'text'"}, "returned str in place of a Conversion"),
        ({"answer": "Conversion({'type': 'string'}, 3)"}, "cannot be called"),
        ({"answer": "Conversion('string', repr)"}, "is not a mapping"),
        ({"schema": "{'type': 'struct'}", "convert": "v"}, "type is 'struct'; there are boolean, int8"),
        ({"schema": "{}", "convert": "v"}, "type is None"),
        ({"schema": "{'type': 'string', 'nmae': 'x'}", "convert": "v"}, "has 'nmae'"),
        ({"schema": "{'type': 'string', 'version': '1'}", "convert": "v"}, "version is str, not int"),
    ],
)
def test_an_answer_that_cannot_be_used_names_property_class_and_column(more: dict[str, str], said: str) -> None:
    cfg = configured(given("Programmed", **more))
    with pytest.raises(ConfigError) as raised:
        table_options.table_options(cfg, ONE)
    error = raised.value
    assert said in error.why and error.where == "x.type" and not error.can_retry
    assert "sample_converters.Programmed" in error.what and "db.t.a" in error.what and "--py-files" in error.remedy


def test_the_configuration_is_read_back_with_the_converters_properties() -> None:
    cfg = configured(given("IsbnConverter", **{"schema.name": "Isbn", "selector": "db.t.a"}))
    again = ConnectorConfig.from_properties(cfg.properties())
    assert again == cfg and cfg.notes == ()
    (name, custom), *others = table_options.table_options(again, ONE).conversions
    assert (name, custom.name, custom.version, others) == ("a", "Isbn", 2, [])


# -- what comes out ---------------------------------------------------------------------------------------------------


def test_keys_and_values_of_snapshot_and_stream_are_converted() -> None:
    properties = given("IsbnConverter", selector="db.t.a")
    assert both(KEYED, properties, "978-3-16", "978-0") == ({"a": 978316}, {"a": 978316, "b": "978-0"})
    assert both(ONE, given("IsbnConverter", selector="db.t.b"), "1-2", None) == ({"a": "1-2"}, {"a": "1-2", "b": None})


def test_a_column_left_alone_keeps_its_code() -> None:
    plain, _ = decoders(ONE, table_map((wt.VARCHAR, 80), (wt.VARCHAR, 80)), {})
    other, _ = decoders(ONE, table_map((wt.VARCHAR, 80), (wt.VARCHAR, 80)), given("IsbnConverter", selector="none"))
    for bitmap in (None, b"\x00", b"\x02"):
        bodies = [
            decoder._shape._body(bitmap, decoder._shape.columns) for decoder in map(python_decoder, (plain, other))
        ]
        (one, *texts), (two, *others) = bodies
        assert (one.lines, texts) == (two.lines, others)


@pytest.mark.parametrize("many", [False, True])
def test_null_is_converted_too(many: bool) -> None:
    """Also by the function that serves all bitmaps once there are too many of them."""
    properties = given("Programmed", convert="'nothing' if v is None else v + '!'", columns="a,b")
    made = table(chars("a"), chars("b"))
    assert both(made, properties, None, "ö") == (None, {"a": "nothing", "b": "ö!"})
    if many:
        stream, _ = decoders(made, table_map((wt.VARCHAR, 80), (wt.VARCHAR, 80)), properties)
        general = stream._writes._make(None)
        out: list[Any] = []
        data = var(None, "ö")
        general(data, data.decode("latin-1"), 0, len(data), ',"source":{"row":', "}}", 0, out.append)
        assert shown(out[0])[1] == {"a": "nothing", "b": "ö!"}


def test_masks_and_cuts_work_on_what_is_shown() -> None:
    properties = given("Programmed", convert="'none' if v is None else v * 3", columns="a,b")
    properties |= {"column.truncate.to.2.chars": "db.t.a", "column.mask.hash.v2.MD5.with.salt.s": "db.t.b"}
    _, row = both(table(chars("a"), chars("b")), properties, None, "x")
    assert row == {"a": "no", "b": hashlib.md5(b"sxxx").hexdigest()[:20]}
    _, row = both(table(chars("a"), chars("b")), properties, "y", None)
    assert row == {"a": "yy", "b": hashlib.md5(b"snone").hexdigest()[:20]}


def test_a_mask_refuses_what_a_converter_does_not_show_as_text() -> None:
    properties = given("IsbnConverter", selector="db.t.a") | {"column.mask.with.3.chars": "db.t.a"}
    with pytest.raises(SchemaError, match=r"db\.t\.a holds int64.*converter x .* represents it as int64"):
        table_options.table_options(configured(properties), ONE)


def test_the_first_converter_that_takes_a_column_counts() -> None:
    boolean = "io.debezium.connector.mysql.converters.TinyIntOneToBooleanConverter"
    made = table(column("a", "TINYINT", length=1), column("b", "TINYINT", length=1))
    mine = {"mine.type": "sample_converters.Programmed", "mine.convert": "'n' + str(v)"}
    for order, first in (("mine,flag", "n2"), ("flag,mine", True)):
        properties = {"converters": order, "flag.type": boolean, **mine}
        stream, _ = decoders(made, table_map((wt.TINY, 0), (wt.TINY, 0)), properties)
        (record,) = write(stream, image(2, b"\x02\x02"), columns=2)
        assert shown(record)[1] == {"a": first, "b": True}


@for_each(
    ("literal", "convert", "expected"),
    [
        ("boolean", "v == 'x'", True),
        ("int8", "-128", -128),
        ("int16", "7", 7),
        ("int32", "2**31 - 1", 2**31 - 1),
        ("int64", "-2**63", -(2**63)),
        ("float", "0.1", 0.1),
        ("double", "1", 1.0),
        ("string", r"'\x00\U0001f600\"'", '\x00\U0001f600"'),
        ("bytes", r"b'\xff\x00'", "/wA="),
        ("string", "None", None),
    ],
)
def test_every_type_is_written_as_json(literal: str, convert: str, expected: Any) -> None:
    properties = given("Programmed", schema=f"{{'type': {literal!r}}}", convert=convert)
    assert both(table(chars("a")), properties, "x")[1] == {"a": expected}


@for_each(
    ("literal", "convert", "said"),
    [
        ("boolean", "1", "returned int where a bool is needed"),
        ("int8", "128", "an int of 8 bits is needed (type int8): 128"),
        ("int32", "True", "returned bool"),
        ("int64", "'1'", "returned str"),
        ("float", "1e300", "that 4 bytes can hold"),
        ("double", "float('nan')", "finite"),
        ("string", "b'x'", "returned bytes where a str"),
        ("bytes", "'x'", "where bytes is needed"),
        ("string", "v.no_such", "raised AttributeError: 'str' object has no attribute"),
        ("string", "int(v)", "raised ValueError: invalid literal"),
        ("string", "None if v else ''", "returned None for a column that is NOT NULL"),
    ],
)
def test_a_value_that_fails_names_position_table_column_and_row(literal: str, convert: str, said: str) -> None:
    made = table(column("id", "INT", nullable=False), chars("a", nullable=False), key=("id",))
    properties = given("Programmed", schema=f"{{'type': {literal!r}}}", convert=convert)
    stream, text = decoders(made, table_map((wt.LONG, 0), (wt.VARCHAR, 80)), properties)
    with pytest.raises(ValueDecodeError) as raised:
        write(stream, image(2, struct.pack("<i", 42) + b"\x01x"), columns=2)
    with pytest.raises(ValueDecodeError) as read:
        text(packet(b"42", b"x"), 0, context(where="snapshot of t"), [])
    assert raised.value.where == "binlog.000001:4, table db.t, row 0, key id=42"
    assert read.value.where == "snapshot of t, table db.t, key id=42"
    for error in (raised.value, read.value):
        assert said in error.why and "converter x (sample_converters.Programmed)" in error.why
        assert "column a" in error.what and "converter_for returns None" in error.remedy


def test_a_null_that_cannot_be_converted_fails_its_row_only() -> None:
    made = table(chars("id", nullable=False), chars("a"), key=("id",))
    properties = given("Programmed", convert="v.upper()")
    stream, text = decoders(made, table_map((wt.VARCHAR, 80), (wt.VARCHAR, 80)), properties)
    with pytest.raises(ValueDecodeError, match=r"row 1, key id=\"2\".*AttributeError: 'NoneType'"):
        write(stream, var("1", "x"), var("2", None), columns=2)
    with pytest.raises(ValueDecodeError, match=r"column a.*AttributeError: 'NoneType'"):
        text(packet(b"2", None), 0, context(), [])
    failed: list[BadRow] = []
    out: list[Any] = []
    buf, pos, end = body(var("1", "x"), var("2", None), var("3", "y"), columns=2)
    assert TolerantDecoder(stream, failed).write(buf, pos, end, context(), out) == 3
    assert [shown(r)[1] for r in out] == [{"id": "1", "a": "X"}, {"id": "3", "a": "Y"}]
    (bad,) = failed
    assert (bad.row, bad.key_json, bad.after) == (1, '{"id":"2"}', '{"id":"2"}')
    assert bad.failed[0][0] == "a" and "NoneType" in bad.failed[0][1]


def test_a_value_that_events_hide_is_not_quoted_in_errors() -> None:
    properties = given("Programmed", convert="int(v)") | {"column.mask.hash.v2.MD5.with.salt.s": "db.t.a"}
    stream, text = decoders(table(chars("a")), table_map((wt.VARCHAR, 80)), properties)
    for run in (
        lambda: write(stream, var("topsecret"), columns=1),
        lambda: text(packet(b"topsecret"), 0, context(), []),
    ):
        with pytest.raises(ValueDecodeError) as raised:
            run()
        seen, error = "", raised.value
        while error is not None:
            seen, error = f"{seen} {error}", error.__cause__  # type: ignore[assignment]
        assert "raised ValueError" in seen and "topsecret" not in seen


# -- plain values -----------------------------------------------------------------------------------------------------

PLAIN = [
    (column("v", "TINYINT", declared_type="BOOL", length=1), (wt.TINY, 0), b"\x02", b"2", 2),
    (column("v", "INT", zerofill=True, unsigned=True), (wt.LONG, 0), b"\x07\0\0\0", b"0000000007", 7),
    (column("v", "BIGINT", unsigned=True), (wt.LONGLONG, 0), b"\xff" * 8, b"18446744073709551615", 2**64 - 1),
    (column("v", "YEAR"), (wt.YEAR, 0), b"\x7c", b"2024", 2024),
    (column("v", "BIT", length=1), (wt.BIT, 1), b"\x01", b"\x01", 1),
    (column("v", "BIT", length=10), (wt.BIT, 1 << 8 | 2), b"\x02\x01", b"\x02\x01", 513),
    (column("v", "DECIMAL", length=5, scale=2), (wt.NEWDECIMAL, 5 | 2 << 8), b"\x7f\xfe\xe1", b"-1.30",
     "Decimal('-1.30')"),
    (column("v", "FLOAT"), (wt.FLOAT, 4), struct.pack("<f", 0.1), b"0.10000000149011612", 0.1),
    (column("v", "FLOAT", length=7, scale=2), (wt.FLOAT, 4), struct.pack("<f", 0.1), b"0.10000000149011612", 0.1),
    (column("v", "DOUBLE"), (wt.DOUBLE, 8), struct.pack("<d", 1e300), b"1e300", 1e300),
    (chars("v"), (wt.VARCHAR, 80), b"\x05\xc3\xb6\"\n\\", b"\xc3\xb6\"\n\\", 'ö"\n\\'),
    (chars("v", charset="latin1"), (wt.VARCHAR, 20), b"\x01\xf6", b"\xc3\xb6", "ö"),
    (column("v", "ENUM", enum_values=("a", "b,c"), charset="utf8mb4"), (wt.STRING, 0xF7 | 1 << 8), b"\x02", b"b,c",
     "b,c"),
    (column("v", "VARBINARY", length=9), (wt.VARCHAR, 9), b"\x02\xff\x00", b"\xff\x00", b"\xff\x00"),
    (column("v", "BINARY", length=3), (wt.STRING, 0xFE | 3 << 8), b"\x01\xff", b"\xff\0\0", b"\xff\0\0"),
    (column("v", "CHAR", length=3, charset="binary"), (wt.STRING, 0xFE | 3 << 8), b"\x01a", b"a\0\0", b"a\0\0"),
    (column("v", "DATE"), (wt.DATE, 0), b"\0\0\0", b"0000-00-00", "0000-00-00"),
    (column("v", "DATE", nullable=False), (wt.DATE, 0), (2024 << 9 | 2 << 5 | 31).to_bytes(3, "little"), b"2024-02-31",
     "2024-02-31"),
    (column("v", "DATETIME", length=3), (wt.DATETIME2, 3),
     (1 << 39 | (2024 * 13 + 2) << 22 | 29 << 17 | 23 << 12 | 59 << 6 | 58).to_bytes(5, "big")
     + (1230).to_bytes(2, "big"),
     b"2024-02-29 23:59:58.123", "2024-02-29 23:59:58.123"),
    (column("v", "DATETIME"), (wt.DATETIME, 0), (20240229235958).to_bytes(8, "little"), b"2024-02-29 23:59:58",
     "2024-02-29 23:59:58"),
    (column("v", "TIMESTAMP", length=6), (wt.TIMESTAMP2, 6), (1).to_bytes(4, "big") + (1230).to_bytes(3, "big"),
     b"1970-01-01 00:00:01.001230", "1970-01-01 00:00:01.001230"),
    (column("v", "TIMESTAMP", length=3, nullable=False), (wt.TIMESTAMP2, 3), b"\0" * 6, b"0000-00-00 00:00:00.000",
     "0000-00-00 00:00:00.000"),
    (column("v", "TIME"), (wt.TIME2, 0), (0x800000 - (838 << 12 | 59 << 6 | 59)).to_bytes(3, "big"), b"-838:59:59",
     "-838:59:59"),
    (column("v", "TIME", length=1), (wt.TIME2, 1), ((0x800000 << 8) - 50).to_bytes(4, "big"), b"-00:00:00.5",
     "-00:00:00.5"),
    (column("v", "TIME", length=6), (wt.TIME2, 6), ((0x800000 | 1 << 12) << 24 | 7).to_bytes(6, "big"),
     b"01:00:00.000007", "01:00:00.000007"),
    (column("v", "TIME"), (wt.TIME, 0), (-8385959).to_bytes(3, "little", signed=True), b"-838:59:59", "-838:59:59"),
    (column("v", "VECTOR", length=2), (wt.VECTOR, 4), b"\x08\0\0\0" + struct.pack("<2f", 0.1, 2),
     struct.pack("<2f", 0.1, 2), [0.1, 2.0]),
    (column("v", "POINT"), (wt.GEOMETRY, 4), b"\x19\0\0\0" + b"\x07\0\0\0" + struct.pack("<bIdd", 1, 1, 1, 2),
     b"\x07\0\0\0" + struct.pack("<bIdd", 1, 1, 1, 2),
     {"x": 1.0, "y": 2.0, "wkb": struct.pack("<bIdd", 1, 1, 1, 2), "srid": 7}),
]  # fmt: skip


@for_each(("col", "wire", "stored", "selected", "value"), PLAIN)
@for_each("modes", [
    {},
    {"event.contract": "1.9", "decimal.handling.mode": "double", "binary.handling.mode": "hex",
     "time.precision.mode": "connect", "bigint.unsigned.handling.mode": "long", "enable.time.adjuster": "false"},
])  # fmt: skip
def test_plain_values_are_exact_equal_and_independent_of_modes(
    col: Column, wire: tuple[int, int], stored: bytes, selected: bytes, value: Any, modes: dict[str, str]
) -> None:
    made = table(col)
    stream, text = decoders(made, table_map(wire), given("ReprConverter") | modes)
    (record,) = write(stream, image(1, stored), columns=1)
    out: list[Any] = []
    text(packet(selected), 0, context(), out)
    expected = value if isinstance(value, str) and value.startswith("Decimal(") else repr(value)
    assert shown(record)[1] == shown(out[0])[1] == {"v": expected}


# -- schemas and defaults ---------------------------------------------------------------------------------------------


def fields(made: Table, properties: dict[str, str]) -> list[dict[str, Any]]:
    cfg = ConnectorConfig.from_properties({**BASE, **properties})
    text = table_options.envelope_text(cfg, made, table_options.table_options(cfg, made))
    found: list[dict[str, Any]] = json.loads(text.value_schema or "")["fields"][0]["fields"]
    key = json.loads(text.key_schema or '{"fields":[]}')["fields"]
    assert [f for f in found if f["field"] in {k["field"] for k in key}] == key
    return found


def test_the_schema_is_the_converters() -> None:
    schema = "{'type': 'bytes', 'name': 'n', 'version': 3, 'parameters': {'scale': 2}, 'doc': 'd'}"
    properties = given("Programmed", schema=schema, convert="v") | {"column.propagate.source.type": "db.t.a"}
    (only,) = fields(table(chars("a", nullable=False)), properties)
    source = {f"__debezium.source.column.{k}": v for k, v in (("type", "VARCHAR"), ("length", "20"), ("name", "a"))}
    assert only == {
        "type": "bytes", "optional": False, "name": "n", "version": 3, "doc": "d",
        "parameters": {"scale": "2", **source}, "field": "a",
    }  # fmt: skip
    assert list(only) == ["type", "optional", "name", "version", "doc", "parameters", "field"]


@for_each(
    ("col", "default", "value"),
    [
        (chars("a"), "x y", "'x y'"),
        (column("a", "DECIMAL", length=5, scale=2), "1.5", "Decimal('1.50')"),
        (column("a", "INT"), "5", "5"),
        (column("a", "FLOAT"), "0.1", "0.1"),
        (column("a", "DATETIME", length=3), "2020-01-02", "'2020-01-02 00:00:00.000'"),
        (column("a", "DATE"), "0000-00-00", "'0000-00-00'"),
        (column("a", "TIME", length=1), "-1:02:03.5", "'-01:02:03.5'"),
        (column("a", "BINARY", length=3), "ab", repr(b"ab\0")),
        (column("a", "BIT", length=4), "b'101'", "5"),
        (column("a", "YEAR"), "99", "1999"),
        (column("a", "TIMESTAMP"), "2020-01-02 00:00:00", None),
    ],
)
def test_literal_defaults_are_converted(col: Column, default: str, value: str | None) -> None:
    literal = Default(DefaultKind.BITS, default[2:-1]) if default[0] == "b" else Default(DefaultKind.TEXT, default)
    made = table(with_default(col, literal, DdlContext()))
    assert fields(made, given("ReprConverter"))[0].get("default") == value


def test_defaults_that_are_computed_or_fail_are_left_out() -> None:
    now = column("a", "DATETIME", has_default=True, default="CURRENT_TIMESTAMP", default_is_expression=True)
    assert "default" not in fields(table(now), given("ReprConverter"))[0]
    failing = given("Programmed", schema="{'type': 'int32'}", convert="v and int(v)")
    assert "default" not in fields(table(chars("a", default="none", stored_default="none")), failing)[0]
    made = table(chars("a", default="7", stored_default="7"))
    assert fields(made, failing)[0]["default"] == 7
    replaced = failing | {"value.converter.replace.null.with.default": "true"}
    assert both(made, replaced, None)[1] == {"a": 7}


def test_row_images_without_the_column_show_converted_values() -> None:
    """MINIMAL: an insert stores the default, an update keeps what the before image has."""
    made = table(column("id", "INT", nullable=False), chars("a", default="q", stored_default="q"), key=("id",))
    stream, _ = decoders(made, table_map((wt.LONG, 0), (wt.VARCHAR, 80)), given("Programmed", convert="f'<{v}>'"))
    out: list[Any] = []
    buf = b"\x01" + image(1, b"\x05\0\0\0")
    assert stream.write(buf, 1, len(buf), context(), out) == 1
    assert shown(out[0])[1] == {"id": 5, "a": "<q>"}
    out.clear()
    buf = b"\x03\x01" + image(2, b"\x05\0\0\0\x01z") + image(1, b"\x05\0\0\0")
    assert stream.update(buf, 2, len(buf), context(), out) == 1
    assert shown(out[0])[1] == {"id": 5, "a": "<z>"}
    out.clear()
    buf = b"\x01\x01" + image(1, b"\x05\0\0\0") + image(1, b"\x05\0\0\0")
    assert stream.update(buf, 2, len(buf), context(), out) == 1
    assert shown(out[0])[1] == {"id": 5, "a": "__debezium_unavailable_value"}


def test_changes_of_a_document_are_applied_before_it_is_converted() -> None:
    """PARTIAL_UPDATE_ROWS; the before image's text and the changed one are converted alike."""
    made = table(column("id", "INT", nullable=False), column("a", "JSON"), key=("id",))
    stream, _ = decoders(
        made, table_map((wt.LONG, 0), (wt.JSON, 4)), given("Programmed", convert="v.replace('1', 'I')")
    )
    whole, diff = document({"k": 1}), change(REPLACE, "$.k", 11)
    images = [image(2, b"\x05\0\0\0" + len(data).to_bytes(4, "little") + data) for data in (whole, diff)]
    out: list[Any] = []
    buf = b"\x03\x03" + images[0] + b"\x01\x01" + images[1]
    assert stream.partial_update(buf, 2, len(buf), context(), out) == 1
    value = json.loads(out[0][1])
    assert (value["before"]["a"], value["after"]["a"]) == ('{"k":I}', '{"k":II}')


def test_a_null_that_fails_in_a_short_row_image_names_its_column() -> None:
    made = table(column("id", "INT", nullable=False), chars("a"), chars("b", has_default=True), key=("id",))
    stream, _ = decoders(
        made,
        table_map((wt.LONG, 0), (wt.VARCHAR, 80), (wt.VARCHAR, 80)),
        given("Programmed", convert="v[0]", columns="a,b"),
    )
    for buf in (b"\x03" + image(2, b"\x05\0\0\0", 2), b"\x03" + image(2, b"\x05\0\0\0\x01x")):
        with pytest.raises(ValueDecodeError, match=r"column (a|b) of table db\.t.*row 0, key id=5"):
            stream.write(buf, 1, len(buf), context(), [])


def test_a_key_change_names_converted_keys_in_its_headers() -> None:
    stream, _ = decoders(
        KEYED, table_map((wt.VARCHAR, 80), (wt.VARCHAR, 80)), given("IsbnConverter", selector="db.t.a")
    )
    out: list[Any] = []
    buf, pos, end = body(var("1-1", "x"), var("2-2", "x"), columns=2, images=2)
    assert stream.update(buf, pos, end, context(), out) == 1
    assert [r[0] and json.loads(r[0]) for r in out] == [{"a": 11}, {"a": 11}, {"a": 22}]
    assert out[0][4] == ("__debezium.newkey", b'{"a":22}')


def test_the_sample_of_the_documentation_is_a_converter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "custom-converters.md").read_text(encoding="utf-8")
    code = page.split("```python\n", 1)[1].split("```", 1)[0]
    settings = page.split("```properties\n", 1)[1].split("```", 1)[0]
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "isbn.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    properties = dict(line.split("=", 1) for line in settings.split("\n") if line and not line.startswith("#"))
    made = table(chars("isbn"), chars("b"))
    properties["isbn.selector"] = r"db\.t\.isbn"
    try:
        assert both(made, properties, "978-3-16-148410-0", "x")[1] == {"isbn": 9783161484100, "b": "x"}
    finally:
        sys.modules.pop("my_package.isbn", None)
        sys.modules.pop("my_package", None)
