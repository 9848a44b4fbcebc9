"""A Spark Connect server for tests: started once for all tests of a session, or by a test that ends it.

The fixture ``connect_server`` (tests/conftest.py) has ``local[4]``; its tasks run in the tests' interpreter, and find
the tests' helpers too.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipelinelib.submit import ROOT, spark_home

from kit.spark_cluster import command, descendants, parent, wait_until

_EVENT_LOG = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false"}
# What a server may be set to, against which jobs must protect themselves: errors with the values of all variables, and
# the end of tasks that hand on nothing for a while.
_HARSH = {
    "spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled": "true",
    "spark.sql.execution.pyspark.udf.idleTimeoutSeconds": "2",
    "spark.sql.execution.pyspark.udf.killOnIdleTimeout": "true",
}
TOKEN = "a-token-of-the-tests"


@dataclass
class RunningServer:
    """A running server.

    Args:
        folder: What it writes: ``log``, ``local``, ``events``.
        options: What it is started with (``stacklib.spark_connect.ServerOptions``).
        token: What clients must show.
        port: Its port on loopback.
    """

    folder: Path
    options: Any
    token: str = TOKEN
    port: int = 0

    def start(self) -> None:
        """Start it, on the same port as before."""
        from stacklib import spark_connect
        from stacklib.java import find_java

        options = replace(self.options, port=self.port or None)
        self.port = spark_connect.start(find_java(), self.folder, spark_home(), options).port

    def kill(self) -> None:
        """End it without giving it a chance (SIGKILL)."""
        from stacklib import ports, spark_connect

        spark_connect.stop(self.folder, 0)
        # Its threads end one after the other, and its port is free with the last one.
        wait_until(lambda: ports.is_free(self.port), 30, "the port of the killed server is taken")

    @property
    def host_and_port(self) -> str:
        """Return where it listens; pyspark's client shows a token without TLS to ``localhost`` only."""
        return f"localhost:{self.port}"

    @property
    def address(self) -> str:
        """Return what a client connects to, with the token."""
        return f"sc://{self.host_and_port}/;token={self.token};user_id=cdc"

    @property
    def pid(self) -> int:
        """Return the process id of its JVM."""
        from stacklib import processes

        identity = processes.load(self.folder / "process.json")
        assert identity is not None
        return identity.pid

    def log(self) -> str:
        """Return what it has logged."""
        return (self.folder / "log").read_text(errors="replace")

    def tasks(self) -> list[int]:
        """Return the process ids of its Python workers, without the daemons that they are forked from."""
        return [pid for pid in self._pythons() if pid not in self.daemons()]

    def daemons(self) -> set[int]:
        """Return the process ids of the daemons that its Python workers are forked from, one for each session."""
        pythons = self._pythons()
        return {pid for pid in pythons if parent(pid) not in pythons}

    def _pythons(self) -> list[int]:
        return [pid for pid in descendants(self.pid) if b"pyspark.daemon" in command(pid)]

    def secrets_left(self, *secrets: str) -> list[tuple[str, Path]]:
        """Return the files of the server that hold a secret as text: its log, the event log, spilled blocks."""
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        assert any(b"SparkListenerJobStart" in path.read_bytes() for path in files), "no event log"
        return [(secret, path) for path in files for secret in secrets if secret.encode() in path.read_bytes()]


@contextmanager
def running_server(
    *,
    jvm: str = "",
    master: str = "local[4]",
    conf: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    python: Path | None = None,
) -> Iterator[RunningServer]:
    """Run a server outside of the checkout.

    Args:
        jvm: Further options of its Java.
        master: Spark master of its tasks.
        conf: Further Spark settings.
        env: Further variables; its local tasks inherit them.
        python: The tasks' interpreter.
    """
    from stacklib import spark_connect

    folder = Path(tempfile.mkdtemp(prefix=f"mysql-cdc-connect-{os.environ['MYSQL_CDC_SUITE']}-"))
    (folder / "events").mkdir()
    fixed = {
        "MYSQL_CDC_SUITE": os.environ["MYSQL_CDC_SUITE"],
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": TOKEN,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"), str(ROOT / "tools"))),
    }
    options = spark_connect.ServerOptions(
        master,
        python or Path(sys.executable),
        conf={**_EVENT_LOG, **_HARSH, "spark.eventLog.dir": f"file://{folder}/events", **(conf or {})},
        env={**fixed, **(env or {})},
        jvm=jvm,
    )
    server = RunningServer(folder, options)
    try:
        server.start()
        yield server
    finally:
        spark_connect.stop(folder)
        shutil.rmtree(folder, ignore_errors=True)
