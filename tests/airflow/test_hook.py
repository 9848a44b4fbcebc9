"""The hook: configuration from connections, and the test button."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from fakes import KAFKA_PASSWORD, PASSWORD, connections

from airflow_provider_mysql_cdc.cdc.commit.sql_store import SqlOffsetStore
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
from airflow_provider_mysql_cdc.state.offset_database import open_engine


@pytest.fixture(autouse=True)
def complete(monkeypatch: pytest.MonkeyPatch) -> None:
    connections(monkeypatch)


def test_the_connections_make_the_configuration() -> None:
    given = MySqlCdcHook(kafka_conn_id="kafka_cdc").get_config().properties()
    assert given == {
        "database.hostname": "mysql.example",
        "database.port": "3307",
        "database.user": "cdc",
        "database.password": PASSWORD,
        "topic.prefix": "shop",
        "kafka.bootstrap.servers": "kafka.example:9092",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "cdc",
        "kafka.sasl.password": KAFKA_PASSWORD,
    }


def test_the_mysql_connection_can_name_the_kafka_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    connections(monkeypatch, kafka_conn_id="kafka_cdc")
    assert MySqlCdcHook().get_config().properties()["kafka.bootstrap.servers"] == "kafka.example:9092"


def test_the_task_s_kafka_connection_wins_over_the_one_named_there(monkeypatch: pytest.MonkeyPatch) -> None:
    connections(monkeypatch, kafka_conn_id="another")
    cfg = MySqlCdcHook(kafka_conn_id="kafka_cdc").get_config()
    assert cfg.properties()["kafka.bootstrap.servers"] == "kafka.example:9092"


def test_a_missing_property_says_where_it_was_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    conn = {"conn_type": "mysql_cdc", "host": "h", "login": "u", "password": "p"}
    monkeypatch.setenv("AIRFLOW_CONN_MYSQL_CDC_DEFAULT", json.dumps(conn))
    with pytest.raises(ConfigError, match="connection mysql_cdc_default") as caught:
        MySqlCdcHook().get_config()
    assert "topic.prefix" in str(caught.value)
    assert "MYSQL_CDC_TOPIC_PREFIX" in str(caught.value)


def test_the_task_s_properties_win_over_the_connection() -> None:
    cfg = MySqlCdcHook(kafka_conn_id="kafka_cdc").get_config({"topic.prefix": "other", "snapshot.mode": ""})
    assert cfg.properties()["topic.prefix"] == "other"
    assert "snapshot.mode" not in cfg.properties()


def test_a_whole_kafka_connect_document_may_stand_in_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    document = {
        "name": "inventory",
        "config": {"topic.prefix": "inventory", "kafka.bootstrap.servers": "k:1", "database.hostname": "not used"},
    }
    conn = {"conn_type": "mysql_cdc", "host": "h", "login": "u", "password": "p", "extra": document}
    monkeypatch.setenv("AIRFLOW_CONN_MYSQL_CDC_DEFAULT", json.dumps(conn))
    given = MySqlCdcHook().get_config().properties()
    assert (given["name"], given["topic.prefix"], given["database.hostname"]) == ("inventory", "inventory", "h")


@pytest.mark.parametrize("name", ["database.password", "kafka.sasl.password", "kafka.sasl.jaas.config"])
def test_a_secret_among_the_task_s_properties_is_refused_without_showing_it(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        MySqlCdcHook(kafka_conn_id="kafka_cdc").get_config({name: "visible-secret"})
    assert caught.value.where == name
    assert "visible-secret" not in str(caught.value)


def test_secrets_and_salts_are_masked_and_the_columns_of_a_hash_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    masked: list[Any] = []
    monkeypatch.setattr("airflow.sdk.log.mask_secret", lambda secret, name=None: masked.append(secret))
    salted = {"column.mask.hash.SHA-256.with.salt.s4lt": r"shop\.customers\.email"}
    connections(monkeypatch, kafka_conn_id="kafka_cdc", **salted)
    MySqlCdcHook().get_config()
    texts = [text for text in masked if isinstance(text, str)]
    assert {"s4lt", PASSWORD, KAFKA_PASSWORD} <= set(texts)
    assert not [text for text in texts if "email" in text]


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [({"mysql_cdc_conn_id": "nowhere"}, "nowhere"), ({"kafka_conn_id": "no_kafka"}, "no_kafka")],
)
def test_a_missing_connection_is_named(arguments: dict[str, str], missing: str) -> None:
    with pytest.raises(ConfigError) as caught:
        MySqlCdcHook(**arguments).get_config()
    assert caught.value.where == f"connection {missing}"


def test_an_unknown_property_in_the_extra_is_refused_with_the_nearest_name(monkeypatch: pytest.MonkeyPatch) -> None:
    connections(monkeypatch, **{"table.include.lst": "a.b"})
    with pytest.raises(ConfigError, match=r"table\.include\.list"):
        MySqlCdcHook(kafka_conn_id="kafka_cdc").get_config()


def test_an_extra_that_is_no_object_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    conn = {"conn_type": "mysql_cdc", "host": "h", "extra": "[1]"}
    monkeypatch.setenv("AIRFLOW_CONN_MYSQL_CDC_DEFAULT", json.dumps(conn))
    with pytest.raises(ConfigError, match="not a JSON object"):
        MySqlCdcHook().get_config()


def test_the_test_button_shows_a_wrong_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    connections(monkeypatch, **{"snapshot.mode": "sometimes"})
    ok, text = MySqlCdcHook(kafka_conn_id="kafka_cdc").test_connection()
    assert not ok
    assert "snapshot.mode" in text
    assert "[this connection" in text and "mysql_cdc_default" not in text, "Airflow tests it under an id of its own"


def test_the_test_button_names_both_servers_when_neither_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = free_port()
    conn: dict[str, Any] = {
        "conn_type": "mysql_cdc",
        "host": "127.0.0.1",
        "port": closed,
        "login": "cdc",
        "password": PASSWORD,
        "extra": {"topic.prefix": "shop", "kafka.bootstrap.servers": f"127.0.0.1:{closed}"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_MYSQL_CDC_DEFAULT", json.dumps(conn))
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.operate.check_setup.KAFKA_TIMEOUT_S", 1)
    ok, text = MySqlCdcHook().test_connection()
    assert not ok
    mysql, kafka = (next(line for line in text.splitlines() if line.startswith(who)) for who in ("MySQL:", "Kafka:"))
    assert f"127.0.0.1:{closed}" in mysql
    assert f"127.0.0.1:{closed}" in kafka
    assert PASSWORD not in text


@pytest.mark.stack
def test_the_test_button_approves_the_local_stack(
    monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], root: Any, database: str
) -> None:
    use(monkeypatch, properties)
    ok, text = MySqlCdcHook().test_connection()
    assert not ok and "error: no table is captured" in text
    with root.cursor() as cursor:
        cursor.execute(f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)")
    ok, text = MySqlCdcHook().test_connection()
    assert ok, text
    assert "Kafka: reachable, 1 broker(s)" in text


@pytest.mark.stack
def test_the_test_button_names_a_wrong_password(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]) -> None:
    use(monkeypatch, properties | {"database.password": "wrong"})
    ok, text = MySqlCdcHook().test_connection()
    assert not ok
    assert "password" in text
    assert "Kafka: reachable" in text


def use(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]) -> None:
    """Define the connection from connector properties."""
    extra = {name: value for name, value in properties.items() if not name.startswith("database.")}
    extra["database.include.list"] = properties["database.include.list"]
    conn = {
        "conn_type": "mysql_cdc",
        "host": properties["database.hostname"],
        "port": int(properties["database.port"]),
        "login": properties["database.user"],
        "password": properties["database.password"],
        "extra": extra,
    }
    monkeypatch.setenv("AIRFLOW_CONN_MYSQL_CDC_DEFAULT", json.dumps(conn))


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.mark.stack
def test_the_offset_database_takes_a_password_outside_ascii(
    monkeypatch: pytest.MonkeyPatch, stack: Any, root: Any, database: str, unique: str
) -> None:
    word = "łódź-пароль-密码"
    conn: dict[str, Any] = {
        "conn_type": "mysql",
        "host": stack.mysql_host,
        "port": stack.mysql_port,
        "login": unique,
        "password": word,
        "schema": database,
    }
    monkeypatch.setenv("AIRFLOW_CONN_OFFSETS", json.dumps(conn))
    with root.cursor() as cursor:
        cursor.execute(f"CREATE USER `{unique}` IDENTIFIED BY '{word}'")
        cursor.execute(f"GRANT ALL ON `{database}`.* TO `{unique}`")
    try:
        engine = open_engine(MySqlCdcHook.get_connection("offsets"))
        store = SqlOffsetStore(engine, "p")
        assert store.load() is None
        engine.dispose()
        assert word not in repr(engine)
    finally:
        with root.cursor() as cursor:
            cursor.execute(f"DROP USER `{unique}`")


def test_a_uri_with_an_underscore_in_its_scheme_is_answered_with_the_one_that_airflow_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_MYSQL_SHOP", "mysql_cdc://cdc:secret@mysql.example:3306/?topic.prefix=shop")
    with pytest.raises(ConfigError, match="in a URI write mysql-cdc://"):
        MySqlCdcHook("mysql_shop").get_config()
