"""Flink CDC in one process: Flink's SQL client with its mini cluster, which ends with a savepoint on request."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

from stacklib import maven, processes
from stacklib.errors import StackError
from stacklib.java import Java
from stacklib.locks import build_once
from stacklib.ports import any_free
from stacklib.settings import LOG4J_COORDINATE, LOOPBACK, cache_dir

VERSION, FLINK_VERSION = "3.5.0", "1.20.3"
NAME = f"Flink CDC {VERSION}"
_FLINK = "org.apache.flink"
# The SQL client does not start without the classes of flink-python's archive, for jobs in any language.
_MODULES = (
    *("clients", "connector-base", "json", "python", "sql-client", "sql-gateway"),
    *("table-api-java-bridge", "table-planner-loader", "table-runtime"),
)
COORDINATES = (
    *((_FLINK, f"flink-{module}", FLINK_VERSION) for module in _MODULES),
    (_FLINK, "flink-sql-connector-mysql-cdc", VERSION),
    (_FLINK, "flink-connector-kafka", "3.4.0-1.20"),
    # Flink CDC leaves MySQL's driver to its user, for the sake of its licence.
    ("com.mysql", "mysql-connector-j", "8.4.0"),
    LOG4J_COORDINATE,
)
# What the configuration that Flink 1.20 comes with opens to it (env.java.opts.all) on Java 17.
_OPENED = (
    *("lang", "lang.reflect", "net", "io", "nio", "text", "time", "util"),
    *("util.concurrent", "util.concurrent.atomic", "util.concurrent.locks"),
)
JVM = ("-Duser.timezone=UTC", *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED))
"""No greatest heap, as in bin/sql-client.sh: Java takes a quarter of the machine's memory for it."""
CHECKPOINT_S = 10
"""Seconds between two checkpoints, as Debezium stores its offset here; Flink's default is to make none."""
_MAIN = "org.apache.flink.table.client.SqlClient"
_FAILED, _DONE = "[ERROR] ", "Complete execution of the SQL update statement"
"""Output of the SQL client for a statement that failed, and for a job that has ended normally."""
_PLAIN = "\033[0m"
"""How it ends what it writes in colours, also into a file."""
_LOGGING = """rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
appender.console.name = console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss,SSS} %-5p %c{1} - %m%n
"""


def archives(java: Java) -> Path:
    """Return the folder with the archives of Flink, Flink CDC and the connector for Kafka, fetching them once."""
    return build_once(
        cache_dir() / f"flink-{FLINK_VERSION}-mysql-cdc-{VERSION}",
        lambda folder: maven.fetch(COORDINATES, folder, java, "flink"),
        "flink",
        f"{NAME} on Flink {FLINK_VERSION}",
    )


def configuration(folder: Path) -> dict[str, str]:
    """Return Flink's settings: one slot, no second try of a job that failed, and files in one folder."""
    return {
        "execution.target": "local",
        "parallelism.default": "1",
        "restart-strategy.type": "none",
        # The client waits for the end of the job.
        "table.dml-sync": "true",
        "execution.checkpointing.interval": f"{CHECKPOINT_S}s",
        "execution.checkpointing.dir": f"file://{folder}/checkpoints",
        "execution.checkpointing.savepoint-dir": f"file://{folder}/savepoints",
        "io.tmp.dirs": f"{folder}/tmp",
        "rest.address": LOOPBACK,
        "rest.bind-address": LOOPBACK,
    }


class Flink:
    """Run a job of Flink SQL in a process of its own; use it as a context manager, which ends the process.

    Args:
        folder: An empty folder of its own for settings and statements (mode 0600), log, state and process record.
    """

    def __init__(self, java: Java, folder: Path, statements: str) -> None:
        self._java, self._folder, self._archives = java, folder, archives(java)
        self.log, self._record, self._sql = folder / "flink.log", folder / "process.json", folder / "job.sql"
        self._port = any_free()
        (folder / "tmp").mkdir()
        settings = "".join(f"{name}: {value}\n" for name, value in configuration(folder).items())
        processes.write_private(folder / "config.yaml", settings)
        processes.write_private(folder / "log4j2.properties", _LOGGING)
        # A setting of the session: the client's own gateway would take the port of the mini cluster otherwise.
        processes.write_private(self._sql, f"SET 'rest.port' = '{self._port}';\n{statements}")

    def __enter__(self) -> Flink:
        folder = self._folder
        files = (f"-Djava.io.tmpdir={folder}/tmp", f"-Dlog4j2.configurationFile={folder}/log4j2.properties")
        arguments = ("embedded", "-hist", f"{folder}/history", "-f", str(self._sql))
        command = [self._java.program, *JVM, *files, "-cp", f"{self._archives}/*", _MAIN, *arguments]
        env = {**os.environ, "FLINK_CONF_DIR": str(folder)}
        self._started = processes.spawn(command, self._record, self.log, str(self._sql), env)
        return self

    def __exit__(self, *_: object) -> None:
        processes.stop("flink", self._record, seconds=0)
        self._started.process.wait(10)

    @property
    def pid(self) -> int:
        """Return the id of the process."""
        return self._started.process.pid

    @property
    def ended(self) -> bool:
        """Return whether the process has ended."""
        return self._started.process.poll() is not None

    @property
    def stopped(self) -> bool:
        """Return whether the job has ended normally; the mini cluster continues after it."""
        return _DONE in self._text()

    def trouble(self) -> str | None:
        """Return why nothing more will come, or None while something may."""
        if self.ended:
            return f"Flink ended with code {self._started.process.returncode}"
        _, sign, why = self._text().partition(_FAILED)
        return " ".join(why.split("\n")[:2]).removesuffix(_PLAIN) if sign else None

    def stop_job(self) -> None:
        """End the job normally: it sends its buffered records and writes a savepoint.

        Raises:
            StackError: The mini cluster does not take it.
        """
        try:
            (job,) = self._ask("/jobs")["jobs"]
            self._ask(f"/jobs/{job['id']}/stop", {"drain": False})
        except (OSError, ValueError, KeyError) as error:
            raise StackError("ending Flink's job", str(error), f"see {self.log}") from error

    def ask_to_end(self) -> None:
        """Let the process end, and with it the mini cluster."""
        self._started.process.terminate()

    def _text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"http://{LOOPBACK}:{self._port}{path}", data, {"Content-Type": "application/json"})
        with build_opener(ProxyHandler({})).open(request, timeout=30) as answer:
            return json.load(answer)
