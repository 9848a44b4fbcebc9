"""Ports of the local stack, and what its command line answers."""

from __future__ import annotations

import socket

import pytest
from stacklib import ports

pytestmark = pytest.mark.quick


def test_a_free_port_is_none_that_outgoing_connections_get() -> None:
    found = {ports.any_free() for _ in range(50)}
    assert not found.intersection(ports.outgoing())
    assert min(found) >= 10240 and max(found) <= 65535 and len(found) > 40


def test_a_port_that_is_taken_or_to_be_avoided_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert not ports.is_free(server.getsockname()[1])
    monkeypatch.setattr(ports, "_FIRST", 20000)
    monkeypatch.setattr(ports, "_LAST", 20002)
    monkeypatch.setattr(ports, "is_free", lambda port: port != 20000)
    assert {ports.any_free(frozenset({20001})) for _ in range(5)} == {20002}
