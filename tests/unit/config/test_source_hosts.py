"""Servers in ``database.hostname``."""

from __future__ import annotations

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.parse_value import source_hosts
from airflow_provider_mysql_cdc.cdc.errors import ConfigError

BASE = {"topic.prefix": "p", "database.user": "u", "kafka.bootstrap.servers": "k:1"}


@for_each(
    ("text", "hosts"),
    [
        ("db1", [("db1", 3306)]),
        ("db1:3307", [("db1", 3307)]),
        ("db1, db2:3307 ,10.0.0.1", [("db1", 3306), ("db2", 3307), ("10.0.0.1", 3306)]),
        ("::1", [("::1", 3306)]),
        ("[::1]", [("::1", 3306)]),
        ("[fe80::1]:3307,fe80::2", [("fe80::1", 3307), ("fe80::2", 3306)]),
        ("db1:3307,db1:3308", [("db1", 3307), ("db1", 3308)]),
    ],
)
def test_hosts_have_ports_of_their_own_or_the_default(text: str, hosts: list[tuple[str, int]]) -> None:
    assert list(source_hosts(text, 3306)) == hosts


@for_each(
    "text",
    [
        "",
        " ",
        "a,",
        ",a",
        "a,,b",
        "a:",
        "a:x",
        "a:0",
        "a:65536",
        "a:-1",
        ":3306",
        "[::1",
        "[::1]x",
        "[]:1",
        "a b",
        "a,a:3306",
    ],
)
def test_what_is_no_list_of_servers_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        source_hosts(text, 3306)


def test_one_of_the_servers_is_a_configuration_too() -> None:
    cfg = ConnectorConfig.from_properties({**BASE, "database.hostname": "db1,[::1]:3307", "database.port": "3310"})
    assert cfg.source_address() == "db1:3310,::1:3307"
    first, second = cfg.servers()
    assert (first.host, first.port) == ("db1", 3310)
    chosen = cfg.at_server(second.host, second.port)
    assert chosen.servers() == (chosen.connection_settings(),) == (second,)
    (found,) = ConnectorConfig.check({**BASE, "database.hostname": "db1,,db2"})
    assert found.name == "database.hostname" and "empty entry" in found.what


def test_nothing_is_asked_of_any_of_several_servers() -> None:
    cfg = ConnectorConfig.from_properties({**BASE, "database.hostname": "db1,db2"})
    with pytest.raises(ConfigError, match="one of several servers") as caught:
        cfg.connection_settings()
    assert "db1:3306,db2:3306" in caught.value.where
