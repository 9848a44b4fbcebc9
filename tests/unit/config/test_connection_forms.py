"""The connection forms: grouped and labelled for people, and what they offer is accepted."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.form_fields import (
    MYSQL_CDC_FORM,
    REGISTRY_FORM,
    STANDARD_LABELS,
    Form,
    conn_fields,
)
from airflow_provider_mysql_cdc.cdc.config.property_sources import STANDARD_FIELDS, connection_source, load_config
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.connection import Secret

STANDARD = {"host": "db.example", "port": 3306, "login": "cdc", "password": "pa55"}
REQUIRED = {"topic.prefix": "shop", "kafka.bootstrap.servers": "k:9092"}
RAW_WORDS = {"ssl", "ca", "cert", "id", "ms", "null"}


def places(form: Form) -> list[tuple[str, str]]:
    """Return group and label of each field, in their order."""
    return [(field["schema"]["section"], field["label"]) for field in conn_fields(form).values()]


@pytest.mark.parametrize("form", [MYSQL_CDC_FORM, REGISTRY_FORM])
def test_a_form_is_grouped_and_labelled_for_people(form: Form) -> None:
    shown = conn_fields(form)
    assert len(set(places(form))) == len(shown), "two fields of a group have one label"
    for name, field in shown.items():
        schema, label = field["schema"], field["label"]
        jsonschema.Draft202012Validator.check_schema(schema)
        assert "null" in schema["type"] and "default" not in schema, "a star, or a value that every connection keeps"
        assert "description" not in field, "Airflow shows it as it is, backticks included"
        assert f"Property `{name}`." in schema["description_md"]
        assert label[0].isupper() and not RAW_WORDS & {word.strip("()") for word in label.split()[:1]}
        assert name not in label and "`" not in label
        if "enum" in schema:
            assert schema["enum"][-1] is None and schema["values_display"]["null"].startswith("(empty")
            assert set(schema["values_display"]) <= {"null", *schema["enum"]}


@pytest.mark.parametrize("form", [MYSQL_CDC_FORM, REGISTRY_FORM])
def test_a_form_hides_secrets_and_nothing_else(form: Form) -> None:
    hidden = {name for name, field in conn_fields(form).items() if field["schema"].get("format") == "password"}
    assert hidden == {
        field.name
        for fields in form.values()
        for field in fields
        if field.name.rpartition(".")[2] in ("password", "token", "secret")
    }
    assert all(field.secret or field.declared.secret for fs in form.values() for field in fs if field.name in hidden)


def test_what_is_required_comes_first_and_is_marked() -> None:
    shown = places(MYSQL_CDC_FORM)
    assert shown[0] == ("Stream", "Topic prefix (required)")
    kafka = [label for section, label in shown if section == "Kafka"]
    assert kafka[0] == "Brokers (required without a Kafka connection)"
    marked = {name for name, field in conn_fields(MYSQL_CDC_FORM).items() if "(required" in field["label"]}
    standard = {STANDARD_FIELDS[name] for name, label in STANDARD_LABELS.items() if "(required" in label}
    assert marked | standard == {field.name for field in F.ALL if field.required} | {F.KAFKA_BOOTSTRAP_SERVERS.name}


def config(extra: dict[str, Any]) -> Any:
    return load_config([connection_source("shop", STANDARD, REQUIRED | extra)])


def test_each_value_that_the_form_offers_is_accepted() -> None:
    for name, field in conn_fields(MYSQL_CDC_FORM).items():
        for value in field["schema"].get("enum", [])[:-1]:
            login = {"kafka.security.protocol": "sasl_ssl"} if name == "kafka.sasl.mechanism" else {}
            config(login | {name: value})
    account = {
        "kafka.security.protocol": "sasl_ssl",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.username": "cdc",
        "kafka.sasl.password": "pa55-k",
        "kafka.ssl.ca.location": "/ca.pem",
        "kafka.ssl.certificate.location": "/c.pem",
        "kafka.ssl.key.location": "/k.pem",
        "kafka.ssl.key.password": "pa55-s",
    }
    assert account.keys() <= conn_fields(MYSQL_CDC_FORM).keys()
    settings = config(account).kafka_settings()
    plain = {name: value.reveal() if isinstance(value, Secret) else value for name, value in settings.items()}
    assert plain.items() >= {name.removeprefix("kafka."): value for name, value in account.items()}.items()


@for_each(
    ("wrong", "told"),
    [
        ({"database.ssl.mode": "yes"}, "connection shop, field Encryption (Encryption to MySQL)"),
        ({"kafka.security.protocol": "tls"}, "connection shop, field Encryption and login (Kafka)"),
        ({"drain.writers": "many"}, "connection shop, field Writers (Stream)"),
        ({"topic.prefix": "a b"}, "connection shop, field Topic prefix (Stream)"),
        ({"table.include.list": "("}, "connection shop, field Tables (Captured tables)"),
    ],
)
def test_a_refused_value_names_its_field(wrong: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(wrong)
    (name,) = wrong
    assert name in str(caught.value) and told in str(caught.value)


def test_several_refused_values_each_name_their_field_and_the_standard_ones_theirs() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(
            [connection_source("shop", STANDARD | {"port": 99_999, "host": ""}, REQUIRED | {"drain.writers": 0})]
        )
    text = str(caught.value)
    assert "[connection shop, field MySQL port]" in text and "[connection shop, field Writers (Stream)]" in text
    assert "looked for in connection shop (field MySQL host)" in text
