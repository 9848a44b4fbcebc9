"""Bytes that are not what a server writes: whatever reading them raises becomes one named error with its place."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.errors import BinlogCorruptError

# What malformed bytes raise where they are sliced, unpacked, decoded or looked up.
MALFORMED_ERRORS = (ValueError, LookupError, TypeError, ArithmeticError, RecursionError, struct.error)
CORRUPT_REMEDY = "check the file with mysqlbinlog --verify-binlog-checksum; if it is sound, report the event"

P = ParamSpec("P")
R = TypeVar("R")


def event_parser(what: str) -> Callable[[Callable[Concatenate[Event, P], R]], Callable[Concatenate[Event, P], R]]:
    """Return a decorator for a parser of events: what malformed bytes raise in it becomes ``BinlogCorruptError``.

    Args:
        what: What is read, as in "a GTID event".
    """

    def decorate(parse: Callable[Concatenate[Event, P], R]) -> Callable[Concatenate[Event, P], R]:
        @wraps(parse)
        def wrapper(event: Event, /, *args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return parse(event, *args, **kwargs)
            except MALFORMED_ERRORS as error:
                raise unreadable_event(what, event, error) from error

        return wrapper

    return decorate


def unreadable_event(what: str, event: Event, error: Exception) -> BinlogCorruptError:
    """Return the error for an event that cannot be read.

    Args:
        what: What was read, as in "a GTID event".
        event: The event.
        error: What reading it raised.
    """
    return BinlogCorruptError(f"{what} cannot be read", where=event.where(), why=str(error), remedy=CORRUPT_REMEDY)
