"""A TCP proxy that can slow down, break connections, or go silent without closing anything, as a network does.

Lost packets cannot be imitated here: TCP sends them again, and what its users see are pauses (``stall``) and, in
the end, broken connections (``break_some``).
"""

from __future__ import annotations

import queue
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PIECE = 4096
BREAKS_WITHIN = 6_000
"""Bytes from the server within which a connection breaks that is to break; a login has some hundred."""


class TcpProxy:
    """Forward connections to a server until told otherwise.

    Args:
        host: The server's host.
        port: Its port.

    Attributes:
        connections: Connections accepted so far.
        cuts_left: Connections that are to be broken yet (``cut_after``).
        held: Set as soon as a frozen connection held something back that was to be forwarded.
        round_trips: How often a client has sent something behind an answer, on all connections.
        stalls: Pauses made so far (``stall``).
        breaks: Connections broken so far (``break_some``).
    """

    def __init__(self, host: str, port: int) -> None:
        self._to = host, port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.connections = self.round_trips = 0
        self._answered: set[int] = set()
        self.held = threading.Event()
        self._flows = threading.Event()
        self._flows.set()
        self._older_than: int | None = None
        self._rate: float | None = None
        self._after: int | None = None
        self._after_only_this = False
        self._only: int | None = None
        self._cut_after, self.cuts_left = 0, 0
        self._delay_s = 0.0
        self._stalled, self._stall_s, self._broken = 0.0, 0.0, 0.0
        self._random = random.Random(7)
        self.stalls = self.breaks = 0
        self._elsewhere: dict[int, tuple[str, int]] = {}
        self._open: list[socket.socket] = []
        self._turns = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def freeze(self, *, only_open: bool = False) -> None:
        """Stop forwarding in both directions; every connection stays open.

        Args:
            only_open: Forward connections that are opened from now on.
        """
        self._older_than = self.connections if only_open else None
        self._flows.clear()

    def freeze_after(self, count: int, *, only_this: bool = False) -> None:
        """Go silent once, as soon as a connection has received this many bytes from the server.

        Args:
            count: The bytes.
            only_this: Forward what belongs to other connections.
        """
        self._after, self._after_only_this = count, only_this

    def thaw(self) -> None:
        """Forward what was held back, and everything after it."""
        self._after = self._only = None
        self._flows.set()

    def cut_after(self, count: int, times: int) -> None:
        """Break the next connections that receive this many bytes from the server, as often as is said."""
        self._cut_after, self.cuts_left = count, times

    def lead_to(self, host: str, port: int) -> None:
        """Break all connections, and lead to another server from now on."""
        self._to = host, port
        for sock in self._open:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def lead_new_to(self, host: str, port: int) -> None:
        """Lead connections that are opened from now on to another server; the others stay where they are."""
        self._to = host, port

    def lead_one_to(self, host: str, port: int, *, number: int) -> None:
        """Lead one connection to another server, as an address with two servers does.

        Args:
            host: The other server's host.
            port: Its port.
            number: How many connections are accepted before it, from now on.
        """
        self._elsewhere = {self.connections + number: (host, port)}

    def lead_none(self) -> None:
        """Lead no connection elsewhere any more."""
        self._elsewhere = {}

    def led_one(self) -> bool:
        """Return whether the connection of ``lead_one_to`` was made."""
        return not self._elsewhere

    def throttle(self, bytes_a_second: float | None) -> None:
        """Limit what comes from the server, on each connection."""
        self._rate = bytes_a_second

    def delay(self, seconds: float) -> None:
        """Let everything arrive later, in each direction, on connections that are opened from now on."""
        self._delay_s = seconds

    def stall(self, share: float, seconds: float) -> None:
        """Pause a share of all pieces that are forwarded, as TCP does until a lost packet has been sent again."""
        self._stalled, self._stall_s = share, seconds

    def break_some(self, share: float) -> None:
        """End a share of the connections that are opened from now on, somewhere in their first bytes."""
        self._broken = share

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
                far = socket.create_connection(self._elsewhere.pop(self.connections, self._to))
            except OSError:
                return
            number, self.connections = self.connections, self.connections + 1
            self._open += [near, far]
            limit = self._random.randrange(BREAKS_WITHIN) if self._random.random() < self._broken else None
            for source, target, slow in ((near, far, False), (far, near, True)):
                pump = self._delayed if self._delay_s else self._pump
                arguments = (number, source, target, slow, limit if slow else None)
                threading.Thread(target=pump, args=arguments, daemon=True).start()

    def _count_turn(self, number: int, answer: bool) -> None:
        """Count what a client sends behind an answer; a greeting is one."""
        with self._turns:
            if answer:
                self._answered.add(number)
            elif number in self._answered:
                self._answered.discard(number)
                self.round_trips += 1

    def _hold(self, number: int) -> None:
        """Wait while a connection is frozen."""
        if self._only is not None and number != self._only:
            return
        if not self._flows.is_set() and (self._older_than is None or number < self._older_than):
            self.held.set()
            self._flows.wait()

    def _delayed(
        self, number: int, source: socket.socket, target: socket.socket, slow: bool, limit: int | None
    ) -> None:
        """Forward over a socket pair of which everything comes out late."""
        entry, exit_ = socket.socketpair()
        waiting: queue.Queue[tuple[float, bytes]] = queue.Queue()
        delay_s = self._delay_s

        def read() -> None:
            data = b"-"
            with suppress(OSError):
                while data:
                    data = source.recv(1 << 16)
                    waiting.put((time.monotonic() + delay_s, data))
            waiting.put((time.monotonic() + delay_s, b""))

        def write() -> None:
            with suppress(OSError):
                while True:
                    due, data = waiting.get()
                    time.sleep(max(0.0, due - time.monotonic()))
                    if not data:
                        break
                    entry.sendall(data)
            entry.close()

        for part in (read, write):
            threading.Thread(target=part, daemon=True).start()
        self._pump(number, exit_, target, slow, limit)
        exit_.close()
        with suppress(OSError):
            source.shutdown(socket.SHUT_RDWR)

    def _pump(self, number: int, source: socket.socket, target: socket.socket, slow: bool, limit: int | None) -> None:
        count = 0
        with suppress(OSError):
            while True:
                rate = self._rate if slow else None
                data = source.recv(PIECE if rate or self._stalled or limit is not None else 1 << 16)
                if not data:
                    break
                self._count_turn(number, slow)
                if rate:
                    time.sleep(len(data) / rate)
                if self._stalled and self._random.random() < self._stalled:
                    self.stalls += 1
                    time.sleep(self._stall_s)
                count += len(data)
                if slow and self._after is not None and count >= self._after:
                    self._after = None
                    self._only = number if self._after_only_this else None
                    self.freeze()
                if slow and self.cuts_left and count >= self._cut_after:
                    self.cuts_left -= 1
                    break
                if limit is not None and count >= limit:
                    self.breaks += 1
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
