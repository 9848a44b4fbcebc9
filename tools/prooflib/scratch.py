"""The scratch servers of a capture: a stack of its own, emptied before each run."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pymysql
from confluent_kafka.admin import AdminClient
from stacklib import StackInfo, ensure_stack
from stacklib.settings import REPOSITORY

from prooflib.client import Client
from prooflib.workload import ProofError

SYSTEM = frozenset({"mysql", "sys", "information_schema", "performance_schema"})
SENTINEL = "peer_end"
FOLDER = REPOSITORY / ".stack" / "proof"
_SERVER_VARIABLES = ("MYSQL_CDC_MYSQL_HOST", "MYSQL_CDC_KAFKA")
# Global variables that change by themselves.
_CHANGING_VARIABLES = frozenset({"gtid_executed", "gtid_purged"})
_IDLE_POLLS = 3
_IDLE_S = 60.0


def scratch_stack(folder: Path | None = None) -> StackInfo:
    """Start the scratch stack when it does not run, and return it.

    Servers that environment variables name are used with ``MYSQL_CDC_PROOF_SCRATCH=1`` only, because a capture drops
    every database of its server.

    Args:
        folder: The stack's folder; ``.stack/proof`` in the checkout when None.
    """
    folder = folder or FOLDER
    if os.environ.get("MYSQL_CDC_PROOF_SCRATCH") == "1":
        return ensure_stack(folder)
    configured = {name: os.environ.pop(name) for name in _SERVER_VARIABLES if name in os.environ}
    try:
        return ensure_stack(folder)
    finally:
        os.environ.update(configured)


# MySQL 8.2 brought RESET BINARY LOGS AND GTIDS; 8.4 removed RESET MASTER.
_RESETS = (((8, 2), "RESET BINARY LOGS AND GTIDS"), ((0, 0), "RESET MASTER"))


def empty_source(client: Client, version: str) -> None:
    """Drop all user databases, forget the binlogs, and make the sentinel's table.

    The statements are those of the recordings, so that binlog positions agree.
    """
    numbers = tuple(int(part) for part in version.split(".")[:2])
    reset = next(statement for first, statement in _RESETS if numbers >= first)
    databases = [d for d in client.run("SHOW DATABASES", "reset") if d and d not in SYSTEM]
    drops = "".join(f"DROP DATABASE `{d.replace('`', '``')}`;" for d in databases)
    client.run(f"SET FOREIGN_KEY_CHECKS=0;{drops}{reset};", "reset")
    client.run(f"CREATE DATABASE {SENTINEL}; CREATE TABLE {SENTINEL}.done (id INT);", "reset")


def empty_kafka(kafka: str, prefix: str) -> None:
    """Delete the topics that an earlier capture left."""
    admin = AdminClient({"bootstrap.servers": kafka})
    topics = [t for t in admin.list_topics(timeout=15).topics if of_prefix(t, prefix)]
    if not topics:
        return
    for future in admin.delete_topics(topics, operation_timeout=30).values():
        future.result()
    deadline = time.monotonic() + 30
    while set(topics) & set(admin.list_topics(timeout=15).topics):
        if time.monotonic() > deadline:
            raise ProofError(f"Kafka does not delete the topics of an earlier capture: {', '.join(sorted(topics))}")
        time.sleep(0.1)


def of_prefix(topic: str, prefix: str) -> bool:
    """Return whether a topic belongs to a prefix, internal ones included."""
    internal = (f"schemahistory.{prefix}", f"ledger.{prefix}", f"__debezium-heartbeat.{prefix}")
    return topic == prefix or topic.startswith(prefix + ".") or topic in internal


def root(stack: StackInfo) -> Any:
    """Return a connection as root, autocommit."""
    return pymysql.connect(
        host=stack.mysql_host,
        port=stack.mysql_port,
        user=stack.root_user,
        password=stack.root_password,
        charset="utf8mb4",
        autocommit=True,
        ssl_disabled=True,
    )


def prepare_server(conn: Any, zone: str | None = None) -> None:
    """Give the server the settings of the recordings: its zone, and globals that workloads change at their default.

    Args:
        conn: A connection as root.
        zone: The zone, as MySQL names it; UTC when None.
    """
    run(conn, ["SET GLOBAL time_zone = DEFAULT", "SET GLOBAL binlog_rows_query_log_events = OFF"])
    if zone is not None:
        _set_zone(conn, zone)
        return
    with conn.cursor() as cursor:
        cursor.execute("SELECT @@global.time_zone, @@system_time_zone")
        zone, system = cursor.fetchone()
    if (system if zone == "SYSTEM" else zone) not in ("UTC", "+00:00", "GMT"):
        run(conn, ["SET GLOBAL time_zone = '+00:00'"])


def _set_zone(conn: Any, zone: str) -> None:
    """Set the server's zone.

    Raises:
        ProofError: The server does not know it.
    """
    try:
        with conn.cursor() as cursor:
            cursor.execute("SET GLOBAL time_zone = %s", (zone,))
    except pymysql.MySQLError as error:
        raise ProofError(
            f"the server does not take the zone {zone} ({error.args[1]}); an offset as +02:00 works"
        ) from None


@contextlib.contextmanager
def restored_server(conn: Any) -> Iterator[None]:
    """Undo afterwards what a workload may leave on the server in addition to databases: accounts and global
    variables.
    """
    accounts, variables = _accounts(conn), _variables(conn)
    try:
        yield
    finally:
        for user, host in _accounts(conn) - accounts:
            _try_statement(conn, "DROP USER %s@%s", user, host)
        for name, value in _variables(conn).items():
            if value != variables.get(name, value):
                _try_statement(conn, f"SET GLOBAL `{name}` = %s", _typed(variables[name]))


def _accounts(conn: Any) -> set[tuple[str, str]]:
    with conn.cursor() as cursor:
        cursor.execute("SELECT user, host FROM mysql.user")
        return set(cursor.fetchall())


def _variables(conn: Any) -> dict[str, str]:
    with conn.cursor() as cursor:
        cursor.execute("SELECT variable_name, variable_value FROM performance_schema.global_variables")
        return {name: value for name, value in cursor.fetchall() if name not in _CHANGING_VARIABLES}


def _typed(value: str) -> str | int:
    return int(value) if value.isdigit() else value


def _try_statement(conn: Any, statement: str, *values: Any) -> None:
    with conn.cursor() as cursor, contextlib.suppress(pymysql.MySQLError):
        cursor.execute(statement, values)


def run(conn: Any, statements: Iterable[str]) -> None:
    """Run statements one by one."""
    with conn.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def wait_idle(conn: Any) -> None:
    """Wait until no other session has run a statement for a moment (a session kept waiting counts as busy)."""
    quiet, deadline = 0, time.monotonic() + _IDLE_S
    # performance_schema.processlist came with MySQL 8.0.22.
    query = (
        "SELECT COUNT(*) FROM performance_schema.threads "
        "WHERE type = 'FOREGROUND' AND processlist_id <> CONNECTION_ID() "
        "AND processlist_command NOT IN ('Sleep', 'Daemon', 'Binlog Dump', 'Binlog Dump GTID')"
    )
    while quiet < _IDLE_POLLS and time.monotonic() < deadline:
        with conn.cursor() as cursor:
            cursor.execute(query)
            quiet = quiet + 1 if cursor.fetchone()[0] == 0 else 0
        time.sleep(0.05)
