"""Operations that the tasks of a job call on its driver: a name each, and the types of request and reply.

A request is one line of JSON, ``{"op": name, ...members}``, and so is its reply. Each job declares its operations once,
as values (``snapshot_operations``, ``drain_operations``, ``window_operations``; those of all jobs in
``schema_ids``), so that a type checker finds a misspelt operation or member.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

from airflow_provider_mysql_cdc.cdc.errors import DamagedRecordError
from airflow_provider_mysql_cdc.cdc.model.stored_record import Record


class Message(Protocol):
    """A request or reply: a ``Record``, or a value that writes its own JSON."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        ...

    @classmethod
    def from_json(cls, members: Mapping[str, Any], /) -> Self:
        """Read what ``to_json`` wrote; those of a request hold its ``op`` as well.

        Raises:
            DamagedRecordError, KeyError, TypeError, ValueError: A member is missing or of another type.
        """
        ...


@dataclass(frozen=True, slots=True)
class EmptyMessage(Record):
    """A request or reply without members."""


EMPTY = EmptyMessage()
RequestT = TypeVar("RequestT", bound=Message)
ReplyT = TypeVar("ReplyT", bound=Message)


@dataclass(frozen=True, slots=True)
class TaskHandler:
    """Answer one operation on the driver.

    Args:
        operation: Name of the operation.
        reply: Function of (task index, members of the request) that returns the members of the reply.
    """

    operation: str
    reply: Callable[[int, Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class TaskOperation(Generic[RequestT, ReplyT]):
    """Declare an operation.

    Args:
        name: Its name in the request.
        request: Type of the request.
        reply: Type of the reply.
    """

    name: str
    request: type[RequestT]
    reply: type[ReplyT]

    def handled_by(self, function: Callable[[int, RequestT], ReplyT]) -> TaskHandler:
        """Return the driver's handler of the operation.

        Args:
            function: Function of (task index, request) that returns the reply.
        """

        def reply(task: int, members: Mapping[str, Any]) -> dict[str, Any]:
            return function(task, read_message(self.request, members)).to_json()

        return TaskHandler(self.name, reply)


def read_message(kind: type[RequestT], members: Mapping[str, Any]) -> RequestT:
    """Return a request or reply.

    Raises:
        KeyError, TypeError, ValueError: A member is missing or of another type.
    """
    try:
        return kind.from_json(members)
    except DamagedRecordError as error:
        raise ValueError(error.why) from None
