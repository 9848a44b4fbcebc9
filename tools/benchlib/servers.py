"""Servers of another MySQL version, for workloads that need one."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from stacklib import mysql, ports, processes
from stacklib.settings import LOOPBACK, MYSQL_ROOT_USER

from benchlib.ground import BenchEnvironment
from benchlib.source import MySqlSource


@contextmanager
def on_server(ground: BenchEnvironment, version: str | None, folder: Path) -> Iterator[BenchEnvironment]:
    """Return the same ground with a server of another version, which runs as long as it is entered.

    Args:
        ground: The servers of the bench.
        version: The version; None for the bench's own.
        folder: A folder of its own for the server's data.

    Raises:
        StackError: The version cannot be fetched, or its server does not start.
    """
    if version is None:
        yield ground
        return
    with private_server(folder, version) as source:
        yield replace(ground, source=source)


@contextmanager
def private_server(folder: Path, version: str | None = None) -> Iterator[MySqlSource]:
    """Run one more server as long as it is entered.

    Args:
        folder: A folder of its own for the server's data.
        version: Its version; None for the usual one.

    Raises:
        StackError: The version cannot be fetched, or its server does not start.
    """
    program, port = mysql.find_program(version), ports.any_free()
    try:
        mysql.start(program, folder, port, secrets.token_urlsafe(18))
        source = MySqlSource(LOOPBACK, port, MYSQL_ROOT_USER, "")
        relax_durability(source)
        yield source
    finally:
        # Its data are not kept.
        processes.stop("mysql", mysql.record(folder), seconds=0)


def relax_durability(source: MySqlSource) -> None:
    """Let a server write as one that is not about to lose power.

    Args:
        source: The server.
    """
    source.run("SET GLOBAL sync_binlog = 0", "SET GLOBAL innodb_flush_log_at_trx_commit = 0")
