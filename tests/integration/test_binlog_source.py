"""Connections, positions and preflight on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.preflight import preflight
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings, Secret


@pytest.fixture
def settings(stack: Any) -> ConnectionSettings:
    return ConnectionSettings(stack.mysql_host, stack.mysql_port, stack.cdc_user, Secret(stack.cdc_password))


@pytest.fixture
def account(root: Any, unique: str, settings: ConnectionSettings) -> Iterator[ConnectionSettings]:
    """Return an account without any privilege."""
    fetch_all(root, f"CREATE USER `{unique}`@'%' IDENTIFIED BY 'pw'")
    yield replace(settings, user=unique, password=Secret("pw"))
    fetch_all(root, f"DROP USER `{unique}`@'%'")


def test_preflight_counts_the_privileges_of_roles(
    root: Any, account: ConnectionSettings, properties: dict[str, str]
) -> None:
    properties |= {"database.user": account.user, "database.password": "pw"}
    cfg = ConnectorConfig.from_properties(properties)
    role = f"{account.user}_r"
    with root.cursor() as cursor:
        cursor.execute(f"CREATE ROLE `{role}`")
        try:
            cursor.execute(
                f"GRANT SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `{role}`"
            )
            cursor.execute(f"GRANT `{role}` TO `{account.user}`@'%'")
            cursor.execute(f"SET DEFAULT ROLE ALL TO `{account.user}`@'%'")
            with connect(account) as conn:
                assert [f for f in preflight(conn, cfg, snapshot=True) if f.error] == []
        finally:
            cursor.execute(f"DROP ROLE `{role}`")
