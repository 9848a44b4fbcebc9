"""Nothing that a connection holds is printed, whatever its properties are called; only types that fit are read."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from airflow.sdk.exceptions import ParamValidationError
from fakes import connections

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
from airflow_provider_mysql_cdc.hooks.schema_registry import SchemaRegistryHook
from airflow_provider_mysql_cdc.hooks.spark_submit import CdcSparkSubmitHook
from airflow_provider_mysql_cdc.operators.dag_params import connection_params

MARK = "Zx9MarkedKey"


class Refusing:
    """A converter whose error tells its settings."""

    def configure(self, properties: dict[str, str]) -> None:
        raise ValueError(f"{properties['reason']} does not suit {properties}")

    def converter_for(self, column: Any) -> None:
        return None


def test_unknown_settings_of_the_kafka_connection_are_named_without_their_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections(monkeypatch, kafka_conn_id="kafka_cdc")
    extra = {"bootstrap.servers": "k:1", "account_key": MARK, "security.protocol": MARK}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_CDC", json.dumps({"conn_type": "kafka", "extra": extra}))
    with pytest.raises(ConfigError, match=r"kafka\.account_key") as caught:
        MySqlCdcHook().get_config()
    assert MARK not in str(caught.value)
    assert re.search(r"\[connection kafka_cdc[\],]", str(caught.value)), str(caught.value)


def test_the_environment_is_not_shown_either(monkeypatch: pytest.MonkeyPatch) -> None:
    connections(monkeypatch, kafka_conn_id="kafka_cdc")
    monkeypatch.setenv("MYSQL_CDC_PROPERTIES", json.dumps({"azure": MARK}))
    monkeypatch.setenv("MYSQL_CDC_TIME_PRECISION_MODE", MARK)
    with pytest.raises(ConfigError, match="azure") as caught:
        MySqlCdcHook().get_config()
    assert MARK not in str(caught.value)


def test_what_the_task_says_itself_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    connections(monkeypatch, kafka_conn_id="kafka_cdc")
    with pytest.raises(ConfigError, match=MARK):
        MySqlCdcHook().get_config({"time.precision.mode": MARK})


def test_what_a_converter_says_of_its_settings_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = {"converters": "c", "c.type": f"{__name__}.Refusing", "c.reason": MARK}
    connections(monkeypatch, kafka_conn_id="kafka_cdc", **refusing)
    monkeypatch.setenv("AIRFLOW__MYSQL_CDC__ALLOWED_CLASSES", f"{__name__}.Refusing")
    with pytest.raises(ConfigError, match=r"c\.type") as caught:
        MySqlCdcHook().get_config()
    assert MARK not in str(caught.value)


@pytest.mark.parametrize("host", [f"user:{MARK}@registry", MARK])
def test_the_registry_s_connection_is_not_shown(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    for conn in ({"host": host}, {"host": "http://r:1", "extra": {"http.read.timeout.ms": MARK, "x": MARK}}):
        monkeypatch.setenv("AIRFLOW_CONN_R", json.dumps({"conn_type": "schema_registry", **conn}))
        ok, text = SchemaRegistryHook("r").test_connection()
        assert not ok and MARK not in text


@pytest.mark.parametrize("conn_type", ["wasb", "aws", "mysql", "generic", ""])
def test_a_connection_of_another_type_is_refused_without_a_look_at_its_extra(
    monkeypatch: pytest.MonkeyPatch, conn_type: str
) -> None:
    connections(monkeypatch, kafka_conn_id="kafka_cdc")
    stranger = {"conn_type": conn_type, "host": "local[2]", "password": MARK, "extra": {"account_key": MARK}}
    monkeypatch.setenv("AIRFLOW_CONN_STRANGER", json.dumps(stranger))
    avro = {"value.converter": "io.confluent.connect.avro.AvroConverter"}
    asked = {
        "MySQL CDC": lambda: MySqlCdcHook("stranger").get_config(),
        "Kafka": lambda: MySqlCdcHook(kafka_conn_id="stranger").get_config(),
        "schema registry": lambda: MySqlCdcHook().get_config({"schema_registry_conn_id": "stranger", **avro}),
        "Spark": lambda: CdcSparkSubmitHook(conn_id="stranger", driver_env={}),
    }
    for role, ask in asked.items():
        with pytest.raises(ConfigError, match=f"the {role} connection is of another type") as caught:
            ask()
        assert caught.value.where == "connection stranger"
        assert MARK not in str(caught.value)


def test_the_author_lists_the_connections_that_a_form_may_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    connections(monkeypatch, kafka_conn_id="kafka_cdc")
    params = connection_params(allowed={"kafka_conn_id": ["kafka_cdc", "kafka_test"], "mysql_cdc_conn_id": ["shop"]})
    assert params["kafka_conn_id"].resolve() == "kafka_cdc"
    assert params["mysql_cdc_conn_id"].resolve() == "shop"
    assert params["kafka_conn_id"].resolve("kafka_test") == "kafka_test"
    for name in ("kafka_conn_id", "mysql_cdc_conn_id"):
        for value in ("stranger", None, ""):
            with pytest.raises(ParamValidationError):
                params[name].resolve(value)
    assert params["schema_registry_conn_id"].resolve(None) is None
