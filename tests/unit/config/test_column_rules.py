"""Column rules: what the properties say, what they mean for a column, and what comes out of rows."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from kit.cases import for_each
from kit.decode_builder import NO_SCHEMA, column, context, image, packet, table, table_map, write

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import java_serialized, select_list, truncate
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import compile_text_decoder
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.column_rule import RuleKind
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId

BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}
NO_SCHEMAS = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
CONVERTER = "io.debezium.connector.mysql.converters.TinyIntOneToBooleanConverter"
TEXT = {"charset": "utf8mb4", "length": 20}


def config(**properties: str) -> ConnectorConfig:
    return ConnectorConfig.from_properties(
        {**BASE, **NO_SCHEMAS, **{k.replace("__", "."): v for k, v in properties.items()}}
    )


def configured(properties: dict[str, str]) -> ConnectorConfig:
    return ConnectorConfig.from_properties({**BASE, **NO_SCHEMAS, **properties})


def problems(properties: dict[str, str]) -> list[str]:
    return [str(p) for p in ConnectorConfig.check({**BASE, **properties})]


def varchar(name: str, **more: Any) -> Column:
    return column(name, "VARCHAR", **{**TEXT, **more})


def from_binlog(made: Table, properties: dict[str, str], *values: str | None) -> tuple[Any, Any]:
    """Return key and row of an insert into a table of VARCHAR(20) columns."""
    options = table_options.table_options(configured(properties), made)
    wires = table_map(*((wt.VARCHAR, 80) for _ in values))
    decoder = compile_decoder(made, wires, options, NO_SCHEMA)
    nulls = sum(1 << i for i, v in enumerate(values) if v is None)
    data = b"".join(bytes([len(v.encode())]) + v.encode() for v in values if v is not None)
    (record,) = write(decoder, image(len(values), data, nulls), columns=len(values))
    return _parsed(record)


def from_text(made: Table, properties: dict[str, str], *values: str | None) -> tuple[Any, Any]:
    """Return key and row of a snapshot row of a table; the values are those that are selected."""
    options = table_options.table_options(configured(properties), made)
    out: list[Any] = []
    data = packet(*(None if v is None else v.encode() for v in values))
    compile_text_decoder(made, options, NO_SCHEMA)(data, 0, context(), out)
    return _parsed(out[0])


def _parsed(record: Any) -> tuple[Any, Any]:
    return record[0] and json.loads(record[0]), json.loads(record[1])["after"]


TWO = table(varchar("a"), varchar("b"), key=("a",))
UNKEYED = table(varchar("a"), varchar("b"))


# -- properties -------------------------------------------------------------------------------------------------------


@pytest.mark.req("COL-03", "COL-04", "COL-05", "COL-09", "COL-10", "COL-11", "COL-12")
def test_of_several_rules_for_a_column_one_counts() -> None:
    """The order is truncation, mask, source type, hash; of one kind the first property counts."""
    given = {
        "column.mask.hash.SHA-256.with.salt.s": "d.t.*",
        "column.mask.hash.v2.md5.with.salt.s.with.salt.t": "d.t.(m|h|v).*",
        "column.propagate.source.type": "d.t.m,d.t.p",
        "datatype.propagate.source.type": r"d\.t\.INT",
        "column.mask.with.0.chars": "d.t.m",
        "column.truncate.to.3.chars": "d.t.c",
        "column.truncate.to.9.chars": "d.t.c,d.t.m",
    }
    cfg = configured(given)

    def kind(name: str, datatype: str = "CHAR") -> Any:
        found = cfg.column_rules(TableId("d", "t"), name, datatype)
        return found[0].kind, found[0].length

    assert kind("c") == (RuleKind.TRUNCATE, 3)
    assert kind("m") == (RuleKind.TRUNCATE, 9)
    assert kind("p") == (RuleKind.SOURCE_TYPE, 0)
    assert kind("h") == (RuleKind.HASH, 0)
    assert kind("h", "INT") == (RuleKind.SOURCE_TYPE, 0)
    assert cfg.column_rules(TableId("d", "other"), "c", "CHAR") == ()
    (v2,) = [r for r, _ in cfg.families.columns.rules if r.kind is RuleKind.HASH_V2]
    assert (v2.algorithm, v2.salt.reveal()) == ("md5", "s.with.salt.t")


def test_columns_are_named_whole_and_without_case() -> None:
    cfg = config(column__exclude__list=r"d\.t\.a,d.t.B.*")
    assert [c for c in ("a", "ab", "b", "bb", "c") if cfg.includes_column(TableId("d", "t"), c)] == ["ab", "c"]
    only = config(column__whitelist=r"d\.T\.a")
    assert [c for c in ("a", "b") if only.includes_column(TableId("d", "t"), c)] == ["a"]
    assert only.notes


@for_each(
    ("name", "said"),
    [
        ("column.truncate.to.x.chars", "must name|number"),
        ("column.mask.with.5", "number"),
        ("column.mask.hash.MD2.with.salt.s", "no algorithm MD2"),
        ("column.mask.hash.SHA-256", "salt"),
        ("column.mask.hash.v2.SHA-256.salt.s", "salt"),
    ],
)
def test_a_name_that_cannot_be_read_is_a_problem(name: str, said: str) -> None:
    (found,) = problems({name: "d.t.c"})
    assert any(part in found for part in said.split("|"))


def test_a_rule_without_columns_or_with_a_broken_expression_is_a_problem() -> None:
    assert "must name columns" in problems({"column.mask.with.5.chars": ""})[0]
    assert "cannot be used" in problems({"column.mask.with.5.chars": "d.t.("})[0]


@pytest.mark.req("TYPE-62", "TYPE-63", "TYPE-64")
def test_converters_are_read_and_others_refused() -> None:
    cfg = configured(
        {
            "converters": "one, two",
            "one.type": CONVERTER,
            "one.selector": "d.t.a",
            "one.length.checker": "false",
            "two.type": CONVERTER.replace("mysql", "binlog"),
            "two.selector": "d.u.*",
        }
    )
    t, u = TableId("d", "t"), TableId("d", "u")
    assert cfg.is_boolean(t, "a", "TINYINT UNSIGNED", None)
    assert not cfg.is_boolean(t, "b", "TINYINT", 1)
    assert cfg.is_boolean(u, "x", "TINYINT", 1)
    assert not cfg.is_boolean(u, "x", "TINYINT", 4) and not cfg.is_boolean(u, "x", "SMALLINT", 1)
    assert not cfg.is_boolean(u, "x", "TINYINT UNSIGNED ZEROFILL", 1)
    again = ConnectorConfig.from_properties(cfg.properties())
    assert again == cfg and again.is_boolean(t, "a", "TINYINT", 4)
    assert "boolean.type" in problems({"converters": "boolean"})[0]
    assert "not a converter" in problems({"converters": "x", "x.type": "io.debezium.X"})[0]
    assert "not a setting" in problems({"converters": "x", "x.type": CONVERTER, "x.selctor": "a"})[0]
    assert "true or false" in problems({"converters": "x", "x.type": CONVERTER, "x.length.checker": "maybe"})[0]


@pytest.mark.req("SNAP-49", "SNAP-50", "SNAP-51")
def test_snapshot_lists_and_statements() -> None:
    name = "snapshot.select.statement.overrides"
    cfg = configured(
        {
            name: "d.t, d.u",
            f"{name}.d.t": " SELECT 1; ",
            f"{name}.d.u": "SELECT 2",
            "snapshot.include.collection.list": "d.t",
        }
    )
    assert cfg.select_override(TableId("d", "t")) == "SELECT 1"
    assert cfg.select_override(TableId("d", "v")) is None
    assert cfg.snapshots_rows(TableId("d", "t")) and not cfg.snapshots_rows(TableId("d", "u"))
    assert config().snapshots_rows(TableId("d", "u"))
    signals = {"signal.data.collection": "d.u"}
    assert not configured(signals).snapshots_rows(TableId("d", "u"))
    assert configured(signals).snapshots_rows(TableId("d", "t"))
    # Debezium 1.9.7 reads the signal table like any other.
    assert configured({**signals, "event.contract": "1.9"}).snapshots_rows(TableId("d", "u"))
    assert "is missing" in problems({name: "d.t"})[0]
    assert "does not list the table" in problems({f"{name}.d.t": "SELECT 1"})[0]


@pytest.mark.req("COL-15", "COL-16", "EVT-06")
def test_sanitize_field_names_is_the_older_name_of_the_field_name_mode() -> None:
    assert config(sanitize__field__names="true")[F.FIELD_NAME_ADJUSTMENT_MODE] == "avro"
    assert config(sanitize__field__names="false")[F.FIELD_NAME_ADJUSTMENT_MODE] == "none"
    assert config()[F.SCHEMA_NAME_ADJUSTMENT_MODE] == "none"


# -- values -----------------------------------------------------------------------------------------------------------

READERS = [from_binlog, from_text]


@pytest.mark.req("COL-02", "COL-18")
@pytest.mark.parametrize("read", READERS)
def test_excluded_key_columns_stay_in_the_key(read: Any) -> None:
    assert read(TWO, {"column.exclude.list": "db.t.a"}, "1", "x") == ({"a": "1"}, {"b": "x"})


@pytest.mark.req("COL-02")
def test_a_snapshot_reads_only_what_is_shown() -> None:
    options = table_options.table_options(configured({"column.exclude.list": "db.t.b"}), TWO)
    assert select_list(TWO, options) == "`a`"
    masked = table_options.table_options(configured({"column.mask.with.3.chars": "db.t.[ab]"}), TWO)
    assert select_list(TWO, masked) == "`a`", "the key is shown"
    assert from_text(TWO, {"column.mask.with.3.chars": "db.t.[ab]"}, "1") == ({"a": "1"}, {"a": "***", "b": "***"})


@pytest.mark.parametrize("rule", [{"column.exclude.list": ".*"}, {"column.mask.with.1.chars": ".*"}])
def test_of_a_table_that_shows_nothing_one_column_is_read(rule: dict[str, str]) -> None:
    options = table_options.table_options(configured(rule), UNKEYED)
    assert select_list(UNKEYED, options) == "`a`"
    expected = {} if "column.exclude.list" in rule else {"a": "*", "b": "*"}
    assert from_text(UNKEYED, rule, "secret") == (None, expected)
    assert from_binlog(UNKEYED, rule, "secret", None) == (None, expected)


@pytest.mark.req("COL-03", "COL-18", "CFG-16")
@pytest.mark.parametrize("read", READERS)
def test_truncation_counts_utf16_units_and_leaves_keys_alone(read: Any) -> None:
    rule = {"column.truncate.to.3.chars": "db.t.*"}
    assert read(TWO, rule, "abcdef", "äöüß") == ({"a": "abcdef"}, {"a": "abc", "b": "äöü"})
    assert read(TWO, rule, 'a"\n\\b', "ab") == ({"a": 'a"\n\\b'}, {"a": 'a"\n', "b": "ab"})
    assert read(TWO, rule, "x😀y", "xy😀") == ({"a": "x😀y"}, {"a": "x😀", "b": "xy"}), "no half characters"
    assert read(TWO, rule, "abcd", None) == ({"a": "abcd"}, {"a": "abc", "b": None})


@pytest.mark.req("COL-04", "COL-18", "CFG-17")
@pytest.mark.parametrize("rule", [5, 0])
def test_a_mask_hides_null_too(rule: int) -> None:
    mask = {f"column.mask.with.{rule}.chars": "db.t.b"}
    for value in ("x", None):
        assert from_binlog(TWO, mask, "1", value) == ({"a": "1"}, {"a": "1", "b": "*" * rule})
    assert from_text(TWO, mask, "1") == ({"a": "1"}, {"a": "1", "b": "*" * rule})


@pytest.mark.req("COL-05", "COL-06", "COL-07", "COL-08", "CFG-18")
@pytest.mark.parametrize("read", READERS)
def test_hashes_are_those_of_debezium(read: Any) -> None:
    """The first hash is one of the recording dml/columns; MySQL's column there has ten characters."""
    ten = table(varchar("a"), varchar("y", length=10), key=("a",))
    v1 = {"column.mask.hash.SHA-256.with.salt.pepper": "db.t.y"}
    assert read(ten, v1, "k1", "k1") == ({"a": "k1"}, {"a": "k1", "y": "df81f10cde"})
    assert read(ten, v1, "k1", None) == ({"a": "k1"}, {"a": "k1", "y": None})


@pytest.mark.req("COL-06", "COL-09")
def test_each_rule_has_an_algorithm_and_a_salt_of_its_own() -> None:
    """The expected texts are what ``printf peppervalue | md5sum`` and ``printf saltvalue | sha512sum`` print."""
    made = table(varchar("a"), *(column(n, "TEXT", charset="utf8mb4") for n in "bc"), key=("a",))
    rules = {
        "column.mask.hash.v2.MD5.with.salt.pepper": "db.t.b",
        "column.mask.hash.v2.SHA-512.with.salt.salt": "db.t.c",
    }
    shown = from_text(made, rules, "x", "value", "value")[1]
    assert shown["b"] == "f491f3bde4f38dbcc526ccffc7fb9f25"
    assert shown["c"].startswith("3f8f28429ed13ed3c4164f6649346611") and len(shown["c"]) == 128


@pytest.mark.req("COL-10", "CFG-19")
def test_the_second_kind_of_hash_is_that_of_salt_and_text() -> None:
    """The expected text is what ``printf peppervalue | sha256sum`` prints."""
    made = table(varchar("a"), column("b", "TEXT", charset="utf8mb4"), key=("a",))
    rule = {"column.mask.hash.v2.SHA-256.with.salt.pepper": "db.t.b"}
    expected = "e27ecd4203693b037529885f3bf6654fccacd4a601e74a01b1be0930df623e49"
    assert from_text(made, rule, "x", "value")[1] == {"a": "x", "b": expected}
    assert from_binlog(TWO, rule, "x", "value")[1] == {"a": "x", "b": expected[:20]}


def test_java_serialises_strings_in_modified_utf8() -> None:
    """Compared once with what java.io.ObjectOutputStream of Java 17 writes."""
    assert java_serialized("k1").hex() == "aced00057400026b31"
    assert java_serialized("a\0b").hex() == "aced000574000461c08062"
    assert java_serialized("😀").hex() == "aced0005740006eda0bdedb880"
    assert java_serialized("x" * 65536)[:13].hex() == "aced00057c0000000000010000"


def test_cut() -> None:
    assert [truncate("a😀b", n) for n in range(5)] == ["", "a", "a", "a😀", "a😀b"]


@pytest.mark.req("COL-03")
def test_what_truncation_does_to_other_types() -> None:
    """Bytes are cut as bytes; a column that cannot be longer is left alone; numbers get the parameter only."""
    made = table(
        column("b", "VARBINARY", length=20),
        column("s", "VARCHAR", charset="utf8mb4", length=2),
        column("e", "ENUM", charset="utf8mb4", enum_values=("long",)),
        column("n", "INT"),
        column("d", "DECIMAL", length=10, scale=2),
        column("j", "JSON"),
        column("t", "TIMESTAMP"),
    )
    rule = {"column.truncate.to.2.chars": ".*"}
    _, row = from_text(made, rule, "abcdef", "xy", "long", "12345", "99999.99", "[1, 2]", "2020-01-02 03:04:05")
    assert row == {"b": "YWI=", "s": "xy", "e": "long", "n": 12345, "d": "AJiWfw==", "j": "[1", "t": "20"}
    zero = from_text(table(column("t", "TIMESTAMP")), {"column.truncate.to.1.chars": ".*"}, "0000-00-00 00:00:00")
    assert zero == (None, {"t": None}), "null is longer than one character"
    options = table_options.table_options(configured(rule), made)
    assert {n: t.parameters for n, t in options.treatments if t.parameters} == dict.fromkeys(
        "bndjt", (("truncateLength", "2"),)
    )
    hexed = {**rule, "binary.handling.mode": "hex"}
    assert from_text(made, hexed, *["abc"] * 3, "1", "1", "[]", "2020-01-02 03:04:05")[1]["b"] == "61"


def test_masks_of_other_than_character_columns_have_no_effect_and_say_so(caplog: pytest.LogCaptureFixture) -> None:
    made = table(column("n", "INT"), column("e", "ENUM", charset="utf8mb4", enum_values=("long",)))
    with caplog.at_level(logging.WARNING):
        _, row = from_text(made, {"column.mask.with.2.chars": ".*"}, "7")
    assert row == {"n": 7, "e": "**"}
    assert "db.t.n is INT" in caplog.text and "column.exclude.list" in caplog.text


@pytest.mark.req("COL-05")
@pytest.mark.parametrize("hiding", ["column.mask.hash.SHA-256.with.salt.s", "column.mask.hash.v2.SHA-256.with.salt.s"])
@pytest.mark.parametrize(
    ("first", "text"),
    [
        ("column.propagate.source.type", "db.t.b"),
        ("datatype.propagate.source.type", r"db\.t\.VARCHAR"),
        ("column.truncate.to.5.chars", "db.t.b"),
    ],
)
def test_the_log_says_where_a_column_is_not_hidden_as_another_rule_counts(
    caplog: pytest.LogCaptureFixture, first: str, text: str, hiding: str
) -> None:
    """Debezium takes the first rule as well; who asked for a hash has to know that values are visible."""
    with caplog.at_level(logging.WARNING):
        _, row = from_binlog(TWO, {first: text, hiding: "db.t.b"}, "k", "secret")
    assert row["b"] in ("secret", "secre")
    told = caplog.messages[0]
    assert told.startswith("db.t.b has column.") and first.partition(".5")[0] in told and "not hidden" in told
    assert hiding.partition(".SHA")[0] in told and "with.salt" not in told


@pytest.mark.parametrize(
    "rules",
    [
        {"column.mask.hash.SHA-256.with.salt.s": "db.t.b"},
        {"column.mask.with.3.chars": "db.t.b", "column.mask.hash.SHA-256.with.salt.s": "db.t.b"},
        {"column.mask.with.3.chars": "db.t.b", "column.propagate.source.type": "db.t.b"},
        {"column.truncate.to.3.chars": "db.t.b", "column.propagate.source.type": "db.t.b"},
    ],
)
def test_the_log_is_silent_where_what_hides_a_column_counts(
    caplog: pytest.LogCaptureFixture, rules: dict[str, str]
) -> None:
    with caplog.at_level(logging.WARNING):
        _, row = from_binlog(TWO, rules, "k", "secret")
    assert row["b"] != "secret" and caplog.messages == []


def test_bytes_in_a_character_column_cannot_be_masked() -> None:
    made = table(column("b", "VARCHAR", charset="binary", length=9))
    with pytest.raises(SchemaError, match=r"db\.t\.b holds bytes"):
        table_options.table_options(configured({"column.mask.with.2.chars": ".*"}), made)
    mode = {"column.mask.with.2.chars": ".*", "binary.handling.mode": "base64"}
    assert table_options.table_options(configured(mode), made).treatments


def test_a_default_in_place_of_null_is_not_truncated() -> None:
    """As in Connect, where the default is put in when the record is serialised."""
    made = table(varchar("a", has_default=True, default="default"))
    cfg = configured({"column.truncate.to.3.chars": ".*", "value.converter.replace.null.with.default": "true"})
    options = table_options.table_options(cfg, made)
    texts = EnvelopeText(null_text={"a": '"default"'})
    out: list[Any] = []
    compile_text_decoder(made, options, texts)(packet(None), 0, context(), out)
    assert _parsed(out[0])[1] == {"a": "default"}
    decoder = compile_decoder(made, table_map((wt.VARCHAR, 80)), options, texts)
    (record,) = write(decoder, image(1, b"", 1), columns=1)
    assert _parsed(record)[1] == {"a": "default"}


def test_treated_columns_under_many_combinations_of_nulls() -> None:
    """Beyond some number of NULL combinations one function serves all; it treats values alike."""
    names = "abcdefgh"
    made = table(*(varchar(n) for n in names))
    rules = {
        "column.truncate.to.1.chars": "db.t.[a-c]",
        "column.mask.with.2.chars": "db.t.d",
        "column.mask.hash.v2.MD5.with.salt.x": "db.t.e",
    }
    options = table_options.table_options(configured(rules), made)
    decoder = compile_decoder(made, table_map(*((wt.VARCHAR, 80),) * 8), options, NO_SCHEMA)
    hashed = None
    for nulls in range(256):
        data = b"".join(b"\x03xyz" for i in range(8) if not nulls >> i & 1)
        (record,) = write(decoder, image(8, data, nulls), columns=8)
        row = _parsed(record)[1]
        for i, name in enumerate(names):
            null = bool(nulls >> i & 1)
            if name == "d":
                assert row[name] == "**"
            elif name == "e":
                hashed = hashed or row[name]
                assert row[name] == (None if null else hashed)
            else:
                assert row[name] == (None if null else "x" if name in "abc" else "xyz")


# -- keys and booleans ------------------------------------------------------------------------------------------------


@pytest.mark.req("COL-13", "COL-14")
@pytest.mark.parametrize("read", READERS)
def test_message_key_columns_override_the_key(read: Any) -> None:
    assert read(TWO, {"message.key.columns": "db.t:b,a"}, "1", "x")[0] == {"b": "x", "a": "1"}
    assert read(UNKEYED, {"message.key.columns": "(.*).t:b"}, "1", None)[0] == {"b": None}
    assert read(TWO, {"message.key.columns": "db.other:b"}, "1", "x")[0] == {"a": "1"}


BOOLEANS = table(
    column("a", "TINYINT", length=1, declared_type="TINYINT", nullable=False, has_default=True, default="1"),
    column("b", "TINYINT", length=1, declared_type="BOOLEAN"),
    column("c", "TINYINT", declared_type="TINYINT"),
    key=("a",),
)
TINY = table_map(*((wt.TINY, 0),) * 3)


@pytest.mark.req("TYPE-60", "TYPE-62")
@pytest.mark.parametrize(("number", "converted", "declared"), [(0, False, False), (2, True, True), (-1, False, True)])
def test_booleans(number: int, converted: bool, declared: bool) -> None:
    """A converter takes only what is above zero as true; a column declared BOOLEAN any number but zero."""
    options = table_options.table_options(configured({"converters": "x", "x.type": CONVERTER}), BOOLEANS)
    decoder = compile_decoder(BOOLEANS, TINY, options, NO_SCHEMA)
    (record,) = write(decoder, image(3, bytes([number & 255]) * 3), columns=3)
    expected = ({"a": converted}, {"a": converted, "b": declared, "c": number})
    assert _parsed(record) == expected
    text = str(number)
    assert from_text(BOOLEANS, {"converters": "x", "x.type": CONVERTER}, text, text, text) == expected
    plain = table_options.table_options(config(), BOOLEANS)
    (record,) = write(compile_decoder(BOOLEANS, TINY, plain, NO_SCHEMA), image(3, bytes([number & 255]) * 3), columns=3)
    assert _parsed(record) == ({"a": number}, {"a": number, "b": declared, "c": number})


@pytest.mark.req("TYPE-62")
def test_boolean_columns_have_boolean_schemas_and_defaults() -> None:
    cfg = ConnectorConfig.from_properties({**BASE, "converters": "x", "x.type": CONVERTER})
    text = table_options.envelope_text(cfg, BOOLEANS, table_options.table_options(cfg, BOOLEANS))
    fields = json.loads(text.value_schema or "")["fields"][0]["fields"]
    assert [f["type"] for f in fields] == ["boolean", "boolean", "int16"]
    assert fields[0]["default"] is True
    assert json.loads(text.key_schema or "")["fields"][0]["type"] == "boolean"
