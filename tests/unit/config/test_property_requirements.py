"""The manuals' tables of properties, row by row: name, default, values; or how this release answers instead."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.field import Alias, Field
from airflow_provider_mysql_cdc.cdc.model.connection import Secret

BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}


def config(given: Mapping[str, str]) -> ConnectorConfig:
    return ConnectorConfig.from_properties({**BASE, **given})


def field_of(name: str) -> Field[Any]:
    """Return the field that a property of either generation sets."""
    older = {a.name if isinstance(a, Alias) else a: f for f in F.ALL for a in f.aliases}
    name = name.replace("database.history.", "schema.history.internal.")
    return F.BY_NAME.get(name) or older[name]


def text(value: Any) -> str:
    """Return a parsed value as the text that gives it."""
    if isinstance(value, frozenset):
        return ",".join(sorted(str(v.value) for v in value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, Secret):
        return value.reveal()
    return str(getattr(value, "source", value))


@pytest.mark.parametrize(
    ("name", "default", "values"),
    [
        pytest.param("database.port", "3306", "3307", marks=pytest.mark.req("CFG-05")),
        pytest.param("database.password", "", "secret", marks=pytest.mark.req("CFG-07")),
        pytest.param("database.include.list", "", "shop,sales_.*", marks=pytest.mark.req("CFG-10")),
        pytest.param("database.exclude.list", "", "shop,sales_.*", marks=pytest.mark.req("CFG-11")),
        pytest.param("table.include.list", "", "shop.orders,shop.x_.*", marks=pytest.mark.req("CFG-12")),
        pytest.param("table.exclude.list", "", "shop.orders,shop.x_.*", marks=pytest.mark.req("CFG-13")),
        pytest.param("column.exclude.list", "", "shop.orders.note", marks=pytest.mark.req("CFG-14")),
        pytest.param("column.include.list", "", "shop.orders.id", marks=pytest.mark.req("CFG-15")),
        pytest.param("column.propagate.source.type", "", "shop.orders.id", marks=pytest.mark.req("CFG-20")),
        pytest.param("datatype.propagate.source.type", "", "shop.VARCHAR", marks=pytest.mark.req("CFG-21")),
        pytest.param(
            "time.precision.mode",
            "adaptive_time_microseconds",
            "adaptive_time_microseconds adaptive connect",
            marks=pytest.mark.req("CFG-22"),
        ),
        pytest.param("decimal.handling.mode", "precise", "precise double string", marks=pytest.mark.req("CFG-23")),
        pytest.param("bigint.unsigned.handling.mode", "long", "long precise", marks=pytest.mark.req("CFG-24")),
        pytest.param("include.schema.changes", "true", "true false", marks=pytest.mark.req("CFG-25", "SCH-18")),
        pytest.param("include.query", "false", "true false", marks=pytest.mark.req("CFG-27")),
        pytest.param("connect.timeout.ms", "30000", "1500", marks=pytest.mark.req("CFG-34")),
        pytest.param("tombstones.on.delete", "true", "true false", marks=pytest.mark.req("CFG-38")),
        pytest.param("message.key.columns", "", "shop.orders:a,b;(.*).items:c", marks=pytest.mark.req("CFG-39")),
        pytest.param("binary.handling.mode", "bytes", "bytes base64 hex", marks=pytest.mark.req("CFG-40")),
        # 1.9's default is avro; since Debezium 2.0 it is none.
        pytest.param("schema.name.adjustment.mode", "none", "avro none", marks=pytest.mark.req("CFG-41")),
        # 1.9's default is disabled; since Debezium 2.0 it is preferred.
        pytest.param(
            "database.ssl.mode",
            "preferred",
            "disabled preferred required verify_ca verify_identity",
            marks=pytest.mark.req("CFG-48"),
        ),
        pytest.param(
            "snapshot.mode", "initial", "initial initial_only when_needed never", marks=pytest.mark.req("CFG-50")
        ),
        pytest.param(
            "snapshot.locking.mode",
            "minimal",
            "minimal minimal_percona extended none",
            marks=pytest.mark.req("CFG-51"),
        ),
        pytest.param("snapshot.include.collection.list", "", "shop.orders,shop.x_.*", marks=pytest.mark.req("CFG-52")),
        pytest.param("heartbeat.interval.ms", "0", "5000", marks=pytest.mark.req("CFG-56")),
        pytest.param("heartbeat.topics.prefix", "__debezium-heartbeat", "hb", marks=pytest.mark.req("CFG-57")),
        pytest.param("snapshot.lock.timeout.ms", "10000", "1", marks=pytest.mark.req("CFG-62")),
        pytest.param("enable.time.adjuster", "true", "true false", marks=pytest.mark.req("CFG-63")),
        pytest.param("source.struct.version", "v2", "v2", marks=pytest.mark.req("CFG-64")),
        # Truncations are left out, too, since Debezium 2.0; "none" brings them.
        pytest.param("skipped.operations", "t", "c c,d c,d,u", marks=pytest.mark.req("CFG-66")),
        pytest.param("signal.kafka.topic", "p-signal", "signals", marks=pytest.mark.req("CFG-96")),
        pytest.param("signal.kafka.bootstrap.servers", "k:1", "k:2,k:3", marks=pytest.mark.req("CFG-97")),
        pytest.param("signal.kafka.poll.timeout.ms", "100", "0 5000", marks=pytest.mark.req("CFG-98")),
        pytest.param("provide.transaction.metadata", "false", "true false", marks=pytest.mark.req("CFG-71")),
        pytest.param("database.history.skip.unparseable.ddl", "false", "true false", marks=pytest.mark.req("CFG-79")),
        pytest.param(
            "database.history.store.only.monitored.tables.ddl", "false", "true false", marks=pytest.mark.req("CFG-80")
        ),
        pytest.param(
            "database.history.store.only.captured.tables.ddl", "false", "true false", marks=pytest.mark.req("CFG-81")
        ),
    ],
)
def test_a_property_has_its_default_and_takes_its_values(name: str, default: str, values: str) -> None:
    assert text(config({})[field_of(name)]) == default
    for value in values.split(" "):
        assert text(config({name: value})[field_of(name)]) == value


@pytest.mark.req("CFG-65")
@for_each(
    ("contract", "part", "means"),
    [("1.9", "key", "avro"), ("1.9", "value", "avro"), ("1.9", None, "none"), ("3.x", "value", "none")],
)
def test_field_names_are_made_fit_for_avro_where_debezium_1_9_did(contract: str, part: str | None, means: str) -> None:
    given = {"event.contract": contract}
    if part is not None:
        registry = f"{part}.converter.schema.registry.url"
        given |= {f"{part}.converter": "io.confluent.connect.avro.AvroConverter", registry: "http://r:8081"}
    assert text(config(given)[field_of("field.name.adjustment.mode")]) == means
    assert text(config(given | {"sanitize.field.names": "false"})[field_of("sanitize.field.names")]) == "none"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("database.hostname", marks=pytest.mark.req("CFG-04")),
        pytest.param("database.user", marks=pytest.mark.req("CFG-06")),
    ],
)
def test_what_has_no_default_must_be_given(name: str) -> None:
    (found,) = ConnectorConfig.check({n: v for n, v in BASE.items() if n != name})
    assert found.name == name and found.fix
    assert text(config({name: "other"})[field_of(name)]) == "other"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("max.batch.size", "2048", marks=pytest.mark.req("CFG-30")),
        pytest.param("max.queue.size", "8192", marks=pytest.mark.req("CFG-31")),
        pytest.param("max.queue.size.in.bytes", "5000", marks=pytest.mark.req("CFG-32")),
        pytest.param("gtid.new.channel.position", "earliest", marks=pytest.mark.req("CFG-37")),
        pytest.param("connect.keep.alive", "true", marks=pytest.mark.req("CFG-42")),
        pytest.param("min.row.count.to.stream.results", "1000", marks=pytest.mark.req("CFG-55")),
        pytest.param("snapshot.delay.ms", "10", marks=pytest.mark.req("CFG-60")),
        pytest.param("snapshot.fetch.size", "10", marks=pytest.mark.req("CFG-61")),
        pytest.param("database.history.kafka.recovery.poll.interval.ms", "100", marks=pytest.mark.req("CFG-76")),
        pytest.param("database.history.kafka.query.timeout.ms", "3000", marks=pytest.mark.req("CFG-77")),
        pytest.param("database.history.kafka.recovery.attempts", "4", marks=pytest.mark.req("CFG-78")),
        pytest.param("plugin.path", "/plugins", marks=pytest.mark.req("CFG-108")),
    ],
)
def test_what_tunes_machinery_that_is_not_here_is_accepted_and_said_to_do_nothing(name: str, value: str) -> None:
    plain, given = config({}), config({name: value})
    tail = name.removeprefix("database.history.")
    assert any(note.split()[0].endswith(tail) and " has no effect: " in note for note in given.notes)
    assert [given[f] for f in F.ALL if not f.secret] == [plain[f] for f in F.ALL if not f.secret]


@pytest.mark.parametrize(
    ("name", "value", "harmless"),
    [
        pytest.param("binlog.buffer.size", "1000", "0", marks=pytest.mark.req("CFG-49")),
        pytest.param("database.initial.statements", "SET a = 1", "", marks=pytest.mark.req("CFG-59")),
        pytest.param("internal.implementation", "legacy", None, marks=pytest.mark.req("CFG-73")),
    ],
)
def test_what_would_change_the_events_is_refused_by_name_and_never_left_out(
    name: str, value: str, harmless: str | None
) -> None:
    (found,) = ConnectorConfig.check({**BASE, name: value})
    assert found.name == name and found.what and found.fix
    assert harmless is None or ConnectorConfig.check({**BASE, name: harmless}) == []


@pytest.mark.parametrize(
    ("name", "counted", "uncounted"),
    [
        pytest.param("gtid.source.includes", "AAAA-1", "aaaa-12", marks=pytest.mark.req("CFG-35")),
        pytest.param("gtid.source.excludes", "aaaa-12", "AAAA-1", marks=pytest.mark.req("CFG-36")),
    ],
)
def test_servers_whose_transactions_count_are_told_by_expressions_for_the_whole_uuid(
    name: str, counted: str, uncounted: str
) -> None:
    cfg = config({name: r"aaaa-\d,cccc-.*"})
    assert cfg.filters_gtid_sources and cfg.counts_gtid_source(counted) and not cfg.counts_gtid_source(uncounted)
    assert cfg.writes_rows_of(counted) and not cfg.writes_rows_of(uncounted)
    written = config({name: r"aaaa-\d,cccc-.*", "gtid.source.filter.dml.events": "false"})
    assert written.writes_rows_of(uncounted) and not written.counts_gtid_source(uncounted)
    assert not config({}).filters_gtid_sources and config({}).counts_gtid_source(uncounted)
