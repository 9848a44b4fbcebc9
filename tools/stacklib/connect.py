"""Kafka Connect in a process of its own, with a connector that is not part of this project.

Debezium's JDBC sink reads our events in the tests; its MySQL connector is compared with us (``benchlib``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from stacklib import maven, processes
from stacklib.errors import StackError
from stacklib.java import Java
from stacklib.locks import build_once
from stacklib.settings import KAFKA_VERSION, cache_dir

# One release for the connector and its Debezium modules; not every repository has all of them of a later one.
DEBEZIUM_VERSION = "3.5.0.Final"
DRIVER_VERSION = "9.4.0"
_COORDINATES = (
    ("io.debezium", "debezium-connector-jdbc", DEBEZIUM_VERSION),
    ("org.apache.kafka", "connect-runtime", KAFKA_VERSION),
    ("com.mysql", "mysql-connector-j", DRIVER_VERSION),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)
_JVM = ("-Xmx320m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Duser.timezone=UTC")
_LOGGING = ("-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS")
# What Connect logs when a task or a connector has failed for good.
_TASK_FAILED = ("Task threw an uncaught and unrecoverable exception", "Stopping after connector error")


def archives(java: Java) -> Path:
    """Return the folder with the connector's and Connect's archives, fetching them once."""
    return build_once(
        cache_dir() / f"debezium-jdbc-{DEBEZIUM_VERSION}-connect-{KAFKA_VERSION}",
        lambda folder: maven.fetch(_COORDINATES, folder, java, "connect"),
        "connect",
        f"Debezium's JDBC sink {DEBEZIUM_VERSION}",
    )


class Connect:
    """Run one connector in a standalone Connect process; use it as a context manager, which ends the process.

    Args:
        folder: an empty folder of its own for properties (mode 0600), log and process record.
        worker: properties of the worker.
        connector: properties of the connector.
        archives: folder of the archives; None for those of the JDBC sink.
        jvm: options of the JVM.
    """

    def __init__(
        self,
        java: Java,
        folder: Path,
        worker: Mapping[str, str],
        connector: Mapping[str, str],
        *,
        archives: Path | None = None,
        jvm: Sequence[str] = _JVM,
    ) -> None:
        self.log = folder / "connect.log"
        self._record = folder / "process.json"
        self._java = java
        self._archives, self._jvm = archives, tuple(jvm)
        self._files = (folder / "worker.properties", folder / "connector.properties")
        for path, settings in zip(self._files, (worker, connector), strict=True):
            processes.write_private(path, "".join(f"{name}={value}\n" for name, value in settings.items()))

    def __enter__(self) -> Connect:
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        files = [str(path) for path in self._files]
        found = self._archives or archives(self._java)
        # Libraries that it unpacks stay when it is killed.
        unpacked = self._record.with_name("tmp")
        unpacked.mkdir(exist_ok=True)
        jvm = (*self._jvm, f"-Djava.io.tmpdir={unpacked}")
        command = [self._java.program, *jvm, *_LOGGING, "-cp", f"{found}/*", main, *files]
        self._started = processes.spawn(command, self._record, self.log, files[0])
        return self

    def __exit__(self, *_: object) -> None:
        processes.stop("connect", self._record, seconds=0)
        self._started.process.wait(10)

    @property
    def pid(self) -> int:
        """Return the id of the process."""
        return self._started.process.pid

    @property
    def ended(self) -> bool:
        """Return whether the process has ended."""
        return self._started.process.poll() is not None

    def ask_to_end(self) -> None:
        """End the process normally: it sends its buffered records and stores its offset."""
        self._started.process.terminate()

    def wait(self, ready: Callable[[], bool], what: str, seconds: float) -> None:
        """Wait until something has become true.

        Raises:
            StackError: Connect ended, its task gave up, or the time is over; the end of its log is in the detail.
        """
        limit = time.monotonic() + seconds
        while not ready():
            why = self.trouble()
            if why is None and time.monotonic() > limit:
                why = f"not within {seconds:.0f} s"
            if why is not None:
                detail = processes.tail(self.log, lines=60)
                raise StackError(f"waiting for {what}", why, f"see {self.log}; its last lines:", detail)
            time.sleep(0.2)

    def trouble(self) -> str | None:
        """Return why nothing more will come, or None while something may."""
        code = self._started.process.poll()
        if code is not None:
            return f"Connect ended with code {code}"
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return next((f"Connect says: {sign}" for sign in _TASK_FAILED if sign in text), None)
