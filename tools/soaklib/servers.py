"""The soak's own MySQL pair, Kafka and schema registry: started in a folder of their own, killed, started again."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from stacklib import StackInfo, ensure_stack, kafka, mysql, ports, processes, registry, stop_stack
from stacklib.java import find_java

from soaklib.node import SETTINGS, Node, end_process
from soaklib.proxy import Proxy

_STABLE = 3
_LOCK_WAIT_S = 20


class Servers:
    """Start, kill, exchange and end the servers.

    Args:
        folder: Folder of their data and logs.
        with_registry: Whether there is a schema registry too.
    """

    def __init__(self, folder: Path, *, with_registry: bool = False) -> None:
        self.folder, self._with_registry = folder, with_registry
        self.registry_url: str | None = None
        self.info: StackInfo
        self.proxy: Proxy
        self.primary: Node
        self.replica: Node
        self.promotions = 0
        # Nobody connects while the two are exchanged, as through a proxy that holds its clients.
        self._exchange = threading.Lock()

    def start(self) -> None:
        """Start them on free ports with new data, a proxy in front of MySQL's primary, and a replica of it."""
        self.end(wipe=True)
        self.info = info = ensure_stack(self.folder)
        if self._with_registry:
            self.registry_url = registry.start(self.folder / "registry").url
        self.primary = Node("server 1", self.folder / "mysql", info.mysql_port, info.cdc_password, SETTINGS)
        settings = {**SETTINGS, "server_id": "2"}
        self.replica = Node("server 2", self.folder / "mysql-2", ports.any_free(), info.cdc_password, settings)
        self.replica.start()
        for node in (self.primary, self.replica):
            node.run("RESET BINARY LOGS AND GTIDS", *(f"SET GLOBAL {name} = '{v}'" for name, v in SETTINGS.items()))
        self.replica.follow(self.primary)
        self.proxy = Proxy(info.mysql_port)

    def connect(self, *, database: str | None = None, timeout: float = 10.0) -> Any:
        """Return an open root connection to the primary, autocommit, utf8mb4, time zone UTC; not through the proxy."""
        with self._exchange:
            return self.primary.connect(database=database, timeout=timeout)

    def binlog_files(self) -> dict[str, str]:
        """Return the binlog file that each MySQL server writes, by the server's name."""
        return {node.name: node.value("SHOW BINARY LOG STATUS") for node in (self.primary, self.replica)}

    # -- faults -----------------------------------------------------------------------------------------------------

    def restart_mysql(self, number: signal.Signals, down_s: float) -> bool:
        """End the primary by a signal and start it again; return whether it was alive."""
        hit = self.primary.end(number)
        time.sleep(down_s)
        self.primary.start()
        return hit

    def switch_over(self, *, cut: bool) -> None:
        """Exchange the two as an operator plans it: no more writes, catch up, promote, follow the new primary.

        Args:
            cut: Whether the jobs' connections to the former primary are cut; otherwise they stay open, unless that
                server has to restart.
        """
        with self._exchange:
            old, new = self.primary, self.replica
            old.run("SET GLOBAL super_read_only = ON")
            old.end_clients(self.info.root_user)
            self._catch_up()
            new.take_writes()
            self._exchanged()
            self.proxy.redirect(new.port, cut=cut)
        if old.holds_locks():
            old.end(signal.SIGTERM)
            old.start()
        old.follow(new)

    def fail_over(self, down_s: float) -> None:
        """Kill -9 of the primary with transactions under way; the replica takes its place, and the killed one follows.

        Before, commits are held until the replica has everything: what a client, or a job, has seen committed is not
        lost. Without this the replica may lack transactions that are already in topics, which jobs have to refuse.
        """
        with self._exchange:
            old, new = self.primary, self.replica
            with closing(old.connect()) as conn, conn.cursor() as cursor:
                cursor.execute(f"SET SESSION lock_wait_timeout = {_LOCK_WAIT_S}")
                cursor.execute("FLUSH TABLES WITH READ LOCK")
                self._catch_up()
                old.end(signal.SIGKILL)
            time.sleep(down_s)
            new.take_writes()
            self._exchanged()
            self.proxy.redirect(new.port, cut=True)
        old.start()
        old.follow(new)

    def _catch_up(self) -> None:
        """Wait until the replica has everything, also what was being committed when writes were stopped."""
        before, same = "", 0
        while same < _STABLE:
            executed = self.primary.executed
            self.replica.catch_up(executed)
            same = same + 1 if executed == before else 0
            before = executed
            time.sleep(0.05)

    def _exchanged(self) -> None:
        self.primary, self.replica = self.replica, self.primary
        self.promotions += 1

    def restart_kafka(self, number: signal.Signals, down_s: float) -> bool:
        """End the broker by a signal and start it again; return whether it was alive."""
        folder = self.folder / "kafka"
        hit = end_process(kafka.record(folder), number)
        time.sleep(down_s)
        port = int(self.info.kafka.rpartition(":")[2])
        kafka.start(find_java(), folder, port, self.info.kafka_controller_port)
        return hit

    def end(self, *, wipe: bool) -> None:
        """End them."""
        registry.stop(self.folder / "registry")
        if hasattr(self, "proxy"):
            self.proxy.close()
        second = self.folder / "mysql-2"
        processes.stop("mysql", mysql.record(second), 0.0 if wipe else 30.0)
        stop_stack(self.folder, wipe=wipe)
        if wipe:
            shutil.rmtree(second, ignore_errors=True)
