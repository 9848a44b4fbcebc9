"""The command line of the local stack."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from stacklib import kafka, mysql, registry, spark, spark_connect, stack
from stacklib.errors import StackError
from stacklib.java import find_java
from stacklib.settings import (
    KAFKA_VERSION,
    MYSQL_VERSIONS,
    REGISTRY_VERSION,
    REPOSITORY,
    SPARK_VERSION,
    default_run_dir,
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/stack", description="MySQL and Kafka on loopback ports.")
    parser.add_argument("command", choices=sorted(_COMMANDS), help="up and down are safe to repeat")
    parser.add_argument("--mysql", choices=MYSQL_VERSIONS, help="server version (default: the folder's, else 9.7)")
    parser.add_argument("--dir", type=Path, help="folder of data, logs and stack.json (default: .stack)")
    parser.add_argument("--mysql-port", type=int, help="port MySQL must have (default: a free one)")
    parser.add_argument("--kafka-port", type=int, help="port Kafka must have (default: a free one)")
    parser.add_argument("--spark", action="store_true", help="with up: also a Spark standalone cluster")
    parser.add_argument("--connect", action="store_true", help="with up: also a Spark Connect server")
    parser.add_argument("--registry", action="store_true", help="with up: also a schema registry")
    parser.add_argument("--wipe", action="store_true", help="with down: remove the data too")
    return parser


def _folder(arguments: argparse.Namespace) -> Path:
    configured: Path | None = arguments.dir
    return configured.expanduser().resolve() if configured else default_run_dir()


def _up(arguments: argparse.Namespace) -> int:
    stack.ensure_stack(
        _folder(arguments), arguments.mysql, mysql_port=arguments.mysql_port, kafka_port=arguments.kafka_port
    )
    if arguments.spark:
        folder, python = _folder(arguments) / "spark", REPOSITORY / ".venv" / "bin" / "python"
        spark.environment(folder, python)
        spark.start(find_java(), folder, spark.home(python))
    if arguments.connect:
        spark_connect.start_in_checkout(_folder(arguments) / "connect")
    if arguments.registry:
        registry.start(_folder(arguments) / "registry")
    # A server that an earlier start was asked for, and this one was not, may be down.
    _status(arguments)
    return 0


def _down(arguments: argparse.Namespace) -> int:
    stack.stop_stack(_folder(arguments), wipe=arguments.wipe)
    return 0


def _status(arguments: argparse.Namespace) -> int:
    folder = _folder(arguments)
    info = stack.load(folder)
    if info is None:
        print(f"no stack in {folder}; start one with scripts/stack up")
        return 1
    kafka_host, _, kafka_port = info.kafka.split(",")[0].rpartition(":")
    rows = [
        (
            "mysql",
            mysql.data_version(folder / "mysql") if info.mysql_origin == "stack" else info.mysql_version,
            f"{info.mysql_host}:{info.mysql_port}",
            info.mysql_origin,
            mysql.handshake_version(info.mysql_port, info.mysql_host) is not None
            and (info.mysql_origin != "stack" or mysql.running(folder / "mysql")),
        ),
        (
            "kafka",
            KAFKA_VERSION if info.kafka_origin == "stack" else "",
            info.kafka,
            info.kafka_origin,
            kafka.answers(int(kafka_port), kafka_host)
            and (info.kafka_origin != "stack" or kafka.running(folder / "kafka")),
        ),
    ]
    if (cluster := spark.load(folder / "spark")) is not None:
        address = cluster.master.removeprefix("spark://")
        rows.append(("spark", SPARK_VERSION, address, "stack", spark.running(folder / "spark")))
    if (schemas := registry.load(folder / "registry")) is not None:
        up = registry.running(folder / "registry") and registry.answers(schemas)
        rows.append(("registry", REGISTRY_VERSION, schemas.url, "stack", up))
    if (connect := spark_connect.load(folder / "connect")) is not None:
        up = spark_connect.running(folder / "connect") and spark_connect.answers(connect)
        rows.append(("connect", SPARK_VERSION, connect.address, "stack", up))
    for name, version, address, origin, up in rows:
        print(f"{name:<8} {'up' if up else 'down':<5} {version or '':<8} {address:<24} ({origin})")
    if cluster is not None:
        print(f"spark's tasks: archives='{folder}/spark/environment.tar.gz#environment'; web page {cluster.web}")
    print(f"folder {folder}")
    return 0 if all(row[4] for row in rows) else 1


def _env(arguments: argparse.Namespace) -> int:
    folder = _folder(arguments)
    info = stack.load(folder)
    if info is None:
        raise StackError("printing the environment", f"no stack in {folder}", "start one with scripts/stack up")
    for name, value in info.exports().items():
        print(f"export {name}={shlex.quote(value)}")
    if (schemas := registry.load(folder / "registry")) is not None:
        print(f"export MYSQL_CDC_SCHEMA_REGISTRY={shlex.quote(schemas.url)}")
    if (connect := spark_connect.load(folder / "connect")) is not None:
        print(f"export MYSQL_CDC_SPARK_CONNECT={shlex.quote(connect.address)}")
    return 0


_COMMANDS = {"up": _up, "down": _down, "status": _status, "env": _env}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code (0 good, 1 not running or failed, 130 interrupted)."""
    arguments = _parser().parse_args(argv)
    try:
        return _COMMANDS[arguments.command](arguments)
    except StackError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
