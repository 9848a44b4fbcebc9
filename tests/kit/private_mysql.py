"""MySQL servers beside the stack's: a test's own, which it may break, and those of a pool, handed out as if new."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pymysql
import pytest
from stacklib import mysql, ports, processes

from kit.sql import execute, rows

_OLD_STATEMENTS = ("5.", "8.0.1")
"""Beginnings of the versions that know the former names of the statements only."""
_SYSTEM = ("mysql", "sys", "performance_schema", "information_schema")
_CLEAN_S = 30
# What transactions move.
_NOT_COMPARED = ("gtid_executed", "gtid_purged")
_GTID_MODES = ("OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")


@dataclass
class PrivateServer:
    """Start and stop one server; its data stay between starts.

    Args:
        folder: Folder of its data.
        port: Its port.
        version: One of ``MYSQL_VERSIONS``.
        password: Of the account ``cdc``.
        environment: More of its environment.
    """

    folder: Path
    port: int
    version: str = "9.7"
    password: str = "private-word"
    environment: Mapping[str, str] = field(default_factory=dict)

    def start(self, **options: str) -> None:
        """Start it, with more lines for its option file."""
        program = mysql.find_program(self.version)
        program = replace(program, env={**program.env, **self.environment})
        mysql.start(program, self.folder, self.port, self.password, options)

    def stop(self) -> None:
        """Stop it."""
        processes.stop("mysql", mysql.record(self.folder))

    def discard(self) -> None:
        """End it at once; its data are not needed any more."""
        processes.stop("mysql", mysql.record(self.folder), seconds=0)

    def crash(self) -> None:
        """Kill it; it recovers at its next start."""
        self.discard()
        # The lock names a process that may still be there as a zombie; a new server would not start beside it.
        for lock in self.folder.rglob("*.lock"):
            lock.unlink()

    def connect(self) -> Any:
        """Return an open root connection, autocommit, utf8mb4."""
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user="root",
            password="",
            charset="utf8mb4",
            autocommit=True,
            ssl_disabled=True,
        )

    def properties(self) -> dict[str, str]:
        """Return the properties that lead to it."""
        return {
            "database.hostname": "127.0.0.1",
            "database.port": str(self.port),
            "database.user": "cdc",
            "database.password": self.password,
        }


def has_old_statements(conn: Any) -> bool:
    """Return whether a server knows the former names of the statements only."""
    return str(rows(conn, "SELECT @@version")[0][0]).startswith(_OLD_STATEMENTS)


def replica_word(conn: Any) -> str:
    """Return what the server's statements call a replica."""
    return "SLAVE" if has_old_statements(conn) else "REPLICA"


def reset_binlog(conn: Any) -> None:
    """Let a server forget its binlog and its GTIDs."""
    execute(conn, "RESET MASTER" if has_old_statements(conn) else "RESET BINARY LOGS AND GTIDS")


def set_globals(conn: Any, values: Mapping[str, str]) -> None:
    """Set global variables; gtid_mode step by step, as the server asks for.

    Args:
        conn: A root connection.
        values: Value by variable, as SHOW shows it.
    """
    on = values.get("gtid_mode") == "ON"  # asks for enforce_gtid_consistency, which asks for it in turn
    for name, value in sorted(values.items(), key=lambda item: (item[0] == "gtid_mode") == on):
        steps = [value]
        if name == "gtid_mode":
            now = _GTID_MODES.index(rows(conn, "SELECT @@GLOBAL.gtid_mode")[0][0])
            wanted = _GTID_MODES.index(value)
            steps = [
                _GTID_MODES[i] for i in (range(now + 1, wanted + 1) if now < wanted else range(now - 1, wanted - 1, -1))
            ]
        for step in steps:
            execute(conn, f"SET GLOBAL {name} = " + (step if re.fullmatch(r"-?\d+(\.\d+)?", step) else f"'{step}'"))
    if "gtid_mode" in values:
        # A file of the same second may have been begun before (``purged_files``); the next one is to be one behind it.
        execute(conn, "DO SLEEP(1.1)")


@contextmanager
def running_server(
    factory: pytest.TempPathFactory, version: str, options: Mapping[str, str] = MappingProxyType({})
) -> Iterator[PrivateServer]:
    """Yield a running server of a version, and discard it with its data.

    Args:
        factory: Makes its folder.
        version: One of ``MYSQL_VERSIONS``.
        options: More settings of its option file.
    """
    made = PrivateServer(factory.mktemp(f"mysql-{version}"), ports.any_free(), version)
    made.start(**options)
    try:
        yield made
    finally:
        _remove(made)  # two hundred megabytes each


def _globals(conn: Any) -> dict[str, str]:
    return {name: value for name, value in rows(conn, "SHOW GLOBAL VARIABLES") if name not in _NOT_COMPARED}


def _accounts(conn: Any) -> dict[str, list[str]]:
    """Return the grants of each account, quoted as statements name it."""
    names = [f"'{user}'@'{host}'" for user, host in rows(conn, "SELECT User, Host FROM mysql.user")]
    return {name: sorted(str(row[0]) for row in rows(conn, f"SHOW GRANTS FOR {name}")) for name in names}


def _state(conn: Any) -> dict[str, Any]:
    """Return what a server that is handed out has in common with a new one."""
    filters = "performance_schema.replication_applier_global_filters"
    return {
        "variables": _globals(conn),
        "accounts": _accounts(conn),
        "databases": [name for (name,) in rows(conn, "SHOW DATABASES")],
        "system tables": [name for (name,) in rows(conn, "SHOW TABLES FROM mysql")],
        "plugins": rows(conn, "SELECT PLUGIN_NAME, PLUGIN_STATUS FROM information_schema.PLUGINS ORDER BY 1"),
        "binlog files": len(rows(conn, "SHOW BINARY LOGS")),
        "prepared transactions": rows(conn, "XA RECOVER"),
        "replication": rows(conn, f"SHOW {replica_word(conn)} STATUS"),
        "filters": [] if has_old_statements(conn) else rows(conn, f"SELECT * FROM {filters}"),
    }


def _end_others(conn: Any) -> None:
    """End all sessions but this one, with their locks and dumps of the binlog."""
    sql = (
        "SELECT ID FROM information_schema.PROCESSLIST "
        "WHERE ID <> CONNECTION_ID() AND USER NOT IN ('system user', 'event_scheduler')"
    )
    deadline = time.monotonic() + _CLEAN_S
    while others := rows(conn, sql):
        assert time.monotonic() < deadline, "a session does not end"
        for (number,) in others:
            try:
                execute(conn, f"KILL {number}")
            except pymysql.MySQLError as error:
                if error.args[0] != pymysql.constants.ER.NO_SUCH_THREAD:
                    raise
        time.sleep(0.01)


def _clean(server: PrivateServer, conn: Any, new: Mapping[str, Any]) -> None:
    """Undo what a test has left on a server.

    Args:
        server: The server.
        conn: A root connection to it.
        new: Its state when it was new.
    """
    _end_others(conn)
    word = replica_word(conn)
    execute(conn, "SET SESSION sql_log_bin = 0", f"STOP {word}", f"RESET {word} ALL")
    if not server.version.startswith("5."):
        execute(conn, "RESET PERSIST")
    now = _globals(conn)
    set_globals(conn, {name: value for name, value in new["variables"].items() if now.get(name) != value})
    for form, first, second, data in rows(conn, "XA RECOVER CONVERT XID"):
        cut = 2 + 2 * first
        execute(conn, f"XA ROLLBACK {data[:cut]}, {'0x' + data[cut:] if second else repr('')}, {form}")
    execute(conn, *(f"DROP DATABASE `{name}`" for (name,) in rows(conn, "SHOW DATABASES") if name not in _SYSTEM))
    more = {name for (name,) in rows(conn, "SHOW TABLES FROM mysql")} - set(new["system tables"])
    execute(conn, *(f"DROP TABLE mysql.`{name}`" for name in more))
    made = [name for name in _accounts(conn) if name not in new["accounts"] or name == "'cdc'@'%'"]
    execute(conn, *(f"DROP USER {name}" for name in made))
    execute(conn, *mysql.accounts(server.password, server.version).replace(";\n", "\n").splitlines())
    execute(conn, "FLUSH PRIVILEGES")
    reset_binlog(conn)


class Pool:
    """Servers that live as long as the run, each lent to one test or module at a time, as clean as a new one.

    Args:
        factory: Makes their folders.
    """

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._idle: dict[tuple[str, str], list[tuple[PrivateServer, dict[str, Any]]]] = {}

    @contextmanager
    def lent(
        self, version: str = "9.7", lower_case_table_names: str = "0", **variables: str
    ) -> Iterator[PrivateServer]:
        """Yield a server of a version.

        A test may change what is in it and may restart it, but must not touch its files or give it other options.

        Args:
            version: One of ``MYSQL_VERSIONS``.
            lower_case_table_names: The one option that a data folder keeps.
            variables: Global variables to set.
        """
        idle = self._idle.setdefault((version, lower_case_table_names), [])
        server, new = self._clean_one(idle) or self._start(version, lower_case_table_names)
        if variables:
            with server.connect() as conn:
                set_globals(conn, variables)
                reset_binlog(conn)  # each step of gtid_mode begins a file
        try:
            yield server
        finally:
            idle.append((server, new))

    def _clean_one(
        self, idle: list[tuple[PrivateServer, dict[str, Any]]]
    ) -> tuple[PrivateServer, dict[str, Any]] | None:
        """Return an idle server that is as it was; those that are not are thrown away."""
        while idle:
            server, new = idle.pop()
            try:
                with server.connect() as conn:
                    _clean(server, conn, new)
                    now = _state(conn)
                if now == new:
                    return server, new
                why = str({name: (new[name], now[name]) for name in new if new[name] != now[name]})[:2000]
            except (pymysql.MySQLError, AssertionError) as error:
                why = repr(error)
            print(f"a server of the pool is thrown away: {why}")
            _remove(server)
        return None

    def _start(self, version: str, lower: str) -> tuple[PrivateServer, dict[str, Any]]:
        server = PrivateServer(self._factory.mktemp(f"pool-{version}"), ports.any_free(), version)
        server.start(**({} if lower == "0" else {"lower_case_table_names": lower}))
        with server.connect() as conn:
            execute(conn, "SET SESSION sql_log_bin = 0")
            reset_binlog(conn)
            return server, _state(conn)

    def end(self) -> None:
        """Discard all servers."""
        for server, _ in (pair for idle in self._idle.values() for pair in idle):
            _remove(server)


def _remove(server: PrivateServer) -> None:
    server.discard()
    shutil.rmtree(server.folder, ignore_errors=True)
