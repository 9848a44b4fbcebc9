"""A TCP proxy on loopback whose connections can be cut, or left open without a byte passing."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

from stacklib.settings import LOOPBACK

_RESET = struct.pack("ii", 1, 0)
_BLOCK = 64 * 1024


class Proxy:
    """Pass connections on to one server.

    Args:
        port: The server's loopback port.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._pairs: set[_Pair] = set()
        self._lock = threading.Lock()
        self._server = socket.create_server((LOOPBACK, 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, name="soak-proxy", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            try:
                server = socket.create_connection((LOOPBACK, self._target), timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            pair = _Pair(client, server, self._forget)
            with self._lock:
                self._pairs.add(pair)
            pair.start()

    def _forget(self, pair: _Pair) -> None:
        with self._lock:
            self._pairs.discard(pair)

    def redirect(self, port: int, *, cut: bool) -> None:
        """Lead new connections to another server.

        Args:
            port: The server's loopback port.
            cut: Whether the connections there are end at once; otherwise they stay with their server.
        """
        self._target = port
        if cut:
            self.cut()

    def cut(self) -> int:
        """Reset all connections at once; return how many there were."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            pair.reset()
        return len(pairs)

    def freeze(self) -> int:
        """Let no byte pass on the connections there are, and leave them open; return how many there were."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            pair.frozen.set()
        return len(pairs)

    def close(self) -> None:
        """End the proxy and its connections."""
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()


class _Pair:
    """One connection: a socket to each side and a thread for each direction."""

    def __init__(self, client: socket.socket, server: socket.socket, ended: Callable[[_Pair], None]) -> None:
        self._sides = (client, server)
        self._ended = ended
        self._left = 2
        self.frozen = threading.Event()
        for side in self._sides:
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self) -> None:
        client, server = self._sides
        for source, sink in ((client, server), (server, client)):
            threading.Thread(target=self._pump, args=(source, sink), name="soak-proxy-pump", daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_BLOCK):
                if not self.frozen.is_set():
                    sink.sendall(data)
        if self.frozen.is_set():
            return
        # The other direction may still have something to say.
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
        self._left -= 1
        if not self._left:
            self._close()

    def _close(self) -> None:
        for side in self._sides:
            side.close()
        self._ended(self)

    def reset(self) -> None:
        for side in self._sides:
            with suppress(OSError):
                # Closing with a linger time of zero sends RST (socket(7)); shutdown wakes the other thread.
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                side.shutdown(socket.SHUT_RDWR)
        self._close()
