"""Servers in ``database.hostname``."""

from __future__ import annotations

import pytest

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.source_hosts import source_hosts

BASE = {"topic.prefix": "p", "database.user": "u", "kafka.bootstrap.servers": "k:1"}


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
    settings = cfg.connection_settings()
    assert settings.address() == "db1:3310,::1:3307" and len(settings.each()) == 2
    second = cfg.at_server(settings.each()[1].host, settings.each()[1].port).connection_settings()
    assert (second.host, second.port, second.alternatives) == ("::1", 3307, ())
    (found,) = ConnectorConfig.check({**BASE, "database.hostname": "db1,,db2"})
    assert found.name == "database.hostname" and "empty entry" in found.what
