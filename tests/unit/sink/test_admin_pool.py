"""Admin clients are kept for whoever asks next, and no longer than they are good for."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.model.connection import Secret
from airflow_provider_mysql_cdc.cdc.sink import clients
from airflow_provider_mysql_cdc.cdc.sink.client_pool import CLIENT_LIFETIME_S, ClientPool, clear_at_fork

HERE = {"bootstrap.servers": "127.0.0.1:1", "sasl.password": Secret("one")}


@dataclass
class Client:
    has_failed: bool = False
    untold: Any = None

    def poll(self, timeout: float) -> None:
        self.has_failed = self.has_failed or self.untold is not None


@dataclass
class Rig:
    now: float = 0.0
    kept: ClientPool[Client] = field(init=False)

    def __post_init__(self) -> None:
        self.kept = ClientPool(clock=lambda: self.now)

    def get(self, settings: dict[str, Any] = HERE) -> Client:
        return self.kept.get(settings, Client)


def test_one_client_serves_all_who_ask_with_the_same_settings() -> None:
    rig = Rig()
    assert rig.get() is rig.get(dict(HERE))


def test_another_password_or_address_makes_another_client() -> None:
    rig = Rig()
    others = [{**HERE, "sasl.password": Secret("two")}, {**HERE, "bootstrap.servers": "127.0.0.1:2"}]
    assert len({id(client) for client in (rig.get(), *map(rig.get, others))}) == 3


def test_a_client_that_has_seen_an_error_is_not_handed_out_again() -> None:
    rig = Rig()
    first = rig.get()
    first.untold = "all brokers are down"
    second = rig.get()
    assert second is not first
    assert rig.get() is second


def test_a_client_serves_for_a_minute_at_most() -> None:
    rig = Rig()
    first = rig.get()
    rig.now = CLIENT_LIFETIME_S - 1
    assert rig.get() is first
    rig.now = CLIENT_LIFETIME_S
    assert rig.get() is not first


def test_clients_that_nobody_asks_for_are_let_go() -> None:
    rig = Rig()
    gone: list[str] = []

    class Ending(Client):
        def __del__(self) -> None:
            gone.append("ended")

    rig.kept.get({"bootstrap.servers": "old"}, Ending)
    rig.now = CLIENT_LIFETIME_S
    rig.get()
    assert gone == ["ended"]


def test_a_fork_finds_none() -> None:
    rig = Rig()
    clear_at_fork(rig.kept)
    first = rig.get()
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert rig.get() is not first


def test_the_package_keeps_its_admin_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_create", lambda *_: Client())
    monkeypatch.setattr(clients, "_ADMIN_POOL", ClientPool())
    assert clients.make_admin(HERE) is clients.make_admin(dict(HERE))
