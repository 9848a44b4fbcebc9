"""What a plan remembers of the configuration, and what may change inside a batch."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config import kafka
from airflow_provider_mysql_cdc.cdc.config import property_families as families
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.field import PinScope
from airflow_provider_mysql_cdc.cdc.config.pinned_properties import (
    FAMILY_PIN_SCOPES,
    RECORD_FORMAT_LABEL,
    changed_pins,
    pin_scope,
    property_pins,
)
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.formats.record_topics import topic_share
from airflow_provider_mysql_cdc.cdc.job.config_guard import require_same_pins
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition
from airflow_provider_mysql_cdc.cdc.sink.murmur2 import partition

BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}
FREE = {
    # names and connections
    "name", "connector.class", "database.hostname", "database.port", "database.user", "database.password",
    "database.server.id", "database.ssl.mode", "database.ssl.ca", "database.ssl.cert", "database.ssl.key",
    "database.ssl.key.password", "kafka.bootstrap.servers", "schema.history.internal.kafka.bootstrap.servers",
    # waiting, size and speed; the plan itself holds the number of writers and the end of the batch
    "connect.timeout.ms", "connect.max.attempts", "database.query.timeout.ms", "source.silence.timeout.ms",
    "transaction.timeout.ms", "gtid.ignore.on.recovery",
    "snapshot.lock.timeout.ms", "snapshot.locking.mode", "snapshot.chunk.rows", "snapshot.parallelism",
    "drain.writers", "drain.small.batch.bytes", "max.batch.bytes", "commit.bytes", "commit.interval.ms",
    "poll.interval.ms", "verify.rows.per.second", "verify.max.execution.time.ms", "verify.group.rows",
    "verify.replica.timeout.ms",
    "repair.max.rows",
    "topic.creation.default.replication.factor", "heartbeat.action.query", "topic.settings.verified",
    # signals and notifications; what a signal leads to is fixed when it is taken, between two batches; structures that
    # a row of the signal table tells are not, so whether these rows count is
    "signal.data.collection.create", "signal.trusted.channels", "signal.kafka.topic",
    "signal.kafka.bootstrap.servers", "signal.kafka.groupId", "signal.kafka.poll.timeout.ms", "read.only",
    "incremental.snapshot.chunk.size", "incremental.snapshot.allow.schema.changes",
    "incremental.snapshot.watermarking.strategy", "snapshot.after.unlogged.changes", "snapshot.new.tables",
    "notification.enabled.channels", "notification.sink.topic.name",
    # ways out: what one value lets pass stops the batch under the other, so nothing was passed under both
    "errors.tolerance",
    "event.processing.failure.handling.mode", "inconsistent.schema.handling.mode", "unavailable.value.as.null",
    "schema.history.internal.store.only.captured.databases.ddl", "include.schema.changes",
    "schema.history.internal.store.only.captured.tables.ddl",
    "schema.history.internal.skip.unparseable.ddl", "errors.deadletterqueue.topic.name",
    "schema.history.description.statements",
}  # fmt: skip
SNAPSHOT_ONLY = {"snapshot.mode", "snapshot.include.collection.list", "snapshot.select.statement.overrides"}
HASH = "column.mask.hash.SHA-256.with.salt."


def config(**properties: str) -> ConnectorConfig:
    return ConnectorConfig.from_properties(BASE | {k.replace("__", "."): v for k, v in properties.items()})


def of(properties: dict[str, str], *, snapshot: bool = False) -> dict[str, str]:
    return property_pins(ConnectorConfig.from_properties(BASE | properties), snapshot=snapshot)


def test_every_property_is_classified_and_those_that_decide_nothing_are_listed_here() -> None:
    converters = {f.name: f for part in F.PARTS for f in F.CONVERTER_FIELDS[part].all()}
    assert {f.name for f in F.ALL if f.pin_scope is PinScope.NOTHING} - converters.keys() == FREE
    # How the registry is asked decides nothing: the ids of keys are compared by subject (docs/adr/0017).
    assert {name for name, f in converters.items() if f.pin_scope is not PinScope.NOTHING} == {
        "key.converter.connect.meta.data",
        "key.converter.key.subject.name.strategy",
        "key.converter.key.schema.id.serializer",
        "value.converter.value.schema.id.serializer",
        "value.converter.connect.meta.data",
        "value.converter.ignore.default.for.nullables",
    }
    assert {f.name for f in F.ALL if f.pin_scope is PinScope.SNAPSHOT} == SNAPSHOT_ONLY


def test_every_family_is_classified() -> None:
    assert set(FAMILY_PIN_SCOPES) == {*families._PREFIXES, families.DRIVER_PREFIX}
    assert {p for p, d in FAMILY_PIN_SCOPES.items() if d is PinScope.NOTHING} == {
        *kafka.PREFIXES,
        families.DRIVER_PREFIX,
        families.REPLICA_PREFIX,
        families.TOPIC_CREATION_PREFIX,
    }


@for_each(
    ("name", "expected"),
    [
        ("transforms.a.regex", PinScope.EVENTS),
        ("myconverter.selector", PinScope.EVENTS),
        ("column.truncate.to.3.chars", PinScope.EVENTS),
        ("snapshot.select.statement.overrides.d.t", PinScope.SNAPSHOT),
        ("kafka.linger.ms", PinScope.NOTHING),
        ("database.read_timeout", PinScope.NOTHING),
        ("tasks.max", PinScope.NOTHING),
        ("openlineage.integration.enabled", PinScope.NOTHING),
        ("a.property.of.tomorrow", PinScope.EVENTS),
    ],
)
def test_names_without_a_field(name: str, expected: PinScope) -> None:
    assert pin_scope(name) is expected


@for_each(
    ("name", "value"),
    [
        ("key.converter.schemas.enable", "false"),
        ("message.key.columns", "d.t:a"),
        ("event.contract", "1.9"),
        ("table.include.list", "d\\.t"),
        ("column.include.list", "d\\.t\\.a"),
        ("column.mask.with.3.chars", "d\\.t\\.a"),
        ("field.name.adjustment.mode", "avro"),
        ("tombstones.on.delete", "false"),
        ("skipped.operations", "c"),
        ("topic.creation.default.partitions", "3"),
        ("provide.transaction.metadata", "true"),
        ("heartbeat.interval.ms", "1000"),
        ("decimal.handling.mode", "string"),
        ("schema.history.internal.kafka.topic", "other"),
    ],
)
def test_a_changed_property_is_named_with_both_values(name: str, value: str) -> None:
    found = changed_pins(of({}), of({name: value}))
    assert len(found) == 1 and found[0].startswith(name) and value in found[0].replace("\\\\", "\\")


def test_a_value_written_otherwise_or_equal_to_the_default_is_no_change() -> None:
    same = {"tombstones.on.delete": "TRUE", "skipped.operations": "t", "event.contract": "3.x", "decimal.handling.mode":
            "Precise", "ledger.topic": "ledger.p", "schema.name.adjustment.mode": "none"}  # fmt: skip
    assert of(same) == of({}) == {RECORD_FORMAT_LABEL: "=1", "topic.prefix": "=p"}
    assert of({"skipped.operations": "c,d"}) == of({"skipped.operations": "d, c"})


# What properties are read into values of their own classes.
OBJECTS = {
    "table.include.list": "a\\.b,c\\..*",
    "message.key.columns": "a.b:c,d",
    "column.include.list": "a\\.b\\.c",
    "column.mask.hash.SHA-256.with.salt.x": "a.b.c",
    "signal.enabled.channels": "source,airflow",
    "converters": "bool",
    "bool.type": "io.debezium.connector.mysql.converters.TinyIntOneToBooleanConverter",
}
RULES = '[{"matcher": ["*.*"], "topic": "{schema}_{table}"}]'


@pytest.mark.parametrize(
    "given", [OBJECTS, {"value.format": "ticdc-avro", "schema-registry": "http://r:1", "dispatchers": RULES}]
)
def test_another_process_finds_the_same_pins(given: dict[str, str]) -> None:
    # Two objects of one process have two addresses, as those of two processes may have.
    first, second = (ConnectorConfig.from_properties(BASE | given) for _ in range(2))
    assert property_pins(first, snapshot=True) == property_pins(second, snapshot=True)
    assert changed_pins(
        property_pins(first, snapshot=True), property_pins(ConnectorConfig.from_properties(BASE), snapshot=True)
    )


def test_properties_of_the_snapshot_are_pinned_in_a_snapshot_only() -> None:
    given = {"snapshot.mode": "no_data", "snapshot.include.collection.list": "d.t"}
    assert of(given) == of({})
    assert set(of(given, snapshot=True)) - set(of({})) == {*given}


def test_a_new_default_is_a_change() -> None:
    """A value equal to the default is left out; the form of the records is raised with a default that decides."""
    assert changed_pins(of({}) | {RECORD_FORMAT_LABEL: "=0"}, of({})) == (f"{RECORD_FORMAT_LABEL} (was '0', is '1')",)


def test_rules_for_columns_are_pinned_in_their_order() -> None:
    one, two = {"column.truncate.to.3.chars": "d.t.a"}, {"column.mask.with.3.chars": "d.t.a"}
    assert changed_pins(of(one | two), of(two | one))
    assert not changed_pins(of(one | two), of(one | two))


def test_salts_and_long_values_are_pinned_as_digests() -> None:
    with_salt = [of({f"{HASH}{salt}": "d.t.a"}) for salt in ("CzQMA0cB5K", "CzQMA0cB5K", "another")]
    assert with_salt[0] == with_salt[1] != with_salt[2]
    assert not any("CzQMA0cB5K" in f"{name}{pin}" for name, pin in with_salt[0].items())
    assert changed_pins(with_salt[0], with_salt[2]) == (f"{HASH}*** (was another text, is another text)",)
    long = of({"table.include.list": ",".join(f"d\\.t{i}" for i in range(1000))})
    assert len(long["table.include.list"]) == 17


def test_the_text_of_a_converters_module_is_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "class Mine:\n    def configure(self, settings):\n        pass\n    def converter_for(self, column):\n"
    monkeypatch.syspath_prepend(str(tmp_path))
    made = []
    for body in ("        return None\n", "        return None\n", "        return 0 or None\n"):
        (tmp_path / "pinned_converter.py").write_text(code + body)
        sys.modules.pop("pinned_converter", None)
        made.append(of({"converters": "m", "m.type": "pinned_converter.Mine"}))
    sys.modules.pop("pinned_converter", None)
    assert made[0] == made[1]
    assert [c.split(" (")[0] for c in changed_pins(made[0], made[2])] == ["source text of pinned_converter.Mine"]
    without = {k: v for k, v in made[2].items() if not k.startswith("source text")}
    assert changed_pins(made[0], without) == (), "where only bytecode is there, nothing can be compared"


def plan(found: dict[str, str], kind: str = "drain") -> BatchPlan:
    place = BinlogOffset("b.1", 4)
    return replace(BatchPlan(3, "drain", place, place, 2, pins=found), kind=kind)  # type: ignore[arg-type]


def test_a_changed_plan_is_refused_by_name_with_the_way_out() -> None:
    require_same_pins(plan(of({})), of({}))
    require_same_pins(plan({}), of({}))
    with pytest.raises(ConfigError) as caught:
        require_same_pins(plan(of({})), of({"message.key.columns": "d.t:a", "tombstones.on.delete": "false"}))
    text = str(caught.value)
    assert "message.key.columns" in text and "tombstones.on.delete" in text and not caught.value.can_retry
    assert "set them back" in text and "mysql_cdc_reset_offset" in text
    with pytest.raises(ConfigError, match="again=true"):
        require_same_pins(plan(of({}), "snapshot"), of({"message.key.columns": "d.t:a"}))


def test_the_pins_of_a_plan_are_not_its_work() -> None:
    assert plan(of({"message.key.columns": "d.t:a"})).same_work(plan({}))


def test_a_plan_is_begun_by_a_marker_a_chunk_or_a_view_of_its_epoch() -> None:
    place = BinlogOffset("b.1", 4)
    markers = {0: Marker(3, 0, place, place, ResumePosition(place, 0))}
    assert not LedgerState().has_commits()
    assert not LedgerState(plan=plan({}), markers={0: replace(markers[0], epoch=2)}).has_commits()
    assert LedgerState(plan=plan({}), markers=markers).has_commits()
    assert not LedgerState(plan=plan({}), chunks={"d.t/0": {"epoch": 3}}).has_commits()  # planned, not read
    assert LedgerState(plan=plan({}), chunks={"d.t/0": {"epoch": 3, "offset": place.to_json()}}).has_commits()
    assert LedgerState(plan=plan({}), other_records={"view": {"epoch": 3}}).has_commits()
    assert not LedgerState(plan=plan({}), other_records={"view": {"epoch": 2}}).has_commits()
    assert not LedgerState(plan=plan({}), other_records={"progress": {"epoch": 3}}).has_commits()  # only metrics


def test_what_the_form_of_the_records_stands_for() -> None:
    """When one of these values has to change, a begun batch must not be finished by the new release: raise the form."""
    made = replace(plan({}), writers=3, assignment={"t": (0, 1, 2, 0)}, partitions={"t": 4})
    assert [topic_share(made, w, "t", 1).assigned for w in range(3)] == [{0, 3}, {1}, {2}]
    assert [topic_share(made, w, "born", 2).assigned for w in range(3)] == [{0, 1}, set(), set()]
    assert [partition(key, 6) for key in (b'{"id":1}', b'{"id":2}', b"")] == [0, 4, 3]


@pytest.mark.req("TOPIC-05")
def test_a_chain_of_transforms_may_be_mended_inside_a_batch_but_neither_begun_nor_ended() -> None:
    """Events are counted before the chain; what writes behind it is one writer, which plain streams are not."""
    debezium, connect = "io.debezium.transforms.", "org.apache.kafka.connect.transforms."
    unwrap = {"transforms": "u", "transforms.u.type": f"{debezium}ExtractNewRecordState"}
    mended = unwrap | {
        "transforms.u.predicate": "p",
        "transforms.u.negate": "true",
        "predicates": "p",
        "predicates.p.type": f"{connect}predicates.RecordIsTombstone",
        "value.converter.schemas.enable": "false",
    }
    assert changed_pins(of(unwrap), of(mended)) == ()
    for other in ({}, {"transforms": "r", "transforms.r.type": f"{connect}RegexRouter", "transforms.r.regex": "a",
                       "transforms.r.replacement": "b"}):  # fmt: skip
        assert any(text.startswith("transforms (was ") for text in changed_pins(of(other), of(unwrap)))
    assert changed_pins(of(unwrap), of(unwrap | {"tombstones.on.delete": "false"}))
