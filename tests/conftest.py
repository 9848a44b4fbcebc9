"""Fixtures of the whole suite: one local stack for all tests that need servers."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
sys.path.insert(0, str(ROOT / "tests"))

QUICK = ("unit", "golden", "property")
_serial = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs no server, and run it first."""
    for item in items:
        part = item.path.relative_to(ROOT / "tests").parts[0]
        if part in QUICK:
            item.add_marker(pytest.mark.quick)
        elif part in ("integration", "fault"):
            item.add_marker(pytest.mark.stack)
    items.sort(key=lambda i: 0 if i.get_closest_marker("quick") else 1)


@pytest.fixture(scope="session")
def stack() -> Any:
    """Return the addresses of a running MySQL and Kafka; started when they do not run."""
    from stacklib import ensure_stack

    return ensure_stack(Path(os.environ.get("MYSQL_CDC_STACK_DIR", ROOT / ".stack")))


@pytest.fixture
def root(stack: Any) -> Iterator[Any]:
    """Return an open root connection, autocommit, utf8mb4."""
    conn = pymysql.connect(
        host=stack.mysql_host,
        port=stack.mysql_port,
        user=stack.root_user,
        password=stack.root_password,
        charset="utf8mb4",
        autocommit=True,
    )
    yield conn
    conn.close()


@pytest.fixture
def unique() -> str:
    """Return a name no other test uses, fit for databases, topics and owners."""
    return f"t{os.getpid()}_{int(time.time() * 1000) % 10**9}_{next(_serial)}"


@pytest.fixture
def database(root: Any, unique: str) -> Iterator[str]:
    """Return a fresh, empty database; dropped afterwards with what was granted on its tables."""
    with root.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE `{unique}` CHARACTER SET utf8mb4")
    yield unique
    with root.cursor() as cursor:
        # Dropping a database leaves the privileges on its tables (MySQL manual, "DROP DATABASE").
        cursor.execute("SELECT DISTINCT User, Host, Table_name FROM mysql.tables_priv WHERE Db = %s", (unique,))
        for user, host, table in cursor.fetchall():
            cursor.execute(f"REVOKE ALL PRIVILEGES ON `{unique}`.`{table}` FROM `{user}`@`{host}`")
        cursor.execute(f"DROP DATABASE IF EXISTS `{unique}`")


@pytest.fixture
def properties(stack: Any, unique: str, database: str) -> dict[str, str]:
    """Return connector properties that capture the test's own database under a prefix of its own."""
    return {
        "topic.prefix": unique,
        "database.hostname": stack.mysql_host,
        "database.port": str(stack.mysql_port),
        "database.user": stack.cdc_user,
        "database.password": stack.cdc_password,
        "database.include.list": database,
        "kafka.bootstrap.servers": stack.kafka,
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "1",
    }
