"""Properties of the Avro converters."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit.avro_rig import AVRO, avro
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.pinned_properties import property_pins
from airflow_provider_mysql_cdc.cdc.model.connection import OAuthClient, Secret

pytestmark = pytest.mark.quick

BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}
VALUE = BASE | avro("https://one:8081/,https://two", "value")


def load(**given: str) -> ConnectorConfig:
    return ConnectorConfig.from_properties(
        VALUE | {f"value.converter.{n.replace('_', '.')}": v for n, v in given.items()}
    )


def wrong(**given: str) -> str:
    found = ConnectorConfig.check(VALUE | {f"value.converter.{n.replace('_', '.')}": v for n, v in given.items()})
    return "\n".join(map(str, found))


@pytest.mark.req("CFG-106", "CFG-107")
def test_keys_and_values_have_converters_of_their_own():
    cfg = load()
    assert (cfg.is_avro("key"), cfg.is_avro("value")) == (False, True)
    assert cfg.registry_settings("key") is None
    found = cfg.registry_settings("value")
    assert found is not None
    assert found.url == "https://one:8081,https://two"
    assert (found.register, found.use_latest, found.normalize, found.retries) == (True, False, False, 3)


def test_an_account_in_the_address_is_taken_out_of_it_and_decoded():
    cfg = load(schema_registry_url="https://a%20b:p%40ss@one/x")
    found = cfg.registry_settings("value")
    assert found is not None
    assert (found.url, found.user_info) == ("https://one/x", Secret("a b:p@ss"))
    assert "p%40ss" not in repr(cfg)


def test_accounts_tokens_and_keys_are_secrets():
    cfg = load(basic_auth_user_info="ann:s3cret", basic_auth_credentials_source="USER_INFO")
    assert "s3cret" not in repr(cfg)
    assert cfg.registry_settings("value").user_info == Secret("ann:s3cret")
    older = load(schema_registry_basic_auth_user_info="ann:s3cret")
    assert older.registry_settings("value").user_info == Secret("ann:s3cret")
    cfg = load(bearer_auth_token="t0ken", bearer_auth_credentials_source="STATIC_TOKEN")
    assert "t0ken" not in repr(cfg)
    assert {f.name for f in F.VALUE_AVRO.all() if f.secret} == {
        "value.converter.basic.auth.user.info",
        "value.converter.bearer.auth.token",
        "value.converter.bearer.auth.client.secret",
        "value.converter.schema.registry.ssl.key.password",
    }


IDS = "io.confluent.kafka.serializers.schema.id"
OAUTH = {
    "bearer_auth_credentials_source": "OAUTHBEARER",
    "bearer_auth_issuer_endpoint_url": "https://idp/token",
    "bearer_auth_client_id": "cdc",
    "bearer_auth_client_secret": "s3cret",
    "bearer_auth_scope": "schemas",
}


def test_client_credentials_are_read_and_the_default_place_of_ids_is_taken():
    cfg = load(**OAUTH, value_schema_id_serializer=f"{IDS}.PrefixSchemaIdSerializer")
    found = cfg.registry_settings("value")
    assert found is not None
    assert found.oauth == OAuthClient("https://idp/token", "cdc", Secret("s3cret"), "schemas")
    assert found.max_request_s() == 3 / 2 * replace(found, oauth=None).max_request_s()  # two addresses
    assert "s3cret" not in repr(cfg) + repr(found)
    assert found.guids_for == ""


def test_ids_in_headers_are_asked_for_by_class_with_or_without_its_package_and_fixed_inside_a_batch():
    for name in ("HeaderSchemaIdSerializer", f"{IDS}.HeaderSchemaIdSerializer"):
        cfg = load(value_schema_id_serializer=name, key_schema_id_serializer=f"{IDS}.PrefixSchemaIdSerializer")
        found = cfg.registry_settings("value")
        assert found is not None
        assert found.guids_for == "value.converter.value.schema.id.serializer"
        assert property_pins(cfg, snapshot=False)[found.guids_for] == "=HeaderSchemaIdSerializer"


@for_each(
    ("given", "says"),
    [
        ({"schema_registry_url": "one:8081"}, "must be a list of http:// or https:// addresses"),
        ({"schema_registry_url": "http://one:port"}, "without a query or fragment"),
        ({"schema_registry_url": "http://one:8081/?x=1"}, "without a query or fragment"),
        ({"basic_auth_credentials_source": "USER_INFO"}, "value.converter.basic.auth.user.info: is missing"),
        ({"basic_auth_credentials_source": "SASL_INHERIT"}, "set USER_INFO"),
        ({"basic_auth_user_info": "ann"}, "must be of the form user:password"),
        ({"bearer_auth_credentials_source": "STATIC_TOKEN"}, "value.converter.bearer.auth.token: is missing"),
        ({"bearer_auth_credentials_source": "OAUTHBEARER"}, "value.converter.bearer.auth.client.secret: is missing"),
        ({"bearer_auth_credentials_source": "CUSTOM"}, "set OAUTHBEARER (client credentials) or STATIC_TOKEN"),
        ({"bearer_auth_client_id": "a"}, "bearer.auth.credentials.source=(not set)"),
        (OAUTH | {"bearer_auth_token": "t"}, "bearer.auth.token: cannot be combined with"),
        (OAUTH | {"basic_auth_user_info": "a:b"}, "client.secret: cannot be combined with"),
        (OAUTH | {"bearer_auth_issuer_endpoint_url": "idp"}, "must be a list of http:// or https:// addresses"),
        ({"basic_auth_user_info": "a:b", "bearer_auth_token": "t"}, "cannot be combined with"),
        ({"schema_registry_ssl_key_location": "/k.pem"}, "certificate.location: is missing"),
        ({"schema_registry_ssl_truststore_location": "/t.jks"}, "convert it to PEM"),
        ({"value_subject_name_strategy": "x.y.Mine"}, "must be one of TopicNameStrategy"),
        ({"value_schema_id_serializer": "x.y.Mine"}, "must be one of PrefixSchemaIdSerializer"),
        ({"key_schema_id_serializer": f"{IDS}.HeaderSchemaIdSerializer"}, "about the other converter"),
        ({"use_schema_id": "7"}, "ids come from the registry"),
        ({"latest_compatibility_strict": "false"}, "never used"),
        ({"scrub_invalid_names": "true"}, "field.name.adjustment.mode"),
        ({"auto_register_schema": "true"}, "settings of converters that are known"),
    ],
)
def test_what_cannot_be_done_is_refused(given, says):
    assert says in wrong(**given)


def test_the_address_is_required_and_other_converters_are_named():
    assert "value.converter.schema.registry.url: is required" in "\n".join(
        map(str, ConnectorConfig.check(BASE | {"value.converter": AVRO}))
    )
    apicurio = BASE | {"value.converter": "io.apicurio.registry.utils.converter.AvroConverter"}
    assert "/apis/ccompat/v7" in str(ConnectorConfig.check(apicurio)[0])


def test_what_belongs_to_the_other_converter_has_no_effect_and_says_so():
    cfg = ConnectorConfig.from_properties(
        VALUE
        | {
            "value.converter.schemas.enable": "false",
            "value.converter.replace.null.with.default": "true",
            "value.converter.enhanced.avro.schema.support": "true",
            "key.converter.schema.registry.url": "http://one",
        }
    )
    assert cfg[F.VALUE_SCHEMAS_ENABLE]
    assert not cfg[F.VALUE_REPLACE_NULL_WITH_DEFAULT]
    for name in (
        "value.converter.schemas.enable",
        "value.converter.replace.null.with.default",
        "value.converter.enhanced.avro.schema.support",
        "key.converter.schema.registry.url",
    ):
        assert any(note.startswith(f"{name} has no effect") for note in cfg.notes), name


def test_the_form_of_records_is_fixed_inside_a_batch_and_the_way_to_the_registry_is_not():
    given = load(connect_meta_data="false", max_retries="9", basic_auth_user_info="a:b")
    found = property_pins(given, snapshot=False)
    assert found["value.converter"] == f"={AVRO}"
    assert found["value.converter.connect.meta.data"] == "=false"
    assert not [name for name in found if "retries" in name or "auth" in name or "url" in name]
