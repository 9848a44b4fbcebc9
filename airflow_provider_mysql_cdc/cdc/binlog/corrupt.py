"""Bytes that are not what a server writes: whatever reading them raises becomes one named error with its place."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.errors import BinlogCorruptError

# What malformed bytes raise where they are sliced, unpacked, decoded or looked up.
READ_ERRORS = (ValueError, LookupError, TypeError, ArithmeticError, RecursionError, struct.error)
CHECK = "check the file with mysqlbinlog --verify-binlog-checksum; if it is sound, report the event"

P = ParamSpec("P")
R = TypeVar("R")


def reading(what: str) -> Callable[[Callable[Concatenate[Event, P], R]], Callable[Concatenate[Event, P], R]]:
    """Return a decorator for a parser of events: what malformed bytes raise in it becomes ``BinlogCorruptError``.

    Args:
        what: What is read, as in "a GTID event".
    """

    def decorate(parse: Callable[Concatenate[Event, P], R]) -> Callable[Concatenate[Event, P], R]:
        @wraps(parse)
        def run(event: Event, /, *args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return parse(event, *args, **kwargs)
            except READ_ERRORS as error:
                raise unreadable(what, event, error) from error

        return run

    return decorate


def unreadable(what: str, event: Event, error: Exception) -> BinlogCorruptError:
    """Return the error for an event that cannot be read.

    Args:
        what: What was read, as in "a GTID event".
        event: The event.
        error: What reading it raised.
    """
    return BinlogCorruptError(f"{what} cannot be read", where=event.where(), why=str(error), remedy=CHECK)
