"""Admin clients that a process shares between callers with the same settings.

A client costs three threads and two connections, each with a handshake if TLS or SASL is used; a drain of one row
created twenty-two of them (measured), one after the other and with the same settings.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

CLIENT_LIFETIME_S = 60.0
"""Seconds after which a client is replaced, so that its metadata (leaders, addresses) does not get older."""


class _Client(Protocol):
    @property
    def has_failed(self) -> bool: ...

    def poll(self, timeout: float) -> Any: ...


C = TypeVar("C", bound=_Client)


@dataclass(frozen=True, slots=True)
class _Entry(Generic[C]):
    client: C
    expires_at: float


@dataclass(slots=True)
class ClientPool(Generic[C]):
    """Share one client between all callers with the same settings; it must be safe to use from several threads.

    Args:
        clock: Monotonic time in seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _entries: dict[Hashable, _Entry[C]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, settings: Mapping[str, Any], create: Callable[[], C]) -> C:
        """Return the client for the settings: the shared one, or a new one.

        A client that has reported an error is replaced: it would wait before it reconnects
        (reconnect.backoff.max.ms), and its old error would be reported as the cause of a later one.

        Args:
            settings: The client's settings.
            create: Creates a client.
        """
        key = frozenset(settings.items())
        with self._lock:
            entry, now = self._entries.get(key), self.clock()
            if entry is not None and now < entry.expires_at and _is_healthy(entry.client):
                return entry.client
            # An unused client stops its threads when it is destroyed, which happens after the lock is released.
            expired = [self._entries.pop(k) for k, e in list(self._entries.items()) if now >= e.expires_at]
            client = create()
            self._entries[key] = _Entry(client, now + CLIENT_LIFETIME_S)
        del expired
        return client

    def clear(self) -> None:
        """Drop all clients."""
        with self._lock:
            entries = list(self._entries.values())
            self._entries.clear()
        entries.clear()


def _is_healthy(client: _Client) -> bool:
    # librdkafka reports errors in poll(), which was not called since the last use.
    client.poll(0)
    return not client.has_failed


def clear_at_fork(pool: ClientPool[Any]) -> None:
    """Drop the clients of a pool before this process forks: a child has their memory, but not their threads.

    Args:
        pool: The pool.
    """
    os.register_at_fork(before=pool.clear)
