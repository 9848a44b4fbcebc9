"""Properties of TiCDC's protocol: what goes with it, and a changefeed brought along."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.changefeed import changefeed_properties
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.formats import record_topics, table_options
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.commands import program

PLAIN = {
    "topic.prefix": "shop",
    "database.hostname": "db",
    "database.user": "cdc",
    "database.password": "secret",
    "kafka.bootstrap.servers": "kafka:9092",
}
REGISTRY = "http://127.0.0.1:8081"
TICDC = PLAIN | {"value.format": "ticdc-avro", "schema-registry": REGISTRY}
# EX-32 to EX-35
URI = "kafka://127.0.0.1:9092/topic-name?protocol=avro"
FILE = """[sink]
dispatchers = [
{matcher = ['*.*'], topic = "tidb_{schema}_{table}"},
]
"""


@pytest.mark.req("CFG-123", "CFG-124", "CFG-125", "CFG-126", "CFG-127")
def test_one_registry_serves_keys_and_values_and_statements_have_no_records() -> None:
    cfg = ConnectorConfig.from_properties(TICDC)
    assert cfg.is_ticdc and cfg.is_avro("key") and cfg.is_avro("value")
    key, value = cfg.registry_settings("key"), cfg.registry_settings("value")
    assert key == value and value is not None and value.url == REGISTRY
    assert cfg[F.INCLUDE_SCHEMA_CHANGES] is False
    modes = table_options.ticdc_modes(cfg)
    assert (modes.decimal, modes.bigint_unsigned, modes.extension) == ("precise", "long", False)
    assert record_topics.table_topic_name(cfg, TableId("a", "b")) == "shop.a.b"


@pytest.mark.req("AVRO-03", "CFG-127")
def test_the_account_in_the_registrys_address_is_decoded_and_shown_nowhere() -> None:
    cfg = ConnectorConfig.from_properties(TICDC | {"schema-registry": "https://us%40er:p%2Fw@registry:443"})
    settings = cfg.registry_settings("value")
    assert settings is not None and settings.url == "https://registry:443"
    assert settings.user_info is not None and settings.user_info.reveal() == "us@er:p/w"
    assert "p%2Fw" not in repr(cfg) and "p/w" not in repr(cfg) and "p%2Fw" not in json.dumps(cfg.redacted_properties())


@for_each(
    ("given", "why"),
    [
        ({"event.contract": "1.9"}, "event.contract"),
        ({"provide.transaction.metadata": "true"}, "enable-tidb-extension"),
        ({"include.schema.changes": "true"}, "no records for statements"),
        ({"heartbeat.interval.ms": "1000"}, "rows only"),
        ({"converters": "b", "b.type": "io.debezium.connector.mysql.converters.TinyIntOneToBooleanConverter"}, "TiDB"),
        ({"value.converter.value.subject.name.strategy": "RecordNameStrategy"}, "its subjects are"),
        ({"value.converter.value.schema.id.serializer": "HeaderSchemaIdSerializer"}, "ids are in front of the bytes"),
        ({"key.converter.key.schema.id.serializer": "HeaderSchemaIdSerializer"}, "one registry"),
        ({"key.converter.schema.registry.url": "http://other"}, "one registry"),
        (
            {
                "transforms": "r",
                "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
                "transforms.r.regex": "a",
                "transforms.r.replacement": "b",
            },
            "Use dispatchers",
        ),
        ({"dispatchers": '[{"matcher": ["*.*"], "topic": "all"}]'}, "several tables would share a topic"),
        ({"avro-decimal-handling-mode": "double"}, "must be one of precise, string"),
        ({"avro-bigint-unsigned-handling-mode": "precise"}, "must be one of long, string"),
    ],
)
@pytest.mark.req("AVRO-58", "AVRO-61", "FAULT-29", "CFG-132")
def test_what_has_no_place_in_its_records_is_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        ConnectorConfig.from_properties(TICDC | given)


def test_a_missing_registry_is_named() -> None:
    with pytest.raises(ConfigError, match=r"value\.converter\.schema\.registry\.url.*required"):
        ConnectorConfig.from_properties(PLAIN | {"value.format": "ticdc-avro"})


def test_its_properties_have_no_effect_on_debeziums_events_and_say_so() -> None:
    cfg = ConnectorConfig.from_properties(PLAIN | {"enable-tidb-extension": "true"})
    assert any("enable-tidb-extension has no effect with value.format=debezium" in note for note in cfg.notes)


@pytest.mark.parametrize(
    ("query", "modes"),
    [
        ("", {}),
        ("&enable-tidb-extension=true", {"enable-tidb-extension": "true"}),
        (
            "&avro-decimal-handling-mode=string&avro-bigint-unsigned-handling-mode=string",
            {"avro-decimal-handling-mode": "string", "avro-bigint-unsigned-handling-mode": "string"},
        ),
    ],
)
@pytest.mark.req("AVRO-01", "AVRO-53", "EX-32", "EX-33", "EX-34", "EX-35", "CFG-123", "CFG-128", "CFG-132")
def test_the_seeds_changefeeds_become_properties(query: str, modes: dict[str, str]) -> None:
    found = changefeed_properties(URI + query, REGISTRY, FILE)
    assert found == {
        "kafka.bootstrap.servers": "127.0.0.1:9092",
        "value.format": "ticdc-avro",
        "schema-registry": REGISTRY,
        "dispatchers": '[{"matcher": ["*.*"], "topic": "tidb_{schema}_{table}"}]',
        **modes,
    }
    cfg = ConnectorConfig.from_properties(PLAIN | found)
    assert record_topics.table_topic_name(cfg, TableId("shop", "orders")) == "tidb_shop_orders"


@for_each(
    ("uri", "registry", "file", "why"),
    [
        ("mysql://127.0.0.1:3306", REGISTRY, FILE, "Kafka only"),
        ("kafka://h:9092/t?protocol=canal-json", REGISTRY, FILE, "protocol is not avro"),
        (URI + "&max-retry=3", REGISTRY, FILE, "max-retry has no equivalent"),
        (URI, "", FILE, "no schema registry"),
        (URI, REGISTRY, "", "no dispatcher"),
        (URI, REGISTRY, "[sink", "not valid TOML"),
        (URI, REGISTRY, "sink = 5", "the setting sink has no equivalent"),
        (URI, REGISTRY, "[sink]\ndispatchers = 5", "not a list of objects"),
        (URI, REGISTRY, "[[sink.dispatchers]]\nmatcher = ['*.*']\ntopic = 2020-01-01", "topic rule '2020-01-01'"),
        (
            URI,
            REGISTRY,
            FILE + "[filter]\nrules = ['shop.*']",
            r"filter\.rules has no equivalent.*table\.include\.list",
        ),
        (
            URI,
            REGISTRY,
            FILE + "[[filter.event-filters]]\nmatcher = ['a.b']\nignore-event = ['delete']",
            "event-filters",
        ),
        (URI, REGISTRY, FILE + "column-selectors = [{matcher = ['a.*'], columns = ['id']}]", "column-selectors"),
        (URI, REGISTRY, FILE + "protocol = 'canal-json'", r"sink\.protocol"),
        (URI, REGISTRY, FILE + "[sink.kafka-config.codec-config]\navro-enable-watermark = true", "watermark"),
        (URI, REGISTRY, FILE + "[sink.kafka-config]\nsasl-password = 'word'", r"kafka-config\.sasl-password"),
        (URI, REGISTRY, FILE + "nobody-knows = 1", r"sink\.nobody-knows"),
        ("kafka://[::1/t?protocol=avro", REGISTRY, FILE, "no address"),
        ("kafka://user:word@h:9092/t?protocol=avro", REGISTRY, FILE, "account in its address"),
    ],
)
def test_a_changefeed_without_an_equivalent_is_named(uri: str, registry: str, file: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        changefeed_properties(uri, registry, file)
    assert "word" not in str(caught.value).replace("password", "")


def test_other_settings_of_a_changefeeds_file_count_or_have_no_effect() -> None:
    more = """
protocol = "avro"
encoder-concurrency = 16
[sink.kafka-config.codec-config]
enable-tidb-extension = true
avro-decimal-handling-mode = "string"
avro-enable-watermark = false
[filter]
rules = ["*.*"]
[mounter]
worker-num = 16
"""
    found = changefeed_properties(
        URI + "&avro-decimal-handling-mode=precise", REGISTRY, "bdr-mode = false\n" + FILE + more
    )
    assert found["enable-tidb-extension"] == "true"
    assert found["avro-decimal-handling-mode"] == "precise", "the address decides"
    assert not any("worker" in name or "filter" in name for name in found)


@pytest.mark.req("CFG-131")
def test_the_command_prints_them_and_takes_no_account(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "changefeed.toml"
    path.write_text(FILE)
    line = ["changefeed", "--sink-uri", URI, "--config", str(path), "--schema-registry"]
    assert program.main([*line, REGISTRY]) == 0
    assert json.loads(capsys.readouterr().out)["schema-registry"] == REGISTRY
    assert program.main([*line, "https://user:word@registry"]) == 1
    told = capsys.readouterr()
    assert "contains its account" in told.err and "word" not in told.err + told.out
    assert program.main([*line[:3], "--config", str(tmp_path / "none")]) == 1
    path.write_text(FILE + 'schema-registry = "https://user:word@registry"\n')
    assert program.main(line[:-1]) == 1
    told = capsys.readouterr()
    assert "contains its account" in told.err and "word" not in told.err + told.out


def test_only_a_captured_table_needs_a_dispatcher() -> None:
    """A table beside them that is dropped, or whose rows nobody asks for, must not stop the stream."""
    rules = '[{"matcher": ["shop.*"], "topic": "{schema}_{table}"}]'
    cfg = ConnectorConfig.from_properties(TICDC | {"dispatchers": rules, "database.include.list": "shop,other"})
    with pytest.raises(ConfigError, match=r"no dispatcher fits table other\.t"):
        record_topics.unrouted_topic(cfg, TableId("other", "t"))
    beside, long = TableId("beside", "t"), TableId("beside", "t" * 300)
    owners = record_topics.topic_owners(cfg, {TableId("shop", "orders"), beside, long})
    owners.update_tables({TableId("shop", "orders")}, "binlog.000001:4")
    assert record_topics.table_topic_name(cfg, beside) == "shop.beside.t"


@pytest.mark.req("AVRO-54")
def test_statements_give_no_record() -> None:
    assert ConnectorConfig.from_properties(PLAIN)[F.INCLUDE_SCHEMA_CHANGES]
    assert not ConnectorConfig.from_properties(TICDC)[F.INCLUDE_SCHEMA_CHANGES]


@pytest.mark.req("AVRO-54")
def test_truncate_gives_no_record_for_any_skipped_operations() -> None:
    cfg = ConnectorConfig.from_properties(TICDC | {"skipped.operations": "none"})
    assert table_options.decoder_options(cfg).skipped_ops == {"t"}
    assert any("TRUNCATE gives no record" in note for note in cfg.notes)
    cfg = ConnectorConfig.from_properties(TICDC | {"skipped.operations": "d"})
    assert table_options.decoder_options(cfg).skipped_ops == {"d", "t"}


def test_keys_of_other_records_keep_the_schema_from_which_avro_is_made() -> None:
    given = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
    cfg = ConnectorConfig.from_properties(TICDC | given)
    assert cfg[F.KEY_SCHEMAS_ENABLE] and cfg[F.VALUE_SCHEMAS_ENABLE]
    assert [name for name in given if any(note.startswith(f"{name} has no effect") for note in cfg.notes)] == [*given]
