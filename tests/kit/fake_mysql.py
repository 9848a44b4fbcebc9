"""A server on loopback that speaks the beginning of MySQL's protocol, as well or as badly as a test wants."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

# Capability flags. Source: MySQL manual, "Capabilities Flags".
LONG_PASSWORD, PROTOCOL_41, SSL, SECURE_CONNECTION, PLUGIN_AUTH = 1, 1 << 9, 1 << 11, 1 << 15, 1 << 19
PLAIN = LONG_PASSWORD | PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH
OK = b"\x00\x00\x00\x02\x00\x00\x00"


def packet(payload: bytes, sequence: int) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes([sequence & 0xFF]) + payload


def greeting(
    *, capabilities: int = PLAIN, plugin: bytes = b"mysql_native_password", version: bytes = b"9.9.9"
) -> bytes:
    """Return the payload of a HandshakeV10 packet."""
    salt = b"0123456789abcdefghij"
    return b"".join(
        (
            b"\x0a" + version + b"\0",
            struct.pack("<I", 7) + salt[:8] + b"\0",
            struct.pack("<H", capabilities & 0xFFFF) + b"\xff" + struct.pack("<HH", 2, capabilities >> 16),
            bytes([len(salt) + 1]) + bytes(10) + salt[8:] + b"\0",
            plugin + b"\0",
        )
    )


def error(code: int, text: bytes) -> bytes:
    return b"\xff" + struct.pack("<H", code) + b"#HY000" + text


def switch(plugin: bytes, data: bytes = b"0123456789abcdefghij\0") -> bytes:
    return b"\xfe" + plugin + b"\0" + data


@dataclass
class Client:
    """Hold the server's side of one connection.

    Args:
        sock: Its socket.
        received: All bytes that the client has sent.
        sequence: Number of the next packet.
    """

    sock: socket.socket
    received: bytearray = field(default_factory=bytearray)
    sequence: int = 0

    def send(self, payload: bytes) -> None:
        self.sock.sendall(packet(payload, self.sequence))

    def receive(self) -> bytes:
        """Return the payload of the client's next packet; empty when it has gone."""
        head = self._exactly(4)
        self.sequence = head[3] + 1 if len(head) == 4 else 0
        return self._exactly(int.from_bytes(head[:3], "little")) if len(head) == 4 else b""

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count and (piece := self.sock.recv(count - len(data))):
            data += piece
            self.received += piece
        return data


@contextmanager
def serving(talk: Callable[[Client], None]) -> Iterator[tuple[int, Client]]:
    """Accept connections one after the other; yield the port, and the client whose bytes are collected."""
    listener = socket.create_server(("127.0.0.1", 0))
    client = Client(listener)
    done = threading.Event()

    def run() -> None:
        while not done.is_set():
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with sock:
                sock.settimeout(10)
                client.sock, client.sequence = sock, 0
                try:
                    talk(client)
                    sock.shutdown(socket.SHUT_WR)
                    while piece := sock.recv(4096):
                        client.received += piece
                except OSError:
                    continue

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1], client
    finally:
        done.set()
        # A blocked accept() returns when the socket is shut down, not when it is closed.
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def answering(*payloads: bytes, first: bytes | None = None) -> Callable[[Client], None]:
    """Return a conversation: a greeting, then one answer to each packet of the client.

    Args:
        payloads: The answers.
        first: The greeting's payload.
    """

    def talk(client: Client) -> None:
        client.send(greeting() if first is None else first)
        for payload in payloads:
            client.receive()
            client.send(payload)

    return talk
