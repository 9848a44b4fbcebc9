"""The Kafka broker of the stack: its archives, its storage, its process (KRaft, broker and controller in one)."""

from __future__ import annotations

import base64
import hashlib
import shutil
import socket
import struct
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from stacklib import commands, maven, processes
from stacklib.errors import say
from stacklib.java import Java
from stacklib.locks import build_once
from stacklib.settings import (
    KAFKA_BROKER,
    KAFKA_COORDINATE,
    KAFKA_DEVELOPMENT,
    KAFKA_JVM,
    KAFKA_VERSION,
    LOG4J_COORDINATE,
    LOOPBACK,
    cache_dir,
)

_START_SECONDS = 120.0
_API_VERSIONS = 18

_LOGGING = """\
rootLogger.level=WARN
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d{ISO8601} %p %m (%c)%n
logger.kafka.name=kafka
logger.kafka.level=INFO
"""


def archives(java: Java) -> Path:
    """Return the folder with Kafka's archives, fetching them once."""
    return build_once(
        cache_dir() / f"kafka-{KAFKA_VERSION}",
        lambda folder: maven.fetch([KAFKA_COORDINATE, LOG4J_COORDINATE], folder, java, "kafka"),
        "kafka",
        f"Kafka {KAFKA_VERSION}",
    )


def properties(folder: Path, port: int, controller_port: int, more: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the broker's properties; ``more`` has those that count more than the usual ones."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(folder / "data"),
        **KAFKA_BROKER,
        **KAFKA_DEVELOPMENT,
        **more,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def answers(port: int, host: str = LOOPBACK) -> bool:
    """Return whether a broker answers an ApiVersions request (version 0) on the port."""
    client = b"stack"
    body = struct.pack(">hhih", _API_VERSIONS, 0, 1, len(client)) + client
    try:
        with socket.create_connection((host, port), timeout=2) as connection:
            connection.settimeout(5)
            connection.sendall(struct.pack(">i", len(body)) + body)
            reply = connection.recv(10)
    except OSError:
        return False
    return len(reply) == 10 and struct.unpack(">iih", reply)[1:] == (1, 0)


def record(folder: Path) -> Path:
    """Return the path of the process record."""
    return folder / "process.json"


def running(folder: Path) -> bool:
    """Return whether the broker started from this folder is alive."""
    return processes.alive(processes.load(record(folder)))


def start(
    java: Java,
    folder: Path,
    port: int,
    controller_port: int,
    more_jvm: Sequence[str] = (),
    more: Mapping[str, str] = MappingProxyType({}),
    cluster_id: str = "",
) -> None:
    """Format the storage when there is none, start the broker and wait until it answers.

    Args:
        java: the Java runtime.
        folder: for everything it writes.
        port: its port.
        controller_port: its controller's port.
        more_jvm: options of its JVM that count more than the usual ones.
        more: properties that do so.
        cluster_id: the id of new storage; empty for one of its own.

    Raises:
        StackError: the broker does not start; the end of its log is in the detail.
    """
    classpath = f"{archives(java)}/*"
    folder.mkdir(parents=True, exist_ok=True)
    config, logging, log = folder / "server.properties", folder / "log4j2.properties", folder / "kafka.log"
    config.write_text(properties(folder, port, controller_port, more), encoding="utf-8")
    logging.write_text(_LOGGING, encoding="utf-8")
    scratch = folder / "tmp"
    shutil.rmtree(scratch, ignore_errors=True)  # libraries that a killed broker unpacked
    scratch.mkdir()
    base = [
        java.program,
        *KAFKA_JVM,
        *more_jvm,
        f"-Djava.io.tmpdir={scratch}",
        f"-Dlog4j2.configurationFile={logging}",
        "-cp",
        classpath,
    ]
    classes = _class_option(java, folder)
    if not (folder / "data" / _META_PROPERTIES).exists():
        # Only a broker has loaded enough to leave its classes.
        identity = {"cluster.id": cluster_id or kafka_uuid(), "directory.id": kafka_uuid()}
        identity |= {name: more[name] for name in ("node.id",) if name in more}
        _format_storage(
            [base[0], *([classes] if classes.startswith(_SHARED_ARCHIVE) else []), *base[1:]], folder, identity
        )
    say("kafka", f"starting {KAFKA_VERSION} on {LOOPBACK}:{port}")
    command = [base[0], classes, *base[1:], "kafka.Kafka", str(config)]
    server = processes.spawn(command, record(folder), log, str(config))
    try:
        processes.wait_ready("kafka", server, lambda: answers(port), _START_SECONDS)
    except BaseException:
        processes.stop("kafka", record(folder))
        raise
    say("kafka", "ready")


def _class_option(java: Java, folder: Path) -> str:
    """Return what lets a broker map its classes from a file, or leave that file for others when it ends by itself.

    It then starts in 1.3 CPU seconds instead of 2.6 (measured). A
    JVM that finds other archives or is another one goes without the file (JEP 350).
    """
    archive = cache_dir() / f"{_CLASSES}{KAFKA_VERSION}-{hashlib.sha256(str(java.home).encode()).hexdigest()[:12]}.jsa"
    if archive.exists():
        return f"{_SHARED_ARCHIVE}{archive}"
    return f"-XX:ArchiveClassesAtExit={folder / archive.name}"


def cache_class_archive(folder: Path) -> None:
    """Move the file of classes that an ended broker has left into the cache."""
    for archive in folder.glob(f"{_CLASSES}*.jsa"):
        partial = cache_dir() / f".{archive.name}.{uuid.uuid4().hex}"
        shutil.move(archive, partial)
        partial.replace(cache_dir() / archive.name)


_CLASSES = "kafka-classes-"
_SHARED_ARCHIVE = "-XX:SharedArchiveFile="


def _format_storage(base: list[str], folder: Path, identity: Mapping[str, str]) -> None:
    """Copy storage that was formatted once: Kafka's tool takes 0.6 to 1.0 CPU seconds for it (measured)."""
    say("kafka", "formatting new storage")
    template = build_once(
        cache_dir() / f"kafka-storage-{KAFKA_VERSION}",
        lambda partial: _make_storage(base, partial),
        "kafka",
        f"empty storage of Kafka {KAFKA_VERSION}",
    )
    shutil.rmtree(folder / "data", ignore_errors=True)
    shutil.copytree(template / "data", folder / "data")
    described = folder / "data" / _META_PROPERTIES
    kept = described.read_text(encoding="utf-8").splitlines()
    lines = (line for line in kept if not line.startswith(tuple(identity)))
    replaced = (f"{name}={value}" for name, value in identity.items())
    described.write_text("\n".join([*lines, *replaced]) + "\n", encoding="utf-8")


def _make_storage(base: list[str], folder: Path) -> None:
    config = folder / "server.properties"
    config.write_text(properties(folder, 1, 2), encoding="utf-8")
    # One word with the option: a cluster id may begin with a dash.
    command = [*base, "kafka.tools.StorageTool", "format", f"--cluster-id={kafka_uuid()}", "--config", str(config)]
    commands.run(command, "formatting Kafka's storage", f"remove {folder} and run it again")


def kafka_uuid() -> str:
    """Return an identifier as Kafka writes them (org.apache.kafka.common.Uuid)."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


_META_PROPERTIES = "meta.properties"
