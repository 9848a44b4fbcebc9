"""A Spark Connect server for tests: started once for all tests of a session, or by a test that ends it.

The fixture ``connect_server`` (tests/conftest.py) has ``local[4]``; its tasks run in the tests' interpreter.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipelinelib.submit import spark_home

from kit.spark_cluster import command, descendants, parent, wait_until

_EVENT_LOG = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false"}
TOKEN = "a-token-of-the-tests"


@dataclass(frozen=True)
class RunningServer:
    """A running server.

    Args:
        port: Its port on loopback.
        token: What clients must show.
        folder: What it writes: ``log``, ``local``, ``events``.
    """

    port: int
    token: str
    folder: Path

    @property
    def host_and_port(self) -> str:
        """Return where it listens; pyspark's client shows a token without TLS to ``localhost`` only."""
        return f"localhost:{self.port}"

    @property
    def address(self) -> str:
        """Return what a client connects to, with the token."""
        return f"sc://{self.host_and_port}/;token={self.token};user_id=cdc"

    def secrets_left(self, *secrets: str) -> list[tuple[str, Path]]:
        """Return the files of the server that hold a secret as text: its log, the event log, spilled blocks."""
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        assert any(b"SparkListenerJobStart" in path.read_bytes() for path in files), "no event log"
        return [(secret, path) for path in files for secret in secrets if secret.encode() in path.read_bytes()]

    @property
    def pid(self) -> int:
        """Return the process id of its JVM."""
        from stacklib import processes

        identity = processes.load(self.folder / "process.json")
        assert identity is not None
        return identity.pid

    def tasks(self) -> list[int]:
        """Return the process ids of its Python workers, without the daemons that they are forked from."""
        daemons = [pid for pid in descendants(self.pid) if b"pyspark.daemon" in command(pid)]
        return [pid for pid in daemons if parent(pid) in daemons]

    def wait_idle(self) -> None:
        """Wait until no Python worker is left."""
        wait_until(lambda: not self.tasks(), 90, "tasks of the server go on")


@contextmanager
def running_server(
    *,
    jvm: str = "",
    master: str = "local[4]",
    conf: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    python: Path | None = None,
    port: int | None = None,
) -> Iterator[RunningServer]:
    """Run a server outside of the checkout.

    Args:
        jvm: Further options of its Java.
        master: Spark master of its tasks.
        conf: Further Spark settings.
        env: Further variables; its local tasks inherit them.
        python: The tasks' interpreter.
        port: The port it must have.
    """
    from stacklib import spark_connect
    from stacklib.java import find_java

    folder = Path(tempfile.mkdtemp(prefix=f"mysql-cdc-connect-{os.environ['MYSQL_CDC_SUITE']}-"))
    (folder / "events").mkdir()
    options = spark_connect.ServerOptions(
        master,
        python or Path(sys.executable),
        port,
        {**_EVENT_LOG, "spark.eventLog.dir": f"file://{folder}/events", **(conf or {})},
        {"MYSQL_CDC_SUITE": os.environ["MYSQL_CDC_SUITE"], "SPARK_CONNECT_AUTHENTICATE_TOKEN": TOKEN, **(env or {})},
        jvm,
    )
    try:
        started = spark_connect.start(find_java(), folder, spark_home(), options)
        yield RunningServer(started.port, TOKEN, folder)
    finally:
        spark_connect.stop(folder)
        shutil.rmtree(folder, ignore_errors=True)
