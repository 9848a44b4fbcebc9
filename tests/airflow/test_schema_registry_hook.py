"""The connection type schema_registry: what it becomes, what it refuses, and where its secrets do not get to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow_home import run_dag
from avrolib.fake_registry import running_registry
from fakes import connections, install

from airflow_provider_mysql_cdc.cdc.config.registry_fields import (
    connection_names,
    registry_form_fields,
    registry_property_name,
)
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.operate import check_setup
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
from airflow_provider_mysql_cdc.hooks.schema_registry import SchemaRegistryHook
from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator

AVRO = "io.confluent.connect.avro.AvroConverter"
BOTH = {"key.converter": AVRO, "value.converter": AVRO}
SECRET, TOKEN = "pa55-of-registry", "t0ken-of-registry"


@pytest.fixture(autouse=True)
def complete(monkeypatch: pytest.MonkeyPatch) -> None:
    connections(monkeypatch, kafka_conn_id="kafka_cdc")


def registry(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    conn = {"conn_type": "schema_registry", "host": "https://registry.example:8081", **fields}
    monkeypatch.setenv("AIRFLOW_CONN_SCHEMAS", json.dumps(conn))


def config(**properties: str) -> Any:
    return MySqlCdcHook().get_config({"schema_registry_conn_id": "schemas", **properties})


@pytest.mark.req("AVRO-03")
def test_address_account_and_tls_reach_the_converters_that_write_avro(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"schema.registry.ssl.ca.location": "/etc/ca.pem", "http.read.timeout.ms": 5000, "bearer.auth.token": ""}
    registry(monkeypatch, login="cdc", password=SECRET, extra=extra)
    cfg = config(**BOTH)
    for part in ("key", "value"):
        settings = cfg.registry_settings(part)
        assert settings.url == "https://registry.example:8081"
        assert settings.user_info.reveal() == f"cdc:{SECRET}"
        assert (settings.ssl_ca, settings.timeout_s) == ("/etc/ca.pem", 5)
    alone = config(**{"value.converter": AVRO, "value.converter.http.read.timeout.ms": "7000"})
    assert alone.registry_settings("key") is None
    assert alone.registry_settings("value").timeout_s == 7
    assert not [name for name in alone.properties() if name.startswith("key.converter.schema")]


def test_ticdc_has_one_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    registry(monkeypatch, extra={"bearer.auth.token": TOKEN})
    cfg = config(**{"value.format": "ticdc-avro"})
    assert cfg.registry_settings("key") == cfg.registry_settings("value")
    assert cfg.registry_settings("value").token.reveal() == TOKEN


def test_the_mysql_connection_can_name_it_and_the_task_s_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    connections(monkeypatch, kafka_conn_id="kafka_cdc", schema_registry_conn_id="another", **BOTH)
    registry(monkeypatch)
    monkeypatch.setenv("AIRFLOW_CONN_ANOTHER", json.dumps({"conn_type": "schema_registry", "host": "http://other"}))
    assert MySqlCdcHook().get_config().registry_settings("value").url == "http://other"
    assert config().registry_settings("value").url == "https://registry.example:8081"


@pytest.mark.parametrize(
    ("fields", "address"),
    [
        ({"host": "registry", "schema": "https", "port": 8081}, "https://registry:8081"),
        ({"host": "http://registry/apis/ccompat/v7", "port": 80}, "http://registry:80/apis/ccompat/v7"),
        ({"host": "http://one:1,http://two:2"}, "http://one:1,http://two:2"),
    ],
)
def test_forms_of_an_address(monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], address: str) -> None:
    registry(monkeypatch, **fields)
    assert config(**BOTH).registry_settings("key").url == address


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"host": ""}, "has no registry address"),
        ({"host": "registry:8081"}, "has no registry address"),
        ({"port": 9000}, "two ports: one in the address and one in the field port"),
        ({"host": "https://me:x@registry", "login": "me"}, "two accounts: one in the address and one in the user"),
        ({"password": SECRET}, "a password without a user"),
        ({"login": "a:b", "password": SECRET}, "the user name contains a colon"),
        ({"login": "cdc", "password": SECRET, "extra": {"bearer.auth.token": TOKEN}}, "two ways to authenticate"),
        ({"extra": {"auto.register.schemas": "false"}}, "that are not for connecting to the registry"),
        ({"extra": {"value.converter.bearer.auth.token": TOKEN}}, "that are not for connecting to the registry"),
        ({"extra": {"http.read.timeout.ms": "soon"}}, "http.read.timeout.ms"),
    ],
)
def test_fields_that_do_not_go_together_are_named(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], said: str
) -> None:
    registry(monkeypatch, **fields)
    with pytest.raises(ConfigError, match=said) as caught:
        config(**BOTH)
    assert "connection schemas" in str(caught.value)
    assert SECRET not in str(caught.value) and TOKEN not in str(caught.value)
    ok, text = SchemaRegistryHook("schemas").test_connection()
    assert not ok and said in text


def test_a_registry_for_nothing_and_two_registries_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    registry(monkeypatch, login="cdc", password=SECRET)
    with pytest.raises(ConfigError, match="neither keys nor values are written as Avro"):
        config()
    for name in ("value.converter.schema.registry.url", "schema-registry", "key.converter.basic.auth.user.info"):
        connections(monkeypatch, kafka_conn_id="kafka_cdc", **{name: "http://a:b"})
        with pytest.raises(ConfigError, match="the schema registry is configured twice") as caught:
            config(**({"value.converter": AVRO} if name.startswith("key") else BOTH))
        assert f"{name} (connection mysql_cdc_default)" in str(caught.value)
    connections(monkeypatch, kafka_conn_id="kafka_cdc")
    with pytest.raises(ConfigError, match="the schema registry connection does not exist"):
        MySqlCdcHook().get_config({"schema_registry_conn_id": "missing", **BOTH})


def test_the_form_asks_for_nothing_that_the_connection_refuses() -> None:
    assert {registry_property_name(field) for field in registry_form_fields()} < connection_names()


def test_the_buttons_ask_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_registry() as server:
        registry(monkeypatch, host=server.url, login="cdc", password=SECRET)
        hook = SchemaRegistryHook("schemas")
        assert hook.test_connection() == (True, f"Schema registry: reachable at {server.url}, 0 subject(s).")
        assert server.headers["Authorization"].startswith("Basic ")
        server.broken = [(401, {"error_code": 40101, "message": "who are you"})]
        ok, text = hook.test_connection()
        assert not ok and "rejected the credentials" in text
        assert SECRET not in text
        kafka = {"schema_registry_conn_id": "schemas", **BOTH}
        connections(monkeypatch, kafka_conn_id="kafka_cdc", **kafka)
        monkeypatch.setattr(check_setup, "_check_mysql", lambda *a: check_setup.SystemReport("MySQL", "there"))
        monkeypatch.setattr(check_setup, "_check_kafka", lambda *a: check_setup.SystemReport("Kafka", "there"))
        ok, text = MySqlCdcHook().test_connection()
        assert ok, text
        assert text.splitlines()[:2] == ["MySQL: there", "Kafka: there"] and "reachable" in text
    registry(monkeypatch, host=server.url, extra={"max.retries": "0"})
    ok, text = SchemaRegistryHook("schemas").test_connection()
    assert not ok and "cannot be reached" in text


@pytest.mark.usefixtures("metadata_db")
@pytest.mark.parametrize("deferrable", [False, True])
def test_no_secret_of_the_registry_leaves_the_job_spec(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str], deferrable: bool
) -> None:
    """Not to argv, environment, log or rendered fields; and the triggerer finds the connection by its name."""
    from airflow.models.renderedtifields import RenderedTaskInstanceFields
    from airflow.utils.session import create_session

    submit, _ = install(monkeypatch, tmp_path)
    registry(monkeypatch, login="cdc", password=SECRET)
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.operate.end_run.lock_connection", lambda cfg, owner: None)
    dag_id = f"registry_secrets_{deferrable}"
    with DAG(dag_id, schedule=None) as dag:
        MySqlCdcDrainOperator(
            task_id="cdc",
            schema_registry_conn_id="{{ 'schemas' }}",
            properties=BOTH,
            deferrable=deferrable,
            poll_interval=0.1,
        )
    assert run_dag(dag).state == "success"
    record = submit.record
    assert record is not None
    account = record["spec"]["properties"]["value.converter.basic.auth.user.info"]
    assert account == record["spec"]["properties"]["key.converter.basic.auth.user.info"] == f"cdc:{SECRET}"
    with create_session() as session:
        rows = session.query(RenderedTaskInstanceFields).filter_by(dag_id=dag_id)
        rendered = json.dumps([row.rendered_fields for row in rows])
    assert "schemas" in rendered
    for place in (*record["argv"], *record["env"].values(), rendered, "".join(capfd.readouterr()), record["file"]):
        assert SECRET not in place
