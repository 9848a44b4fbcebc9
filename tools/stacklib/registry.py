"""The schema registry of the stack: Apicurio, through its Confluent-compatible API."""

from __future__ import annotations

import json
import tarfile
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path

from stacklib import maven, ports, processes
from stacklib.errors import say
from stacklib.java import Java, find_java
from stacklib.locks import build_once
from stacklib.settings import (
    LOOPBACK,
    REGISTRY_COORDINATE,
    REGISTRY_JAVA,
    REGISTRY_JVM,
    REGISTRY_VERSION,
    cache_dir,
)
from stacklib.unpack import unpack_tar

_START_SECONDS = 120.0
# The API of Confluent's schema registry, version 7.
_API = "/apis/ccompat/v7"
_PROGRAM = "quarkus-run.jar"


@dataclass(frozen=True, slots=True)
class Registry:
    """Hold where a registry answers."""

    url: str


def load(folder: Path) -> Registry | None:
    """Return the registry of a folder, or None when none was started there."""
    try:
        return Registry(**json.loads((folder / "registry.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def answers(registry: Registry) -> bool:
    """Return whether the registry lists its subjects."""
    try:
        with urllib.request.urlopen(f"{registry.url}/subjects", timeout=5) as reply:
            return isinstance(json.load(reply), list)
    except (OSError, ValueError, urllib.error.URLError):
        return False


def running(folder: Path) -> bool:
    """Return whether the registry started from this folder is alive."""
    return processes.alive(processes.load(folder / "process.json"))


def start(folder: Path, port: int | None = None) -> Registry:
    """Start a registry and wait until it answers; one that runs is returned as it is.

    Schemas and their ids are kept in the folder, so that a registry that comes again knows what it has handed out.

    Args:
        folder: For everything it writes.
        port: The port it must have; None takes that of the last start, else a free one.

    Raises:
        StackError: It cannot be fetched or does not start; the end of its log is in the detail.
    """
    running_registry = load(folder)
    if running_registry is not None and running(folder) and answers(running_registry):
        say("registry", f"already runs on {running_registry.url}")
        return running_registry
    stop(folder)
    java = find_java(REGISTRY_JAVA)
    program = _program()
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    remembered = int(running_registry.url.rpartition(":")[2].partition("/")[0]) if running_registry else None
    free_port = ports.choose("registry", port, remembered, frozenset())
    registry = Registry(f"http://{LOOPBACK}:{free_port}{_API}")
    say("registry", f"starting {REGISTRY_VERSION} on {LOOPBACK}:{free_port}")
    server = processes.spawn(
        _command(java, program, folder, free_port), folder / "process.json", folder / "log", _PROGRAM
    )
    try:
        processes.wait_ready("registry", server, lambda: answers(registry), _START_SECONDS)
    except BaseException:
        stop(folder)
        raise
    processes.write_private(folder / "registry.json", json.dumps(asdict(registry), indent=2) + "\n")
    say("registry", "ready")
    return registry


def stop(folder: Path, seconds: float = 10.0) -> bool:
    """End the registry of a folder; return whether one ran."""
    return processes.stop("registry", folder / "process.json", seconds)


def _program() -> Path:
    """Return the registry's program, fetching it once.

    The Java that the stack finds first fetches it: a wheel's trusts only the authorities that it was built with.
    """

    def unpack(folder: Path) -> None:
        archive = maven.fetch_archive(REGISTRY_COORDINATE, ("all", "tar.gz"), folder, find_java(), "registry")
        with tarfile.open(archive) as tar:
            unpack_tar(tar, folder)
        archive.unlink()

    root = build_once(cache_dir() / f"registry-{REGISTRY_VERSION}", unpack, "registry", f"Apicurio {REGISTRY_VERSION}")
    return root / _PROGRAM


def _command(java: Java, program: Path, folder: Path, port: int) -> list[str]:
    settings = {
        "java.io.tmpdir": str(folder / "tmp"),
        "quarkus.http.host": LOOPBACK,
        "quarkus.http.port": str(port),
        # Its default is port 9000 of every address, so that a second registry would not start.
        "quarkus.management.host": LOOPBACK,
        "quarkus.management.port": "0",
        "quarkus.http.access-log.enabled": "false",
        "apicurio.storage.kind": "sql",
        "apicurio.storage.sql.kind": "h2",
        # H2 writes half a second after a commit by default: a kill would take back ids that were handed out.
        "apicurio.datasource.url": f"jdbc:h2:file:{folder / 'data' / 'registry'};DB_CLOSE_ON_EXIT=FALSE;WRITE_DELAY=0",
    }
    options = [f"-D{name}={value}" for name, value in settings.items()]
    return [java.program, *REGISTRY_JVM, *options, "-jar", str(program)]
