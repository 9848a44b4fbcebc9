"""A Spark Connect server of the stack: Spark that already runs, on a loopback port, out of the installed pyspark.

Its tasks run in the server's own JVM (``local[N]``) or on a cluster, in the interpreter that ``python`` names; the code
that they import is on that interpreter's path (a prepared environment, docs/spark.md).
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from stacklib import ports, processes, spark
from stacklib.errors import say
from stacklib.java import Java, find_java
from stacklib.settings import LOOPBACK, REPOSITORY

_START_SECONDS = 90.0
_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_RECORD = "spark-connect.json"
# One compiler and one collector, as for Spark's other daemons; the server's interpreter loads 25,000 classes.
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@dataclass(frozen=True, slots=True)
class ConnectServer:
    """Address of a running server.

    Args:
        master: Where its tasks run.
    """

    folder: str
    port: int
    master: str

    @property
    def address(self) -> str:
        """Return what a client connects to."""
        return f"sc://{LOOPBACK}:{self.port}"


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What may differ between two servers.

    Args:
        master: Spark master of its tasks.
        port: The port it must have; None for a free one.
        env: Further variables, which local tasks inherit.
        jvm: Further options of its Java.
    """

    master: str
    python: Path
    port: int | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    jvm: str = ""


def load(folder: Path) -> ConnectServer | None:
    """Return the server of a folder, or None when none was started there."""
    try:
        return ConnectServer(**json.loads((folder / _RECORD).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def running(folder: Path) -> bool:
    """Return whether the server's process is alive."""
    return processes.alive(processes.load(folder / "process.json"))


def answers(server: ConnectServer) -> bool:
    """Return whether its port takes connections."""
    try:
        with socket.create_connection((LOOPBACK, server.port), timeout=2):
            return True
    except OSError:
        return False


def start(java: Java, folder: Path, spark_home: Path, options: ServerOptions) -> ConnectServer:
    """Start a server and wait until it takes connections; one that runs is returned as it is.

    Raises:
        StackError: It does not start; the end of its log is in the detail.
    """
    known = load(folder)
    if known is not None and running(folder):
        say("connect", f"already runs on {known.address}")
        return known
    stop(folder)
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    server = ConnectServer(
        str(folder), ports.choose("connect", options.port, known.port if known else None), options.master
    )
    say("connect", f"starting a Spark Connect server on {server.address} ({options.master})")
    try:
        started = _spawn(java, folder, spark_home, server, options)
        processes.wait_ready("connect", started, lambda: answers(server), _START_SECONDS)
    except BaseException:
        stop(folder)
        raise
    processes.write_private(folder / _RECORD, json.dumps(asdict(server), indent=2) + "\n")
    say("connect", "ready")
    return server


def start_in_checkout(folder: Path) -> ConnectServer:
    """Start a server with two slots, whose tasks run in the checkout's interpreter.

    Raises:
        StackError: It does not start.
    """
    python = REPOSITORY / ".venv" / "bin" / "python"
    return start(find_java(), folder, spark.home(python), ServerOptions("local[2]", python))


def stop(folder: Path, seconds: float = 10.0) -> bool:
    """End the server of a folder with its Python workers; return whether one ran.

    Args:
        folder: The server's folder.
        seconds: How long it may take to end by itself; 0 kills it.
    """
    return processes.stop("connect", folder / "process.json", seconds)


def _spawn(
    java: Java, folder: Path, spark_home: Path, server: ConnectServer, options: ServerOptions
) -> processes.Started:
    conf = {
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(server.port),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.artifact.isolation.enabled": "true",
        **options.conf,
    }
    program = [
        str(spark_home / "bin" / "spark-submit"),
        *("--class", _CLASS, "--master", options.master, "--name", "mysql-cdc-connect"),
        *(word for name, value in conf.items() for word in ("--conf", f"{name}={value}")),
        *("--driver-java-options", f"{_JVM} {options.jvm} -Djava.io.tmpdir={folder / 'tmp'}".strip()),
        # SparkSubmit needs an application's file; this class is among Spark's own jars.
        "local:/spark-connect",
    ]
    env = _environment(os.environ, java, spark_home, options)
    return processes.spawn(program, folder / "process.json", folder / "log", _CLASS, env)


def _environment(base: Mapping[str, str], java: Java, spark_home: Path, options: ServerOptions) -> dict[str, str]:
    """Return the server's environment, which tasks of a local master inherit."""
    kept = {name: base[name] for name in ("HOME", "LANG", "MYSQL_CDC_SUITE") if name in base}
    local = options.master.startswith("local")
    return {
        **kept,
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(spark_home),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_LAUNCHER_OPTS": _JVM,
        "PYSPARK_PYTHON": str(options.python),
        **({"PYTHONPATH": str(REPOSITORY)} if local else {}),
        **options.env,
    }
