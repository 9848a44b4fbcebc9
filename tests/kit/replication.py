"""Two MySQL servers of a test's own, each of which can replicate from the other by GTIDs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kit.private_mysql import Pool, PrivateServer, has_old_statements, replica_word, reset_binlog
from kit.sql import execute, rows

_CATCH_UP_S = 60


def start_replica(conn: Any, source: PrivateServer, channel: str = "") -> None:
    """Let a server replicate from another one by GTIDs.

    Args:
        conn: A root connection to it.
        source: The other server.
        channel: Name of the channel.
    """
    address = "HOST='127.0.0.1', {0}_USER='root', {0}_PASSWORD='', {0}_PORT={1}, {0}_AUTO_POSITION=1, "
    more = "GET_{0}_PUBLIC_KEY=1, {0}_CONNECT_RETRY=1, {0}_RETRY_COUNT=1000 FOR CHANNEL '{2}'"
    # MySQL 8.0.22 brought the first form, 8.4 removed the other one.
    old = has_old_statements(conn)
    change, name, start = ("MASTER", "MASTER", "SLAVE") if old else ("REPLICATION SOURCE", "SOURCE", "REPLICA")
    execute(
        conn,
        f"CHANGE {change} TO {name}_" + (address + more).format(name, source.port, channel),
        f"START {start} FOR CHANNEL '{channel}'",
    )


def wait_for_gtids(conn: Any, gtids: str) -> None:
    """Wait until a server has executed transactions.

    Args:
        conn: A root connection to it.
        gtids: Their GTID set.
    """
    late = rows(conn, f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{gtids}', {_CATCH_UP_S})")[0][0]
    assert not late, [dict(row) for row in _status(conn)]


@dataclass
class Node:
    """One server of a pair, with an open root connection.

    Args:
        server: The server.
    """

    server: PrivateServer
    root: Any = field(init=False)

    def __post_init__(self) -> None:
        self.root = self.server.connect()

    @property
    def gtids(self) -> str:
        """The executed GTID set."""
        return str(rows(self.root, "SELECT @@GLOBAL.gtid_executed")[0][0]).replace("\n", "")

    @property
    def uuid(self) -> str:
        """The server's uuid."""
        return str(rows(self.root, "SELECT @@server_uuid")[0][0])

    def reset(self) -> None:
        """Let it be a server of its own, without a binlog and without databases of tests."""
        self.detach()
        execute(self.root, "SET GLOBAL super_read_only=OFF", "SET GLOBAL read_only=OFF", "SET SESSION sql_log_bin=0")
        names = [name for (name,) in rows(self.root, "SHOW DATABASES")]
        system = {"mysql", "sys", "performance_schema", "information_schema"}
        execute(self.root, *(f"DROP DATABASE `{name}`" for name in names if name not in system))
        execute(self.root, "SET SESSION sql_log_bin=1")
        reset_binlog(self.root)

    def detach(self) -> None:
        """Stop replicating."""
        name = replica_word(self.root)
        execute(self.root, f"STOP {name}", f"RESET {name} ALL")

    def follow(self, source: Node) -> None:
        """Replicate from another server, and take no writes of others."""
        self.detach()
        start_replica(self.root, source.server)
        execute(self.root, "SET GLOBAL super_read_only=ON")

    def catch_up(self, gtids: str) -> None:
        """Wait until transactions are executed here."""
        wait_for_gtids(self.root, gtids)

    def promote(self) -> None:
        """Become a primary: execute what was received, then take writes."""
        execute(self.root, f"STOP {replica_word(self.root)} IO_THREAD")
        deadline = time.monotonic() + _CATCH_UP_S
        while any("Waiting for" not in state and "has read all" not in state for state in _applier_states(self.root)):
            assert time.monotonic() < deadline, "the replica does not execute what it has received"
            time.sleep(0.05)
        self.detach()
        execute(self.root, "SET GLOBAL super_read_only=OFF", "SET GLOBAL read_only=OFF")

    def crash(self) -> None:
        """Kill it."""
        self.root.close()
        self.server.crash()

    def restart(self, **options: str) -> None:
        """Start it again."""
        self.server.start(**options)
        self.root = self.server.connect()


def _status(root: Any) -> list[dict[str, Any]]:
    with root.cursor() as cursor:
        cursor.execute(f"SHOW {replica_word(root)} STATUS")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _applier_states(root: Any) -> list[str]:
    return [str(row[f"{replica_word(root).capitalize()}_SQL_Running_State"]) for row in _status(root)]


@dataclass
class Pair:
    """A primary and its replica; ``switch`` exchanges them.

    Args:
        primary: The server that takes writes.
        replica: The one that follows it.
    """

    primary: Node
    replica: Node

    def reset(self) -> None:
        """Let both begin anew, and the second follow the first."""
        self.primary.reset()
        self.replica.reset()
        self.replica.follow(self.primary)

    def begin(self, *statements: str) -> Pair:
        """Let both begin anew with what statements make; return them when both have it.

        Args:
            statements: What the primary executes.
        """
        self.reset()
        execute(self.primary.root, *statements)
        self.catch_up()
        return self

    def catch_up(self) -> None:
        """Wait until the replica has executed what the primary has."""
        self.replica.catch_up(self.primary.gtids)

    def switch(self) -> None:
        """Exchange the two as an operator plans it: no writes, catch up, promote, follow the new primary."""
        old, new = self.primary, self.replica
        execute(old.root, "SET GLOBAL super_read_only=ON")
        self.catch_up()
        new.promote()
        old.follow(new)
        self.primary, self.replica = new, old


@contextmanager
def lent_pair(pool: Pool, version: str = "9.7") -> Iterator[Pair]:
    """Yield two servers of a pool, not connected yet.

    Args:
        pool: The pool.
        version: Their version.
    """
    with pool.lent(version, server_id="11") as one, pool.lent(version, server_id="12") as two:
        yield Pair(Node(one), Node(two))
