"""What a schema registry answers, and what becomes of it: ids, named errors, columns that differ."""

from __future__ import annotations

import functools
import json
import ssl
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from avrolib.fake_registry import FakeRegistry, guid_of, running_registry
from confluent_kafka.schema_registry import SchemaRegistryClient

from airflow_provider_mysql_cdc.cdc.avro.registry_schemas import canonical_form, differences, equivalent_schemas
from airflow_provider_mysql_cdc.cdc.avro.schema_registry import SchemaRegistry, client_settings
from airflow_provider_mysql_cdc.cdc.errors import (
    ConfigError,
    IncompatibleSchemaError,
    RegistryAuthError,
    RegistryConnectionError,
    RegistryError,
)
from airflow_provider_mysql_cdc.cdc.model.connection import OAuthClient, RegistrySettings, SchemaId, Secret

pytestmark = pytest.mark.quick


def record(*fields: tuple[str, Any], name: str = "p.t.Value") -> dict[str, Any]:
    space, _, short = name.rpartition(".")
    members = [{"name": n, "type": t, **({"default": None} if isinstance(t, list) else {})} for n, t in fields]
    return {"type": "record", "name": short, "namespace": space, "fields": members}


def envelope(*fields: tuple[str, Any]) -> dict[str, Any]:
    row = record(*fields)
    return record(("before", ["null", row]), ("after", ["null", "Value"]), ("op", "string"), name="p.t.Envelope")


OLD, NEW = (json.dumps(envelope(("id", "long"), *more)) for more in ([("a", "int")], [("a", "string"), ("b", "int")]))


@pytest.fixture(scope="module")
def server() -> Iterator[FakeRegistry]:
    # Each client reads the machine's certificates, for 40 ms; here none is asked over TLS.
    with pytest.MonkeyPatch.context() as patch, running_registry() as found:
        patch.setattr(ssl, "create_default_context", functools.cache(ssl.create_default_context))
        yield found


@pytest.fixture
def fake(server: FakeRegistry) -> FakeRegistry:
    server.wipe(1)
    server.requests.clear()
    server.bodies.clear()
    server.tokens, server.token_s = 0, 3600
    server.broken, server.delay_s, server.refuses, server.guids = [], 0, lambda subject, text: None, False
    return server


def settings(fake: FakeRegistry, **more: Any) -> RegistrySettings:
    quick = RegistrySettings(url=fake.url, retries=2, retry_wait_ms=1, retry_max_wait_ms=2)
    return replace(quick, **more)


def ask(fake: FakeRegistry, text: str = OLD, **more: Any) -> int:
    return identify(fake, text, **more).number


def identify(fake: FakeRegistry, text: str = OLD, **more: Any) -> SchemaId:
    registry = SchemaRegistry(settings(fake, **more))
    try:
        return registry.schema_id("t-value", text, "table shop.t")
    finally:
        registry.close()


def test_a_schema_is_registered_and_has_one_id(fake):
    assert ask(fake) == ask(fake) == 1
    assert ask(fake, NEW) == 2
    assert fake.subjects == {"t-value": [OLD, NEW]}


GUIDS = {"guids_for": "key.converter.key.schema.id.serializer"}


@pytest.mark.parametrize("how", [{}, {"register": False}, {"use_latest": True}])
def test_a_guid_comes_with_the_answer_however_the_schema_is_asked_for(fake, how):
    fake.guids = True
    ask(fake)
    assert identify(fake, **GUIDS, **how) == SchemaId(1, guid_of(OLD))
    assert identify(fake, **how) == SchemaId(1)


def test_a_client_that_gives_but_the_id_is_as_good_where_no_guid_is_wanted(fake, monkeypatch):
    fake.guids = True
    monkeypatch.delattr(SchemaRegistryClient, "register_schema_full_response")
    monkeypatch.setattr(SchemaRegistryClient, "register_schema", lambda *_, **given: 7)
    assert identify(fake) == SchemaId(7)
    with pytest.raises(RegistryError, match=r"confluent-kafka before 2\.11"):
        identify(fake, **GUIDS)


@pytest.mark.parametrize("given", [None, "", "no-guid", 7])
def test_a_registry_without_guids_is_named_with_what_to_do(fake, monkeypatch, given):
    monkeypatch.setattr(fake, "_guid", lambda text: {} if given is None else {"guid": given})
    with pytest.raises(RegistryError) as found:
        identify(fake, **GUIDS)
    error = found.value
    assert GUIDS["guids_for"] in error.what
    assert GUIDS["guids_for"] in error.remedy
    assert f"table shop.t, subject t-value, registry {fake.url}" in error.where
    assert ("none" if given is None else repr(given)) in error.why
    assert not error.can_retry


def test_without_registration_the_schema_has_to_be_there(fake):
    with pytest.raises(RegistryError, match="does not have") as found:
        ask(fake, register=False)
    assert not found.value.can_retry
    assert "subject t-value" in found.value.where
    assert fake.subjects == {}
    ask(fake)
    assert ask(fake, register=False) == 1


def test_the_latest_version_is_taken_when_it_means_the_same(fake):
    described = json.loads(OLD)
    described["fields"][2]["doc"] = "kind of change"
    described["connect.name"] = "x"
    ask(fake, json.dumps(described))
    assert ask(fake, use_latest=True) == 1
    with pytest.raises(IncompatibleSchemaError, match="column a was int, is string; column b is new: int"):
        ask(fake, NEW, use_latest=True)
    assert len(fake.subjects["t-value"]) == 1


def test_rows_from_before_a_change_get_the_last_version_that_fits_them(fake):
    described = json.loads(OLD)
    described["fields"][2]["doc"] = "kind of change"
    for text in (OLD, json.dumps(described), NEW):
        ask(fake, text)
    assert ask(fake, NEW, use_latest=True) == 3
    assert ask(fake, OLD, use_latest=True) == 2
    other = json.dumps(envelope(("id", "long"), ("c", "int")))
    with pytest.raises(IncompatibleSchemaError, match="column b is gone"):
        ask(fake, other, use_latest=True)


def named(name: str | None) -> dict[str, Any]:
    kind = {"type": "long", **({} if name is None else {"connect.version": 1, "connect.name": name})}
    return envelope(("id", "long"), ("at", ["null", kind]))


def unsigned(*, yes: bool) -> dict[str, Any]:
    name = "BIGINT UNSIGNED" if yes else "BIGINT"
    return record(("b", ["null", {"type": "long", "connect.parameters": {"tidb_type": name}}]))


def test_the_latest_version_is_refused_when_its_numbers_stand_for_something_else(fake):
    millis, micros = "io.debezium.time.Timestamp", "io.debezium.time.MicroTimestamp"
    assert equivalent_schemas(named(millis), named(millis)) and equivalent_schemas(
        unsigned(yes=True), unsigned(yes=True)
    )
    # Somebody who registers schemas may leave the names of Connect out.
    assert equivalent_schemas(named(None), named(micros)) and not equivalent_schemas(named(micros), named(None))
    assert not equivalent_schemas(unsigned(yes=False), unsigned(yes=True))
    ask(fake, json.dumps(named(millis)))
    with pytest.raises(IncompatibleSchemaError, match=f"column at is {millis} in the registry, {micros} in the table"):
        ask(fake, json.dumps(named(micros)), use_latest=True)
    assert fake.subjects == {"t-value": [json.dumps(named(millis))]}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("long", "io.debezium.time.Timestamp"),
        ("long", "io.debezium.time.MicroTimestamp"),
        ("long", "io.debezium.time.MicroTime"),
        ("long", "io.debezium.time.MicroDuration"),
        ("int", "io.debezium.time.Date"),
        ("int", "io.debezium.time.Year"),
        ("string", "io.debezium.time.ZonedTimestamp"),
        ("string", "io.debezium.data.Json"),
        ("string", "io.debezium.data.Enum"),
        ("string", "io.debezium.data.EnumSet"),
        ("bytes", "io.debezium.data.Bits"),
    ],
)
def test_a_plain_column_is_not_written_under_a_schema_that_names_a_type(fake, kind, name):
    def of(column: Any) -> str:
        return json.dumps(envelope(("id", "long"), ("v", ["null", column])))

    plain, registered = of(kind), of({"type": kind, "connect.version": 1, "connect.name": name})
    ask(fake, registered)
    with pytest.raises(IncompatibleSchemaError) as found:
        ask(fake, plain, use_latest=True)
    assert f"column v is {name} in the registry, a plain value" in found.value.why
    assert "subject t-value" in found.value.where and "latest version 1" in found.value.where
    assert "as a new version of the subject" in found.value.remedy
    # The remedy; a version that has the name is the right one for rows from before a change, whatever is the latest.
    ask(fake, plain)
    assert ask(fake, plain, use_latest=True) == 2
    third = json.loads(registered) | {"doc": "again"}
    ask(fake, json.dumps(third))
    assert ask(fake, plain, use_latest=True) == 2


def test_a_type_of_tidb_that_the_column_does_not_have_counts_too(fake):
    ask(fake, json.dumps(unsigned(yes=True)))
    with pytest.raises(IncompatibleSchemaError, match="column b is BIGINT UNSIGNED in the registry, BIGINT in the ta"):
        ask(fake, json.dumps(unsigned(yes=False)), use_latest=True)


def test_names_deep_inside_a_schema_count():
    def nested(name: str) -> dict[str, Any]:
        kind = {"type": "int", "connect.name": name}
        return record(("a", {"type": "array", "items": kind}), ("m", {"type": "map", "values": ["null", kind]}))

    assert equivalent_schemas(nested("x"), nested("x")) and not equivalent_schemas(nested("x"), nested("y"))


@pytest.mark.req("FAULT-28")
def test_a_refused_schema_names_table_and_columns_with_both_types(fake):
    ask(fake)
    fake.refuses = lambda subject, text: "reader has no default for b"
    with pytest.raises(IncompatibleSchemaError) as found:
        ask(fake, NEW)
    error = found.value
    assert "table shop.t, subject t-value" in error.where
    assert "reader has no default for b" in error.why
    assert "column a was int, is string; column b is new: int" in error.why
    assert not error.can_retry
    assert "DELETE /subjects/t-value" in error.remedy and "column.exclude.list" in error.remedy


@pytest.mark.parametrize(
    ("answer", "kind", "retry"),
    [
        ((500, {"error_code": 50001, "message": "store"}), RegistryConnectionError, True),
        ((503, b"<html>no backend</html>"), RegistryConnectionError, True),
        ((429, {"error_code": 429, "message": "slowly"}), RegistryConnectionError, True),
        ((401, {"error_code": 401, "message": "who"}), RegistryAuthError, False),
        ((403, {"error_code": 40301, "message": "no"}), RegistryAuthError, False),
        ((404, {"error_code": 404, "message": "no such path"}), RegistryError, False),
        ((422, {"error_code": 42201, "message": "no schema"}), IncompatibleSchemaError, False),
        ((418, {"error_code": 418, "message": "teapot"}), RegistryConnectionError, False),
        ((200, b"<html>log in</html>"), RegistryConnectionError, True),
        ((200, {"id": 2**40}), RegistryError, False),
        ((200, {}), RegistryError, False),
    ],
)
def test_what_the_registry_answers_is_named(fake, answer, kind, retry):
    fake.broken = [answer] * 4
    with pytest.raises(kind) as found:
        ask(fake)
    assert type(found.value) is kind
    assert found.value.can_retry is retry
    assert "table shop.t" in found.value.where
    assert fake.subjects == {}


NO_SCHEMA = [[], "x", 7, None, True, b"<html>log in</html>", b"", b"{"]
NO_ID = [{}, {"id": "1"}, {"id": True}, {"id": 1.0}, {"id": None}, {"id": -1}]
NO_VERSION = [
    {"id": 1, "version": 1, "subject": "t-value", "schema": schema} for schema in (5, ["x"], "{", "7", '{"type": 7}')
]


@pytest.mark.parametrize("how", [{}, {"register": False}, {"use_latest": True}])
@pytest.mark.parametrize("answer", NO_SCHEMA, ids=repr)
def test_what_is_no_answer_of_a_registry_is_named_with_address_and_content(fake, how, answer):
    fake.broken = [(200, answer)] * 3
    with pytest.raises(RegistryConnectionError, match="is not a schema registry") as found:
        ask(fake, **how)
    error = found.value
    assert f"{fake.url}/subjects/t-value" in error.why and "HTTP 200" in error.why
    text = answer.decode() if isinstance(answer, bytes) else json.dumps(answer)
    assert (repr(text) if text else "nothing") in error.why
    assert error.can_retry and "before /subjects" in error.remedy


@pytest.mark.parametrize("how", [{}, {"register": False}])
@pytest.mark.parametrize("answer", NO_ID, ids=repr)
def test_an_id_is_a_whole_number(fake, how, answer):
    fake.broken = [(200, answer)]
    with pytest.raises(RegistryError, match="an id that Confluent's wire format cannot hold"):
        ask(fake, **how)


@pytest.mark.parametrize("answer", NO_VERSION, ids=repr)
def test_a_version_holds_a_schema(fake, answer):
    ask(fake)
    fake.broken = [(200, answer)]
    with pytest.raises(RegistryConnectionError, match="is not a schema registry"):
        ask(fake, use_latest=True)


@pytest.mark.parametrize("answer", [{"t-value": 1}, "x", 7, [1], b"<html>"], ids=repr)
def test_subjects_and_versions_are_lists(fake, answer):
    fake.broken = [(200, answer)]
    with closing(SchemaRegistry(settings(fake))) as registry, pytest.raises(RegistryConnectionError, match="not a sch"):
        registry.subject_count()
    ask(fake)
    fake.broken = [None, (200, ["1"] if answer == [1] else answer)]
    with pytest.raises(RegistryConnectionError, match="is not a schema registry"):
        ask(fake, NEW, use_latest=True)


def test_no_secret_is_shown_that_the_answer_repeats(fake):
    fake.broken = [(200, b"<html>you sent ann:s3cret, s3cret and t0ken</html>")]
    with pytest.raises(RegistryConnectionError) as found:
        ask(fake, user_info=Secret("ann:s3cret"))
    assert "s3cret" not in found.value.message() and "you sent ***" in found.value.why
    fake.broken = [(200, b"<html>you sent ann:s3cret, s3cret and t0ken</html>")]
    with pytest.raises(RegistryConnectionError) as found:
        ask(fake, token=Secret("t0ken"))
    assert "t0ken" not in found.value.message()


def test_what_passes_is_asked_again(fake):
    fake.broken = [(500, {}), (503, {})]
    assert ask(fake) == 1
    assert len(fake.requests) == 3


def test_a_registry_that_is_down_or_silent(fake):
    with pytest.raises(RegistryConnectionError) as found:
        ask(fake, url="http://127.0.0.1:9", retries=0)
    assert found.value.can_retry
    fake.delay_s = 0.5
    with pytest.raises(RegistryConnectionError, match="Timeout"):
        ask(fake, timeout_s=0.05, retries=0)


def test_account_and_token_are_sent_and_never_shown(fake):
    ask(fake, user_info=Secret("ann:s3cret"))
    assert fake.headers["Authorization"] == "Basic YW5uOnMzY3JldA=="
    ask(fake, token=Secret("t0ken"), cluster="lsrc-1", pool="pool-2")
    assert fake.headers["Authorization"] == "Bearer t0ken"
    assert fake.headers["target-sr-cluster"] == "lsrc-1"
    assert fake.headers["Confluent-Identity-Pool-Id"] == "pool-2"
    fake.broken = [(401, {"error_code": 401, "message": "no"})]
    with pytest.raises(RegistryAuthError) as found:
        ask(fake, user_info=Secret("ann:s3cret"))
    assert "s3cret" not in found.value.message()
    assert "s3cret" not in repr(settings(fake, user_info=Secret("ann:s3cret")))


def test_tokens_are_fetched_for_client_credentials_and_again_when_they_run_out(fake):
    client = OAuthClient(f"{fake.url}/token", "cdc", Secret("s3cret"), "schemas")
    fake.token_s = -1
    assert (ask(fake, oauth=client, cluster="lsrc-1"), fake.tokens) == (1, 1)
    assert fake.bodies[0] == {"grant_type": "client_credentials", "scope": "schemas"}
    assert fake.headers["Authorization"] == "Bearer t0ken-1"
    assert fake.headers["target-sr-cluster"] == "lsrc-1"
    with closing(SchemaRegistry(settings(fake, oauth=client))) as registry:
        assert [registry.subject_count(), registry.subject_count()] == [1, 1]
    assert fake.headers["Authorization"] == "Bearer t0ken-3"
    fake.broken = [(401, {"error": "invalid_client"})]
    with pytest.raises(RegistryConnectionError, match="the token server returned no token") as found:
        ask(fake, oauth=client, retries=0)
    assert found.value.can_retry
    assert "s3cret" not in found.value.message() + repr(client)


def test_tls_files_are_handed_over_and_checked(fake, tmp_path):
    found = client_settings(
        settings(fake, ssl_ca="/ca.pem", ssl_cert="/c.pem", ssl_key="/k.pem", ssl_key_password=Secret("p"))
    )
    assert [found[f"ssl.{n}"] for n in ("ca.location", "certificate.location", "key.location", "key.password")] == [
        "/ca.pem", "/c.pem", "/k.pem", "p",
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="cannot be created"):
        SchemaRegistry(settings(fake, ssl_ca=str(tmp_path / "none.pem")))


def test_the_shape_is_what_a_reader_sees():
    one = record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2, "connect.version": 1}))
    two = record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}))
    assert canonical_form(one) == canonical_form(two)
    two["fields"][0]["type"]["scale"] = 3
    assert canonical_form(one) != canonical_form(two)
    assert not equivalent_schemas(one, two)
    assert differences(one, two) == ["column d was decimal(5,2), is decimal(5,3)"]
    assert differences(one, record()) == ["column d is gone, it was decimal(5,2)"]
    # A name is the same with its namespace around it or before it.
    assert canonical_form(envelope(("id", "long")))["fields"][1]["type"] == ["null", "p.t.Value"]
