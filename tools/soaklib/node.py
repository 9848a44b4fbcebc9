"""One MySQL server of the soak's pair: its process, its role, and what it has executed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pymysql
from stacklib import StackError, mysql, processes
from stacklib.settings import LOOPBACK, MYSQL_ROOT_USER

_DEAD_S = 10.0
_CATCH_UP_S = 120
SETTINGS: Mapping[str, str] = MappingProxyType({"transaction_isolation": "READ-COMMITTED"})
"""Settings of both: what replicates needs no locks of gaps."""


@dataclass
class Node:
    """A server that is primary or replica.

    Args:
        name: What it is called in the output.
        folder: Folder of its data.
        password: Of the account of the jobs.
        settings: More settings of its option file.
    """

    name: str
    folder: Path
    port: int
    password: str
    settings: Mapping[str, str]
    _program: Any = field(default=None, init=False)

    def start(self) -> None:
        """Start it."""
        if self._program is None:
            self._program = mysql.find_program(None)
        mysql.start(self._program, self.folder, self.port, self.password, self.settings)

    def end(self, number: signal.Signals) -> bool:
        """End it by a signal; return whether it was alive."""
        return end_process(mysql.record(self.folder), number)

    def connect(self, *, database: str | None = None, timeout: float = 10.0) -> Any:
        """Return an open root connection, autocommit, utf8mb4, time zone UTC."""
        return pymysql.connect(
            host=LOOPBACK,
            port=self.port,
            user=MYSQL_ROOT_USER,
            password="",
            database=database,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=timeout,
            init_command="SET time_zone = '+00:00'",
            ssl_disabled=True,
        )

    def run(self, *statements: str) -> None:
        """Run statements on a connection of their own."""
        with closing(self.connect()) as conn, conn.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def value(self, sql: str) -> str:
        """Return the first value that a statement answers."""
        with closing(self.connect()) as conn, conn.cursor() as cursor:
            cursor.execute(sql)
            return str(cursor.fetchone()[0])

    @property
    def executed(self) -> str:
        """The executed GTID set."""
        return self.value("SELECT @@GLOBAL.gtid_executed").replace("\n", "")

    def follow(self, source: Node) -> None:
        """Replicate from another server, by GTIDs.

        Raises:
            StackError: It has transactions that the other one has not, so the soak has lost some.
        """
        lost = source.value(f"SELECT GTID_SUBTRACT('{self.executed}', @@GLOBAL.gtid_executed)")
        if lost:
            raise StackError(f"{self.name} follows {source.name}", f"only {self.name} has {lost}", "mend the soak")
        self.run(
            "SET GLOBAL super_read_only = ON",
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{LOOPBACK}', SOURCE_PORT = {source.port}, "
            f"SOURCE_USER = '{MYSQL_ROOT_USER}', SOURCE_PASSWORD = '', SOURCE_AUTO_POSITION = 1, "
            "GET_SOURCE_PUBLIC_KEY = 1, SOURCE_CONNECT_RETRY = 1, SOURCE_RETRY_COUNT = 1000",
            "START REPLICA",
        )

    def catch_up(self, gtids: str) -> None:
        """Wait until it has executed a GTID set.

        Raises:
            StackError: It does not.
        """
        if self.value(f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{gtids}', {_CATCH_UP_S})") != "0":
            workers = "performance_schema.replication_applier_status_by_worker"
            errors = self.value(f"SELECT GROUP_CONCAT(last_error_message) FROM {workers}")
            raise StackError(f"{self.name} replicates", f"it has not executed {gtids}: {errors}", "see its error log")

    def holds_locks(self) -> bool:
        """Return whether XA transactions are prepared, which keep their locks, also those of rows that they only read.

        The other server, which has replicated them, has only those of changed rows. So what is committed there may wait
        here, and the XA COMMIT behind it never comes. A restart leaves the locks of changed rows.
        """
        with closing(self.connect()) as conn, conn.cursor() as cursor:
            return bool(cursor.execute("XA RECOVER"))

    def take_writes(self) -> None:
        """Become the primary."""
        self.run("STOP REPLICA", "RESET REPLICA ALL", "SET GLOBAL super_read_only = OFF", "SET GLOBAL read_only = OFF")

    def end_clients(self, user: str) -> None:
        """End the connections of a user, but those that replicate, and wait until they are gone."""
        with closing(self.connect()) as conn, conn.cursor() as cursor:
            limit = time.monotonic() + _DEAD_S
            while time.monotonic() < limit:
                cursor.execute(
                    "SELECT processlist_id FROM performance_schema.threads WHERE processlist_user = %s "
                    "AND processlist_id <> CONNECTION_ID() AND processlist_command NOT LIKE 'Binlog Dump%%'",
                    (user,),
                )
                clients = [row[0] for row in cursor.fetchall()]
                if not clients:
                    return
                for client in clients:
                    with suppress(pymysql.MySQLError):
                        cursor.execute(f"KILL {client}")
                time.sleep(0.02)
        raise StackError(f"ending the connections to {self.name}", f"{len(clients)} are still there", "run it again")


def end_process(record: Path, number: signal.Signals) -> bool:
    """Signal a recorded server and wait until it is gone, SIGKILL after some seconds; return whether it was alive."""
    identity = processes.load(record)
    if identity is None or not processes.alive(identity):
        return False
    for each in (number, signal.SIGKILL):
        os.kill(identity.pid, each)
        limit = time.monotonic() + _DEAD_S
        while processes.alive(identity) and time.monotonic() < limit:
            time.sleep(0.02)
        if not processes.alive(identity):
            break
    # mysqld takes the id in its socket's lock file for a living server as long as anybody has that id, even a zombie.
    with suppress(ChildProcessError):
        os.waitpid(identity.pid, 0)
    (record.parent / "data" / "mysql.sock.lock").unlink(missing_ok=True)
    return True
