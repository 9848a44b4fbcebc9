"""Connections to the driver that have not sent its token yet: a new one displaces one that waits too long."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

MAX_UNAUTHENTICATED = 64
"""Connections at the same time that have not sent the token yet."""
PATIENCE_S = 1.0
"""Seconds a connection keeps its place for certain; a task sends the token as soon as it is connected."""


class UnauthenticatedConnections:
    """Limit how many connections wait for their token, without letting silent ones keep a task out."""

    def __init__(self) -> None:
        self._cond = threading.Condition()
        self._since: dict[socket.socket, float] = {}

    def add(self, conn: socket.socket) -> None:
        """Wait for a place and take it; the connection that has waited longest loses its own after ``PATIENCE_S``.

        Args:
            conn: The new connection.
        """
        with self._cond:
            while len(self._since) >= MAX_UNAUTHENTICATED:
                oldest, since = next(iter(self._since.items()))
                left_s = since + PATIENCE_S - time.monotonic()
                if left_s > 0:
                    self._cond.wait(left_s)
                    continue
                del self._since[oldest]
                # Wakes the thread that reads from it, which closes it.
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            self._since[conn] = time.monotonic()

    def remove(self, conn: socket.socket) -> None:
        """Give up a connection's place: it has sent its token, or is closed.

        Args:
            conn: The connection.
        """
        with self._cond:
            self._since.pop(conn, None)
            self._cond.notify()
