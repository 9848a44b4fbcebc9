"""The soak's own MySQL, Kafka and schema registry: started in a folder of their own, killed and started again."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pymysql
from stacklib import StackInfo, ensure_stack, kafka, mysql, processes, registry, stop_stack
from stacklib.java import find_java

from soaklib.proxy import Proxy

_DEAD_S = 10.0


class Servers:
    """Start, kill and end the servers.

    Args:
        folder: Folder of their data and logs.
        with_registry: Whether there is a schema registry too.
    """

    def __init__(self, folder: Path, *, with_registry: bool = False) -> None:
        self.folder, self._with_registry = folder, with_registry
        self.registry_url: str | None = None
        self.info: StackInfo
        self.proxy: Proxy
        self._program: Any = None

    def start(self) -> None:
        """Start them on free ports with new data, and a proxy in front of MySQL."""
        stop_stack(self.folder, wipe=True)
        self.info = ensure_stack(self.folder)
        if self._with_registry:
            self.registry_url = registry.start(self.folder / "registry").url
        self.proxy = Proxy(self.info.mysql_port)

    def connect(self, *, database: str | None = None, timeout: float = 10.0) -> Any:
        """Return an open root connection, autocommit, utf8mb4, time zone UTC; it does not go through the proxy."""
        info = self.info
        return pymysql.connect(
            host=info.mysql_host,
            port=info.mysql_port,
            user=info.root_user,
            password=info.root_password,
            database=database,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=timeout,
            init_command="SET time_zone = '+00:00'",
            ssl_disabled=True,
        )

    def restart_mysql(self, number: signal.Signals, down_s: float) -> bool:
        """End mysqld by a signal and start it again; return whether it was alive."""
        folder = self.folder / "mysql"
        hit = _end_process(mysql.record(folder), number)
        time.sleep(down_s)
        if self._program is None:
            self._program = mysql.find_program(None)
        mysql.start(self._program, folder, self.info.mysql_port, self.info.cdc_password)
        return hit

    def restart_kafka(self, number: signal.Signals, down_s: float) -> bool:
        """End the broker by a signal and start it again; return whether it was alive."""
        folder = self.folder / "kafka"
        hit = _end_process(kafka.record(folder), number)
        time.sleep(down_s)
        port = int(self.info.kafka.rpartition(":")[2])
        kafka.start(find_java(), folder, port, self.info.kafka_controller_port)
        return hit

    def end(self, *, wipe: bool) -> None:
        """End them.

        Args:
            wipe: Whether their data goes as well.
        """
        registry.stop(self.folder / "registry")
        if hasattr(self, "proxy"):
            self.proxy.close()
        stop_stack(self.folder, wipe=wipe)


def _end_process(record: Path, number: signal.Signals) -> bool:
    """Signal a recorded server and wait until it is gone; SIGKILL after some seconds."""
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
