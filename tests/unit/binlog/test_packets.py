"""Packets out of a socket: what has arrived comes at once, and what breaks shows behind it."""

from __future__ import annotations

import socket
from typing import Any, cast

import pytest
from kit.binlog_bytes import packets

from airflow_provider_mysql_cdc.cdc.binlog import packets as packets_module
from airflow_provider_mysql_cdc.cdc.binlog.packets import PacketReader
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError


def test_packets_that_have_arrived_are_read_and_a_broken_connection_raises_after_them() -> None:
    near, far = socket.socketpair()
    with near, far:
        reader = PacketReader(near, "source:3306", 5.0)
        sent = b"".join(packets(b"x" * 99) for _ in range(300))
        far.sendall(sent)
        chunk = reader.next_chunk(b"", 0)
        assert chunk == sent
        far.sendall(packets(b"last"))
        far.close()
        assert reader.next_chunk(chunk, len(chunk)) == packets(b"last")
        with pytest.raises(SourceConnectionError, match="broke"):
            reader.next_chunk(b"", 0)


def test_what_is_taken_along_is_not_more_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets_module, "GATHER_BYTES", 1000)
    near, far = socket.socketpair()
    with near, far:
        reader = PacketReader(near, "source:3306", 5.0)
        far.sendall(packets(b"x" * 1500) + packets(b"y" * 1500))
        assert reader.next_chunk(b"", 0) == packets(b"x" * 1500) + packets(b"y" * 1500)
        assert near.gettimeout() == 5.0
        # Nothing more is there, and nothing is waited for.
        far.sendall(packets(b"z"))
        assert reader.next_chunk(b"", 0) == packets(b"z")


class Pieces:
    """A connection that gives these pieces one by one, as TLS does, and then what is said."""

    def __init__(self, pieces: list[bytes], then: OSError) -> None:
        self.pieces, self.then = pieces, then
        self.timeouts: list[float] = []

    def settimeout(self, timeout: float) -> None:
        self.timeouts.append(timeout)

    def recv_into(self, view: memoryview) -> int:
        if not self.pieces:
            raise self.then
        piece = self.pieces.pop(0)
        view[: len(piece)] = piece
        return len(piece)


def test_pieces_that_are_there_come_at_once_and_are_waited_for_no_longer() -> None:
    sent = [packets(b"a" * 50), packets(b"b" * 50), packets(b"c" * 50)[:9]]
    sock = Pieces([*sent], BlockingIOError())
    reader = PacketReader(cast(Any, sock), "source:3306", 5.0)
    assert reader.next_chunk(b"", 0) == b"".join(sent)
    assert sock.timeouts == [5.0, 0, 5.0]


def test_a_connection_that_breaks_after_whole_packets_raises_after_them() -> None:
    sock = Pieces([packets(b"a"), packets(b"b")], ConnectionResetError(104, "Connection reset by peer"))
    reader = PacketReader(cast(Any, sock), "source:3306", 5.0)
    chunk = reader.next_chunk(b"", 0)
    assert chunk == packets(b"a") + packets(b"b")
    with pytest.raises(SourceConnectionError, match="broke") as caught:
        reader.next_chunk(chunk, len(chunk))
    assert "reset" in caught.value.why
