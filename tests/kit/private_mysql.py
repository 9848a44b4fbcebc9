"""A MySQL server of a test's own, whose settings and binlog may be changed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pymysql
import pytest
from stacklib import mysql, ports, processes


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
        made.discard()
        # Two hundred megabytes each, and a run of the suite starts dozens.
        shutil.rmtree(made.folder, ignore_errors=True)
