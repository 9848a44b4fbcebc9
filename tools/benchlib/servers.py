"""Servers of a bench: their settings, and topics that go before the next run."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from pipelinelib.topics import delete_topics
from stacklib import mysql, ports, processes
from stacklib.settings import LOOPBACK, MYSQL_ROOT_USER

from benchlib.ground import BenchEnvironment
from benchlib.source import MySqlSource

_DELETE_BATCH = 500
_DELETE_TIMEOUT_S = 900.0


def delete_topics_and_wait(kafka: str, names: Sequence[str]) -> None:
    """Delete topics, so that the disk holds the rows of one run at a time, and wait until the broker is done with it.

    A broker takes changes of topics one after the other: thousands that are being removed would hold up those that the
    next run makes. A topic that is created after them appears when they are deleted.

    Raises:
        RuntimeError: The broker is not done in a quarter of an hour.
    """
    if names:
        delete_topics({"bootstrap.servers": kafka}, *names)
    if len(names) > _DELETE_BATCH:
        _wait_for_broker(kafka, f"bench-behind-{secrets.token_hex(4)}")


def _wait_for_broker(kafka: str, name: str) -> None:
    admin, end = AdminClient({"bootstrap.servers": kafka}), time.monotonic() + _DELETE_TIMEOUT_S
    for made in admin.create_topics([NewTopic(name, 1, 1)], operation_timeout=_DELETE_TIMEOUT_S).values():
        made.result()
    while not _has_leader(admin, name):
        if time.monotonic() > end:
            raise RuntimeError(f"the broker has not removed deleted topics within {_DELETE_TIMEOUT_S:.0f} s")
        time.sleep(1)
    delete_topics({"bootstrap.servers": kafka}, name)


def _has_leader(admin: AdminClient, name: str) -> bool:
    """Return whether the broker names a topic with a leader."""
    found = admin.list_topics(timeout=60).topics.get(name)
    return found is not None and any(each.leader >= 0 for each in found.partitions.values())


@contextmanager
def on_server(ground: BenchEnvironment, version: str | None, folder: Path) -> Iterator[BenchEnvironment]:
    """Return the same ground with a server of another version, which runs as long as it is entered.

    Args:
        ground: The servers of the bench.
        version: The version; None for the bench's own.
        folder: A folder of its own for the server's data.

    Raises:
        StackError: The version cannot be fetched, or its server does not start.
    """
    if version is None:
        yield ground
        return
    with private_server(folder, version) as source:
        yield replace(ground, source=source)


@contextmanager
def private_server(folder: Path, version: str | None = None) -> Iterator[MySqlSource]:
    """Run one more server as long as it is entered.

    Args:
        folder: A folder of its own for the server's data.
        version: Its version; None for the usual one.

    Raises:
        StackError: The version cannot be fetched, or its server does not start.
    """
    program, port = mysql.find_program(version), ports.any_free()
    try:
        mysql.start(program, folder, port, secrets.token_urlsafe(18))
        source = MySqlSource(LOOPBACK, port, MYSQL_ROOT_USER, "")
        relax_durability(source)
        yield source
    finally:
        # Its data are not kept.
        processes.stop("mysql", mysql.record(folder), seconds=0)


def relax_durability(source: MySqlSource) -> None:
    """Let a server write as one that is not about to lose power."""
    source.run("SET GLOBAL sync_binlog = 0", "SET GLOBAL innodb_flush_log_at_trx_commit = 0")
