"""Which of several servers is asked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SourceAuthError, SourceConnectionError
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings
from airflow_provider_mysql_cdc.cdc.operate import source_server
from airflow_provider_mysql_cdc.cdc.operate.source_server import Answer, choose

SILENT = SourceConnectionError("no answer", where="a:3306", why="refused", retriable=True)


def server(host: str, *, kept: bool = False, lacks: bool = False) -> Answer:
    return Answer(ConnectionSettings(host), f"uuid of {host}", kept, lacks)


@for_each(
    ("asked", "host", "reasons"),
    [
        ([server("a"), server("b", kept=True)], "b", []),
        ([server("a", lacks=True), server("b", kept=True, lacks=True)], "b", []),
        ([server("a", lacks=True), server("b"), server("c")], "b", ["a:3306 lacks transactions of the offset"]),
        ([SILENT, server("b", lacks=True), server("c", lacks=True)], "b", ["a:3306 does not: refused"]),
        ([SILENT, server("b")], "b", ["a:3306 does not: refused"]),
    ],
)
def test_the_former_server_then_one_that_has_all_then_the_first(
    asked: list[Answer | SourceConnectionError], host: str, reasons: list[str]
) -> None:
    chosen, why = choose(asked, any_fits=False)
    assert (chosen.settings.host, why) == (host, reasons)


def test_without_an_offset_the_first_one_is_taken_and_no_other_is_asked() -> None:
    def asked() -> Iterator[Answer | SourceConnectionError]:
        yield SILENT
        yield server("b")
        raise AssertionError("a third one is asked")

    assert choose(asked(), any_fits=True)[0].settings.host == "b"


def test_servers_of_which_none_answers_are_named() -> None:
    other = SourceConnectionError("no answer", where="b:3306", why="unknown host", retriable=False)
    with pytest.raises(SourceConnectionError, match="none of the servers") as caught:
        choose([SILENT, other], any_fits=True)
    assert caught.value.where == "a:3306, b:3306" and caught.value.can_retry
    assert "a:3306: refused; b:3306: unknown host" in caught.value.why


def test_a_server_that_refuses_the_account_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: ConnectionSettings) -> None:
        raise SourceAuthError("MySQL refuses the account", where="a:3306")

    monkeypatch.setattr(source_server, "connect", refuse)
    base = {"topic.prefix": "p", "database.user": "u", "kafka.bootstrap.servers": "k:1"}
    with pytest.raises(SourceAuthError):
        source_server.at_server_of(ConnectorConfig.from_properties({**base, "database.hostname": "a,b"}), None)
