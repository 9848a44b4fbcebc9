"""Admin clients that a process keeps for whoever asks next.

A client costs three threads, two connections and with TLS or SASL a handshake for each; a drain of one row asked for
twenty-two of them (measured), one after the other and with the same settings.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

CLIENT_LIFETIME_S = 60.0
"""Seconds that a client serves; what it remembers of the cluster (leaders, addresses) gets no older."""


class _Client(Protocol):
    @property
    def last_error(self) -> Any: ...

    def poll(self, timeout: float) -> Any: ...


C = TypeVar("C", bound=_Client)


@dataclass(frozen=True, slots=True)
class _Entry(Generic[C]):
    client: C
    expires_at: float


@dataclass(slots=True)
class ClientPool(Generic[C]):
    """Hand out one client for all who ask with the same settings; it must be safe to use from several threads.

    Args:
        clock: Seconds that never go back.
    """

    clock: Callable[[], float] = time.monotonic
    _entries: dict[Hashable, _Entry[C]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, settings: Mapping[str, Any], create: Callable[[], C]) -> C:
        """Return the client for settings: the one kept, or a new one.

        One that has seen an error is not handed out again: it would wait before it connects anew
        (reconnect.backoff.max.ms), and tell an error of the past beside a later one.

        Args:
            settings: The client's settings.
            create: Makes one.
        """
        key = frozenset(settings.items())
        with self._lock:
            entry, now = self._entries.get(key), self.clock()
            if entry is not None and now < entry.expires_at and _is_healthy(entry.client):
                return entry.client
            # What nobody uses any more ends its threads when it goes; that happens behind the lock.
            expired = [self._entries.pop(k) for k, e in list(self._entries.items()) if now >= e.expires_at]
            client = create()
            self._entries[key] = _Entry(client, now + CLIENT_LIFETIME_S)
        del expired
        return client

    def clear(self) -> None:
        """Let all go."""
        with self._lock:
            entries = list(self._entries.values())
            self._entries.clear()
        entries.clear()


def _is_healthy(client: _Client) -> bool:
    # librdkafka tells of errors when it is polled, which nobody did since the last call.
    client.poll(0)
    return client.last_error is None


def clear_at_fork(pool: ClientPool[Any]) -> None:
    """Let the clients go whenever this process forks: a child has their memory, but not the threads that end them.

    Args:
        pool: The clients.
    """
    os.register_at_fork(before=pool.clear)
