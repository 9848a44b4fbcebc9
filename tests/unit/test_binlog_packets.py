"""Packets out of a socket: what has arrived comes at once, and what breaks shows behind it."""

from __future__ import annotations

import socket

import pytest
from binlog_bytes import packets

from airflow_provider_mysql_cdc.cdc.binlog import packets as packets_module
from airflow_provider_mysql_cdc.cdc.binlog.packets import PacketReader
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError


def test_what_has_arrived_is_taken_along_and_a_broken_connection_shows_behind_it() -> None:
    near, far = socket.socketpair()
    with near, far:
        reader = PacketReader(near, "source:3306", 5.0)
        sent = b"".join(packets(b"x" * 99) for _ in range(300))
        far.sendall(sent)
        chunk = reader.more(b"", 0)
        assert chunk == sent
        far.sendall(packets(b"last"))
        far.close()
        assert reader.more(chunk, len(chunk)) == packets(b"last")
        with pytest.raises(SourceConnectionError, match="broke"):
            reader.more(b"", 0)


def test_what_is_taken_along_is_not_more_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets_module, "GATHER_BYTES", 1000)
    near, far = socket.socketpair()
    with near, far:
        reader = PacketReader(near, "source:3306", 5.0)
        far.sendall(packets(b"x" * 1500) + packets(b"y" * 1500))
        assert reader.more(b"", 0) == packets(b"x" * 1500) + packets(b"y" * 1500)
        assert near.gettimeout() == 5.0
        # Nothing more is there, and nothing is waited for.
        far.sendall(packets(b"z"))
        assert reader.more(b"", 0) == packets(b"z")
