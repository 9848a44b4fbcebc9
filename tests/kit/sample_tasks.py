"""Tasks that tests run at a Spark Connect server, whose Python workers import this file."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import StateError

BLOCK = b"x" * 65_536


def echo(index: int, arguments: Mapping[str, Any]) -> tuple[int, Any, int]:
    """Return the index, what the task was called with, and the worker's process id."""
    return index, arguments["value"], os.getpid()


def wait_for_file(index: int, arguments: Mapping[str, Any]) -> int:
    """Return the index once a file exists."""
    while not os.path.exists(arguments["file"]):
        time.sleep(0.05)
    return index


def hold(index: int, arguments: Mapping[str, Any]) -> int:
    """Create a file, and return the index once it is gone."""
    with open(arguments["file"], "w"):
        pass
    while os.path.exists(arguments["file"]):
        time.sleep(0.05)
    return index


def fail(index: int, arguments: Mapping[str, Any]) -> int:
    """End with a named error whose text is long."""
    raise StateError("a task of a test fails", why="é" * arguments["length"], retriable=True)


def fail_late(index: int, arguments: Mapping[str, Any]) -> int:
    """End after some seconds with an error that has no name, and a variable with the reverse of a text."""
    reverse = arguments["text"][::-1]
    time.sleep(arguments["seconds"])
    raise ValueError(f"a mistake in a task, {len(reverse)}")


def blocks(index: int, arguments: Mapping[str, Any]) -> Iterator[tuple[int, bytes]]:
    """Yield blocks for the buckets 0, 2, 4 ...: ``count`` for each, which begin with task and bucket."""
    for number in range(arguments["count"]):
        for bucket in range(0, arguments["buckets"], 2):
            yield bucket, bytes([index, bucket, number % 256]) + BLOCK


def count_blocks(found: Iterable[bytes]) -> tuple[int, set[int], int, int]:
    """Return the blocks of a bucket: their number, tasks and buckets, and the memory it took, in MB."""
    import resource

    count, tasks, buckets = 0, set(), set()
    for block in found:
        count += 1
        tasks.add(block[0])
        buckets.add(block[1])
    return count, tasks, len(buckets), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
