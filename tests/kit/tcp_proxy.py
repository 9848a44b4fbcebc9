"""A TCP proxy that can slow down or go silent without closing anything, as a network does."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PIECE = 4096


class TcpProxy:
    """Forward connections to a server until told otherwise.

    Args:
        host: The server's host.
        port: Its port.

    Attributes:
        connections: Connections accepted so far.
        cuts_left: Connections that are to be broken yet (``cut_after``).
        held: Set as soon as a frozen connection held something back that was to be forwarded.
    """

    def __init__(self, host: str, port: int) -> None:
        self._to = host, port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.connections = 0
        self.held = threading.Event()
        self._flows = threading.Event()
        self._flows.set()
        self._older_than: int | None = None
        self._rate: float | None = None
        self._after: int | None = None
        self._cut_after, self.cuts_left = 0, 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def freeze(self, *, only_open: bool = False) -> None:
        """Stop forwarding in both directions; every connection stays open.

        Args:
            only_open: Forward connections that are opened from now on.
        """
        self._older_than = self.connections if only_open else None
        self._flows.clear()

    def freeze_after(self, count: int) -> None:
        """Go silent as soon as a connection has received this many bytes from the server."""
        self._after = count

    def thaw(self) -> None:
        """Forward what was held back, and everything after it."""
        self._after = None
        self._flows.set()

    def cut_after(self, count: int, times: int) -> None:
        """Break the next connections that receive this many bytes from the server, as often as is said."""
        self._cut_after, self.cuts_left = count, times

    def throttle(self, bytes_a_second: float | None) -> None:
        """Limit what comes from the server, on each connection."""
        self._rate = bytes_a_second

    def close(self) -> None:
        """End everything."""
        self._flows.set()
        for sock in [self._server, *self._open]:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
                far = socket.create_connection(self._to)
            except OSError:
                return
            number, self.connections = self.connections, self.connections + 1
            self._open += [near, far]
            for source, target, slow in ((near, far, False), (far, near, True)):
                threading.Thread(target=self._pump, args=(number, source, target, slow), daemon=True).start()

    def _hold(self, number: int) -> None:
        """Wait while a connection is frozen."""
        if not self._flows.is_set() and (self._older_than is None or number < self._older_than):
            self.held.set()
            self._flows.wait()

    def _pump(self, number: int, source: socket.socket, target: socket.socket, slow: bool) -> None:
        count = 0
        with suppress(OSError):
            while True:
                rate = self._rate if slow else None
                data = source.recv(PIECE if rate else 1 << 16)
                if not data:
                    break
                if rate:
                    time.sleep(len(data) / rate)
                count += len(data)
                if slow and self._after is not None and count >= self._after:
                    self.freeze()
                if slow and self.cuts_left and count >= self._cut_after:
                    self.cuts_left -= 1
                    break
                self._hold(number)
                target.sendall(data)
        self._hold(number)  # the end of a connection is not told either
        for sock in (source, target):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


@contextmanager
def tcp_proxy(host: str, port: int) -> Iterator[TcpProxy]:
    """Yield a proxy before a server; it ends with the block."""
    proxy = TcpProxy(host, port)
    try:
        yield proxy
    finally:
        proxy.close()
